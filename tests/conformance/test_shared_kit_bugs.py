"""Bugs of many processes that are planted in the peers of a memory store, one at a time: the store kit finds each.

Each bug names the scenario that is made for it; other scenarios may find it, too.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from msgspec.structs import replace
from tests.support.planted_bugs import shown

from greenroom.actors.contract.claims import Claim
from greenroom.actors.contract.commits import Created, NewRun
from greenroom.actors.contract.decisions import Command
from greenroom.actors.contract.rows import Judge
from greenroom.actors.processes import Ability, ReadyRun
from greenroom.actors.stores.common._leases import BeatWatch, LeaseTimes
from greenroom.actors.stores.common._process import LeaseAction
from greenroom.actors.stores.common._requests import PostRequest, PostResult
from greenroom.actors.stores.memory import _hub as _memory_hub
from greenroom.actors.stores.memory import store as memory
from greenroom.actors.stores.memory._hub import Hub, Process
from greenroom.actors.stores.memory._peers import Peer
from greenroom.actors.stores.memory._rows import RunTables, ThreadRecord
from greenroom.actors.stores.memory._tables import MemoryTables
from greenroom.actors.stores.memory.store import MemoryStore
from greenroom.actors.testing.store_kit.kit import SHARED_SCENARIOS, STORE_SCENARIOS, MemorySteering

from .test_store_kit_bugs import BUGS as STORE_BUGS

SCENARIOS = {scenario.name: scenario for scenario in (*STORE_SCENARIOS, *SHARED_SCENARIOS)}
LONGEST = 10_000.0
"""Virtual seconds: a bug may make a scenario wait for ever."""
Bug = tuple[type[Any], str]
BUGS: list[Bug] = []


def planted(scenario: str) -> Callable[[type[Any]], type[Any]]:
    """Declare a bug, which its docstring describes, and the scenario that is made for it."""

    def declare(kind: type[Any]) -> type[Any]:
        assert scenario in SCENARIOS, scenario
        BUGS.append((kind, scenario))
        return kind

    return declare


async def play(kind: type[Any] | None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a scenario on peers with a bug."""
    if kind is not None and issubclass(kind, Peer):
        monkeypatch.setattr(memory, "Peer", kind)
    if kind is not None and issubclass(kind, Hub):
        monkeypatch.setattr(memory, "Hub", kind)
    if kind is not None and issubclass(kind, Process):
        monkeypatch.setattr(_memory_hub, "Process", kind)
    store = kind() if kind is not None and issubclass(kind, MemoryStore) else MemoryStore()
    if kind is not None and issubclass(kind, MemoryTables):
        store._ledger = kind()
    steering = MemorySteering(store)
    with trio.fail_after(LONGEST):
        await SCENARIOS[name](steering.open_store, steering)


# --- owners ----------------------------------------------------------------------------------------------------------


@planted("a_run_of_another_process_is_taken")
class Steals(MemoryTables):
    """A run is claimed from its live owner."""

    def claim(self, run_id: str, owner: str = "") -> Any:
        run = self.open.get(run_id)
        return None if run is None else self.take(run, owner)


@planted("a_run_with_unread_commands_is_not_released")
class ReleasesBlindly(MemoryTables):
    """A run is released though it has unread commands: the rule that `posted` is not above `consumed` is left out."""

    def release(self, claims: Iterable[Claim]) -> tuple[Sequence[RunTables], Sequence[str]]:
        freed = [run for run in map(self.holds, claims) if run is not None]
        for run in freed:
            self._leave(run)
        return freed, ()


@planted("a_released_run_belongs_to_the_next")
class KeepsTheToken(MemoryTables):
    """The claim of a released run is still good."""

    def _leave(self, run: RunTables) -> None:
        super()._leave(run)
        run.token -= 1


@planted("a_zombie_writes_nothing_that_would_fit")
class LeavesTheTokenOut(MemoryTables):
    """The fence is the sequence alone."""

    def commit(self, claim: Claim, commit: Any, frames: Sequence[bytes]) -> Any:
        run = self.runs[commit.run_id]
        return super().commit(Claim(run_id=claim.run_id, token=run.token), commit, frames)


@planted("a_run_that_is_given_back_waits_for_its_pause")
class ForgetsPauses(MemoryTables):
    """A run is ready at once after it was given back."""

    def _delay(self, run: RunTables, until: datetime) -> None:
        pass


@planted("a_run_that_is_given_back_waits_for_its_pause")
class HasAClockOfItsOwn(MemoryTables):
    """A pause begins with the storage's time, whatever the caller's clock shows."""

    def give_back(self, claims: Iterable[Claim], ready_at: datetime | None = None) -> Sequence[RunTables]:
        own = None if ready_at is None else datetime.now(UTC) + timedelta(hours=1)
        return super().give_back(claims, own)


@planted("a_process_that_leaves_gives_its_runs_back")
class CountsGivingBack(MemoryTables):
    """A run that is given back has crashed."""

    def give_back(self, claims: Iterable[Claim], ready_at: datetime | None = None) -> Sequence[RunTables]:
        freed = super().give_back(claims, ready_at)
        for run in freed:
            self._crashed(run, datetime.min.replace(tzinfo=UTC), 0.0)
        return freed


@planted("a_timer_of_a_run_that_no_process_serves_is_left_to_any")
class LeavesNoRunToOthers(MemoryTables):
    """A run whose agent is gone has no deadline any more."""

    def claim_due(self, now: datetime, ability: Ability, *options: Any, **more: Any) -> Sequence[ReadyRun]:
        return super().claim_due(now, attrs.evolve(ability, unserved=False), *options, **more)


@planted("a_timer_of_a_run_that_no_process_serves_is_left_to_any")
class TakesRunsThatOthersServe(MemoryTables):
    """A process takes timers of runs whose agent another live process has."""

    def claim_due(self, now: datetime, ability: Ability, *options: Any, **more: Any) -> Sequence[ReadyRun]:
        served = more.pop("served", None)
        return super().claim_due(now, ability, *options, served=None if served is None else lambda _: False, **more)


@planted("a_timer_of_a_run_whose_place_is_offline_is_left_to_any")
class CountsAgentsAlone(MemoryTables):
    """A run whose place is offline has no deadline while a process has its agent."""

    def claim_due(self, now: datetime, ability: Ability, *options: Any, **more: Any) -> Sequence[ReadyRun]:
        served = more.pop("served", None)
        anywhere = None if served is None else lambda info: served(replace(info, place=None))
        return super().claim_due(now, ability, *options, served=anywhere, **more)


@planted("one_of_two_processes_gets_a_timer")
class ClaimsTimersOfOthers(MemoryTables):
    """A timer of a run that has an owner is claimed."""

    def timers(self) -> Iterator[tuple[datetime, str]]:
        return ((run.row.next_due, name) for name, run in self.open.items() if run.row.next_due is not None)

    def _claim_anew(self, run: RunTables, owner: str) -> Claim:
        return self.take(run, owner)


@planted("an_older_release_leaves_newer_rows_alone")
class ClaimsNewerRows(MemoryTables):
    """A process claims rows that it cannot read."""

    def claim_ready(self, *arguments: Any) -> Sequence[ReadyRun]:
        return super().claim_ready(*arguments[:4], level=1 << 30)


@planted("a_run_that_kills_its_owners_becomes_a_dead_letter")
class NeverGivesUp(MemoryTables):
    """A run is claimed again however often its owners have crashed."""

    def _crashed(self, run: RunTables, now: datetime, jitter: float) -> None:
        run.crashes = 0
        super()._crashed(run, now, jitter)


@planted("a_run_that_kills_its_owners_becomes_a_dead_letter")
class RevivesNothing(MemoryTables):
    """A dead letter stays one."""

    def revive(self, run_id: str, now: datetime) -> RunTables | None:
        run = super().revive(run_id, now)
        if run is not None:
            run.dead = "again"
        return run


@planted("a_run_that_kills_its_owners_becomes_a_dead_letter")
class MindsNoCancel(MemoryTables):
    """A dead letter that is cancelled gets no owner."""

    def ready(self, run: RunTables, now: datetime) -> bool:
        return super().ready(run, now) and run.dead is None


@planted("a_finished_step_forgives_the_crashes_before")
class ForgivesNothing(MemoryTables):
    """Crashes count for ever."""

    def _crashed(self, run: RunTables, now: datetime, jitter: float) -> None:
        run.crashed_at = run.row.step
        super()._crashed(run, now, jitter)


@planted("unread_commands_survive_their_owner")
class CountsEveryRunOfTheDead(MemoryTables):
    """A run that waited when its owner died has crashed."""

    def bereave(self, owner: str, limit: int, now: datetime, draw: Callable[[], float]) -> Sequence[RunTables]:
        freed = super().bereave(owner, limit, now, draw)
        for run in freed:
            self._crashed(run, now, draw())
        return freed


@planted("a_freed_run_without_an_owner_is_ready")
class IsReadyWhileHeld(MemoryTables):
    """A held run is ready before its thread is free."""

    def ready(self, run: RunTables, now: datetime) -> bool:
        return super().ready(run, now) or (run.held and run.ready_at <= now)


@planted("a_thread_is_freed_though_the_follow_up_is_lost")
class Overtakes(MemoryTables):
    """A new run works at once, though an older one of its thread waits for a turn to free it."""

    def create(self, new: NewRun, frame: bytes, owner: str | None = "") -> Created:
        thread = self.threads.get(new.info.thread_id)
        held = {} if thread is None or thread.active is not None else dict(thread.held)
        if thread is not None and held:
            thread.held.clear()
        created = super().create(new, frame, owner)
        if thread is not None and held:
            thread.held.update(held)
        return created


@planted("a_command_is_judged_by_the_facts_that_it_meets")
class JudgesOnce(MemoryTables):
    """A command is journaled on facts that have changed: the guard is left out."""

    def post(self, run_id: str, command: Command, judge: Judge) -> PostResult:
        results: list[Any] = []

        def once(facts: Any, given: Command) -> Any:
            results.append(results[0] if results else judge(facts, given))
            return results[0]

        return super().post(run_id, command, once)


@planted("a_command_to_a_run_without_an_owner_is_the_posters")
class TellsNoPoster(Peer):
    """A command to a run without an owner is reported nowhere."""

    def post(self, request: PostRequest) -> PostResult:
        return attrs.evolve(super().post(request), elsewhere=True)


@planted("one_of_two_decisions_is_accepted")
class ForgetsDecisions(MemoryTables):
    """A ticket is decided twice."""

    def post(self, run_id: str, command: Command, judge: Judge) -> PostResult:
        self.runs[run_id].targets.clear()
        return super().post(run_id, command, judge)


@planted("one_of_two_processes_gets_a_run")
class ClaimsTwice(MemoryTables):
    """A ready run is claimed again by another process."""

    def take(self, run: RunTables, owner: str) -> Claim:
        claim = super().take(run, owner)
        if owner.endswith(".2") and run.token == 2:
            self._leave(run)
        return claim


@planted("a_limit_holds_over_all_processes")
class LimitsEachProcess(MemoryTables):
    """A limit counts the runs of one process."""

    def claim_ready(self, room: int, ability: Ability, now: datetime, owner: str = "", level: int = 0) -> Any:
        self._me = owner
        return super().claim_ready(room, ability, now, owner, level)

    def _working(self, queue: str) -> int:
        return sum(run.in_work and run.owner == self._me for run in self.open.values())


# --- queues ----------------------------------------------------------------------------------------------------------


@planted("a_more_urgent_run_is_claimed_earlier_and_none_starves")
class OldestFirst(MemoryTables):
    """The rank is not looked at."""

    def queued(self, number: int, new: NewRun, thread: ThreadRecord, frame: bytes) -> RunTables:
        run = super().queued(number, new, thread, frame)
        run.priority = 0
        return run


@planted("a_run_is_not_claimed_before_its_time")
class TooEarly(MemoryTables):
    """A run is claimed before its time."""

    def ready(self, run: RunTables, now: datetime) -> bool:
        return super().ready(run, max(now, run.ready_at))


@planted("queues_take_turns")
class OneQueue(MemoryTables):
    """All runs are in one row."""

    def claim_ready(self, room: int, ability: Ability, *rest: Any) -> Sequence[ReadyRun]:
        for run in self.open.values():
            self.limits.setdefault("one", self.limits[run.queue])
            run.queue = "one"
        return super().claim_ready(room, ability, *rest)


@planted("a_paused_queue_keeps_its_runs")
class NeverPauses(MemoryTables):
    """A paused queue gives runs."""

    def limit(self, request: Any) -> None:
        super().limit(attrs.evolve(request, paused=False))


@planted("no_more_runs_of_a_queue_work_than_its_limit")
class KnowsNoLimit(MemoryTables):
    """A limit does nothing."""

    def _working(self, queue: str) -> int:
        return 0


@planted("one_open_run_has_a_key")
class ForgetsKeys(MemoryTables):
    """Two open runs have one key."""

    def create(self, new: NewRun, frame: bytes, owner: str | None = "") -> Created:
        self.deduped.clear()
        return super().create(replace(new, dedupe=None), frame, owner)


@planted("only_able_processes_claim_a_run")
class TakesAnything(MemoryTables):
    """A process gets runs that it cannot work on."""

    def claim_ready(self, room: int, ability: Ability, *rest: Any) -> Sequence[ReadyRun]:
        return super().claim_ready(room, Ability(), *rest)


@planted("one_claim_takes_no_more_than_its_room")
class TakesTooMany(MemoryTables):
    """A process gets more runs than it has room for."""

    def claim_ready(self, room: int, *rest: Any) -> Sequence[ReadyRun]:
        return super().claim_ready(room + 1, *rest)


@planted("what_is_not_at_rest_needs_an_owner")
class ReadyAtRest(MemoryTables):
    """A run that waits for people is ready."""

    def ready(self, run: RunTables, now: datetime) -> bool:
        return run.ready_at <= now


@planted("timers_wake_runs_that_wait")
class NoTimers(MemoryTables):
    """A timer does nothing."""

    def claim_due(self, *arguments: Any, **options: Any) -> Sequence[ReadyRun]:
        return ()


# --- leases ----------------------------------------------------------------------------------------------------------


@planted("a_late_process_gives_up_before_it_is_declared_dead")
class IgnoresItsLease(Peer):
    """A process works on though its lease has ended."""

    async def _stop_in_time(self) -> None:
        await trio.sleep_forever()


@planted("the_runs_of_a_dead_process_are_freed")
class BuriesTooEarly(Peer):
    """A process is declared dead after half a lease."""

    def __init__(self, hub: Hub, *arguments: Any, **options: Any) -> None:
        super().__init__(hub, *arguments, **options)
        self.machine._watch = BeatWatch(LeaseTimes(lease=hub.times.lease / 2))


@planted("the_runs_of_a_dead_process_are_freed")
class BuriesNobody(Peer):
    """A process is never declared dead."""

    def __init__(self, hub: Hub, *arguments: Any, **options: Any) -> None:
        super().__init__(hub, *arguments, **options)
        self.machine._watch = BeatWatch(LeaseTimes(lease=1e9))


@planted("a_late_process_gives_up_before_it_is_declared_dead")
class RenewsTheBeatsOfOthers(Peer):
    """All beats look young, those of silent processes too."""

    async def _turn(self) -> None:
        for process in self._hub.processes.values():
            process.beat_at = trio.current_time()
        await super()._turn()


@planted("a_run_with_a_newer_command_is_left_to_newer_releases")
class LeavesTheLevelOfCommandsOut(Peer):
    """A command of a newer release leaves the run to older ones."""

    def post(self, request: PostRequest) -> PostResult:
        level, self._level = self._level, 0
        try:
            return super().post(request)
        finally:
            self._level = level


@planted("the_runs_of_a_dead_process_are_freed")
class FreesNothing(Peer):
    """The runs of the dead stay with them."""

    def _free(self, name: str) -> bool:
        return False


@planted("a_process_that_was_silent_for_less_than_a_lease_gives_its_runs_back")
class KeepsLapsedRuns(Peer):
    """After a lapse the runs are still this process's, and no owner works on them."""

    def _perform(self, actions: Iterable[LeaseAction]) -> None:
        super()._perform(action for action in actions if action is not LeaseAction.RETURN_ALL)


@planted("a_process_that_leaves_gives_its_runs_back")
class KeepsRunsOnLeaving(Peer):
    """A process that leaves takes its runs with it."""

    def _leave(self) -> None:
        del self._hub.processes[self.name]


@planted("processes_show_their_agents")
class LeavesItsRow(Peer):
    """A process that has left seems to live."""

    def _leave(self) -> None:
        self._return(list(self._ledger.owned(self.name)))


@planted("a_buried_process_loses_its_runs_immediately")
class BuriesWithoutFreeing(Peer):
    """A buried process keeps its runs until a turn."""

    def bury(self, name: str) -> bool:
        process = self._hub.processes.get(name)
        if process is None or process.dead:
            return False
        process.dead = True
        return True


@planted("a_buried_process_loses_its_runs_immediately")
class BuriesTwice(Peer):
    """A process is buried again and again."""

    def bury(self, name: str) -> bool:
        return super().bury(name) or name in self._hub.processes or "nobody" not in name


# --- hints -----------------------------------------------------------------------------------------------------------


@planted("a_lost_hint_is_made_up_for")
class TrustsHints(Peer):
    """A turn repairs nothing."""

    def _repair(self) -> None:
        pass


@planted("a_thread_is_freed_though_the_follow_up_is_lost")
class FreesNoThread(Peer):
    """A turn frees no thread."""

    def _repair(self) -> None:
        self._ledger.unfreed.clear()
        super()._repair()


@planted("a_command_reaches_the_owner")
class HintsNothing(Hub):
    """No hint is sent: everything waits for a turn."""

    def send(self, *arguments: Any) -> None:
        pass


@planted("a_command_reaches_the_owner")
class TellsThePoster(Peer):
    """A command is reported where no owner is."""

    def post(self, request: PostRequest) -> PostResult:
        return attrs.evolve(super().post(request), elsewhere=False)


@planted("a_thread_is_freed_in_the_owners_process")
class NamesRunsOfOthers(Peer):
    """A receipt names the next run of the thread though another process owns that run."""

    def _thread_freed(self, run: RunTables | None) -> RunTables | None:
        super()._thread_freed(run)
        return run


@planted("a_watched_run_reports_its_changes")
class WatchesForEver(Peer):
    """A watch does not end."""

    @contextmanager
    def watch(self, run_id: str) -> Iterator[None]:
        self._left.append(watching := super().watch(run_id))
        watching.__enter__()
        yield

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._left: list[Any] = []


@planted("a_watched_run_reports_its_changes")
class WatchesNothing(Peer):
    """A watch reports nothing."""

    @contextmanager
    def watch(self, run_id: str) -> Iterator[None]:
        yield


@planted("another_history_has_another_name")
class NoticesNoHistory(Peer):
    """Another epoch is not reported."""

    async def _turn(self) -> None:
        self.machine.epoch = self._hub.epoch
        await super()._turn()


@planted("work_is_offered_to_a_process_with_room")
class OffersToTheFull(Process):
    """A hint goes to a process that has no room."""

    def can_take(self, run: RunTables) -> bool:
        return not self.dead and run.info.agent in self.agents and self.room == 0


# --- lost answers ----------------------------------------------------------------------------------------------------


class Forgetful(MemoryStore):
    """Forgets what it has written when the answer is lost."""

    kinds: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_answered" and value is not None and type(value[0]).__name__ in self.kinds:
            value = None
        super().__setattr__(name, value)


@planted("a_commit_is_written_once_though_its_answer_is_lost")
class ForgetsCommits(Forgetful):
    """A commit without events is written twice, and one with events is refused: it has no number."""

    kinds = ("CommitRequest",)


@planted("a_command_is_accepted_once_though_its_answer_is_lost")
class ForgetsPosts(Forgetful):
    """The first sender of a command is answered `duplicate`."""

    kinds = ("PostRequest",)


@planted("a_run_is_created_once_though_the_answer_is_lost")
class ForgetsCreations(Forgetful):
    """The creator of a run gets an existing run."""

    kinds = ("CreateRequest",)


@planted("a_set_whose_answer_is_lost_is_written_once")
class ForgetsSets(Forgetful):
    """A set of values that was written is refused."""

    kinds = ("SetValuesRequest",)


# --- reading ---------------------------------------------------------------------------------------------------------


@planted("a_run_of_another_process_is_taken")
class HidesOwners(MemoryStore):
    """A line does not show the owner."""

    async def summaries(self, run_ids: Sequence[str], *, counts: bool = False) -> Any:
        page = await super().summaries(run_ids, counts=counts)
        return attrs.evolve(page, runs=tuple(attrs.evolve(line, owner=None) for line in page.runs))


@planted("every_process_reads_what_is_durable")
class ReadsOldPages(MemoryStore):
    """A process reads only the events that it has written itself."""

    async def events(self, run_id: str, **page: Any) -> Sequence[bytes]:
        return (await super().events(run_id, **page))[: self._events]


@planted("each_process_reads_the_values_of_the_others")
class KeepsValuesToItself(MemoryStore):
    """A process reads only the values that it has written itself."""

    async def set_values(self, writes: Sequence[Any]) -> bool:
        self.__dict__.setdefault("own_names", set()).update((space, name) for space, name, *_ in writes)
        return await super().set_values(writes)

    async def values(self, space: str, **page: Any) -> Sequence[Any]:
        own_names = self.__dict__.get("own_names", set())
        return [value for value in await super().values(space, **page) if (space, value.name) in own_names]


@pytest.mark.parametrize(("bug", "name"), BUGS, ids=lambda value: getattr(value, "__name__", ""))
async def test_the_scenario_finds_the_bug_that_it_is_made_for(bug, name, autojump_clock, monkeypatch):
    with pytest.raises(Exception) as found:  # noqa: PT011 - in groups of nurseries
        await play(bug, name, monkeypatch)
    assert isinstance(shown(found.value), AssertionError | trio.TooSlowError)


def test_the_page_of_the_design_counts_the_bugs(root: Path):
    page = " ".join((root / "docs/design/stores.md").read_text(encoding="utf-8").split())
    assert f"`tests/conformance/test_shared_kit_bugs.py` plants {len(BUGS)} bugs" in page
    assert f"each of {len(STORE_BUGS)} bugs that `tests/conformance/test_store_kit_bugs.py` plants" in page


def test_every_shared_scenario_has_a_bug_that_it_finds():
    named = {name for _, name in BUGS}
    assert sorted(scenario.name for scenario in SHARED_SCENARIOS if scenario.name not in named) == []


@pytest.mark.parametrize("name", sorted({name for _, name in BUGS}))
async def test_without_a_bug_the_scenario_passes(name, autojump_clock, monkeypatch):
    await play(None, name, monkeypatch)
