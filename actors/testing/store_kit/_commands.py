"""Scenarios of the store kit: commands and the inbox, lists of runs, and what outlives a store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs
import trio
from msgspec.structs import replace

from ...abc import Store
from ...contract.calls import CallPosition
from ...contract.decisions import Command, CommandResult, Decision, InboxItem
from ...contract.lifecycle import RunStatus, Stage
from ...contract.rows import CommandContext
from ...contract.run_lists import RunQuery
from ...contract.state import StateWrite
from ...errors import StoreDown, UnknownRun, UsageError
from ._tools import (
    OpenStore,
    ReportLog,
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
    reopening,
    say,
    scenario,
    ticket_row,
)


@scenario
async def an_accepted_command_is_journaled_and_told(store: Store, reports: ReportLog, me: str) -> None:
    """A post returns when the command is durable, after the hook has been called, in order."""
    await create(store, new_run(me, me))
    commands = [say(f"c{i}", text=f"{i}") for i in range(3)]
    for number, command in enumerate(commands, 1):
        result = await store.post(me, command, judge)
        expect((result.status, result.command_id), ("accepted", command.command_id), "a message is accepted")
        expect(len(reports.items), number, "the hook was called before post returned")
    items = [InboxItem(position=i, command=posted) for i, posted in enumerate(commands, 1)]
    expect(reports.items, [(me, item) for item in items], "the hook got the items, positions from 1")
    expect(list((await loaded(store, me)).inbox), items, "and they are in the inbox")


@scenario
async def the_same_command_again_is_a_duplicate(store: Store, reports: ReportLog, me: str) -> None:
    """The first answer comes again, also when the run is done; another content under the id is a conflict."""
    author = await create(store, new_run(me, me))
    await store.post(me, say("c1"), judge)
    again = await store.post(me, attrs.evolve(say("c1"), by="another principal"), judge)
    expect((again.status, again.ok), ("duplicate", True), "the same content under the same id is a duplicate")
    other = await store.post(me, say("c1", "other"), judge)
    expect((other.status, other.code), ("rejected", "decision_id_conflict"), "another content is a conflict")
    await author.write(row=replace(author.row, inbox=1), consumed=1)
    await author.end()
    late = await store.post(me, say("c1"), judge)
    expect(late.status, "duplicate", "the answer is kept after the end")
    journal = [(item.position, item.command.command_id) for item in await store.commands(me)]
    expect(journal, [(1, "c1")], "the command is kept, too")
    expect(list(await store.commands("unknown")), [], "an unknown run has no commands")
    expect(len(reports.items), 1, "only the first one was journaled")


@scenario
async def a_rejected_command_leaves_no_trace(store: Store, reports: ReportLog, me: str) -> None:
    """Any answer but accepted writes nothing, and the id may be used again; the same if the judge raises."""
    await create(store, new_run(me, me))

    def refuse(facts: CommandContext, command: Command) -> CommandResult:
        expect((facts.stage, facts.pending, facts.known), (Stage.CREATED, 0, None), "the judge sees the run as it is")
        return CommandResult(status="rejected", code="busy", command_id=command.command_id)

    def stumble(_facts: CommandContext, _command: Command) -> CommandResult:
        raise ZeroDivisionError

    expect((await store.post(me, say("c1"), refuse)).code, "busy", "the judge's answer is passed on")
    await refused(ZeroDivisionError, store.post(me, say("c1"), stumble), "a judge's error is the poster's")
    expect(((await loaded(store, me)).inbox, reports.items), ((), []), "nothing was journaled")
    expect((await store.post(me, say("c1"), judge)).status, "accepted", "the id is still free")


@scenario
async def a_run_that_is_done_takes_no_command(store: Store, reports: ReportLog, me: str) -> None:
    """The judge sees its stage, and nothing is journaled."""
    await (await create(store, new_run(me, me))).end()
    result = await store.post(me, say("c1"), judge)
    expect((result.status, result.code), ("rejected", "run_done"), "the run is done")
    expect(((await loaded(store, me)).inbox, reports.items), ((), []), "nothing was journaled")


@scenario
async def of_two_deciders_one_wins(store: Store, reports: ReportLog, me: str) -> None:
    """Of two simultaneous decisions about one ticket the first is accepted, the other is already_decided."""
    author = await create(store, new_run(me, me))
    waiting = replace(author.row, step=1, stage=Stage.NEEDS_APPROVAL)
    suspended = call_row("a", at=CallPosition.PARKED)
    await author.write(row=waiting, calls=(suspended,), tickets=(ticket_row(me, 1, "a"),))
    results: list[CommandResult] = []

    async def post(name: str, target: str) -> None:
        results.append(await store.post(me, decide(name, target, by=name), judge))

    async with trio.open_nursery() as nursery:
        for name, target in (("ann", f"{me}.t1"), ("bob", "a"), ("eve", f"{me}.t1")):
            nursery.start_soon(post, name, target)
    outcome = sorted((result.status, result.code) for result in results)
    rejected = ("rejected", "already_decided")
    expect(outcome, [("accepted", None), rejected, rejected], "one decision wins")
    expect(len(reports.items), 1, "one decision is journaled")
    unknown = await store.post(me, decide("x", "unknown"), judge)
    expect(unknown.code, "unknown_target", "a target that the run does not have is unknown")


@scenario
async def even_a_careless_judge_journals_one_decision_per_ticket(store: Store, reports: ReportLog, me: str) -> None:
    """Ids and targets are unique in the store itself."""
    author = await create(store, new_run(me, me))
    suspended = call_row("a", at=CallPosition.PARKED)
    await author.write(row=replace(author.row, step=1), calls=(suspended,), tickets=(ticket_row(me, 1, "a"),))

    def careless(_facts: CommandContext, _command: Command) -> CommandResult:
        return CommandResult(status="accepted")

    first = await store.post(me, decide("d1", f"{me}.t1"), careless)
    second = await store.post(me, decide("d2", f"{me}.t1"), careless)
    third = await store.post(me, say("d1"), careless)
    expect((first.status, second.code, third.code), ("accepted", "already_decided", "decision_id_conflict"), "unique")
    expect(len(reports.items), 1, "one is journaled")


@scenario
async def the_judge_sees_ticket_call_and_earlier_decision(store: Store, _: ReportLog, me: str) -> None:
    """A ticket is found by its id or as the newest of its call; its earlier decision is found, consumed or not.

    A decision by the call's id is journaled with the fingerprint of the ticket. The run's agent and, for a decision,
    the active agent are named.
    """
    author = await create(store, new_run(me, me))
    suspended = call_row("a", at=CallPosition.PARKED)
    waiting = replace(author.row, step=1, stage=Stage.NEEDS_APPROVAL, agent="teller")
    await author.write(row=waiting, calls=(suspended,), tickets=(ticket_row(me, 1, "a"),))
    contexts: list[CommandContext] = []

    def look(facts: CommandContext, command: Command) -> CommandResult:
        contexts.append(facts)
        return judge(facts, command)

    winner = decide("d1", "a")
    await store.post(me, winner, look)
    await author.write(row=replace(author.row, inbox=1), consumed=1)
    await store.post(me, decide("d2", f"{me}.t1"), look)
    used = replace(ticket_row(me, 1, "a"), status="approved")
    await author.write(tickets=(used, ticket_row(me, 2, "a")))
    await store.post(me, decide("d3", f"{me}.t1"), look)
    await store.post(me, decide("d4", "a"), look)
    tickets = [facts.ticket and facts.ticket.ticket_id for facts in contexts]
    expect(tickets, [f"{me}.t1", f"{me}.t1", f"{me}.t1", f"{me}.t2"], "by id, or the newest of the call")
    expect([facts.call for facts in contexts], [suspended] * 4, "with the ticket's call")
    named_call = Decision(target="a", action="resume", decision_id="d1", fingerprint="print of a")
    bound = attrs.evolve(winner, decision=named_call)
    expect([facts.prior for facts in contexts], [None, bound, bound, None], "with the decision that the ticket has")
    expect([facts.pending for facts in contexts], [0, 0, 0, 0], "consumed commands are not pending")
    await store.post(me, say("hello"), look)
    agents = [(facts.agent, facts.active_agent) for facts in contexts]
    expect(agents, [*[("clerk", "teller")] * 4, ("clerk", None)], "agent and active agent, the second for a decision")


@scenario
async def an_early_decision_occupies_its_call(store: Store, _: ReportLog, me: str) -> None:
    """Before the first ticket a decision is for the call; a second one, also for the ticket to come, is too late."""
    author = await create(store, new_run(me, me))
    await author.write(row=replace(author.row, step=1), calls=(call_row("a"),))
    first = await store.post(me, decide("d1", "a"), judge)
    expect((first.status, first.code), ("accepted", "early"), "a decision before its ticket is accepted as early")
    (item,) = (await loaded(store, me)).inbox
    bound = (item.command.early, item.command.decision and item.command.decision.fingerprint)
    expect(bound, (True, "print of a"), "an early decision is for the call as it is now")
    expect((await store.post(me, decide("d2", "a"), judge)).code, "already_decided", "the call is taken")
    await author.write(tickets=(ticket_row(me, 1, "a"),))
    blocked = await store.post(me, decide("d3", f"{me}.t1"), judge)
    expect(blocked.code, "already_decided", "an early decision that is not consumed yet counts for the first ticket")
    early = Decision(target="a", action="resume", decision_id="d1")
    await author.write(row=replace(author.row, inbox=1, early={"a": early}), consumed=1)
    result = await store.post(me, decide("d3", f"{me}.t1"), judge)
    expect(result.code, "already_decided", "so does one that the run keeps for its call")
    await author.write(row=replace(author.row, early={}))
    free = await store.post(me, decide("d3", f"{me}.t1"), judge)
    expect(free.status, "accepted", "one that was used up does not block the call's later tickets")


@scenario
async def consuming_lowers_pending(store: Store, _: ReportLog, me: str) -> None:
    """A commit consumes up to a position; what is consumed is not loaded again and not counted."""
    author = await create(store, new_run(me, me, agent=me))
    for i in range(3):
        await store.post(me, say(f"c{i}"), judge)
    await author.write(row=replace(author.row, inbox=2), consumed=2)
    record = await loaded(store, me)
    expect([item.position for item in record.inbox], [3], "only the third is left")
    page = await store.runs(RunQuery(agent=me))
    expect([summary.pending for summary in page.runs], [1], "one is pending")
    await store.post(me, say("c3"), judge)
    expect([item.position for item in (await loaded(store, me)).inbox], [3, 4], "positions continue")


@scenario
async def a_run_does_not_end_with_unread_commands(store: Store, _: ReportLog, me: str) -> None:
    """A terminal commit that meets unconsumed items is refused with inbox_ahead; consuming them first helps."""
    author = await create(store, new_run(me, me))
    second = await store.create_run(new_run(f"{me}.2", me), frame(f"{me}.2", 1))
    await store.post(me, say("c1"), judge)
    before = author.row
    ending = author.make(1, row=replace(before, stage=Stage.COMPLETED))
    receipt = await author.send(ending).receipt()
    expect((receipt.kind, receipt.next_in_thread), ("inbox_ahead", None), "there is something left to consume")
    expect((await loaded(store, me)).row, before, "nothing was written")
    author.row = before
    await author.write(row=replace(before, inbox=1), consumed=1)
    expect((second.held, (await author.end()).next_in_thread), (True, f"{me}.2"), "now it ends, and releases")


@scenario
async def a_cancelled_poster_still_posts(store: Store, reports: ReportLog, me: str) -> None:
    """Once handed in, a command is written, and its poster learns the answer, cancelled or not."""
    await create(store, new_run(me, me))
    token = trio.lowlevel.current_trio_token()
    with trio.CancelScope() as scope:

        def cancelling(facts: CommandContext, command: Command) -> CommandResult:
            token.run_sync_soon(scope.cancel)  # a store may judge in a thread of its own
            return judge(facts, command)

        result = await store.post(me, say("c1"), cancelling)
        expect(result.status, "accepted", "the answer comes in spite of the cancel")
        await trio.sleep_forever()
    expect([name for name, _ in reports.items], [me], "and it is journaled")
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.post(me, say("c2"), judge)
        raise AssertionError("a cancelled task hands nothing in")
    expect(len((await loaded(store, me)).inbox), 1, "a commit that was not submitted is not written")


# --- lists of runs


@scenario
async def runs_are_listed_newest_first_in_pages(store: Store, _: ReportLog, me: str) -> None:
    """All filters that are given must match; pages neither repeat nor miss a run, also when new ones come meanwhile."""
    for i in range(7):
        author = await create(store, new_run(f"{me}.{i}", f"{me}.t{i % 2}", agent=me))
        if i in (2, 3):
            await author.end()
    run_ids: list[str] = []
    query = RunQuery(agent=me, limit=3)
    while True:
        page = await store.runs(query)
        run_ids += [summary.info.run_id for summary in page.runs]
        if page.cursor is None:
            break
        expect(len(page.runs), 3, "a page that is not the last is full")
        await create(store, new_run(f"{me}.late{len(run_ids)}", f"{me}.late{len(run_ids)}", agent=me))
        query = attrs.evolve(query, cursor=page.cursor)
    expect(run_ids, [f"{me}.{i}" for i in reversed(range(7))], "newest first, each once")
    done = await store.runs(RunQuery(agent=me, status=RunStatus.DONE))
    expect([one.info.run_id for one in done.runs], [f"{me}.3", f"{me}.2"], "by status")
    expect({one.row.stage for one in done.runs}, {Stage.COMPLETED}, "with the row as it is")
    thread = await store.runs(RunQuery(agent=me, thread_id=f"{me}.t1", status=RunStatus.CREATED))
    expect([one.info.run_id for one in thread.runs], [f"{me}.5", f"{me}.1"], "by thread and status")
    for prefix, matches in ((f"{me}.late", [f"{me}.late6", f"{me}.late3"]), (f"{me}.5", [f"{me}.5"]), (f"{me}%", [])):
        by_prefix = await store.runs(RunQuery(prefix=prefix, limit=5))
        expect([one.info.run_id for one in by_prefix.runs], matches, f"by the beginning of the id ({prefix})")
    nobody = await store.runs(RunQuery(agent=f"{me}.unknown"))
    expect((nobody.runs, nobody.cursor), ((), None), "an empty page is the last")


@scenario
async def a_cursor_is_good_for_its_query_only(store: Store, _: ReportLog, me: str) -> None:
    """Another query, a made-up cursor and a limit out of range are the caller's mistakes."""
    for i in range(3):
        await create(store, new_run(f"{me}.{i}", f"{me}.{i}", agent=me))
    page = await store.runs(RunQuery(agent=me, limit=1))
    await store.runs(RunQuery(agent=me, limit=2, cursor=page.cursor))
    other = RunQuery(agent=me, status=RunStatus.DONE, cursor=page.cursor)
    await refused(UsageError, store.runs(other), "a cursor of another query is refused")
    for wrong in ("", "x", "bm90IGpzb24=", "{}"):
        await refused(UsageError, store.runs(RunQuery(agent=me, cursor=wrong)), "a made-up cursor is refused")
    for limit in (0, -1, 1001):
        await refused(UsageError, store.runs(RunQuery(agent=me, limit=limit)), "a limit out of range is refused")


@scenario
async def prune_deletes_whole_done_runs(store: Store, reports: ReportLog, me: str) -> None:
    """Done runs that ended before the time go with all that is theirs; open runs and threads stay."""
    then = datetime(1980, 1, 1, tzinfo=UTC)
    key = StateWrite(key="k", scope="thread", value=1)
    old = await create(store, new_run(f"{me}.old", me, messages=(message("m1"),), agent=me))
    await old.write(calls=(call_row("a"),), tickets=(ticket_row(old.run_id, 1, "a"),), state=(key,), at=then)
    await store.post(old.run_id, say("c1"), judge)
    await old.write(row=replace(old.row, inbox=1), consumed=1)
    await old.end(at=then)
    edge = await create(store, new_run(f"{me}.edge", me, agent=me))
    await edge.end(at=then + timedelta(seconds=1))
    await create(store, new_run(f"{me}.open", me, agent=me))
    pruned = await store.prune(then + timedelta(seconds=1))
    expect((pruned.runs, pruned.messages), (1, 0), "the one that ended before is deleted")
    expect(reports.sweeps, 1, "a slice that deleted runs is reported once")
    remaining_runs = [posted.info.run_id for posted in (await store.runs(RunQuery(agent=me))).runs]
    expect(remaining_runs, [f"{me}.open", f"{me}.edge"], "the others stay")
    expect((await store.load(old.run_id), list(await store.events(old.run_id))), (None, []), "nothing of it is left")
    await refused(UnknownRun, store.post(old.run_id, say("c1"), judge), "not even for commands")
    expect([posted.id for posted in await store.messages(me)], ["m1"], "the thread's history stays")
    expect((await loaded(store, f"{me}.open")).state, (key,), "and its state")
    receipt = await old.send(old.make(1)).receipt()
    expect(receipt.kind in ("lease_lost", "failed"), True, "nothing can be written to it")


# --- opening and closing


@reopening
async def opening_again_voids_all_claims(open_store: OpenStore, me: str) -> None:
    """An owner from before the opening cannot write any more."""
    first = open_store()
    async with opened(first):
        author = await create(first, new_run(me, me))
        await author.write()
    second = open_store()
    async with opened(second):
        author.store = second
        late = author.make(1)
        expect((await author.send(late).receipt()).kind, "lease_lost", "the claim of the first opening is void")
        claim = await claimed(second, me)
        expect((await author.send(late, claim).receipt()).kind, "committed", "a new one is good")


@reopening
async def the_epoch_outlives_an_opening(open_store: OpenStore, me: str) -> None:
    """Sequences that were given out are good after a restart, and the epoch says so."""
    first = open_store()
    async with opened(first):
        epoch = first.epoch
    second = open_store()
    async with opened(second):
        expect(second.epoch, epoch, "the log is the same, so its name is")
    expect(bool(epoch), True, "and it has one")


@reopening
async def what_was_acknowledged_is_there_after_reopening(open_store: OpenStore, me: str) -> None:
    """Rows, events, messages, commands, held runs and answers outlive the store object."""
    first = open_store()
    async with opened(first):
        author = await create(first, new_run(me, me, messages=(message("m1"),)))
        rows = replace(author.row, step=1, early={"a": Decision(target="a", action="resume")})
        await author.write(3, row=rows, calls=(call_row("a"),), tickets=(ticket_row(me, 1, "a"),))
        await first.create_run(new_run(f"{me}.held", me), frame(f"{me}.held", 1))
        await first.post(me, say("c1"), judge)
        before = await loaded(first, me)
    second = open_store()
    async with opened(second) as reports:
        expect(await loaded(second, me), before, "the record is the same")
        expect(list(await second.events(me)), [frame(me, n) for n in range(1, 5)], "so are the events")
        expect(list(await second.messages(me)), [message("m1")], "and the messages")
        mine = [entry for entry in await second.open_runs() if entry[0].startswith(me)]
        expect(mine, [(me, False), (f"{me}.held", True)], "the held run is still held")
        expect((await second.post(me, say("c1"), judge)).status, "duplicate", "the command is known")
        expect(reports.items, [], "old commands are loaded, not posted again")


@reopening
async def a_closed_store_says_that_it_is_down(open_store: OpenStore, me: str) -> None:
    """Before run and after it: commits are delivered "down", commands raise StoreDown, and no call waits."""
    store = open_store()
    await refused(
        StoreDown, store.create_run(new_run(me, me), frame(me, 1)), "a store that does not run creates nothing"
    )
    async with opened(store):
        author = await create(store, new_run(me, me))
        await author.write()
    late = author.send(author.make(1))
    expect((await late.receipt()).kind, "down", "a commit after the end is down")
    await refused(StoreDown, store.post(me, say("c1"), judge), "a command after the end is refused")
    await refused(StoreDown, store.claim(me), "a claim too")
    async with opened(open_store()) as _:
        pass


@reopening
async def what_is_queued_is_written_before_the_store_closes(open_store: OpenStore, me: str) -> None:
    """Leaving run writes what was submitted, and delivers every receipt."""
    store = open_store()
    async with opened(store):
        author = await create(store, new_run(me, me))
        sent = [author.send(author.make(2)) for _ in range(20)]
    kinds = [submitted.receipts[0].kind if submitted.receipts else None for submitted in sent]
    expect(kinds, ["committed"] * 20, "each commit has its receipt when run has ended")
    second = open_store()
    async with opened(second):
        expect(len(await second.events(me)), 41, "and all of them are there")
