"""Rules of docs/toolsets.md that a restart must not break."""

from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.user_code.toolsets import DESCRIPTION_LIMIT
from greenroom.testing import call, delay

from ..support.scenes import Down, after, approve, decide, deny
from ..support.toolsets import ANY, MAKE, Github

pytestmark = pytest.mark.pace(5)


@pytest.mark.rule("TS-2")
@pytest.mark.parametrize("options", [{"needs_approval": True}, {"needs_approval": lambda ctx, arguments: True}])
async def test_an_approval_outlives_the_process_and_needs_no_toolset_of_a_step(play, autojump_clock, options):
    github = Github(options={**options, "effect": "external"})
    acts = [Down(), decide("M", edited_arguments={"title": 5}), decide("M", edited_arguments={"title": "b"})]
    life = await play([MAKE], "done", do=acts, toolsets=[github])
    assert life.replies == ["rejected invalid_arguments", "accepted"]
    assert (github.done, life.calls["M"]) == ([{"title": "b"}], "new suspended resuming running succeeded")
    assert github.asked == [1, 2]
    assert github.found[:1] == ["github__make"]


@pytest.mark.rule("TS-2")
async def test_a_denied_call_of_an_offered_tool_runs_nothing(play, autojump_clock):
    github = Github(options={"needs_approval": True})
    life = await play([MAKE], "done", do=[Down(), deny("M", "no")], toolsets=[github])
    assert (github.done, life.tool_texts["M"]) == ([], "The reviewer denied this call: no")


@pytest.mark.rule("TS-2")
@pytest.mark.parametrize("replay", ["unsafe", "safe"])
async def test_a_crash_during_the_body_asks_people_unless_the_tool_is_safe(play, autojump_clock, replay):
    async def slow(ctx: Any, arguments: Any) -> str:
        await trio.sleep(10)
        return "slow"

    tool = gr.Tool.from_schema(slow, schema=ANY, name="github__slow", description="x", replay=replay)
    life = await play([call("github__slow", id="S")], "done", do=[after(5, Down())], toolsets=[Github(more=[tool])])
    if replay == "safe":
        assert life.tool_texts["S"] == "slow"
    else:
        assert [ticket.reason for ticket in life.outcome.tickets] == ["outcome_unknown"]


@pytest.mark.rule("TS-3")
async def test_a_call_without_its_tool_fails(play, autojump_clock):
    github = Github(options={"needs_approval": True}, forgets=True)
    life = await play([MAKE], "done", do=[Down(), approve("M")], toolsets=[github])
    assert (life.codes, github.done) == ({"M": "unknown_tool"}, [])


@pytest.mark.rule("TS-3")
@pytest.mark.parametrize("fault", [OSError("gone"), BaseException("odd"), ExceptionGroup("g", [OSError("gone")])])
async def test_a_call_whose_toolset_is_away_fails_and_names_the_toolset(play, autojump_clock, fault):
    github = Github(options={"needs_approval": True}, find_fault=fault)
    life = await play([MAKE], "done", do=[Down(), approve("M")], toolsets=[github])
    assert (life.codes, github.done) == ({"M": "runtime_unavailable"}, [])
    assert "toolset 'github' is not available" in life.tool_texts["M"]


@pytest.mark.rule("TS-3")
async def test_a_predicate_that_is_not_here_any_more_lets_nothing_run(play, autojump_clock):
    """A process ends while the gate is asked; the tool and its predicate are gone."""

    async def wants(ctx: Any, arguments: Any) -> bool:
        await trio.sleep(10)
        return True

    github = Github(options={"needs_approval": wants}, forgets=True)
    life = await play([MAKE], "done", do=[after(5, Down())], toolsets=[github])
    assert (life.codes, github.done) == ({"M": "tool_disabled"}, [])


@pytest.mark.rule("TS-3")
async def test_a_new_owner_of_a_request_asks_again(play, autojump_clock):
    github = Github()
    await play([delay(10), MAKE], "done", do=[after(5, Down())], toolsets=[github])
    assert (github.asked, github.done) == ([1, 1, 2], [{"title": "a"}])


@pytest.mark.rule("TS-4")
@pytest.mark.parametrize("reply", ["approve", "deny"])
@pytest.mark.parametrize("restart", [(Down(),), ()])
async def test_a_tool_that_has_changed_asks_before_its_body_begins(play, autojump_clock, reply, restart):
    github = Github(options={"needs_approval": True})

    async def change(scene: Any) -> None:
        github.text = "Make an issue, and tell everybody."

    acts = [change, *restart, approve("M"), approve("M") if reply == "approve" else deny("M", "no")]
    life = await play([MAKE], "done", do=acts, toolsets=[github])
    assert [reason for reason, _ in life.tickets.values()] == ["tool_permission", "tool_permission"]
    question = life.payloads("approval.requested")[-1]
    called, now = question["parameters"]["called"], question["parameters"]["now"]
    assert called["definition"] != now["definition"]
    assert (called["description"], now["description"]) == ("Make an issue.", "Make an issue, and tell everybody.")
    assert len(github.done) == (reply == "approve")
    assert [one["reason"] for one in life.payloads("degraded")] == ["tool_changed"]


@pytest.mark.rule("TS-3")
async def test_a_toolset_that_finds_nothing_still_has_the_tools_of_its_step(play, autojump_clock):
    class Plain(Github):
        find = gr.Toolset.find

    github = Plain(options={"needs_approval": True})
    await play([MAKE], "done", do=[approve("M")], toolsets=[github])
    assert github.done == [{"title": "a"}]


@pytest.mark.rule("TS-5")
async def test_a_new_owner_fails_the_run_as_well(play, autojump_clock):
    github = Github(faults=[None, OSError("no route")], on_unavailable="fail")
    life = await play([delay(10), MAKE], "done", do=[after(5, Down())], toolsets=[github])
    assert life.outcome.code == "runtime_unavailable"
    assert "no route" in str(life.end)


@pytest.mark.rule("TS-4")
async def test_a_tool_whose_description_is_cut_is_the_same_tool_in_another_process(play, autojump_clock):
    github = Github(options={"needs_approval": True}, text="x" * (DESCRIPTION_LIMIT + 1))
    life = await play([MAKE], "done", do=[Down(), approve("M")], toolsets=[github])
    assert (github.done, len(life.tickets)) == ([{"title": "a"}], 1)
