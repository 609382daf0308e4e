"""Scenarios of the store kit: tickets of the run itself, and pauses."""

from __future__ import annotations

from msgspec.structs import replace

from ...abc import Store
from ...contract.decisions import Command, CommandResult
from ...contract.lifecycle import Stage
from ...contract.phases import RunPosition
from ...contract.rows import CommandContext, PendingPause
from ._tools import ReportLog, create, decide, expect, judge, loaded, new_run, scenario, ticket_row


@scenario
async def a_ticket_of_the_run_itself_belongs_to_no_call(store: Store, _: ReportLog, me: str) -> None:
    """It is kept with the run's row, found by its id and by nothing else, and decided once."""
    author = await create(store, new_run(me, me))
    ticket = replace(ticket_row(me, 1, "a"), call_id=None, tool="", arguments={}, reason="manual_pause")
    pause = PendingPause(command_id="p", by="ann", reason="lunch")
    paused = replace(
        author.row, stage=Stage.NEEDS_APPROVAL, position=RunPosition.PAUSED, run_tickets=(ticket,), pause=pause
    )
    await author.write(row=paused, tickets=(ticket,))
    record = await loaded(store, me)
    expect(
        (record.row.run_tickets, record.row.pause, record.tickets), ((ticket,), pause, (ticket,)), "it is as written"
    )
    contexts: list[CommandContext] = []

    def look(facts: CommandContext, command: Command) -> CommandResult:
        contexts.append(facts)
        return judge(facts, command)

    results = [await store.post(me, decide(name, f"{me}.t1"), look) for name in ("d1", "d2")]
    expect([result.code for result in results], [None, "already_decided"], "one decision wins")
    expect([(facts.ticket, facts.call) for facts in contexts], [(ticket, None)] * 2, "there is a ticket and no call")
    expect(contexts[1].prior and contexts[1].prior.command_id, "d1", "the earlier decision is known")
    expect((await store.post(me, decide("d3", ""), judge)).code, "unknown_target", "no call's id is empty")


@scenario
async def the_judge_of_a_pause_knows_whether_the_run_is_leaving(store: Store, _: ReportLog, me: str) -> None:
    """From the moment that the way out is written, whatever the stage says."""
    author = await create(store, new_run(me, me))
    answers: list[bool] = []

    def look(facts: CommandContext, command: Command) -> CommandResult:
        answers.append(facts.leaving)
        return judge(facts, command)

    for number, cursor in enumerate(
        (RunPosition.INFERENCE, RunPosition.STEP_END, RunPosition.STOPPING, RunPosition.RUN_END)
    ):
        await author.write(row=replace(author.row, stage=Stage.RUNNING, position=cursor))
        await store.post(me, Command(command_id=f"p{number}", kind="pause"), look)
    expect(answers, [False, False, True, True], "a run leaves from stopping on")
