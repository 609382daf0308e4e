"""`greenroom rules` and `greenroom approve --always`: rules made, listed, revoked on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from greenroom.actors.permission.remembered import FORMS, SCOPES
from greenroom.transport.cli import commands

from .cli_kit import Cli, Inside, one_line

pytestmark = pytest.mark.slow

AGENTS = """
import greenroom as gr
from greenroom.testing import ScriptedModel, call

@gr.tool(effect="shell")
async def shell(command: str) -> str:
    return f"ran {command}"

rules = [gr.ext.Rule("deny", where={"argv": ["git", "push", "*"]}, reason="a person pushes")]
steps = [call("shell", command="make a"), call("shell", command="make  a"), call("shell", command="make b"), "done"]
coder = gr.Agent("coder", tools=[shell], plugins=[gr.ext.Permission(rules)], model=ScriptedModel(steps))
plain = gr.Agent("plain", model=ScriptedModel(["hi"]))
"""
RULES = """
[[rules]]
verdict = "allow"
effect = "shell"
where = { argv = ["git", "status", "*"] }
"""


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """A database with a run that asks for a command."""
    (tmp_path / "agents.py").write_text(AGENTS)
    (tmp_path / "rules.toml").write_text(RULES)
    inside = Inside(tmp_path, tmp_path / "state", monkeypatch)
    assert inside("run", "agents.py:coder", "go", "--db", "a.db", "--run-id", "run-1").returncode == 3
    return inside


def listed(inside: Inside, *options: str) -> list[dict[str, Any]]:
    done = inside("rules", "list", "--db", "a.db", "--json", *options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_always_on_the_command_line_is_a_rule_until_it_is_revoked(inside: Inside) -> None:
    assert inside("rules", "list", "--db", "a.db").stdout == "no rules\n"
    done = inside("approve", "run-1", "--db", "a.db", "--yes", "--always", "argv", "--scope", "run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "remembered for the run; the rules: " in done.stdout
    assert inside("run", "agents.py:coder", "--db", "a.db", "--resume", "run-1").returncode == 3
    (rule,) = listed(inside)
    shown = inside("rules", "list", "--db", "a.db").stdout.splitlines()
    assert shown[0] == "argv of shell: make a"
    assert shown[1].startswith(f"  for the run run-1, by {rule['by']} at ")
    assert shown[2] == f"  {rule['ruleId']}"
    assert (rule["scope"], rule["holder"], rule["runId"], rule["revokedAt"]) == ("run", "run-1", "run-1", None)
    assert "remembered: argv of shell for the run" in inside("evidence", "run-1", "--db", "a.db").stdout
    view = json.loads(inside("show", "run-1", "--db", "a.db", "--json").stdout)
    assert [ticket["arguments"] for ticket in view["tickets"]] == [{"command": "make b"}]
    done = inside("rules", "revoke", rule["ruleId"][-6:], "--db", "a.db", "--json")
    assert json.loads(done.stdout)["revokedBy"] == rule["by"]
    assert listed(inside) == []
    assert [one["ruleId"] for one in listed(inside, "--all", "--run", "run-1")] == [rule["ruleId"]]
    assert "  revoked by " in inside("rules", "list", "--all", "--db", "a.db").stdout


def test_always_in_the_terminal_lets_the_next_call_pass(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS)
    cli = Cli(tmp_path, tmp_path / "state")
    with cli.terminal("run", "agents.py:coder", "go", "--db", "a.db", "--run-id", "r1") as terminal:
        terminal.sees("y yes · a always · e edit · n no")
        terminal.sees("leave it waiting ? ")
        terminal.types("a\n")
        terminal.sees("(Enter: argv thread)? ")
        terminal.types("\n")
        terminal.sees("Remembered for the thread; the rules: greenroom rules list --db a.db")
        terminal.sees("make b")  # the second "make a" has passed
        terminal.sees("leave it waiting ? ")
        terminal.types("n not that\n")
        assert terminal.ends() == 0
    (rule,) = [json.loads(line) for line in cli("rules", "list", "--db", "a.db", "--json").stdout.splitlines()]
    assert (rule["form"], rule["scope"], rule["about"], rule["runId"]) == ("argv", "thread", "make a", "r1")


def test_what_is_wrong_is_said_in_a_line(inside: Inside) -> None:
    done = inside("approve", "run-1", "--db", "a.db", "--yes", "--always", "--scope", "workspace")
    assert one_line(done.stderr).endswith("works in no workspace; use scope 'run' or 'thread'")
    assert (done.returncode, listed(inside)) == (1, [])
    done = inside("approve", "run-1", "--db", "a.db", "--scope", "run")
    assert one_line(done.stderr) == "--scope says for what --always holds; add --always, or omit --scope"
    done = inside("rules", "revoke", "nothing", "--db", "a.db")
    assert "no rule has an id that begins or ends with 'nothing'" in one_line(done.stderr)
    done = inside("rules", "list", "--db", "a.db", "--run", "nothing")
    assert "nothing" in one_line(done.stderr)
    done = inside("rules", "explain", "agents.py:plain", "shell", "ls")
    assert "the agent 'plain' has no gr.ext.Permission" in one_line(done.stderr)
    done = inside("rules", "explain", "rules.toml", "shell", "{x")
    assert "ARGUMENTS is no JSON" in one_line(done.stderr)
    (inside.folder / "cut.toml").write_text(RULES[:-8])
    assert "cut.toml: the file cannot be read" in one_line(inside("rules", "explain", "cut.toml", "shell", "ls").stderr)


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["rules.toml", "Bash", "git status -s"], ["allow: Bash (shell)", "  agent: allow argv"]),
        (["rules.toml", "Bash", "git push"], ["ask: Bash (publish)", "  default: publish"]),
        (
            ["rules.toml", "Read", '{"file_path": "/ws/.env"}', "--root", "/ws"],
            ["deny: Read (read)", "  default: with"],
        ),
        (["rules.toml", "mine", "{}", "--effect", "secret"], ["deny: mine (secret)", "  default: secret"]),
        (["agents.py:coder", "shell", '{"command": "git push"}'], ["deny: shell (publish)", "  agent: deny argv"]),
    ],
)
def test_rules_are_explained_without_a_run(inside: Inside, words: list[str], lines: list[str]) -> None:
    done = inside("rules", "explain", *words)
    assert (done.returncode, done.stderr) == (0, "")
    shown = done.stdout.splitlines()
    assert len(shown) == len(lines)
    assert all(line.startswith(start) for line, start in zip(shown, lines, strict=True))
    report = json.loads(inside("rules", "explain", *words, "--json").stdout)
    assert report["verdict"] == lines[0].partition(":")[0]


def test_the_remembered_rules_of_a_run_are_explained_with_it(inside: Inside) -> None:
    assert inside("approve", "run-1", "--db", "a.db", "--yes", "--always", "argv").returncode == 0
    words = ["agents.py:coder", "shell", "make a", "--db", "a.db"]
    assert inside("rules", "explain", *words).stdout.startswith("ask: shell (shell)")
    done = inside("rules", "explain", *words, "--run", "run-1")
    assert done.stdout.startswith("allow: shell (shell)\n")
    assert "  remembered: argv of shell for the thread" in done.stdout
    report = json.loads(inside("rules", "explain", *words, "--run", "run-1", "--json").stdout)
    assert (report["remembered"]["form"], report["mayRemember"], report["rules"]) == ("argv", True, [])


def test_the_parser_knows_the_forms_and_scopes_of_rules() -> None:
    assert (commands.FORMS, commands.SCOPES) == (FORMS, SCOPES)
