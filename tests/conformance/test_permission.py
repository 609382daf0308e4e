"""The gate of `gr.ext.Permission` on runs: what `explain` says about a call is what happens to it."""

from typing import Any

import pytest

import greenroom as gr
from greenroom.testing import call

from ..support.scene_tools import Context
from ..support.scenes import approve, deny, pause, restart

Rule = gr.ext.Rule
pytestmark = pytest.mark.parametrize("mode", ["sequential", "parallel_streaming"])


async def _body(ctx: Context, arguments: str) -> str:
    await ctx.deps.work(ctx, 2.0, arguments=arguments)
    return "done"


@gr.tool(effect="shell")
async def shell(ctx: Context, command: str) -> str:
    """Run a command."""
    return await _body(ctx, command)


@gr.tool
async def read_file(ctx: Context, path: str) -> str:
    """Read a file."""
    return await _body(ctx, path)


@gr.tool(effect="write")
async def write_file(ctx: Context, path: str) -> str:
    """Write a file."""
    return await _body(ctx, path)


@gr.tool(effect="network")
async def fetch(ctx: Context, url: str) -> str:
    """Read a page."""
    return await _body(ctx, url)


TOOLS = (shell, read_file, write_file, fetch)
RULES = [
    Rule("allow", effect="shell", where={"argv": ["git", "status", "*"]}),
    Rule("allow", effect="network", where={"host": {"host": "docs.example"}}),
    Rule("deny", where={"argv": ["git", "push", "*"]}, reason="a person pushes"),
    Rule("ask", where={"path": {"under": "src"}}, reviewers=["ada"], expires=100),
]
WORKSPACE = [Rule("deny", effect="write", where={"path": {"glob": "*.lock"}})]
CALLS = [
    call("shell", command="git status -s", id="status"),
    call("shell", command="git status; rm x", id="compound"),
    call("shell", command="git -C x push", id="push"),
    call("shell", command="make", id="make"),
    call("read_file", path="README.md", id="read"),
    call("read_file", path="src/a.py", id="src"),
    call("read_file", path=".env", id="secret"),
    call("read_file", path="/etc/passwd", id="outside"),
    call("write_file", path="a/uv.lock", id="lock"),
    call("write_file", path="a/b.py", id="write"),
    call("fetch", url="https://docs.example/x", id="docs"),
    call("fetch", url="https://docs.example@evil.example/x", id="evil"),
]
STATUS = {"allow": "new running succeeded", "ask": "new suspended", "deny": "new failed"}


def permission(**options: Any) -> gr.ext.Permission:
    return gr.ext.Permission(RULES, workspace_rules=WORKSPACE, root="/ws", **options)


async def test_what_is_explained_is_what_happens(play, autojump_clock):
    plugin = permission()
    life = await play(CALLS, tools=TOOLS, plugins=[plugin])
    effects = {tool.name: tool.effect for tool in TOOLS}
    verdicts = {}
    for one in CALLS:
        facts = gr.CallFacts(call_id=one.id, tool=one.tool, arguments=one.arguments, effect=effects[one.tool])
        judgement = plugin.explain(facts)
        verdicts[one.id] = judgement.verdict
        assert life.calls[one.id] == STATUS[judgement.verdict], str(judgement)
    assert set(verdicts.values()) == set(STATUS)
    assert sorted(life.effects) == sorted(name for name, verdict in verdicts.items() if verdict == "allow")
    tickets = {ticket.call_id: ticket for ticket in life.view.tickets}
    assert tickets.keys() == {name for name, verdict in verdicts.items() if verdict == "ask"}
    assert life.codes["push"] == "permission_denied"
    assert life.tool_texts["push"] == "shell is not allowed: a person pushes."
    assert life.tool_texts["secret"] == "read_file is not allowed: withheld files are not touched."
    assert tickets["src"].reviewers == ("ada",)
    assert (tickets["src"].expires_at - tickets["src"].requested_at).total_seconds() == 100
    assert tickets["make"].message == "May this run? shell: make"
    asked = tickets["compound"].parameters["permission"]
    assert (asked["effects"], asked["compound"], asked["remember"]) == (["shell"], True, False)
    assert {ticket.reason for ticket in tickets.values()} == {"tool_permission"}


async def test_the_log_names_the_rule_or_the_default_that_let_a_call_pass(play, autojump_clock):
    life = await play(CALLS, tools=TOOLS, plugins=[permission()])
    notes = {payload["callId"]: payload["note"] for payload in life.payloads("gate.allowed")}
    assert notes == {
        "status": "agent: allow argv ['git', 'status', '*'] effect shell",
        "read": "default: read inside the workspace",
        "write": "default: write inside the workspace",
        "docs": "agent: allow host host 'docs.example' effect network",
    }


async def test_an_approved_call_runs_once_also_in_another_process_and_a_denied_one_does_not(play, autojump_clock):
    step = [call("shell", command="make a", id="A"), call("shell", command="make b", id="B")]
    life = await play(step, "done", do=[approve("A"), restart, deny("B")], tools=TOOLS, plugins=[permission()])
    assert life.calls == {"A": "new suspended resuming running succeeded", "B": "new suspended cancelled"}
    assert life.effects == ["A"]
    assert len(life.tickets) == 2


@pytest.mark.parametrize(("command", "status"), [("git push", "failed"), ("make all; ls", "succeeded")])
async def test_edited_arguments_are_judged_again(play, autojump_clock, command, status):
    """A person may run what the rules ask about, and nothing that they deny."""
    edit = approve("A", edited_arguments={"command": command})
    life = await play([call("shell", command="make", id="A")], "done", do=[edit], tools=TOOLS, plugins=[permission()])
    assert life.calls["A"].split()[-1] == status
    assert len(life.tickets) == 1
    assert life.scene.outside.started == ([] if status == "failed" else [("A", 1, {"arguments": command})])


async def test_only_a_reviewer_of_the_rule_decides(play, autojump_clock):
    step = [call("read_file", path="src/a.py", id="A")]
    life = await play(step, "done", do=[deny("A", by="bob"), approve("A")], tools=TOOLS, plugins=[permission()])
    assert life.replies[0].startswith("rejected")
    assert life.effects == ["A"]


async def test_a_question_of_a_rule_expires_as_the_rule_says(play, autojump_clock):
    step = [call("read_file", path="src/a.py", id="A")]
    life = await play(step, "done", do=[pause(110)], tools=TOOLS, plugins=[permission()])
    assert (life.calls["A"], life.tickets) == ("new suspended cancelled", {"r.t1": ("tool_permission", "expired")})
