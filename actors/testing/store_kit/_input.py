"""Scenarios of the store kit: input that waits for a step, or for the turn of a run that ended in the line."""

from __future__ import annotations

from msgspec.structs import replace

from ...abc import Store
from ...contract.decisions import Command, CommandResult
from ...contract.lifecycle import Stage
from ...contract.messages import Message, Producer
from ...contract.rows import CommandContext, SentText
from ._tools import Author, ReportLog, create, expect, judge, loaded, message, new_run, say, scenario


def _waits(author: Author, number: int, text: str) -> Message:
    name = author.run_id
    return Message(id=f"{name}.m{number}", role="user", content=text, producer=Producer(run_id=name, step=0))


async def _end_in_line(author: Author) -> None:
    """End a run that was never admitted, with its question."""
    await author.write(row=replace(author.row, stage=Stage.CANCELLED, pending_input=(_waits(author, 1, "?"),)))


async def _thread(store: Store, name: str) -> list[str]:
    return [sent.id for sent in await store.messages(name)]


@scenario
async def what_a_run_was_asked_that_ended_in_the_line_comes_at_its_turn(store: Store, _: ReportLog, me: str) -> None:
    """It is appended when the active run ends, before the next run may work; that of later runs waits on."""
    authors = [await create(store, new_run(f"{me}.{i}", me)) for i in range(5)]
    for i in (3, 1, 4):
        await _end_in_line(authors[i])
    expect(await _thread(store, me), [], "nothing is appended while another run works in the thread")
    await authors[0].write(messages=(message(f"{me}.0.said"),))
    expect((await authors[0].end()).next_in_thread, f"{me}.2", "the end of the active run releases the next one")
    expect(await _thread(store, me), [f"{me}.0.said", f"{me}.1.m1"], "what stood before the released run is appended")
    await authors[2].end()
    everything = [f"{me}.0.said", f"{me}.1.m1", f"{me}.3.m1", f"{me}.4.m1"]
    expect(await _thread(store, me), everything, "the rest is appended in the order of the line")
    later = await create(store, new_run(f"{me}.5", me))
    await _end_in_line(later)
    expect(await _thread(store, me), [*everything, f"{me}.5.m1"], "a run that was not held back leaves it immediately")
    expect(len((await loaded(store, f"{me}.5")).row.pending_input), 1, "its row keeps it")


@scenario
async def texts_that_wait_are_loaded_whole_and_in_their_place(store: Store, _: ReportLog, me: str) -> None:
    """A store may keep them in the inbox alone; what it hands out is the row as it was committed."""
    author = await create(store, new_run(me, me))
    for n in (1, 2):
        await store.post(me, say(f"c{n}", f"text {n}"), judge)
    pending = (_waits(author, 5, "first"), _waits(author, 3, "text 1"), _waits(author, 4, "text 2"))
    sent = tuple(SentText(number=n + 2, step=0, command_id=f"c{n}", size=6) for n in (1, 2))
    await author.write(row=replace(author.row, pending_input=pending, sent=sent, inbox=2), consumed=2)
    row = (await loaded(store, me)).row
    expect(row.pending_input, pending, "the messages are there, with their texts, in their order")
    await author.write(row=replace(author.row, pending_input=(), sent=()), messages=pending)
    expect(await _thread(store, me), [one.id for one in pending], "they join the thread")


@scenario
async def the_judge_of_a_text_is_told_what_waits(store: Store, _: ReportLog, me: str) -> None:
    """The judge of new input knows the number and bytes of all waiting texts: in the run's row and in its inbox."""
    waiting: list[tuple[int, int]] = []

    def noting(facts: CommandContext, command: Command) -> CommandResult:
        waiting.append((facts.inputs, facts.input_bytes))
        return judge(facts, command)

    author = await create(store, new_run(me, me))
    await store.post(me, say("c1", "é"), noting)
    await store.post(me, say("c2", "xyz"), noting)
    row = replace(
        author.row,
        pending_input=(_waits(author, 2, "é"),),
        sent=(SentText(number=2, step=0, command_id="c1", size=2),),
        inbox=1,
    )
    await author.write(row=row, consumed=1)
    await store.post(me, say("c3", "z"), noting)
    expect(waiting, [(0, 0), (1, 2), (2, 5)], "the judge receives every text that waits")
