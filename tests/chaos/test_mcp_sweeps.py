"""Calls of an MCP server whose caller ends after each commit or is cancelled at each step; the server counts effects.

No call takes effect twice but with consent, none hangs, and no connection is left open.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel, call, crash_points

from ..support.mcp_memory import STATE, World, memory_server

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
SEEDS = (1, 2, 3) if FULL else (1,)
ROUNDS = 12
"""Times that a person looks after the run."""

pytestmark = pytest.mark.slow


@attrs.define(eq=False)
class Life(World):
    """A run that calls the server: once for an effect, once to look, and once with a question.

    Attributes:
        reasons: ticket id -> its reason.
        outcome: what came of the run.
        broken: what a replay found.
    """

    reasons: dict[str, str] = attrs.field(factory=dict)
    outcome: Any = None
    broken: list[str] = attrs.field(factory=list)

    @property
    def asked(self) -> Counter[str]:
        """How often people were asked, by reason."""
        return Counter(self.reasons.values())

    @property
    def agent(self) -> gr.Agent[Any]:
        safe = gr.mcp.Rule(needs_approval=False, replay="safe", effect="read")
        server = memory_server(self, tools={"look": safe, "*": gr.mcp.Rule(needs_approval=False)})
        steps = [[call("mcp__m__pay", id="P"), call("mcp__m__look", id="L")], call("mcp__m__ask", id="A"), "done"]
        return gr.Agent("a", model=ScriptedModel(steps), toolsets=[server], execution="parallel_streaming")


async def scenario(life: Life, store: gr.Store) -> None:
    async with gr.open_runtime(store, agents=[life.agent], passivate_after=5.0) as runtime:
        run = await runtime.start("a", "Go.", run_id="r")
        with trio.fail_after(5_000):
            life.outcome = await run.wait()
            for _ in range(ROUNDS):
                if not isinstance(life.outcome, gr.Waiting):
                    break
                for ticket in life.outcome.tickets:
                    life.reasons[ticket.ticket_id] = ticket.reason
                    result = {"name": "ada"} if ticket.reason == "user_input" else "seen"
                    await run.decide(ticket.approve(result, by="ada"))
                life.outcome = await run.wait()
        report = await runtime.replay("r")
        life.broken = [] if report.equal else [f"replay: {report}"]


def check(life: Life) -> Iterator[str]:
    yield from life.broken
    if not isinstance(life.outcome, gr.Completed):
        yield f"the run came to {life.outcome}"
    twice = [times for times in life.executed.values() if times > 1]
    if len(twice) > 1:  # the look, which may be made again
        yield f"calls took effect {sorted(life.executed.values())} times"
    if len(life.executed) < 3 and not life.asked["outcome_unknown"]:
        yield f"{len(life.executed)} calls took effect, and nobody was asked what came of the others"
    answers = {"who": {"action": "accept", "content": {"name": "ada"}}}
    if any(answered != (STATE, answers) for answered in life.answered):
        yield f"the server got {life.answered}"
    if life.era == "modern" and life.asked["user_input"] > 1 + life.asked["outcome_unknown"]:
        yield f"people were asked {life.asked}"
    if life.connections[0] != life.connections[1]:
        yield f"of {life.connections[0]} connections {life.connections[1]} were closed"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What the next process says of unknown outcomes is expected."""
    logger = logging.getLogger("greenroom")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)


@pytest.mark.rule("MC-6", "MC-8")
@pytest.mark.parametrize("cuts", [0, 1])
@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_process_with_calls_of_a_server_ends_after_each_commit_and_the_next_one_finishes(era, cuts, seed):
    sample = None if FULL else (4, seed)
    report = crash_points(lambda: Life(era=era, cuts=cuts), scenario, check, seeds=SEEDS, sample=sample)
    print(report)  # noqa: T201 - for the log of the CI
    report.require()


@attrs.define(eq=False)
class CancelledLife(Life):
    """A life whose first process is cancelled."""

    store: gr.Store = attrs.field(factory=gr.MemoryStore)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    has_finished: bool = False


async def two_processes(life: CancelledLife) -> None:
    with life.scope:
        await scenario(life, life.store)
        life.has_finished = True
    if not life.has_finished:
        await scenario(life, life.store)


@pytest.mark.rule("MC-8")
@pytest.mark.parametrize("era", ["modern", "handshake"])
def test_a_process_with_calls_of_a_server_is_cancelled_at_each_step_and_the_next_one_finishes(era, seed):
    sample = None if FULL else (6, seed)
    report = chaos.sweep_cancel(lambda: CancelledLife(era=era), two_processes, check, seeds=SEEDS, sample=sample)
    print(report)  # noqa: T201 - for the log of the CI
    report.require()
