"""Bugs that are planted in the memory store, one at a time: the store kit finds each of them.

The memory store is what the random operations of the kit compare another store with. So its own rules must be asserted
by the other scenarios: they alone have to find a bug here. Planted in a store that is compared with a sound one, most
bugs are found by the random operations, too.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import attrs
import pytest
from msgspec.structs import replace
from tests.support.planted_bugs import shown

from greenroom.actors.contract.claims import Claim
from greenroom.actors.contract.commits import Commit, Created, NewRun, Receipt
from greenroom.actors.contract.decisions import Command, InboxItem
from greenroom.actors.contract.lifecycle import TERMINAL, Stage
from greenroom.actors.contract.messages import Message
from greenroom.actors.contract.recording import RecordDelta
from greenroom.actors.contract.rows import Judge, ThreadInfo
from greenroom.actors.contract.run_lists import RunCounts, RunPage, RunQuery
from greenroom.actors.contract.state import StateWrite
from greenroom.actors.contract.ticket_lists import TicketPage, TicketQuery
from greenroom.actors.processes import Ability, ReadyRun, Taken
from greenroom.actors.store_events import CommandPosted, Report, RunCommitted, RunsPruned, StoreEvent
from greenroom.actors.stored_values import StoredValue, ValueWrite
from greenroom.actors.stores.common._requests import PostResult, PruneSlice
from greenroom.actors.stores.common._timestamps import milliseconds
from greenroom.actors.stores.memory._rows import RunTables, ThreadRecord
from greenroom.actors.stores.memory._tables import MemoryTables
from greenroom.actors.stores.memory._values import ValueTable
from greenroom.actors.stores.memory.store import MemoryStore
from greenroom.actors.testing.store_kit._random import play_random
from greenroom.actors.testing.store_kit.kit import STORE_SCENARIOS

BUGS: list[type[MemoryTables] | type[MemoryStore]] = []
"""All that are planted."""
RANDOM = "random_operations_come_to_what_they_do_in_memory"
SEEDS = range(16)
"""Sequences of random operations, each of another store."""


def planted(kind: type[Any]) -> type[Any]:
    """Declare a bug: its docstring says what is wrong."""
    BUGS.append(kind)
    return kind


def store_with(kind: type[MemoryTables] | type[MemoryStore]) -> MemoryStore:
    """A memory store with a bug in it."""
    if issubclass(kind, MemoryStore):
        return kind()
    store = MemoryStore()
    store._ledger = kind()
    return store


# --- creating runs ---------------------------------------------------------------------------------------------------


@planted
class CreatesAgain(MemoryTables):
    """A run that is there is created again."""

    def create(self, new: NewRun, frame: bytes, owner: str | None = "") -> Created:
        self.runs.pop(new.info.run_id, None)
        return super().create(new, frame, owner)


@planted
class HoldsNothing(MemoryTables):
    """A second run of a thread may be worked on at once."""

    def create(self, new: NewRun, frame: bytes, owner: str | None = "") -> Created:
        created = super().create(new, frame, owner)
        if created.claim is not None:
            self.threads[new.info.thread_id].held.clear()
        return replace(created, held=False, behind=None)


@planted
class NamesNoRunInFront(MemoryTables):
    """It is not said which run a held one waits for."""

    def create(self, new: NewRun, frame: bytes, owner: str | None = "") -> Created:
        return replace(super().create(new, frame, owner), behind=None)


@planted
class RefusesNothing(MemoryTables):
    """A run is queued that was to be refused."""

    def create(self, new: NewRun, frame: bytes, owner: str | None = "") -> Created:
        return super().create(replace(new, on_busy="queue"), frame, owner)


@planted
class MindsNoOtherRuns(MemoryTables):
    """A run is created in a thread that has changed meanwhile."""

    def create(self, new: NewRun, frame: bytes, owner: str | None = "") -> Created:
        return super().create(replace(new, thread_runs=None), frame, owner)


@planted
class CopiesNothing(MemoryTables):
    """The thread of a fork begins empty."""

    def _copied(self, new: NewRun, thread: ThreadRecord) -> Sequence[Message]:
        return ()


@planted
class CopiesEverything(MemoryTables):
    """A fork gets what came after it, too."""

    def _copied(self, new: NewRun, thread: ThreadRecord) -> Sequence[Message]:
        parent = None if new.thread_parent is None else self.threads.get(new.thread_parent[0])
        return () if parent is None or thread.messages else tuple(parent.messages)


@planted
class ForksWithoutState(MemoryTables):
    """A new run does not get the state that it is to begin with."""

    def create(self, new: NewRun, frame: bytes, owner: str | None = "") -> Created:
        return super().create(replace(new, state=()), frame, owner)


@planted
class ForgetsTheBirthRecord(MemoryTables):
    """What a run was born with is not recorded."""

    def create(self, new: NewRun, frame: bytes, owner: str | None = "") -> Created:
        return super().create(replace(new, taken=()), frame, owner)


# --- claims ----------------------------------------------------------------------------------------------------------


@planted
class ClaimsWithTheOldToken(MemoryTables):
    """A new claim does not void the old one."""

    def claim(self, run_id: str, owner: str = "") -> Claim | Taken | None:
        claim = super().claim(run_id, owner)
        if not isinstance(claim, Claim):
            return claim
        self.runs[run_id].token -= 1
        return replace(claim, token=claim.token - 1)


@planted
class ClaimsWhatIsDone(MemoryTables):
    """A run that is done is claimed."""

    def claim(self, run_id: str, owner: str = "") -> Claim | Taken | None:
        run = self.runs.get(run_id)
        return super().claim(run_id, owner) or (None if run is None else Claim(run_id=run_id, token=run.token))


@planted
class KeepsClaims(MemoryTables):
    """A claim is still good when the store is opened again."""

    def void_claims(self) -> None:
        pass


@planted
class ClaimsAnywhere(MemoryTables):
    """A process claims a run whose place it has not."""

    def claim_ready(self, room: int, ability: Ability, *options: Any, **more: Any) -> Sequence[ReadyRun]:
        return super().claim_ready(room, attrs.evolve(ability, places=None), *options, **more)


@planted
class TakesTimersAnywhere(MemoryTables):
    """A timer of a run is claimed by a process that has not the place of the run."""

    def claim_due(self, now: datetime, ability: Ability, *options: Any, **more: Any) -> Sequence[ReadyRun]:
        return super().claim_due(now, attrs.evolve(ability, places=None), *options, **more)


# --- commits ---------------------------------------------------------------------------------------------------------


class Committing(MemoryTables):
    """A bug of commits."""

    def before(self, run: RunTables, commit: Commit) -> Commit:
        """The commit as it is taken."""
        return commit

    def after(self, run: RunTables, commit: Commit, receipt: Receipt) -> Receipt:
        """The receipt as it is given."""
        return receipt

    def commit(self, claim: Claim, commit: Commit, frames: Sequence[bytes]) -> Receipt:
        run = self.runs.get(commit.run_id)
        if run is None:
            return super().commit(claim, commit, frames)
        commit = self.before(run, commit)
        return self.after(run, commit, super().commit(claim, commit, frames))


@planted
class TakesAnyToken(MemoryTables):
    """A void claim is as good as another."""

    def commit(self, claim: Claim, commit: Commit, frames: Sequence[bytes]) -> Receipt:
        run = self.runs.get(commit.run_id)
        return super().commit(claim if run is None else replace(claim, token=run.token), commit, frames)


@planted
class LeavesGaps(Committing):
    """A commit that does not follow the newest event is written behind it."""

    def before(self, run: RunTables, commit: Commit) -> Commit:
        last = len(run.frames)
        row = replace(commit.row, last_sequence=last + len(commit.events))
        return replace(commit, expected_last=last, row=row)


@planted
class ForgivesFailures(Committing):
    """After a commit that could not be written, the next one is."""

    def after(self, run: RunTables, commit: Commit, receipt: Receipt) -> Receipt:
        run.broken = 0
        return receipt


@planted
class WritesHalves(Committing):
    """Of a commit that cannot be written, the state is."""

    def after(self, run: RunTables, commit: Commit, receipt: Receipt) -> Receipt:
        if receipt.kind == "failed":
            run.write_state(commit.state, commit.written_at)
        return receipt


@planted
class EndsWithUnreadCommands(Committing):
    """A run may end without having read its commands."""

    def before(self, run: RunTables, commit: Commit) -> Commit:
        return replace(commit, consumed=len(run.inbox)) if commit.row.stage in TERMINAL else commit


@planted
class ConsumesNothing(Committing):
    """Commands stay unread."""

    def after(self, run: RunTables, commit: Commit, receipt: Receipt) -> Receipt:
        run.consumed = 0
        return receipt


@planted
class CountsWrongly(Committing):
    """A receipt does not name the newest event."""

    def after(self, run: RunTables, commit: Commit, receipt: Receipt) -> Receipt:
        return replace(receipt, last=receipt.last + 1)


@planted
class LosesState(Committing):
    """State is not written with a commit without events."""

    def before(self, run: RunTables, commit: Commit) -> Commit:
        return commit if commit.events else replace(commit, state=())


@planted
class DatesStateWithTheRow(Committing):
    """State counts to the step of the row, and not to the step that wrote it."""

    def before(self, run: RunTables, commit: Commit) -> Commit:
        return replace(commit, state_step=None)


@planted
class LosesTickets(Committing):
    """Of several tickets in a commit one is written."""

    def before(self, run: RunTables, commit: Commit) -> Commit:
        return replace(commit, tickets=commit.tickets[:1])


@planted
class LosesCalls(Committing):
    """A call is not written anew."""

    def before(self, run: RunTables, commit: Commit) -> Commit:
        new = tuple(call for call in commit.calls if call.call_id not in run.calls)
        return replace(commit, calls=new)


@planted
class RecordsTooEarly(Committing):
    """An entry of the record names the event before its commit."""

    def after(self, run: RunTables, commit: Commit, receipt: Receipt) -> Receipt:
        if commit.taken and receipt.kind == "committed":
            run.record[-1] = RecordDelta(commit.expected_last, commit.taken)
        return receipt


@planted
class WaitsAnew(Committing):
    """A run that waits waits since its newest commit."""

    def after(self, run: RunTables, commit: Commit, receipt: Receipt) -> Receipt:
        if run.since is not None and receipt.kind == "committed":
            run.since = milliseconds(commit.at)
        return receipt


@planted
class KnowsTheOldTicket(Committing):
    """A call is decided by its first ticket."""

    def after(self, run: RunTables, commit: Commit, receipt: Receipt) -> Receipt:
        for ticket in reversed(run.tickets.values()):
            if ticket.call_id is not None:
                run.newest_ticket[ticket.call_id] = ticket.ticket_id
        return receipt


# --- threads ---------------------------------------------------------------------------------------------------------


@planted
class ReleasesTheNewest(MemoryTables):
    """Of the runs that wait for a thread, the newest one is let in."""

    def free_thread(self, thread: ThreadRecord) -> RunTables | None:
        thread.held = dict.fromkeys(sorted(thread.held, key=lambda name: -self.runs[name].number))
        return super().free_thread(thread)


@planted
class ReleasesSilently(MemoryTables):
    """A receipt does not say who has got the thread."""

    def free_thread(self, thread: ThreadRecord) -> RunTables | None:
        super().free_thread(thread)
        return None


@planted
class ReleasesNothing(MemoryTables):
    """A run that has the thread now is still held."""

    def free_thread(self, thread: ThreadRecord) -> RunTables | None:
        freed = super().free_thread(thread)
        if freed is not None:
            thread.held[freed.info.run_id] = None
        return freed


class OtherThread(ThreadRecord):
    """A thread with a bug."""

    __slots__ = ()


class OtherThreads(MemoryTables):
    """A bug of threads."""

    kind: type[OtherThread]

    def create(self, new: NewRun, frame: bytes, owner: str | None = "") -> Created:
        thread = self.threads.setdefault(new.info.thread_id, ThreadRecord(new.info.by, new.info.created_at))
        thread.__class__ = self.kind
        return super().create(new, frame, owner)


@planted
class RepeatsMessages(OtherThreads):
    """A message id may come twice."""

    class kind(OtherThread):  # noqa: N801
        __slots__ = ()

        def repeated(self, messages: Sequence[Message]) -> str | None:
            return None


@planted
class LosesLateInput(OtherThreads):
    """The input of a run that ended before its turn is never placed."""

    class kind(OtherThread):  # noqa: N801
        __slots__ = ()

        def place(self, before: int | None) -> None:
            self.late.clear()


@planted
class PlacesInputTooEarly(OtherThreads):
    """The input of a run that ended before its turn is placed at once, before those that came first."""

    class kind(OtherThread):  # noqa: N801
        __slots__ = ()

        def place(self, before: int | None) -> None:
            super().place(None)


@planted
class ReversesMessages(OtherThreads):
    """The messages of a commit are in the wrong order."""

    class kind(OtherThread):  # noqa: N801
        __slots__ = ()

        def append(self, messages: Iterable[Message]) -> None:
            super().append(reversed(list(messages)))


@planted
class KeepsMessages(OtherThreads):
    """A prune leaves the messages of a thread that has no runs."""

    class kind(OtherThread):  # noqa: N801
        __slots__ = ()

        def remove(self, run: RunTables) -> int:
            messages, ids = self.messages, self.ids
            removed = super().remove(run)
            self.messages, self.ids = messages, ids
            return removed


# --- commands --------------------------------------------------------------------------------------------------------


class Posting(MemoryTables):
    """A bug of commands."""

    def before(self, run: RunTables, command: Command) -> None:
        """Break something."""

    def post(self, run_id: str, command: Command, judge: Judge) -> PostResult:
        run = self.runs.get(run_id)
        if run is not None:
            self.before(run, command)
        return super().post(run_id, command, judge)


@planted
class ForgetsCommandIds(Posting):
    """A command that comes again is taken again."""

    def before(self, run: RunTables, command: Command) -> None:
        run.ids.clear()


@planted
class ForgetsTargets(Posting):
    """A ticket can be decided twice."""

    def before(self, run: RunTables, command: Command) -> None:
        run.targets.clear()


@planted
class PostsToTheDead(Posting):
    """A run that is done takes commands."""

    def before(self, run: RunTables, command: Command) -> None:
        if run.ended is not None:
            run.row = replace(run.row, stage=Stage.RUNNING)


@planted
class JournalsCommandsAsTheyCame(MemoryTables):
    """An early decision is for whatever the call will be."""

    def post(self, run_id: str, command: Command, judge: Judge) -> PostResult:
        posted = super().post(run_id, command, judge)
        if posted.item is None:
            return posted
        self.runs[run_id].inbox[-1] = (command, posted.reply)
        return attrs.evolve(posted, item=attrs.evolve(posted.item, command=command))


@planted
class ForgetsTheHandover(MemoryTables):
    """The judge of a decision does not see to which agent the run was handed over."""

    def post(self, run_id: str, command: Command, judge: Judge) -> PostResult:
        return super().post(run_id, command, lambda facts, given: judge(attrs.evolve(facts, active_agent=None), given))


# --- state -----------------------------------------------------------------------------------------------------------


class OtherRun(RunTables):
    """A run with a bug."""

    __slots__ = ()


class OtherRuns(MemoryTables):
    """A bug of runs."""

    kind: type[OtherRun]

    def create(self, new: NewRun, frame: bytes, owner: str | None = "") -> Created:
        created = super().create(new, frame, owner)
        if created.claim is not None:
            self.runs[new.info.run_id].__class__ = self.kind
        return created


@planted
class ShowsTheNewestState(OtherRuns):
    """The state at a step is the newest state."""

    class kind(OtherRun):  # noqa: N801
        __slots__ = ()

        def state_at(self, step: int) -> tuple[StateWrite, ...]:
            return self.state_now()


@planted
class SharesNoState(OtherRuns):
    """A thread's keys are the run's own."""

    class kind(OtherRun):  # noqa: N801
        __slots__ = ()

        def state_now(self) -> tuple[StateWrite, ...]:
            return tuple(write for write in super().state_now() if write.scope == "run")


@planted
class RestsWithUnreadCommands(OtherRuns):
    """A run that waits is at rest though a command waits for it."""

    class kind(OtherRun):  # noqa: N801
        __slots__ = ()

        @property
        def pending(self) -> int:
            return 0


@planted
class TakesTheTicketOfAnother(OtherRuns):
    """Any call has the first ticket."""

    class kind(OtherRun):  # noqa: N801
        __slots__ = ()

        def ticket(self, target: str) -> Any:
            return super().ticket(target) or next(iter(self.tickets.values()), None)


@planted
class HidesCommands(OtherRuns):
    """Commands that were consumed are not in the journal any more."""

    class kind(OtherRun):  # noqa: N801
        __slots__ = ()

        def journal(self, after: int) -> tuple[InboxItem, ...]:
            return super().journal(max(after, self.consumed))


# --- lists and prunes ------------------------------------------------------------------------------------------------


@planted
class PrunesTheLiving(MemoryTables):
    """A run that is not done is pruned."""

    def _old(self, before: int) -> Iterator[RunTables]:
        return (run for run in self.runs.values() if run.ended is None or run.ended < before)


@planted
class GivesIdsBack(MemoryTables):
    """A pruned run's id can be taken again."""

    def prune(self, before: int, limit: int) -> PruneSlice:
        swept = super().prune(before, limit)
        self.pruned.clear()
        return swept


@planted
class CountsTheDone(MemoryTables):
    """A run that is done still counts."""

    def counts(self) -> RunCounts:
        return attrs.evolve(super().counts(), running=len(self.runs))


@planted
class ForgetsOwners(MemoryTables):
    """A thread has no owner."""

    def thread(self, thread_id: str) -> ThreadInfo | None:
        found = super().thread(thread_id)
        return None if found is None else attrs.evolve(found, owner="")


@planted
class WakesLate(MemoryTables):
    """The earliest timer is not known."""

    def timers(self) -> Iterator[tuple[Any, str]]:
        return iter(sorted(super().timers())[1:])


@planted
class ListsBackwards(MemoryStore):
    """The open runs come newest first."""

    async def open_runs(self) -> Sequence[tuple[str, bool]]:
        return tuple(reversed(await super().open_runs()))


@planted
class PagesOverlap(MemoryStore):
    """A page of runs begins with the last one of the page before."""

    async def runs(self, query: RunQuery) -> RunPage:
        page = await super().runs(query)
        if query.cursor is None or not page.runs:
            return page
        return attrs.evolve(page, runs=(page.runs[0], *page.runs))


@planted
class ListsNewTicketsFirst(MemoryStore):
    """The order of a list of tickets is always the same."""

    async def tickets(self, query: TicketQuery) -> TicketPage:
        return await super().tickets(attrs.evolve(query, order="newest"))


@planted
class GivesEventsTwice(MemoryStore):
    """A page of events begins with the one that was seen last."""

    async def events(self, run_id: str, *, after: int = 0, **page: Any) -> Sequence[bytes]:
        return await super().events(run_id, after=max(0, after - 1), **page)


@planted
class GivesTooManyEvents(MemoryStore):
    """A page of events has as many bytes as there are."""

    async def events(self, run_id: str, *, max_bytes: int | None = None, **page: Any) -> Sequence[bytes]:
        return await super().events(run_id, **page)


@planted
class LoadsAllCalls(MemoryStore):
    """A run is loaded with calls of steps that are over."""

    async def load(self, run_id: str, *, calls: Any = "step") -> Any:
        return await super().load(run_id, calls="all")


# --- stored values ---------------------------------------------------------------------------------------------------


class WithValues(MemoryTables):
    """Tables whose values have a bug."""

    table: type[ValueTable]

    def __init__(self) -> None:
        super().__init__()
        self.values = self.table()


class _Unlooking(ValueTable):
    def _revision_of(self, write: ValueWrite) -> int:
        return write.expected


class _Halving(ValueTable):
    def set(self, writes: Sequence[ValueWrite]) -> bool:
        written = [super(_Halving, self).set([write]) for write in writes]
        return all(written)


class _Repeating(ValueTable):
    def set(self, writes: Sequence[ValueWrite]) -> bool:
        self._revision = 0
        return super().set(writes)


class _OfAllSpaces(ValueTable):
    def page(self, space: str, after: str, limit: int) -> Sequence[StoredValue]:
        return [value for name in self._names for value in super(_OfAllSpaces, self).page(name, after, limit)]


class _Including(ValueTable):
    def page(self, space: str, after: str, limit: int) -> Sequence[StoredValue]:
        return super().page(space, after[:-1], limit)


@planted
class WritesAtAnyRevision(WithValues):
    """A value is written whatever revision it has."""

    table = _Unlooking


@planted
class WritesHalfASet(WithValues):
    """Of a set that does not fit, the writes that fit are written."""

    table = _Halving


@planted
class GivesRevisionsAgain(WithValues):
    """A revision is given twice."""

    table = _Repeating


@planted
class MixesSpaces(WithValues):
    """The values of one space are on the pages of another."""

    table = _OfAllSpaces


@planted
class PagesOfValuesOverlap(WithValues):
    """A page begins with values of the page before."""

    table = _Including


# --- what the runtime receives ----------------------------------------------------------------------------------------


class Silent(MemoryStore):
    """A store that does not say something."""

    left_out: type[StoreEvent]

    async def run(self, report: Report, **options: Any) -> None:
        def deaf(event: StoreEvent) -> None:
            if not isinstance(event, self.left_out):
                report(event)

        await super().run(deaf, **options)


@planted
class TellsNoCommits(Silent):
    """The runtime is not informed of durable events."""

    left_out = RunCommitted


@planted
class TellsNoCommands(Silent):
    """The runtime is not informed of accepted commands."""

    left_out = CommandPosted


@planted
class TellsNoPrunes(Silent):
    """The runtime is not informed that runs are gone."""

    left_out = RunsPruned


@planted
class GivesReceiptsTwice(MemoryStore):
    """A commit has two receipts."""

    def submit(self, claim: Claim, commit: Commit, frames: Sequence[bytes], deliver: Callable[[Receipt], None]) -> None:
        def twice(receipt: Receipt) -> None:
            deliver(receipt)
            deliver(receipt)

        super().submit(claim, commit, frames, twice)


# --- the kit ---------------------------------------------------------------------------------------------------------


async def found_by(bug: type[MemoryTables] | type[MemoryStore]) -> str | None:
    """The first scenario, but for the random one, that fails."""
    store = store_with(bug)
    for scenario in STORE_SCENARIOS:
        if scenario.name == RANDOM:
            continue
        try:
            await scenario(lambda: store)
        except Exception as error:  # noqa: BLE001 - a bug may show itself by any error but its own
            shown(error)
            return scenario.name
    return None


@pytest.mark.parametrize("bug", BUGS)
async def test_the_scenarios_find_a_bug_in_the_memory_store(bug, autojump_clock):
    assert await found_by(bug) is not None, f"no scenario fails though: {bug.__doc__}"


UNSEEN = frozenset(
    {
        ClaimsAnywhere,
        CountsTheDone,
        ForgetsTheHandover,
        DatesStateWithTheRow,
        ForgetsTheBirthRecord,
        GivesEventsTwice,
        GivesIdsBack,
        GivesRevisionsAgain,
        GivesTooManyEvents,
        JournalsCommandsAsTheyCame,
        KeepsMessages,
        KnowsTheOldTicket,
        LosesCalls,
        MindsNoOtherRuns,
        MixesSpaces,
        PagesOfValuesOverlap,
        PlacesInputTooEarly,
        PrunesTheLiving,
        RecordsTooEarly,
        TakesTimersAnywhere,
        TellsNoPrunes,
        WaitsAnew,
        WakesLate,
        WritesAtAnyRevision,
        WritesHalfASet,
    }
)
"""Bugs of what the random operations do not do: prunes, records, timers, pages of events, early decisions,
handoffs, stored values, places."""


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug not in UNSEEN])
async def test_random_operations_find_a_bug_in_a_store_that_is_compared_with_a_sound_one(bug, autojump_clock):
    for seed in SEEDS:
        store = store_with(bug)
        try:
            await play_random(lambda: store, "x", seed)  # noqa: B023 - it is used up in this turn
        except Exception as error:  # noqa: BLE001 - a bug may show itself by any error but its own
            shown(error)
            return
    pytest.fail(f"no sequence fails though: {bug.__doc__}")


async def test_without_a_bug_nothing_is_found(autojump_clock):
    assert await found_by(MemoryTables) is None
