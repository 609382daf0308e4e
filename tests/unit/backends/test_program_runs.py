"""Runs whose work a program does: a real process that speaks a real protocol, and asks before it acts."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import greenroom as gr

PROGRAM = str(Path(__file__).parents[2] / "support" / "scripted_program.py")
FORMS = ("acp", "claude")


async def settled(condition: Callable[[], bool], seconds: float = 20) -> bool:
    """Whether a condition about another process becomes true in time."""
    for _ in range(int(seconds / 0.01)):
        if condition():
            return True
        await trio.sleep(0.01)
    return condition()


class Bench:
    """An agent whose program writes what it does to a file."""

    def __init__(self, folder: Path, form: str) -> None:
        self.folder, self.form, self.file = folder, form, folder / "effects.txt"

    def backend(self, **options: Any) -> gr.backends.Program:
        command = (sys.executable, "-SE", PROGRAM, self.form, str(self.file))
        make: Any = gr.backends.Acp if self.form == "acp" else gr.backends.Claude
        return make(command=command, folder=self.folder, **options)

    def agent(self, rules: list[gr.ext.Rule] | None = None, **options: Any) -> gr.Agent[Any]:
        return gr.backends.agent("coder", self.backend(), rules=rules, **options)

    @property
    def effects(self) -> list[str]:
        return self.file.read_text().split("\n")[:-1] if self.file.exists() else []


@pytest.fixture(params=FORMS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(tmp_path, request.param)


def steps(*given: list[Any]) -> str:
    return json.dumps(given)


async def played(bench: Bench, *script: list[Any], decide: Callable[[gr.Ticket], gr.Decision], **options: Any) -> Any:
    """The outcome of a run whose tickets are decided by a function, and the events."""
    async with gr.open_runtime(agents=[bench.agent(**options)]) as runtime:
        run = await runtime.start("coder", steps(*script), run_id="r")
        outcome = await run.wait()
        while isinstance(outcome, gr.Waiting):
            for ticket in outcome.tickets:
                await run.decide(decide(ticket))
            outcome = await run.wait()
        async with run.events() as events:
            log = [event async for event in events]
        assert (await runtime.replay("r")).equal
        return outcome, log


async def tickets_of(run: gr.Run[Any], count: int) -> tuple[gr.Ticket, ...]:
    """The open tickets, as soon as there are so many."""
    with trio.fail_after(20):
        async with run.events() as events:
            async for event in events:
                count -= event.type == "run.approval.requested"
                if not count:
                    break
    return (await run.view()).tickets


def command_of(ticket: gr.Ticket) -> Any:
    """The command that a ticket is about."""
    arguments: Any = ticket.arguments
    return arguments.get("command") or arguments["rawInput"]["command"]


def approved(ticket: gr.Ticket) -> gr.Decision:
    return ticket.approve(by="ada")


async def test_a_call_of_a_program_waits_for_a_person_and_runs_when_it_is_approved(bench):
    outcome, log = await played(bench, ["ask", "make"], ["say", "I made it."], decide=approved)
    assert outcome.output == "I made it."
    assert bench.effects == ["make"]
    nested = [event.payload for event in log if event.payload.get("parentCallId")]
    assert len(nested) == 1
    ended = [event.payload for event in log if event.type == "run.tool.result"]
    assert [(one["tool"], one["status"]) for one in ended if one["callId"] == nested[0]["callId"]] == [
        (nested[0]["tool"], "succeeded")
    ]


async def test_a_denial_with_a_text_is_read_by_the_program_which_goes_on(bench):
    outcome, _ = await played(
        bench, ["ask", "make"], ["say", "I did not."], decide=lambda ticket: ticket.deny(text="Use ninja.", by="ada")
    )
    assert (outcome.output, bench.effects) == ("I did not.", [])


async def test_a_denial_without_a_text_ends_the_run_and_the_program(bench):
    outcome, _ = await played(
        bench, ["ask", "make"], ["say", "I did not."], decide=lambda ticket: ticket.deny("no", by="ada")
    )
    assert isinstance(outcome, gr.Cancelled)
    assert outcome.code == "approval_rejected"
    assert bench.effects == []


async def test_a_rule_that_allows_asks_nobody_and_one_that_denies_answers_the_program(bench):
    rules = [
        gr.ext.Rule("allow", effect="shell", where={"argv": ["make"]}),
        gr.ext.Rule("deny", where={"argv": ["git", "push"]}, reason="a person pushes"),
    ]
    outcome, _ = await played(
        bench, ["ask", "make"], ["ask", "git push"], ["say", "Done."], decide=approved, rules=rules
    )
    assert (outcome.output, bench.effects) == ("Done.", ["make"])


async def test_questions_that_are_open_together_are_answered_in_any_order(bench):
    async with gr.open_runtime(agents=[bench.agent()]) as runtime:
        run = await runtime.start("coder", steps(["ask_all", "a", "b", "c"], ["say", "Done."]))
        tickets = await tickets_of(run, 3)
        assert "".join(map(command_of, tickets)) == "abc"
        for count, ticket in enumerate(reversed(tickets), 1):
            await run.decide(ticket.approve(by="ada"))
            assert await settled(lambda done=count: len(bench.effects) >= done)
        assert (await run.result()).output == "Done."
    assert bench.effects == ["c", "b", "a"]
