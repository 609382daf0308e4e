"""Scenarios of the store kit: the record of a run, which commits carry and a replay reads."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from ...abc import Store
from ...contract.decisions import Suspend
from ...contract.messages import ModelResponse
from ...contract.phases import Phase
from ...contract.recording import RecordDelta, RecordEntry
from ...contract.rows import RunRow
from ...engine.body_inputs import CallReturned
from ...engine.inputs import Activate, CommandArrived, Input, ModelAnswered, PhaseDone
from ...engine.recording import CreatedEntry, RecordGap, TakeoverEntry
from ._tools import (
    NOW,
    OpenStore,
    ReportLog,
    call_row,
    create,
    expect,
    judge,
    message,
    new_run,
    opened,
    reopening,
    say,
    scenario,
)


def _taken(*entries: Any) -> tuple[RecordEntry, ...]:
    return tuple(RecordEntry(NOW + timedelta(milliseconds=number), entry) for number, entry in enumerate(entries))


BEGUN = _taken(TakeoverEntry(state=()), Activate(agent_digest="d1"))
ANSWERED = _taken(ModelAnswered(message_id="m2", response=ModelResponse(text=("one", "two"), model="m")))
RETURNED = (
    RecordEntry(NOW, CallReturned(call_id="c1", attempt=1, result={"sum": [1, None]}, shown="1"), (([2],), ("E", ""))),
)


async def _read(store: Store, me: str, **page: Any) -> list[str]:
    """As texts: a `Suspend` is an exception, and equal to itself only."""
    return [repr(delta) for delta in await store.record(me, **page)]


@scenario
async def record_comes_back_with_its_commits(store: Store, _: ReportLog, me: str) -> None:
    """Entries of commits come back in their order, with the newest event of each; also of one without events."""
    expect(await _read(store, me), [], "a run that is not there has no record")
    born = _taken(CreatedEntry(row=RunRow(last_sequence=1), text="hello"))
    author = await create(store, new_run(me, f"{me}.t", taken=born))
    decided = _taken(PhaseDone(phase=Phase.TOOL_GATE, step=1, call_id="c1", verdict=Suspend(message="may it?")))
    await author.write(2, taken=BEGUN)
    await author.write(1)
    await author.write(0, taken=ANSWERED, calls=(call_row("c1"),))
    await author.write(3, taken=(*RETURNED, *decided))
    deltas = [
        RecordDelta(1, born),
        RecordDelta(3, BEGUN),
        RecordDelta(4, ANSWERED),
        RecordDelta(7, (*RETURNED, *decided)),
    ]
    texts = list(map(repr, deltas))
    expect(
        await _read(store, me), texts, "a record is read as it was written; a commit that carries nothing is left out"
    )
    expect(await _read(store, me, after=1, limit=2), texts[1:3], "a page begins after so many commits, and is so long")
    expect(await _read(store, me, after=4), [], "there is nothing behind the end")


@scenario
async def record_names_commands_that_the_inbox_keeps(store: Store, _: ReportLog, me: str) -> None:
    """A command in a record is the one that was accepted."""
    author = await create(store, new_run(me, f"{me}.t"))
    await store.post(me, say("s1", "more of it"), judge)
    (item,) = await store.commands(me)
    arrived: Input = CommandArrived(item=item)
    await author.write(row=replace(author.row, inbox=1), consumed=1, taken=_taken(arrived))
    (delta,) = await store.record(me)
    expect(delta.taken[0].entry, arrived, "the command comes back whole")


@scenario
async def record_of_a_refused_commit_is_not_written(store: Store, _: ReportLog, me: str) -> None:
    """Entries of a refused commit are not recorded."""
    author = await create(store, new_run(me, f"{me}.t", messages=(message(f"{me}.in"),)))
    await author.write(taken=BEGUN)
    refused = author.make(messages=(message(f"{me}.in"),), taken=ANSWERED)
    expect((await author.send(refused).receipt()).kind, "failed", "a message id is used once")
    expect(await _read(store, me), [repr(RecordDelta(2, BEGUN))], "a refused commit leaves nothing in the record")


@scenario
async def record_that_has_no_form_harms_no_commit(store: Store, _: ReportLog, me: str) -> None:
    """A store that encodes replaces entries that it cannot encode; a store that keeps objects keeps them."""
    author = await create(store, new_run(me, f"{me}.t"))
    strange = CallReturned(call_id="c1", attempt=1, result=object(), shown="")
    await author.write(taken=_taken(strange))
    ((delta,),) = [item.taken for item in await store.record(me)]
    expect(delta.entry is strange or isinstance(delta.entry, RecordGap), True, "the record says that it has a gap")


@reopening
async def record_outlives_the_process_and_goes_with_its_run(open_store: OpenStore, me: str) -> None:
    """It is as durable as its commits, and pruned with the run; those of other runs stay."""
    store = open_store()
    async with opened(store):
        for name, at in ((f"{me}.old", NOW - timedelta(days=900)), (f"{me}.new", NOW)):
            author = await create(store, new_run(name, f"{name}.t"))
            await author.write(taken=BEGUN)
            await author.end(at=at)
    store = open_store()
    async with opened(store):
        await store.prune(NOW - timedelta(days=800))
        expect(await _read(store, f"{me}.old"), [], "a pruned run has no record")
        expect(await _read(store, f"{me}.new"), [repr(RecordDelta(2, BEGUN))], "the record of another run stays")
