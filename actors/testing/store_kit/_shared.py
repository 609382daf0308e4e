"""Scenarios of the store kit for shared stores: owners, commands, threads and followers across processes."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Final

import trio
from msgspec.structs import replace

from ...contract.claims import Claim
from ...contract.commits import Receipt
from ...contract.decisions import Command, CommandResult
from ...contract.lifecycle import Stage
from ...contract.rows import CommandContext
from ...errors import ThreadBusy
from ...processes import Taken
from ._tools import (
    NOW,
    Author,
    Pair,
    call_row,
    claimed,
    create,
    decide,
    expect,
    frame,
    judge,
    loaded,
    message,
    new_run,
    opened,
    refused,
    say,
    shared,
    ticket_row,
)

LATER: Final = datetime(2100, 1, 1, tzinfo=NOW.tzinfo)
"""After the end of every pause."""


async def rest(author: Author, **changes: object) -> None:
    """Let a run wait for people."""
    await author.write(row=replace(author.row, stage=Stage.NEEDS_APPROVAL, **changes))


# --- claims ----------------------------------------------------------------------------------------------------------


@shared()
async def a_run_of_another_process_is_taken(pair: Pair) -> None:
    """A run belongs to one process: another one cannot claim it, and its owner claims it again."""
    author = await pair.create(pair.a, pair.me)
    expect(await pair.b.claim(pair.me), Taken(process=pair.name_a), "the claim of another process is refused")
    expect(await pair.ready(pair.b), [], "and the run is not ready")
    await author.write()
    renewed = await claimed(pair.a, pair.me)
    expect(renewed.token > author.claim.token, True, "its owner gets a new token")
    expect(await pair.owner(pair.me), pair.name_a, "the run shows its owner")
    expect(await pair.b.claim(f"{pair.me}.none"), None, "an unknown run cannot be claimed")


@shared()
async def every_process_reads_what_is_durable(pair: Pair) -> None:
    """The commit of a receipt can be read through every handle immediately."""
    author = await pair.create(pair.a, pair.me, messages=(message(f"{pair.me}.m"),))
    await author.write(2)
    expect(list(await pair.b.events(pair.me)), [frame(pair.me, number) for number in (1, 2, 3)], "the events are there")
    expect((await loaded(pair.b, pair.me)).row, author.row, "and the rows")
    again = await pair.b.create_run(new_run(pair.me, "other", agent=pair.me), frame(pair.me, 1))
    expect((again.claim, again.existing and again.existing.run_id), (None, pair.me), "an id is used once")
    dedupe = await pair.create(pair.a, f"{pair.me}.d", dedupe=pair.me)
    double = await pair.b.create_run(new_run(f"{pair.me}.e", pair.me, dedupe=pair.me), frame(f"{pair.me}.e", 1))
    expect((double.deduplicated, double.existing and double.existing.run_id), (True, dedupe.run_id), "a key, too")


@shared()
async def a_released_run_belongs_to_the_next(pair: Pair) -> None:
    """A run at rest that was released has no owner; each process may claim it, and the old claim writes nothing."""
    author = await pair.create(pair.a, pair.me)
    await rest(author)
    expect(list(await pair.a.release([author.claim])), [], "a run at rest is released")
    expect(await pair.owner(pair.me), None, "it has no owner")
    expect((await pair.b.progress((pair.me,)))[pair.me].owned, False, "however one asks")
    expect(await pair.ready(pair.b), [], "and needs none")
    late = author.make(1)
    expect((await author.send(late).receipt()).kind, "lease_lost", "the released claim writes nothing")
    claim = await claimed(pair.b, pair.me)
    expect((await author.send(late).receipt()).kind, "lease_lost", "also where the sequence fits")
    expect(list(await pair.a.release([author.claim])), [], "a void claim is released already")
    expect(await pair.owner(pair.me), pair.name_b, "and its new owner keeps the run")
    expect((await pair.a.progress((pair.me,)))[pair.me].owned, True, "it has an owner")
    author.store = pair.b
    expect((await author.send(late, claim).receipt()).kind, "committed", "the new claim writes")


@shared()
async def a_run_with_unread_commands_is_not_released(pair: Pair) -> None:
    """A command that arrives before the release makes the store refuse it, and the claim stays good."""
    author = await pair.create(pair.a, pair.me)
    await rest(author)
    result = await pair.b.post(pair.me, say("c1"), judge)
    expect(result.status, "accepted", "the command is journaled")
    expect(list(await pair.a.release([author.claim])), [pair.me], "the release is refused")
    expect(await pair.owner(pair.me), pair.name_a, "and the run keeps its owner")
    receipt = await author.write(row=replace(author.row, inbox=1), consumed=1)
    expect(receipt.posted, 1, "a receipt has the position of the newest command")
    expect(list(await pair.a.release([author.claim])), [], "it is released once the command is consumed")


@shared()
async def a_run_that_is_given_back_waits_for_its_pause(pair: Pair) -> None:
    """A run that is given back is ready for every process after its pause, and no crash is counted."""
    claim = (await pair.create(pair.a, pair.me)).claim
    for _ in range(8):
        await pair.a.give_back([claim])
        expect(await pair.ready(pair.b), [pair.me], "without a pause it is ready immediately")
        await pair.b.give_back([await claimed(pair.b, pair.me)])
        claim = await claimed(pair.a, pair.me)
    await pair.a.give_back([claim], ready_at=LATER)
    expect(await pair.ready(pair.b, now=LATER - timedelta(seconds=1)), [], "with a pause it is not")
    expect(await pair.ready(pair.b, now=LATER), [pair.me], "until the pause is over, by the clock of the caller")
    await pair.a.give_back([claim])
    expect(await pair.owner(pair.me), pair.name_b, "a void claim gives nothing back")


@shared()
async def a_zombie_writes_nothing_that_would_fit(pair: Pair) -> None:
    """The token alone decides: a commit with an old claim is refused where its sequence fits, and in any batch."""
    author = await pair.create(pair.a, pair.me)
    old = author.claim
    await pair.a.give_back([old])
    await claimed(pair.b, pair.me)
    late = author.make(0, messages=(message(f"{pair.me}.zombie"),))
    expect((await author.send(late).receipt()).kind, "lease_lost", "without events, the sequence tells nothing")
    await pair.b.give_back([await claimed(pair.b, pair.me)])
    author.claim = await claimed(pair.a, pair.me)
    stale = author.send(author.make(0, messages=(message(f"{pair.me}.stale"),)), old)
    good = author.send(author.make(0, messages=(message(f"{pair.me}.good"),)))
    expect((await stale.receipt()).kind, "lease_lost", "the stale one of two concurrent commits is refused")
    expect((await good.receipt()).kind, "committed", "the good one is written")
    history = [one.id for one in await pair.b.messages(pair.me)]
    expect(history, [f"{pair.me}.good"], "and nothing of the stale one rides on it")


@shared()
async def one_of_two_processes_gets_a_run(pair: Pair) -> None:
    """Processes that claim at the same time share the ready runs: each run has one owner."""
    names = [f"{pair.me}.{number}" for number in range(24)]
    for name in names:
        await pair.queue(pair.a, name)
    run_ids = dict[str, list[str]](a=[], b=[])

    async def claim(name: str) -> None:
        store = pair.a if name == "a" else pair.b
        while batch := await pair.ready(store, 3):
            run_ids[name] += batch

    async with trio.open_nursery() as nursery:
        nursery.start_soon(claim, "a")
        nursery.start_soon(claim, "b")
    expect(sorted(run_ids["a"] + run_ids["b"]), sorted(names), "each run is claimed once")
    for name, process in (("a", pair.name_a), ("b", pair.name_b)):
        owners = {line.owner for line in (await pair.b.summaries(run_ids[name])).runs}
        expect(owners <= {process}, True, "by the process that got it")


@shared()
async def one_of_two_processes_gets_a_timer(pair: Pair) -> None:
    """A timer that fired is one process's; that of a run with an owner is the owner's."""
    for name in ("free", "owned"):
        author = await pair.create(pair.a, f"{pair.me}.{name}")
        await rest(author, next_due=NOW)
        if name == "free":
            await pair.a.release([author.claim])
    run_ids = [
        run.claim.run_id
        for store in (pair.b, pair.a, pair.b)
        for run in await store.claim_due(NOW + timedelta(seconds=1), pair.able)
    ]
    expect(run_ids, [f"{pair.me}.free"], "the run without an owner is claimed once")


@shared()
async def a_limit_holds_over_all_processes(pair: Pair) -> None:
    """A limited queue has never more runs in work than its limit, whichever processes claim."""
    await pair.a.set_queue(pair.me, max_running=3)
    for number in range(9):
        await pair.queue(pair.a, f"{pair.me}.{number}")
    claims = list[Claim]()

    async def claim(store_is_a: bool) -> None:
        store = pair.a if store_is_a else pair.b
        for _ in range(3):
            claims.extend(run.claim for run in await store.claim_ready(2, pair.able, NOW))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(claim, True)
        nursery.start_soon(claim, False)
    expect(len(claims), 3, "as many as the limit, in any race")
    first = claims[0].run_id
    owner = pair.a if await pair.owner(first) == pair.name_a else pair.b
    await Author(owner, claims[0], (await loaded(owner, first)).row).end()
    expect(len(await pair.ready(pair.b)), 1, "one ends, one is claimed")


@shared("older")
async def an_older_release_leaves_newer_rows_alone(pair: Pair) -> None:
    """A process claims only runs whose rows it can read."""
    await pair.queue(pair.a, pair.me)
    older = pair.steering.older()
    async with opened(older):
        expect(await pair.ready(older), [], "the older process leaves the run")
    expect(await pair.ready(pair.b), [pair.me], "a newer one takes it")


@shared("older")
async def a_run_with_a_newer_command_is_left_to_newer_releases(pair: Pair) -> None:
    """The command is a row that an older process cannot read."""
    older = pair.steering.older()
    async with opened(older):
        await pair.queue(older, pair.me)
        expect((await pair.b.post(pair.me, say("c1"), judge)).status, "accepted", "a newer process accepts a command")
        expect(await pair.ready(older), [], "the older process leaves the run")
    expect(await pair.ready(pair.b), [pair.me], "a newer one takes it")


# --- commands --------------------------------------------------------------------------------------------------------


@shared()
async def a_command_reaches_the_owner(pair: Pair) -> None:
    """A command that another process accepted is reported in the owner's process alone, without a wait."""
    await pair.create(pair.a, pair.me)
    result = await pair.b.post(pair.me, say("c1"), judge)
    expect(result.status, "accepted", "any process accepts commands")
    await pair.eventually(lambda: bool(pair.log_a.items), "the owner is given the command", turns=0.5)
    expect([(name, item.position) for name, item in pair.log_a.items], [(pair.me, 1)], "with its position")
    expect(pair.log_b.items, [], "the poster is not its owner")


@shared()
async def a_command_to_a_run_without_an_owner_is_the_posters(pair: Pair) -> None:
    """If no process owns the run, the command is reported to the poster, and the run is ready for all."""
    author = await pair.create(pair.a, pair.me)
    await rest(author)
    await pair.a.release([author.claim])
    await pair.b.post(pair.me, say("c1"), judge)
    expect([(name, item.position) for name, item in pair.log_b.items], [(pair.me, 1)], "the poster has it")
    expect(pair.log_a.items, [], "the former owner does not")
    expect(await pair.ready(pair.a), [pair.me], "the run is ready")


@shared("lose_hints")
async def a_lost_hint_is_made_up_for(pair: Pair) -> None:
    """Commands, free threads, changes and work are noticed within turns, though every hint is lost."""
    for store in (pair.a, pair.b):
        store.publish({pair.me: "d1"}, room=None)
    with pair.steering.lose_hints():
        author = await pair.create(pair.a, f"{pair.me}.first", f"{pair.me}.t")
        await pair.create(pair.b, f"{pair.me}.held", f"{pair.me}.t")
        followed = await pair.create(pair.a, f"{pair.me}.followed")
        await pair.b.post(f"{pair.me}.first", say("c1"), judge)
        with pair.b.watch(followed.run_id):
            await followed.write()
            await pair.eventually(lambda: bool(pair.log_a.items), "the owner learns of the command")
            moved = (followed.run_id, followed.row.last_sequence)
            await pair.eventually(lambda: moved in pair.log_b.moves, "the follower learns of the event")
        await author.write(row=replace(author.row, inbox=1), consumed=1)
        receipt = await author.end()
        expect(receipt.next_in_thread, None, "the next run of the thread is another process's")
        held = f"{pair.me}.held"
        await pair.eventually(lambda: held in pair.log_b.freed, "the owner learns that the thread is free")
        works = pair.log_b.works
        await pair.queue(pair.a, f"{pair.me}.work")
        await pair.eventually(lambda: pair.log_b.works > works, "each process learns of work")


@shared()
async def a_command_is_judged_by_the_facts_that_it_meets(pair: Pair) -> None:
    """If a run changes while a command is judged, the command is judged again."""
    author = await pair.create(pair.a, pair.me)
    token, judged = trio.lowlevel.current_trio_token(), list[Stage]()
    ended = author.make(row=replace(author.row, stage=Stage.COMPLETED))

    def change() -> threading.Event:
        durable = threading.Event()

        def deliver(_: Receipt) -> None:
            durable.set()

        pair.a.submit(author.claim, ended, [frame(pair.me, 2)], deliver)
        return durable

    def slow(facts: CommandContext, command: Command) -> CommandResult:
        judged.append(facts.stage)
        if len(judged) == 1:
            in_trio = threading.get_ident() == home
            durable = change() if in_trio else trio.from_thread.run_sync(change, trio_token=token)
            expect(durable.wait(10), True, "commits do not wait for judges")
        return judge(facts, command)

    home = threading.get_ident()
    result = await pair.b.post(pair.me, say("c1"), slow)
    expect(judged, [Stage.CREATED, Stage.COMPLETED], "the judge is asked again, with the new facts")
    expect(result.status, "rejected", "and its second result counts: a done run takes no input")
    expect(list(await pair.b.commands(pair.me)), [], "nothing is journaled")


@shared()
async def one_of_two_decisions_is_accepted(pair: Pair) -> None:
    """Two processes that decide one ticket at the same time: one is accepted, the other learns of it."""
    author = await pair.create(pair.a, pair.me)
    ticket = ticket_row(pair.me, 1, "c")
    await author.write(calls=(call_row("c"),), tickets=(ticket,), row=replace(author.row, stage=Stage.NEEDS_APPROVAL))
    results = list[str | None]()

    async def post(number: int) -> None:
        store = pair.a if number % 2 else pair.b
        result = await store.post(pair.me, decide(f"d{number}", ticket.ticket_id), judge)
        results.append(result.code or result.status)

    async with trio.open_nursery() as nursery:
        for number in range(6):
            nursery.start_soon(post, number)
    expect(sorted(map(str, results)), ["accepted", *["already_decided"] * 5], "one decision counts")
    expect(len(await pair.b.commands(pair.me)), 1, "and is journaled once")


# --- lost answers ----------------------------------------------------------------------------------------------------


@shared("lose_answer")
async def a_commit_is_written_once_though_its_answer_is_lost(pair: Pair) -> None:
    """A commit whose answer was lost is sent again, and neither written twice nor refused."""
    author = await pair.create(pair.a, pair.me)
    pair.steering.lose_answer(pair.a)
    await author.write(2, messages=(message(f"{pair.me}.a"),))
    pair.steering.lose_answer(pair.a)
    await author.write(0, messages=(message(f"{pair.me}.b"),))
    pair.steering.lose_answer(pair.a)
    await author.write(0, row=replace(author.row, step=1))
    await author.write(1)
    expect(list(await pair.b.events(pair.me)), [frame(pair.me, number) for number in (1, 2, 3, 4)], "each event once")
    history = [one.id for one in await pair.b.messages(pair.me)]
    expect(history, [f"{pair.me}.a", f"{pair.me}.b"], "each message once, also of the commit without events")
    pair.steering.lose_answer(pair.a)
    await author.end()


@shared("lose_answer")
async def a_command_is_accepted_once_though_its_answer_is_lost(pair: Pair) -> None:
    """The sender of a command whose answer was lost is answered `accepted`, and the command is journaled once."""
    await pair.create(pair.a, pair.me)
    pair.steering.lose_answer(pair.b)
    result = await pair.b.post(pair.me, say("c1"), judge)
    expect(result.status, "accepted", "the first sender's command is accepted")
    expect(len(await pair.b.commands(pair.me)), 1, "it is journaled once")
    result = await pair.b.post(pair.me, say("c1"), judge)
    expect(result.status, "duplicate", "a second sending is a duplicate")
    await pair.eventually(lambda: bool(pair.log_a.items), "and the owner is given the command", turns=2)


@shared("lose_answer")
async def a_run_is_created_once_though_the_answer_is_lost(pair: Pair) -> None:
    """The creator of a run whose answer was lost gets the claim, not an existing run."""
    pair.steering.lose_answer(pair.a)
    author = await pair.create(pair.a, pair.me)
    await author.write()
    pair.steering.lose_answer(pair.a)
    renewed = await claimed(pair.a, pair.me)
    author.claim = renewed
    await author.write()
    pair.steering.lose_answer(pair.a)
    held = await pair.a.create_run(new_run(f"{pair.me}.2", pair.me, agent=pair.me), frame(f"{pair.me}.2", 1))
    expect((held.claim is None, held.held, held.behind), (False, True, pair.me), "a held one likewise")


# --- threads ---------------------------------------------------------------------------------------------------------


@shared()
async def a_thread_is_freed_in_the_owners_process(pair: Pair) -> None:
    """The end of a run in one process frees the held run of another, and its owner is given that as a hint."""
    first = await pair.create(pair.a, f"{pair.me}.1", pair.me)
    created = await pair.b.create_run(new_run(f"{pair.me}.2", pair.me, agent=pair.me), frame(f"{pair.me}.2", 1))
    expect((created.held, created.behind), (True, f"{pair.me}.1"), "one run works on a thread, over all processes")
    new = new_run(f"{pair.me}.3", pair.me, agent=pair.me, on_busy="refuse")
    await refused(ThreadBusy, pair.b.create_run(new, frame(f"{pair.me}.3", 1)), "the thread is busy everywhere")
    third = await pair.create(pair.a, f"{pair.me}.4", pair.me)
    receipt = await first.end()
    expect(receipt.next_in_thread, None, "the freed run is not this process's")
    await pair.eventually(lambda: f"{pair.me}.2" in pair.log_b.freed, "its owner is given the hint", turns=0.5)
    second = Author(pair.b, created.claim or third.claim, new.row)
    receipt = await second.end()
    expect(receipt.next_in_thread, None, "and the other way round")
    await pair.eventually(lambda: third.run_id in pair.log_a.freed, "the next owner is given the hint", turns=0.5)


@shared()
async def a_freed_run_without_an_owner_is_ready(pair: Pair) -> None:
    """A held run that no process owns is ready when its thread is free, and not before."""
    first = await pair.create(pair.a, f"{pair.me}.1", pair.me)
    await pair.queue(pair.b, f"{pair.me}.2", thread=pair.me)
    expect(await pair.ready(pair.b), [], "it is held")
    cancel = Command(command_id="c", kind="cancel", posted_at=NOW)
    await pair.queue(pair.b, f"{pair.me}.3", thread=pair.me)
    await pair.b.post(f"{pair.me}.3", cancel, judge)
    expect(await pair.ready(pair.b), [f"{pair.me}.3"], "a held run that is cancelled needs an owner immediately")
    await first.end()
    expect(await pair.ready(pair.b), [f"{pair.me}.2"], "the next one is ready now")


@shared("lose_follow_ups")
async def a_thread_is_freed_though_the_follow_up_is_lost(pair: Pair) -> None:
    """If the end of a run did not free its thread, a turn does; until then no newer run overtakes."""
    with pair.steering.lose_follow_ups():
        first = await pair.create(pair.a, f"{pair.me}.1", pair.me)
        second = await pair.create(pair.b, f"{pair.me}.2", pair.me)
        receipt = await first.end()
        expect(receipt.next_in_thread, None, "the follow-up is lost")
        third = await pair.b.create_run(new_run(f"{pair.me}.3", pair.me, agent=pair.me), frame(f"{pair.me}.3", 1))
        freed = second.run_id in pair.log_b.freed
        expect(third.held or freed, True, "the newer run waits for the older one")
    await pair.eventually(lambda: second.run_id in pair.log_b.freed, "a turn frees the thread")
    expect((await pair.a.summaries([second.run_id])).runs[0].held, False, "the run may work")


# --- following -------------------------------------------------------------------------------------------------------


@shared()
async def a_watched_run_reports_its_changes(pair: Pair) -> None:
    """For the time of a watch, a process learns of the durable events of a run of another process."""
    author = await pair.create(pair.a, pair.me)
    with pair.b.watch(pair.me):
        await author.write(2)
        moved = (pair.me, 3)
        await pair.eventually(lambda: moved in pair.log_b.moves, "the change is reported")
    count = len(pair.log_b.moves)
    await author.write()
    await trio.sleep(2 * pair.steering.turn)
    expect(len(pair.log_b.moves), count, "after the watch nothing is")
    expect(pair.log_a.moves, [], "nor in the owner's process")


@shared("renew_epoch")
async def another_history_has_another_name(pair: Pair) -> None:
    """When the logs get another identity, every open store reports it."""
    before = pair.a.epoch
    expect(pair.b.epoch, before, "all handles have the same epoch")
    await pair.steering.renew_epoch()
    for store, log in ((pair.a, pair.log_a), (pair.b, pair.log_b)):
        await pair.eventually(lambda log=log: bool(log.epochs), "the new name is reported")  # type: ignore[misc]
        expect((store.epoch == before, log.epochs[-1]), (False, store.epoch), "and is the store's")
    expect(pair.a.epoch, pair.b.epoch, "all handles have the new one")
    await create(pair.a, new_run(pair.me, pair.me, agent=pair.me))
