"""Scenarios of the store kit: to whom a thread belongs, and what pruning leaves of runs and threads."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs
from msgspec.structs import replace

from ...abc import Store
from ...contract.artifacts import Artifact
from ...contract.commits import Created, NewRun
from ...contract.lifecycle import Stage
from ...contract.messages import Producer
from ...contract.parts import MAX_BYTES, light, part_of
from ...contract.rows import RunRow, SentText
from ...contract.state import StateWrite
from ...errors import ThreadBusy
from ._tools import (
    NOW,
    OpenStore,
    ReportLog,
    call_row,
    create,
    expect,
    frame,
    judge,
    message,
    new_run,
    opened,
    refused,
    reopening,
    say,
    scenario,
    ticket_row,
)

THEN = datetime(1982, 1, 1, tzinfo=UTC)
"""When what is pruned in these scenarios has ended; no other scenario has runs of that time."""
LATER = THEN.replace(year=1983)


def _by(name: str, run_id: str, thread_id: str, **changes: object) -> NewRun:
    new = new_run(run_id, thread_id, **changes)
    return replace(new, info=replace(new.info, by=name))


async def _try(store: Store, new: NewRun) -> Created:
    return await store.create_run(new, frame(new.info.run_id, 1))


@scenario
async def the_first_run_of_a_thread_makes_its_owner(store: Store, _: ReportLog, me: str) -> None:
    """The principal of that run, for ever; all runs that are left in the thread are its members."""
    expect(await store.thread(me), None, "a thread without a run is not known")
    first, second = _by("ann", f"{me}.1", me), _by("bob", f"{me}.2", me)
    await create(store, first)
    await create(store, second)
    info = await store.thread(me)
    expect(info and (info.thread_id, info.owner, info.created_at, info.runs), (me, "ann", NOW, 2), "its facts")
    expect(info and info.members, (first.info, second.info), "its members, oldest first")


@scenario
async def a_run_is_created_only_in_a_thread_as_expected(store: Store, _: ReportLog, me: str) -> None:
    """`thread_runs` is compared in create's transaction: of two starts that saw the same thread one wins."""
    fresh = [replace(new_run(f"{me}.{i}", me), thread_runs=0) for i in range(2)]
    await create(store, fresh[0])
    expect(await _try(store, fresh[1]), Created(claim=None, thread_changed=True), "the thread is not new any more")
    expect(await store.load(f"{me}.1"), None, "nothing was written")
    await create(store, replace(fresh[1], thread_runs=1))
    again = await _try(store, fresh[0])
    expect((again.existing, again.thread_changed), (fresh[0].info, False), "a repeated start finds its run")
    busy = replace(new_run(f"{me}.3", me), thread_runs=0, on_busy="refuse")
    expect((await _try(store, busy)).thread_changed, True, "the thread is compared before its activity is mentioned")
    error = await refused(ThreadBusy, _try(store, replace(busy, thread_runs=2)), "and then it is busy")
    expect(error.active, f"{me}.0", "the error names the run")


@scenario
async def a_held_run_names_the_run_that_works(store: Store, _: ReportLog, me: str) -> None:
    """At its creation and in its outline, until the thread is its own."""
    first = await create(store, new_run(f"{me}.1", me))
    created = await _try(store, new_run(f"{me}.2", me))
    expect((created.held, created.behind), (True, f"{me}.1"), "the one in front is named")
    outline = await store.outline(f"{me}.2")
    expect(outline and (outline.held, outline.behind), (True, f"{me}.1"), "also later")
    await first.end()
    outline = await store.outline(f"{me}.2")
    expect(outline and (outline.held, outline.behind), (False, None), "until it has ended")


@scenario
async def an_outline_is_the_runs_own_row(store: Store, _: ReportLog, me: str) -> None:
    """Constant facts, stage, newest event and inbox; nothing of an unknown run."""
    new = new_run(me, me)
    author = await create(store, new)
    for name in ("c1", "c2"):
        await store.post(me, say(name), judge)
    await author.write(2, row=replace(author.row, stage=Stage.RUNNING, step=3, inbox=1), consumed=1)
    outline = await store.outline(me)
    if outline is None:
        raise AssertionError("the run has an outline")
    rows = outline.info, outline.row, outline.stage, outline.step
    expect(rows, (new.info, author.row, Stage.RUNNING, 3), "its rows")
    expect((outline.last_sequence, outline.posted, outline.consumed), (3, 2, 1), "its newest event, and its inbox")
    expect(await store.outline(f"{me}.unknown"), None, "no such run")


@scenario
async def one_ticket_is_found_by_its_id_or_its_call(store: Store, _: ReportLog, me: str) -> None:
    """Of a call the newest; a ticket's id goes first."""
    author = await create(store, new_run(me, me))
    tickets = [ticket_row(me, number, call) for number, call in ((1, "a"), (2, "b"), (3, "a"))]
    for ticket in tickets:
        await author.write(calls=(call_row(str(ticket.call_id)),), tickets=(ticket,))
    expect(await store.ticket(me, f"{me}.t1"), tickets[0], "by its id")
    expect(await store.ticket(me, "a"), tickets[2], "the newest of the call")
    expect([await store.ticket(me, ""), await store.ticket(f"{me}.x", "a")], [None, None], "there is no other")


@scenario
async def a_run_id_is_used_once(store: Store, _: ReportLog, me: str) -> None:
    """Also after the run was pruned: the same start again makes no second run, and says what is known."""
    author = await create(store, new_run(me, me, content="what was asked"))
    await author.end(at=THEN)
    await store.prune(LATER)
    for content in ("what was asked", "something else"):
        created = await _try(store, new_run(me, f"{me}.{content}", content=content))
        expect(created, Created(claim=None, pruned="what was asked"), "the id stays taken")
        expect(await store.thread(f"{me}.{content}"), None, "and no thread is begun")


@scenario
async def a_thread_is_emptied_with_its_last_run(store: Store, _: ReportLog, me: str) -> None:
    """While one run is left all messages are; then messages and state go, and the thread keeps its owner."""
    write = StateWrite(key="k", scope="thread", value=1, revision=1)
    first = await create(store, _by("ann", f"{me}.1", me, messages=(message("m1"),)))
    await first.write(state=(write,))
    await first.end(at=THEN)
    second = await create(store, _by("bob", f"{me}.2", me, messages=(message("m2"),)))
    forecast = await store.prune(LATER, dry_run=True)
    expect((forecast.runs, forecast.messages), (1, 0), "a dry run counts")
    expect(await store.load(f"{me}.1") is None, False, "and deletes nothing")
    await store.prune(LATER)
    expect(
        [member.id for member in await store.messages(me)], ["m1", "m2"], "the history of the run that is left is whole"
    )
    info = await store.thread(me)
    expect(info and (info.owner, info.runs), ("ann", 2), "the owner is the first run's principal")
    expect(info and [member.by for member in info.members], ["ann", "bob"], "whose messages are left is a member")
    await second.end(at=THEN)
    forecast = await store.prune(LATER, dry_run=True)
    expect((forecast.runs, forecast.messages), (1, 2), "a dry run counts the messages of the last run's thread")
    pruned = await store.prune(LATER)
    expect((pruned.runs, pruned.messages), (1, 2), "the messages go with the last run")
    expect(list(await store.messages(me)), [], "there is no history")
    info = await store.thread(me)
    expect(info and (info.owner, info.runs, info.members), ("ann", 2, ()), "the thread stays its owner's")
    third = await create(store, _by("bob", f"{me}.3", me, messages=(message("m1"),)))
    record = await store.load(third.run_id)
    expect(record and record.state, (), "a run that comes later begins again")
    expect([member.id for member in await store.messages(me)], ["m1"], "with its own messages")


@scenario
async def the_bytes_of_parts_are_kept_once_for_each_thread(store: Store, _: ReportLog, me: str) -> None:
    """They come with a run or a commit, are found by their digests, copied by a fork, and pruned with the messages."""
    image = part_of("image", b"one", "image/png")
    file = part_of("file", b"two", "text/plain", "a.txt")
    sent_message = replace(message("m1"), parts=light((image,)))
    first = await create(store, new_run(f"{me}.1", me, messages=(sent_message,), parts=(image,)))
    expect(await store.parts(me, (image.sha256, file.sha256)), {image.sha256: b"one"}, "the parts of the start")
    later = replace(message("m2"), parts=light((file, image)))
    await first.write(messages=(later,), parts=(file, image))
    report = Artifact(kind="file", name="r.txt", media_type="text/plain", size=5, sha256="5" * 64, data=b"three")
    await first.write(parts=(report,))
    expect(dict(await store.parts(me, (report.sha256,))), {report.sha256: b"three"}, "those of an artifact")
    both = {image.sha256: b"one", file.sha256: b"two"}
    expect(dict(await store.parts(me, tuple(both))), both, "and those of a commit")
    history = tuple(await store.messages(me))
    expect([part for one in history for part in one.parts], [*light((image, file, image))], "messages have facts only")
    expect(dict(await store.parts(f"{me}.no", tuple(both))), {}, "another thread has none")
    fork = new_run(f"{me}.2", f"{me}.f", messages=(sent_message,), parts=light((image,)), thread_parent=(me, 1))
    second = await create(store, fork)
    expect(dict(await store.parts(f"{me}.f", tuple(both))), {image.sha256: b"one"}, "a fork copies what it needs")
    await first.end(at=THEN)
    await store.prune(LATER)
    expect(dict(await store.parts(me, tuple(both))), {}, "the last run takes them with it")
    expect(dict(await store.parts(f"{me}.f", tuple(both))), {image.sha256: b"one"}, "the fork keeps its own")
    await second.end(at=THEN)
    forecast = await store.prune(LATER, dry_run=True)
    expect(forecast.runs, 1, "a dry run counts")
    expect(dict(await store.parts(f"{me}.f", tuple(both))), {image.sha256: b"one"}, "and deletes nothing")


@scenario
async def the_bytes_of_a_command_are_kept_in_the_thread(store: Store, reports: ReportLog, me: str) -> None:
    """The journaled command has the facts of its parts; a rejected or repeated command keeps nothing."""
    author = await create(store, new_run(me, me))
    file, other = part_of("file", b"sent", "a/b"), part_of("file", b"other", "a/b")
    command = attrs.evolve(say(f"{me}.s"), parts=(file,))
    first = await store.post(me, command, judge)
    again = await store.post(me, command, judge)
    expect((first.status, again.status), ("accepted", "duplicate"), "the same command is one")
    changed = await store.post(me, attrs.evolve(command, parts=(other,)), judge)
    expect(changed.status, "rejected", "the same id with other parts is another command")
    expect(dict(await store.parts(me, (file.sha256, other.sha256))), {file.sha256: b"sent"}, "its bytes are kept")
    (item,) = await store.commands(me)
    expect(item.command.parts, light((file,)), "the journaled command has facts only")
    expect([posted.command.parts for _, posted in reports.items], [light((file,))], "and so has the hint")
    sent_message = replace(message(f"{me}.m1"), parts=light((file,)), producer=Producer(run_id=me, step=1))
    sent = SentText(number=1, step=1, command_id=f"{me}.s", size=5)
    row = replace(RunRow(), stage=Stage.RUNNING, inbox=1, pending_input=(sent_message,), sent=(sent,), last_sequence=2)
    await author.write(row=row, consumed=1)
    record = await store.load(me)
    pending_input = () if record is None else record.row.pending_input
    expect([waits.parts for waits in pending_input], [light((file,))], "input that waits for a step has its parts")


@scenario
async def bytes_come_with_their_commit_or_not_at_all(store: Store, _: ReportLog, me: str) -> None:
    """A refused commit leaves none; the size of a part does not matter."""
    author = await create(store, new_run(me, me))
    lost, large = part_of("file", b"lost", "a/b"), part_of("file", bytes(MAX_BYTES), "a/b")
    late = await create(store, new_run(f"{me}.2", me))
    commit = late.make(parts=(lost,))
    stale = await late.send(replace(commit, expected_last=commit.expected_last + 7)).receipt()
    expect(stale.kind, "lease_lost", "a commit that does not follow")
    expect(dict(await store.parts(me, (lost.sha256,))), {}, "writes no bytes")
    await author.write(parts=(large,))
    expect(len((await store.parts(me, (large.sha256,)))[large.sha256]), MAX_BYTES, "the largest part is kept")


@reopening
async def owners_and_used_ids_outlive_an_opening(open_store: OpenStore, me: str) -> None:
    """The rows that a prune leaves are durable."""
    store = open_store()
    async with opened(store):
        author = await create(store, _by("ann", me, me))
        await author.end(at=THEN)
        await store.prune(LATER)
        await create(store, _by("bob", f"{me}.2", f"{me}.2"))
    store = open_store()
    async with opened(store):
        owners = [await store.thread(name) for name in (me, f"{me}.2")]
        expect([member and member.owner for member in owners], ["ann", "bob"], "the owners")
        expect((await _try(store, new_run(me, me))).pruned, "", "the used id")
