"""The verdicts of `Permission`: a table of calls, rules of two layers, and the verdict with its cause."""

from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.permission.judgement import DEFAULTS
from greenroom.actors.permission.rules import EFFECTS
from greenroom.actors.tools.definition import EFFECTS as TOOL_EFFECTS

Rule = gr.ext.Rule
ROOT = "/ws"


def judged(call: tuple[Any, ...], rules: Any = (), workspace: Any = (), root: str | None = ROOT) -> gr.ext.Judgement:
    """The judgement about (tool, effect, arguments)."""
    tool, effect, arguments = call
    plugin = gr.ext.Permission(list(rules) or None, workspace_rules=list(workspace) or None, root=root)
    return plugin.explain(gr.CallFacts(call_id="c", tool=tool, arguments=arguments, effect=effect))


def bash(command: Any, **more: Any) -> tuple[str, str, dict[str, Any]]:
    return "Bash", "shell", {"command": command, **more}


def shell(command: Any, **more: Any) -> tuple[str, str, dict[str, Any]]:
    return "shell", "shell", {"command": command, **more}


def codex(command: Any, **more: Any) -> tuple[str, str, dict[str, Any]]:
    return "commandExecution", "shell", {"command": command, **more}


def acp(kind: str, effect: str, **fields: Any) -> tuple[str, str, dict[str, Any]]:
    return kind, effect, {"toolCallId": "x", "kind": kind, **fields}


def read(path: Any) -> tuple[str, str, dict[str, Any]]:
    return "Read", "read", {"file_path": path}


def write(path: Any) -> tuple[str, str, dict[str, Any]]:
    return "Write", "write", {"file_path": path, "content": "x"}


def fetch(url: Any) -> tuple[str, str, dict[str, Any]]:
    return "WebFetch", "network", {"url": url, "prompt": "x"}


def own(effect: str, **arguments: Any) -> tuple[str, str, dict[str, Any]]:
    return "mine", effect, arguments


GIT = Rule("allow", where={"argv": ["git", "status", "*"]})
DOCS = Rule("allow", effect="network", where={"host": {"host": "docs.example"}})
ALL = Rule("allow")
NO_ENV = Rule("deny", where={"path": {"glob": ".env*"}})
NO_PUSH = Rule("deny", where={"argv": ["git", "push", "*"]})
ASK_SRC = Rule("ask", where={"path": {"under": "src"}})

DEFAULT_ROWS = [
    (read("/ws/a.py"), "allow"),
    (read("a.py"), "allow"),
    (read("/ws"), "allow"),
    (read("/ws2/a.py"), "deny"),
    (read("/ws/../ws2/a"), "deny"),
    (read("/ws/a/../b"), "ask"),
    (read("//etc/passwd"), "deny"),
    (read("/etc/passwd"), "deny"),
    (read("~/a"), "ask"),
    (read("a\nb"), "ask"),
    (read("a\0b"), "ask"),
    (read("x" * 5_000), "ask"),
    (read(""), "ask"),
    (read(7), "ask"),
    (read(None), "ask"),
    (read("/ws/.env"), "deny"),
    (read("/ws/.ENV.local"), "deny"),
    (read("/ws/a/b/server.pem"), "deny"),
    (read("/ws/sub/.claude/settings.local.json"), "deny"),
    (read("/ws/.claude/hooks/x.sh"), "deny"),
    (read("/ws/.codex/config.toml"), "deny"),
    (read("/ws/aws_credentials.json"), "deny"),
    (read("/ws/environment.py"), "allow"),
    (read("/ws/.claude/CLAUDE.md"), "allow"),
    (read("/ws/données/é.txt"), "allow"),
    (write("/ws/a.py"), "allow"),
    (write("/ws2/a.py"), "deny"),
    (write("/ws/.claude/settings.json"), "deny"),
    (own("write"), "ask"),
    (own("patch"), "ask"),
    (own("read"), "allow"),
    (own("read", path="/etc/passwd"), "deny"),
    (own("network"), "ask"),
    (own("publish"), "ask"),
    (own("deploy"), "ask"),
    (own("secret"), "deny"),
    (own("external"), "ask"),
    (own("unknown"), "ask"),
    (own("delegate"), "allow"),
    (own("paint_the_fence"), "ask"),
    (("apply_changes", "patch", {"proposal": "p", "summary": "s"}), "ask"),
    (("apply_patch", "patch", {"patch": "*** Begin Patch\n*** Add File: a/b.py\n+x\n*** End Patch\n"}), "allow"),
    (("apply_patch", "patch", {"patch": "--- a/x\n+++ b/../../etc/x\n@@\n"}), "deny"),
    (("apply_patch", "patch", {"patch": "*** Begin Patch\n*** Update File: a\n*** Move to: .env\n"}), "deny"),
    (("apply_patch", "patch", {"patch": "nothing"}), "ask"),
    (("Glob", "read", {"pattern": "**/*.py"}), "allow"),
    (("Glob", "read", {"pattern": "/etc/*"}), "deny"),
    (("Glob", "read", {"pattern": "../**"}), "ask"),
    (("Grep", "read", {"pattern": "x", "path": "/home"}), "deny"),
    (("Task", "delegate", {"prompt": "x"}), "allow"),
    (("WebSearch", "network", {"query": "x"}), "ask"),
    (("mcp__github__create_issue", "external", {"title": "x"}), "ask"),
    (fetch("https://docs.example/x"), "ask"),
    (bash("ls"), "ask"),
    (bash("cat .env", commandActions=[]), "ask"),
    (codex("cat .env", commandActions=[{"type": "read", "command": "cat .env", "path": "/ws/.env"}]), "deny"),
    (codex("cat a", commandActions=[{"type": "read", "command": "cat a", "path": "/ws/a"}]), "ask"),
    (("fileChange", "patch", {"changes": [{"path": "/ws/a", "kind": {"type": "add"}}]}), "allow"),
    (("fileChange", "patch", {"changes": [{"path": "/ws/a", "kind": {"move_path": "/else/a"}}]}), "deny"),
    (("fileChange", "patch", {"changes": []}), "ask"),
    (acp("edit", "write", content=[{"type": "diff", "path": "/ws/a", "newText": "x"}]), "allow"),
    (acp("edit", "write", content=[{"type": "diff", "path": "/b", "newText": "x"}]), "deny"),
    (acp("edit", "write", locations=[{"path": "/ws/a"}, {"path": "/ws/.env"}]), "deny"),
    (acp("read", "read", rawInput={}), "ask"),
    (acp("read", "read", rawInput={"filePath": "/ws/.env"}), "deny"),
    (acp("other", "unknown", title="x"), "ask"),
    (acp("think", "read", title="x"), "allow"),
]
PUBLISHING = [
    *("git push", "git -C x push", "git -c a=b --no-pager push origin main", "/usr/bin/git push", "sudo git push"),
    *("env A=b git push", "A=b B=c git push", "sudo -u bob env -i A=b /usr/bin/git -C x push", "nohup git push &"),
    *("cd x && git push", "make; git push", "true | git push", "(git push)", "{ git push; }", "`git push`"),
    *("echo $(git push)", "sh -c 'git push'", 'bash -lc "git push origin"', '"git" push', "g'i't push", "\\git push"),
    *("git \\\npush", "x=1; if true; then git push; fi", "xargs git push", "! git push", "time git push"),
    *(
        "npm publish",
        "npm --workspace a publish",
        "npx twine upload x",
        "python -m twine upload dist/*",
        "cargo publish",
    ),
    *(
        "docker push a/b",
        "docker --context x image push a",
        "docker buildx build --push .",
        "gh pr create",
        "gem push x",
    ),
    *("yarn npm publish", "uv publish", "make publish", "npm run release"),
]
DEPLOYING = [
    *(
        "kubectl apply -f x",
        "kubectl -n prod apply -f x",
        "sudo kubectl --context a -n b delete pod c",
        "helm upgrade a b",
    ),
    *("terraform -chdir=x apply", "ansible-playbook site.yml", "fly deploy", "vercel --prod", "npm run deploy"),
    *("docker stack deploy x", "gcloud --project p run deploy s", "make deploy", "cd x && pulumi up -y"),
]
QUIET = [
    *("git stash push", "git commit -m push", "git log --oneline", "docker build .", "npm test", "npm run build"),
    *("kubectl get pods", "helm list", "terraform plan", "echo git push-to-deploy", "cat docs/git/push.md"),
]
RULE_ROWS = [
    # (call, rules of the agent, rules of the workspace, verdict)
    (bash("git status"), [GIT], [], "allow"),
    (bash("git status -s --branch"), [GIT], [], "allow"),
    (bash("  git   status  "), [GIT], [], "allow"),
    (bash("git 'status'"), [GIT], [], "allow"),
    (bash("git stat''us"), [GIT], [], "allow"),
    (bash("git statusx"), [GIT], [], "ask"),
    (bash("git -C / status"), [GIT], [], "ask"),
    (bash("A=b git status"), [GIT], [], "ask"),
    (bash("./git status"), [GIT], [], "ask"),
    (bash("/usr/bin/git status"), [GIT], [], "ask"),
    (bash("sudo git status"), [GIT], [], "ask"),
    (bash("git\u00a0status"), [GIT], [], "ask"),
    (bash("gіt status"), [GIT], [], "ask"),  # noqa: RUF001 - a Cyrillic letter
    (bash("bash -c 'git status'"), [GIT], [], "ask"),
    (shell(["git", "status", "; rm -rf /"]), [GIT], [], "allow"),
    (shell(["bash", "-c", "git status; rm x"]), [Rule("allow", where={"argv": ["bash", "*"]})], [], "ask"),
    (shell("git status", folder="/etc"), [GIT], [], "ask"),
    (shell("git status", folder="sub"), [GIT], [], "allow"),
    (codex("/bin/bash -lc 'git status'", cwd="/ws"), [GIT], [], "allow"),
    (codex("/bin/bash -lc 'git status; rm x'"), [GIT], [], "ask"),
    (codex("/bin/bash -lc 'git status';rm"), [GIT], [], "ask"),
    (codex("/ws/bash -lc 'git status'"), [GIT], [], "ask"),
    (codex(["bash", "-lc", "git status"]), [GIT], [], "allow"),
    (acp("execute", "shell", rawInput={"command": "git status"}, title="Status"), [GIT], [], "allow"),
    (acp("execute", "shell", title="git status"), [GIT], [], "allow"),
    (acp("execute", "shell", rawInput={"command": 7}, title="git status"), [GIT], [], "ask"),
    (acp("execute", "shell"), [ALL], [], "ask"),
    (acp("execute", "shell", title="git status ..."), [GIT], [], "ask"),
    (acp("execute", "shell", title="git status…"), [Rule("deny", where={"argv": ["rm", "*"]})], [], "deny"),
    (bash("git push"), [ALL], [], "ask"),
    (bash("git push"), [Rule("allow", effect="shell")], [], "ask"),
    (bash("git push"), [Rule("allow", effect="publish")], [], "allow"),
    (bash("git push"), [Rule("allow", where={"argv": ["git", "push"]})], [], "allow"),
    (bash("git push; kubectl apply"), [Rule("allow", effect="publish", compound=True)], [], "ask"),
    (bash("git push; kubectl apply"), [Rule("deny", effect="deploy")], [], "deny"),
    (bash("git push -f"), [NO_PUSH, Rule("allow", effect="publish")], [], "deny"),
    (bash("git -C x push"), [NO_PUSH], [], "deny"),
    (bash("ls; sudo /usr/bin/git push"), [NO_PUSH], [], "deny"),
    (bash("git commit"), [NO_PUSH], [], "ask"),
    (bash("make test"), [Rule("allow", where={"command": "make test"})], [], "allow"),
    (bash("make test2"), [Rule("allow", where={"command": "make test"})], [], "ask"),
    (bash("make test2"), [Rule("allow", where={"command": {"regex": "make test[0-9]"}})], [], "allow"),
    (bash("make test2 x"), [Rule("allow", where={"command": {"regex": "make test[0-9]"}})], [], "ask"),
    (bash("make a b"), [Rule("allow", where={"command": {"glob": "make *"}})], [], "allow"),
    (bash("make a; b"), [Rule("allow", where={"command": {"glob": "make *"}})], [], "ask"),
    (bash("make a; b"), [Rule("allow", where={"command": {"glob": "make *"}}, compound=True)], [], "allow"),
    (bash("pytest tests/a.py"), [Rule("allow", where={"argv": ["pytest", "tests/*"]})], [], "allow"),
    (bash("pytest tests/a.py -x"), [Rule("allow", where={"argv": ["pytest", "tests/*"]})], [], "ask"),
    (bash("pytest src/a.py"), [Rule("allow", where={"argv": ["pytest", "tests/*"]})], [], "ask"),
    (bash("rm -rf /"), [Rule("deny", tool="Bash", where={"argv": ["rm", "*"]})], [], "deny"),
    (bash("x" * 40_000), [Rule("deny", where={"argv": ["rm", "*"]})], [], "deny"),
    (bash(7), [Rule("deny", where={"argv": ["rm", "*"]}), ALL], [], "deny"),
    (bash(""), [ALL], [], "ask"),
    (bash("ls"), [Rule("deny", tool={"glob": "Ba*"})], [], "deny"),
    (bash("ls"), [Rule("deny", tool={"regex": "bash"})], [], "ask"),
    (("mcp__git__x", "external", {}), [Rule("allow", tool={"glob": "mcp__git__*"})], [], "allow"),
    (read("/ws/src/.env"), [ALL, NO_ENV], [], "deny"),
    (read("/ws/a.py"), [NO_ENV], [], "allow"),
    (read("/ws/src/a.py"), [ASK_SRC], [], "ask"),
    (read("/ws/src"), [ASK_SRC], [], "ask"),
    (read("/ws/src2/a.py"), [ASK_SRC], [], "allow"),
    (read("/ws/src/a.py"), [ASK_SRC, ALL], [], "ask"),
    (read("/ws/src/a.py"), [ASK_SRC, Rule("deny", effect="read")], [], "deny"),
    (read("/etc/hosts"), [ALL], [], "deny"),
    (read("/etc/hosts"), [Rule("allow", effect="read")], [], "deny"),
    (read("/etc/hosts"), [Rule("allow", where={"path": {"under": "/etc"}})], [], "allow"),
    (read("/etc/hosts"), [Rule("allow", where={"path": {"under": "/"}})], [], "allow"),
    (read("/etc/hosts"), [Rule("allow", where={"path": {"glob": "*.md"}})], [], "deny"),
    (read("/etc/a.md"), [Rule("allow", where={"path": {"glob": "*.md"}})], [], "deny"),
    (read("/ws/.env"), [Rule("allow", where={"path": ".env"})], [], "allow"),
    (read("/ws/a/../.env"), [Rule("allow", where={"path": ".env"})], [], "deny"),
    (read("/ws/a/../b"), [ALL], [], "ask"),
    (read("/ws/a/../b"), [Rule("deny", where={"path": "c"})], [], "deny"),
    (read("/ws/a/b/c.py"), [Rule("deny", where={"path": {"glob": "a/*.py"}})], [], "allow"),
    (read("/ws/a/b/c.py"), [Rule("deny", where={"path": {"glob": "a/**/*.py"}})], [], "deny"),
    (read("/ws/a/c.py"), [Rule("deny", where={"path": {"glob": "a/**/*.py"}})], [], "deny"),
    (read("/ws/a/c.py"), [Rule("deny", where={"path": {"glob": "?/c.py"}})], [], "deny"),
    (read("/ws/ü.txt"), [Rule("deny", where={"path": {"glob": "?.txt"}})], [], "deny"),
    (read("/ws/a+b.txt"), [Rule("deny", where={"path": {"glob": "a+b.*"}})], [], "deny"),
    (acp("edit", "write", locations=[{"path": "/ws/a"}, {"path": "/ws/b"}]), [Rule("deny", where={"path": "b"})], [],
     "deny"),
    (acp("edit", "write", locations=[{"path": "/ws/a"}, {"path": "/x"}]), [Rule("allow", where={"path": "a"})], [],
     "deny"),
    (acp("edit", "write", locations=[{"path": "/x"}, {"path": "/y"}]),
     [Rule("allow", where={"path": {"regex": "/[xy]"}})], [], "allow"),
    (fetch("https://docs.example/x"), [DOCS], [], "allow"),
    (fetch("https://a.b.docs.example:8443/x"), [DOCS], [], "allow"),
    (fetch("HTTPS://DOCS.EXAMPLE./x"), [DOCS], [], "allow"),
    (fetch("https://docs.example@evil.example/"), [DOCS], [], "ask"),
    (fetch("https://evil.example\\@docs.example/"), [DOCS], [], "ask"),
    (fetch("https://evil.example#@docs.example/"), [DOCS], [], "ask"),
    (fetch("https://evildocs.example/"), [DOCS], [], "ask"),
    (fetch("https://docs.example.evil.example/"), [DOCS], [], "ask"),
    (fetch("https://docs.example\n.evil.example/"), [DOCS], [], "ask"),
    (fetch("docs.example/x"), [DOCS], [], "ask"),
    (fetch(["https://docs.example"]), [DOCS], [], "ask"),
    (fetch("https://docs%2eexample/"), [DOCS], [], "ask"),
    (fetch("https://bücher.example/"), [Rule("allow", where={"host": {"host": "bücher.example"}})], [], "allow"),
    (fetch("https://xn--bcher-kva.example/"), [Rule("allow", where={"host": {"host": "bücher.example"}})], [], "allow"),
    (fetch("https://127.0.0.1/"), [Rule("deny", where={"host": "127.0.0.1"})], [], "deny"),
    (fetch("https://2130706433/"), [Rule("deny", where={"host": "127.0.0.1"})], [], "deny"),
    (fetch("https://0x7f.1/"), [Rule("deny", where={"host": "127.0.0.1"})], [], "deny"),
    (fetch("https://[::1]:80/"), [Rule("allow", where={"host": "::1"})], [], "allow"),
    (fetch("https://[0:0::1]/"), [Rule("allow", where={"host": {"host": "::1"}})], [], "allow"),
    (fetch("https://docs.example/x"), [Rule("allow", where={"url": {"glob": "https://docs.example/*"}})], [], "allow"),
    (own("secret"), [ALL], [], "deny"),
    (own("secret"), [Rule("allow", effect="secret")], [], "allow"),
    (own("publish"), [Rule("allow", tool="mine")], [], "ask"),
    (own("publish"), [Rule("allow", effect=["publish", "deploy"])], [], "allow"),
    (("apply_changes", "patch", {}), [Rule("allow", effect="patch")], [], "ask"),
    (("apply_changes", "patch", {}), [Rule("allow", effect="apply_changes")], [], "allow"),
    # layers: the stricter verdict counts, and a layer without a matching rule says nothing
    (bash("git status"), [GIT], [Rule("ask", effect="shell")], "ask"),
    (bash("git status"), [GIT], [Rule("deny", effect="shell")], "deny"),
    (bash("git status"), [Rule("deny", tool="Bash")], [GIT], "deny"),
    (bash("git status"), [], [GIT], "allow"),
    (bash("git status"), [GIT], [Rule("deny", effect="network")], "allow"),
    (read("/ws/a.py"), [Rule("ask", effect="read")], [ALL], "ask"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "verdict"), DEFAULT_ROWS)
def test_a_call_without_a_matching_rule_gets_the_default_of_its_effect_and_place(call, verdict):
    judgement = judged(call)
    assert (judgement.verdict, judgement.matches) == (verdict, ())
    assert judgement.default


@pytest.mark.parametrize(("call", "rules", "workspace", "verdict"), RULE_ROWS)
def test_the_strictest_of_the_matching_rules_counts(call, rules, workspace, verdict):
    judgement = judged(call, rules, workspace)
    assert judgement.verdict == verdict, str(judgement)
    assert all(match.rule in (rules if match.layer == "agent" else workspace) for match in judgement.matches)
    if judgement.matches:
        assert verdict in {match.rule.verdict for match in judgement.deciding}
        assert str(judgement).startswith(f"{verdict}: ")


@pytest.mark.parametrize(
    ("command", "effect"),
    [(command, "publish") for command in PUBLISHING]
    + [(command, "deploy") for command in DEPLOYING]
    + [(command, "shell") for command in QUIET],
)
def test_commands_that_publish_or_deploy_have_that_effect(command, effect):
    """From Claude, Codex, a program of the Agent Client Protocol, and our own shell alike."""
    calls = (bash(command), shell(command), codex(command), acp("execute", "shell", title=command))
    assert [judged(call).subject.effects for call in calls] == [frozenset({effect})] * 4


@pytest.mark.parametrize(
    "command", ["git status", "git commit -m 'a b'", "ls ü", "a; b", "git push", "cat 'x", "rm -rf ."]
)
def test_the_same_command_is_the_same_subject_whoever_asks(command):
    calls = [
        bash(command),
        shell(command),
        codex(command),
        codex(f'/bin/bash -lc "{command}"') if "'" in command else codex(f"bash -lc '{command}'"),
        acp("execute", "shell", rawInput={"command": command}, title="x"),
        acp("execute", "shell", title=command),
    ]
    subjects = [judged(call).subject for call in calls]
    assert len({(s.command, s.effects, s.compound, s.unread) for s in subjects}) == 1


COMPOUND = [
    *("git status; rm x", "git status && rm x", "git status || rm x", "git status | sh", "git status & rm x"),
    *(
        "git status > /etc/x",
        "git status >> x",
        "git status < x",
        "git status <<< x",
        "git status 2>&1",
        "git status &",
    ),
    *(
        "git status $(rm x)",
        "git status `rm x`",
        "git status ${IFS}",
        "git status $X",
        "(git status)",
        "git status {a,b}",
    ),
    *(
        "git status\nrm x",
        "git status\r\nrm x",
        "git status \\\nrm",
        "git status\x00rm",
        "git status\x0brm",
        "git status\x1b",
    ),
    *('git status "$(rm x)"', 'git status "`rm x`"', "git status <(rm x)", "git status >(rm x)", "git status |& sh"),
    *(
        "git status;",
        ";git status",
        "git status ;rm",
        "git status;;rm",
        "git status '",
        'git status "',
        "git status 'a;b'",
    ),
    *(
        'git status "a;b"',
        "git status \\; rm",
        "git status $'a'",
        "git status !(x)",
        "git status a\\",
        "{ git status; }",
    ),
    *("git status &&", "git status # a\nrm x", "if git status; then rm; fi", "while git status; do rm; done"),
    *(
        "f() { rm x; }; git status",
        "git status <<E\nrm\nE",
        "git status\u2028rm",
        "git status\u0085rm",
        "git status \u3000x",
    ),
]
ALLOWING = [
    ALL,
    Rule("allow", effect="shell"),
    Rule("allow", tool="Bash"),
    GIT,
    Rule("allow", where={"argv": ["git", "*"]}),
    Rule("allow", where={"command": {"glob": "*"}}),
    Rule("allow", where={"command": {"regex": "(?s).*"}}),
]


@pytest.mark.parametrize("command", COMPOUND)
def test_no_allow_rule_matches_a_compound_command_unless_it_says_so(command):
    judgement = judged(bash(command), ALLOWING)
    assert (judgement.verdict, judgement.matches) == ("ask", ())
    assert judgement.subject.compound
    assert not judgement.may_remember
    assert judged(bash(command), [Rule("allow", effect="shell", compound=True)]).verdict == "allow"
    assert judged(shell(command), ALLOWING).verdict == "ask"
    assert judged(codex(command), ALLOWING).verdict == "ask"
    assert judged(acp("execute", "shell", title=command), ALLOWING).verdict == "ask"


def test_there_are_as_many_rows_as_the_table_promises():
    assert len(DEFAULT_ROWS) + len(RULE_ROWS) + len(PUBLISHING) + len(DEPLOYING) + len(QUIET) >= 200
    assert len(COMPOUND) >= 40


@pytest.mark.parametrize("effect", ["read", "write", "patch"])
def test_without_a_workspace_no_path_counts_as_inside(effect):
    assert judged(own(effect, path="a.py"), root=None).verdict == "ask"
    assert judged(own(effect, path="/x/.env"), root=None).verdict == "deny"
    assert judged(own("read"), root=None).verdict == "allow"
    assert judged(own(effect, path="/x/.envrc2"), [NO_ENV], root=None).verdict == "deny"


def test_every_effect_of_tools_has_a_default():
    assert set(TOOL_EFFECTS) <= set(EFFECTS)
    assert set(EFFECTS) - set(DEFAULTS) == {"write", "patch"}  # by the place


def test_rules_without_end_are_judged_alike_one_by_one_and_together():
    """An index of many rules finds what each rule finds alone."""
    rules = [rule for row in RULE_ROWS for rule in (*row[1], *row[2])]
    calls = [row[0] for row in RULE_ROWS] + [row[0] for row in DEFAULT_ROWS] + [bash(one) for one in COMPOUND]
    together = gr.ext.Permission(rules, root=ROOT)
    alone = [gr.ext.Permission([rule], root=ROOT) for rule in rules]
    for tool, effect, arguments in calls:
        call = gr.CallFacts(call_id="c", tool=tool, arguments=arguments, effect=effect)
        matching = [match.rule for one in alone for match in one.explain(call).matches]
        assert [match.rule for match in together.explain(call).matches] == matching


def test_so_many_rules_that_no_program_holds_their_patterns_are_searched_by_halves():
    rules = [Rule("deny", where={"path": {"regex": f"[a-z]{{1,900}}[0-9]{{1,90}}x{n}"}}) for n in range(60)]
    assert judged(read("/ws/abc1x59"), rules).verdict == "deny"
    assert judged(read("/ws/abc1x60"), rules).verdict == "allow"


def test_only_an_ask_of_something_simple_may_be_remembered():
    assert judged(bash("ls")).may_remember
    assert judged(fetch("https://a.example/")).may_remember
    assert not judged(bash("ls; ls")).may_remember
    assert not judged(bash("git push")).may_remember
    assert not judged(bash("ls"), [Rule("ask", effect="shell", remember=False)]).may_remember
    assert not judged(bash("ls"), [Rule("ask", remember=False), Rule("ask")]).may_remember
    assert not judged(read("/ws/a/../b")).may_remember
    assert not judged(own("secret"), [Rule("ask", effect="secret")]).may_remember
    assert not judged(read("/etc/x")).may_remember
