"""Following runs on real stores: all who follow see the same, the store is rarely read, and no task waits for ever."""

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import greenroom as gr
from greenroom.actors.contract.catalogue import CATALOGUE, OURS
from greenroom.actors.contract.envelope import decode_event, event_type
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.services.event_buffer import RING_FRAMES, SLICE_FRAMES, EventSlice
from greenroom.supervision import chaos
from greenroom.testing import FunctionModel, ScriptedModel, call, delay, text

from ..support.runs import KINDS, NEVER, Outages, agent, events_of, home, types

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
WORDS = "It was a dark and stormy night; the rain fell in torrents, except at occasional intervals. "


class Counted:
    """A store that counts what it is asked for."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.asked: Counter[str] = Counter()
        self.pause = 0.0  # seconds that a load takes

    async def events(self, run_id: str, **page: Any) -> Sequence[bytes]:
        self.asked["events"] += 1
        return await super().events(run_id, **page)

    async def load(self, run_id: str, **options: Any) -> Any:
        self.asked["load"] += 1
        await trio.sleep(self.pause)
        return await super().load(run_id, **options)


class CountedMemory(Counted, gr.MemoryStore):
    pass


class CountedSQLite(Counted, gr.SQLiteStore):
    pass


@pytest.fixture(params=KINDS)
def counted(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return CountedMemory()
    return CountedSQLite(tmp_path / "runs.db", writer="inline")


@gr.tool(needs_approval=True)
async def pay(cents: int) -> int:
    """Needs an approval."""
    return cents


@gr.tool(replay="safe")
async def look(where: str) -> str:
    """Takes a moment."""
    await trio.sleep(0.2)
    return f"seen {where}"


def talker(*steps: Any, chunk: int = 4, **options: Any) -> gr.Agent[Any]:
    """An agent that streams its texts in small pieces."""
    options.setdefault("key", "talker")
    return gr.Agent(tools=[pay, look], model=ScriptedModel(list(steps) or [WORDS], chunk=chunk), **options)


def slowly(pieces: int = 30, pause: float = 0.05) -> gr.Agent[Any]:
    """An agent whose answer takes a while."""
    parts = [part for n in range(pieces) for part in (text(f"{n} and "), delay(pause))]
    return talker([*parts, call("look", where="there", id="c1")], "done")


async def frames(runtime: gr.Runtime, run_id: str, into: list[bytes], after: int = 0, pause: float = 0.0) -> None:
    """Follow to the end, as slowly as is said."""
    with runtime.reader.follow(run_id, after=after) as follower:
        async for found in follower:
            assert found.first == after + len(into) + 1
            into += found.frames
            await trio.sleep(pause)


async def stored(runtime: gr.Runtime, run_id: str) -> list[bytes]:
    """All events of a run, as the store has them; their sequences are 1 to n."""
    found = list(await runtime.store.events(run_id, limit=100_000))
    assert [decode_event(frame).sequence for frame in found] == list(range(1, len(found) + 1))
    return found


# --- the same for all ------------------------------------------------------------------------------------------------


async def test_whoever_follows_from_whenever_sees_the_same_events(shelf, rng, autojump_clock):
    """Before the run works, while it works, after its end; from the beginning and from anywhere; fast and slow."""
    helper = slowly()
    seen: list[tuple[int, list[bytes]]] = []

    async def later(runtime: gr.Runtime, moment: float, pause: float) -> None:
        await trio.sleep(moment)
        known = len(await runtime.store.events("r"))
        after = rng.choice([0, 0, known, rng.randint(0, known)])
        into: list[bytes] = []
        seen.append((after, into))
        await frames(runtime, "r", into, after, pause)

    async with home(shelf, agents=[helper]) as runtime:
        await runtime.start(helper, "hi", run_id="r")
        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(
                    later, runtime, rng.choice([0.0, rng.uniform(0.0, 3.0)]), rng.choice([0.0, 0.0, 0.7])
                )
        everything = await stored(runtime, "r")
        assert runtime._parts.services.signals.followed == 0
        await later(runtime, 0.0, 0.0)
    assert len(seen) == 41
    for after, into in seen:
        assert into == everything[after:]
    assert decode_event(everything[-1]).type == "run.completed"


async def test_events_are_the_decoded_frames(shelf, autojump_clock):
    helper = slowly(5)
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        live = await events_of(run)
        assert live == [decode_event(frame) for frame in await stored(runtime, run.id)]
        assert live == await events_of(run)
        assert live[3:] == await events_of(run, after=3)


async def test_a_follower_goes_through_waits_and_decisions(shelf, autojump_clock):
    helper = talker([text(WORDS), call("pay", cents=5, id="c1")], call("pay", cents=6, id="c2"), "done")
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r")
        live: list[bytes] = []
        rests: list[bytes] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(frames, runtime, "r", live)
            for _ in range(2):
                outcome = await run.wait()
                with runtime.reader.follow("r", after=len(rests), until="rest") as follower:
                    rests += [frame async for page in follower for frame in page.frames]
                assert rests == await stored(runtime, "r"), "all there is, up to where the run waits"
                await wait_all_tasks_blocked()
                assert live == rests
                await run.decide(outcome.tickets[0].approve())
        with runtime.reader.follow("r", after=len(rests), until="rest") as follower:
            rests += [frame async for page in follower for frame in page.frames]
        assert live == rests == await stored(runtime, "r")


async def test_followers_of_a_run_that_has_left_memory_see_how_it_continues(shelf, autojump_clock):
    helper = talker([text(WORDS), call("pay", cents=5, id="c1")], "done")
    before: list[bytes] = []
    between: list[bytes] = []
    async with home(shelf, agents=[helper], passivate_after=10.0) as runtime:
        run = await runtime.start(helper, "hi", run_id="r")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(frames, runtime, "r", before)
            outcome = await run.wait()
            await trio.sleep(60)
            assert len(runtime._parts.registry) == 0
            nursery.start_soon(frames, runtime, "r", between)
            await trio.sleep(60)
            assert len(runtime._parts.registry) == 0, "to follow a run does not wake it"
            assert before == between == await stored(runtime, "r")
            await run.decide(outcome.tickets[0].approve())
        assert before == between == await stored(runtime, "r")


async def test_a_ticket_that_expires_is_seen_by_those_who_wait(shelf, autojump_clock):
    @gr.tool
    async def ask() -> Any:
        """Asks, and does not wait for long."""
        return gr.Suspend(message="Well?", expires_after=60.0)

    helper = agent(call("ask", id="c1"), "done", tools=[ask])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r")
        live: list[bytes] = []
        began = trio.current_time()
        await frames(runtime, "r", live)
        assert 59 < trio.current_time() - began < 65
        assert live == await stored(runtime, "r")
        resolved = [event for event in await events_of(run) if event.type == "run.approval.resolved"]
        assert [event.payload["resolution"] for event in resolved] == ["expired"]


async def test_a_run_past_its_deadline_ends_for_those_who_follow(shelf, autojump_clock):
    helper = talker(call("pay", cents=5, id="c1"), "done")
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r", deadline=runtime.clock.now() + timedelta(seconds=30))
        assert types(await events_of(run))[-1] in ("failed", "completed", "cancelled")
        live: list[bytes] = []
        await frames(runtime, "r", live)
        assert live == await stored(runtime, "r")


async def test_a_fork_has_a_log_of_its_own(shelf, autojump_clock):
    helper = talker([text(WORDS), call("look", where="here", id="c1")], "done")
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r")
        await run.result()
        original: list[bytes] = []
        forked: list[bytes] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(frames, runtime, "r", original)
            await runtime.fork("r", step=1, new_run_id="f")
            nursery.start_soon(frames, runtime, "f", forked)
        assert forked == await stored(runtime, "f")
        assert original == await stored(runtime, "r")
        assert decode_event(forked[0]).type == "run.created"
        assert decode_event(forked[-1]).type == "run.completed"


async def test_a_run_that_waits_for_its_thread_is_followed_from_its_creation(shelf, autojump_clock):
    helper = slowly(10)
    async with home(shelf, agents=[helper]) as runtime:
        live: dict[str, list[bytes]] = {"a": [], "b": []}
        async with trio.open_nursery() as nursery:
            for name, into in live.items():
                await runtime.start(helper, "hi", run_id=name, thread_id="t")
                nursery.start_soon(frames, runtime, name, into)
        for name, into in live.items():
            assert into == await stored(runtime, name)


# --- restarts --------------------------------------------------------------------------------------------------------


async def test_a_cursor_outlives_the_runtime(shelf, autojump_clock):
    """A follower that is informed of the close comes back to the next runtime with what it has, over and over."""
    helper = slowly(20, 0.2)
    seen: list[bytes] = []
    epochs = set()
    for life in range(100):
        async with trio.open_nursery() as nursery:

            async def follow(runtime: gr.Runtime) -> None:
                part: list[bytes] = []
                try:
                    await frames(runtime, "r", part, len(seen))
                except gr.RuntimeClosed:
                    pass
                finally:
                    seen.extend(part)

            async with home(shelf, agents=[helper], drain=0.1) as runtime:
                epochs.add(runtime.store.epoch)
                run = await runtime.start(helper, "hi", run_id="r")
                nursery.start_soon(follow, runtime)  # noqa: ASYNC111 - it outlives the runtime
                await trio.sleep(0.3 + life)
                done = (await run.view()).status == "done"
        if done:
            break
    async with home(shelf, agents=[helper]) as runtime:
        assert seen == await stored(runtime, "r")
    assert life > 1
    assert len(epochs) == 1


async def test_who_follows_is_reported_that_the_runtime_closes(shelf, autojump_clock):
    helper = talker([text(WORDS), call("pay", cents=5, id="c1")], "done")
    received: list[str] = []
    live: list[bytes] = []

    async def follow(runtime: gr.Runtime) -> None:
        with pytest.raises(gr.RuntimeClosed):
            await frames(runtime, "r", live)
        received.append("follower")

    async def wait(runtime: gr.Runtime) -> None:
        await runtime.closed()
        received.append("closed")

    async with trio.open_nursery() as nursery:
        async with home(shelf, agents=[helper]) as runtime:
            run = await runtime.start(helper, "hi", run_id="r")
            nursery.start_soon(follow, runtime)  # noqa: ASYNC111 - it is to learn of the close
            nursery.start_soon(wait, runtime)  # noqa: ASYNC111 - it is to learn of the close
            await run.wait()
            await wait_all_tasks_blocked()
            assert received == []
            everything = await stored(runtime, "r")
    assert sorted(received) == ["closed", "follower"]
    assert live == everything
    assert runtime._parts.services.signals.followed == 0
    await runtime.closed()
    with pytest.raises(gr.RuntimeClosed), runtime.reader.follow("r"):
        pass
    with pytest.raises(gr.RuntimeClosed):
        await events_of(run)


async def test_a_run_without_an_owner_gives_all_it_has_and_then_the_reason(shelf, autojump_clock):
    helper = talker([text(WORDS), call("pay", cents=5, id="c1")], "done")
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r")
        await run.wait()
        everything = await stored(runtime, "r")
    async with home(shelf) as runtime:
        live: list[bytes] = []
        with pytest.raises(gr.RunDegradedError, match="agent_unknown"):
            await frames(runtime, "r", live)
        assert live == everything
        assert runtime._parts.services.signals.followed == 0
        runtime.agents[helper.key] = helper
        run = await runtime.resume("r")
        outcome = await run.wait()
        rest: list[bytes] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(frames, runtime, "r", rest, len(live))
            await run.decide(outcome.tickets[0].approve())
        assert live + rest == await stored(runtime, "r")


async def test_a_follower_sits_an_outage_of_the_store_out(tmp_path, autojump_clock):
    outages = Outages()
    store = gr.SQLiteStore(tmp_path / "runs.db", writer="inline", faults=outages)
    helper = slowly(20, 0.5)
    live: list[bytes] = []
    async with home(store, agents=[helper]) as runtime:
        await runtime.start(helper, "hi", run_id="r")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(frames, runtime, "r", live)
            await trio.sleep(2)
            assert runtime.reader.outage is None
            outages.error = OSError("disk full")
            await trio.sleep(5)
            assert isinstance(runtime.reader.outage, Exception)
            stands = len(live)
            await trio.sleep(2)
            assert len(live) == stands, "an event is seen only when it is durable"
            outages.error = None
        assert runtime.reader.outage is None
        assert live == await stored(runtime, "r")


# --- questions that cannot be answered ------------------------------------------------------------------------------


async def test_an_unknown_run_is_reported_at_once(shelf, autojump_clock):
    async with home(shelf) as runtime:
        for until in ("end", "rest"):
            with runtime.reader.follow("nowhere", until=until) as follower, pytest.raises(gr.UnknownRun):
                await anext(follower)
        assert runtime._parts.services.signals.followed == 0


@pytest.mark.parametrize("wrong", [{"after": -1}, {"after": 1.0}, {"after": True}, {"until": "never"}])
async def test_a_wrong_question_is_refused_before_anything_is_held(shelf, wrong, autojump_clock):
    async with home(shelf) as runtime:
        with pytest.raises(gr.UsageError, match=r"follow\("):
            runtime.reader.follow("r", **wrong)
        assert runtime._parts.services.signals.followed == 0


async def test_a_cursor_beyond_the_head_gets_what_comes_after_it_and_is_let_go_at_the_end(shelf, autojump_clock):
    """A little beyond, exactly where the run will end, and beyond all that there will be."""
    helper = slowly(10)
    live: dict[int, list[bytes]] = {after: [] for after in (*range(60), 10**9)}
    async with home(shelf, agents=[helper]) as runtime:
        await runtime.start(helper, "hi", run_id="r")
        async with trio.open_nursery() as nursery:
            for after, into in live.items():
                nursery.start_soon(frames, runtime, "r", into, after)
        everything = await stored(runtime, "r")
        assert len(everything) < 60
        assert all(into == everything[after:] for after, into in live.items())
        await frames(runtime, "r", live[10**9], 10**9)
        assert live[10**9] == []


async def test_a_run_that_is_pruned_under_a_slow_reader_is_unknown(shelf, autojump_clock):
    helper = slowly(20)
    live: list[bytes] = []
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r")
        await run.result()
        with runtime.reader.follow("r") as follower:
            assert (await runtime.store.prune(runtime.clock.now() + timedelta(days=1))).runs == 1
            with pytest.raises(gr.UnknownRun):
                live += [frame async for page in follower for frame in page.frames]
    assert live == []


# --- what it costs ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_hundred_followers_cause_no_reads_while_the_run_works(counted, autojump_clock):
    helper = slowly(60, 0.02)
    live: list[list[bytes]] = [[] for _ in range(100)]
    async with home(counted, agents=[helper]) as runtime:
        async with trio.open_nursery() as nursery:
            await runtime.start(helper, "hi", run_id="r")
            for into in live:
                nursery.start_soon(frames, runtime, "r", into)
            await trio.sleep(0.05)
            attached, seen = Counter(counted.asked), len(live[0])
            assert attached["events"] <= 3 * len(live)
            assert attached["load"] <= 2 * len(live) + 10, "and what the run itself asks for when it begins"
        asked = counted.asked - attached
        everything = await stored(runtime, "r")
    assert len(everything) - seen > 50, "there was something to follow"
    assert not asked, f"{len(everything) - seen} events made the followers ask {dict(asked)}"
    assert all(into == everything for into in live)


async def test_a_follower_asks_once_for_the_state_of_the_run_even_if_it_continues_meanwhile(counted, autojump_clock):
    """That a run was not done is enough to know: its end will come as an event, wherever it stood."""
    helper = slowly(60, 0.02)
    live: list[bytes] = []
    async with home(counted, agents=[helper]) as runtime:
        async with trio.open_nursery() as nursery:
            await runtime.start(helper, "hi", run_id="r")
            await trio.sleep(0.05)
            counted.asked.clear()
            counted.pause = 0.05  # two or three events come while the answer is on its way
            nursery.start_soon(frames, runtime, "r", live)
        everything = await stored(runtime, "r")
    assert live == everything
    assert counted.asked["load"] <= 1


@pytest.mark.slow
async def test_readers_that_come_late_read_pages_and_not_events(counted, autojump_clock):
    helper = talker(WORDS * 20, chunk=3)
    async with home(counted, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r")
        await run.result()
        everything = await stored(runtime, "r")
        counted.asked.clear()
        live: list[list[bytes]] = [[] for _ in range(10)]
        async with trio.open_nursery() as nursery:
            for into in live:
                nursery.start_soon(frames, runtime, "r", into)
    assert len(everything) > 300
    assert all(into == everything for into in live)
    pages = sum(map(len, everything)) / 65_536 + len(everything) / 500 + 3
    assert counted.asked["events"] <= 10 * pages
    assert counted.asked["load"] == 0


class CountingRedactor(Redactor):
    """Each payload with a field from outside passes here when its event is encoded."""

    def __init__(self) -> None:
        super().__init__()
        self.payloads = 0

    def small_payload(self, payload: Any) -> Any:
        self.payloads += 1
        return super().small_payload(payload)


@pytest.mark.parametrize("followers", [0, 1, 100])
async def test_each_event_is_encoded_once_whatever_the_number_of_followers(shelf, followers, autojump_clock):
    """And each slice once per form, if all are up to date."""
    helper = slowly()
    made: Counter[tuple[int, int]] = Counter()

    def encode(found: EventSlice) -> bytes:
        made[found.first, found.last] += 1
        return b"".join(found.frames)

    async def follow(runtime: gr.Runtime, into: list[bytes]) -> None:
        with runtime.reader.follow("r") as follower:
            into += [page.encoded(encode) async for page in follower]

    live: list[list[bytes]] = [[] for _ in range(followers)]
    async with home(shelf, agents=[helper]) as runtime:
        redactor = CountingRedactor()
        parts = runtime._parts
        services = attrs.evolve(parts.services, redactor=redactor)
        parts.registry.services, starter = services, attrs.evolve(parts.starter, services=services)
        runtime._parts = attrs.evolve(parts, services=services, starter=starter)
        run = await runtime.start(helper, "hi", run_id="r")
        async with trio.open_nursery() as nursery:
            for into in live:
                nursery.start_soon(follow, runtime, into)
        await run.result()
        everything = await stored(runtime, "r")
    foreign = [frame for frame in everything if CATALOGUE[event_type(frame)] not in OURS]
    assert redactor.payloads == len(foreign) > 0
    assert all(b"".join(into) == b"".join(everything) for into in live)
    beginnings = sum(times for (first, _), times in made.items() if first == 1)
    assert beginnings <= followers, "from the store, when they came"
    assert all(times == 1 for (first, _), times in made.items() if first > 1)


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_a_run_of_many_more_events_than_memory_holds(kind, tmp_path):
    """Live, far behind, and from the middle: memory holds the newest, the store has the rest."""

    def answer(request: gr.ModelRequest) -> Any:
        return (
            "done"
            if request.model_attempts >= (170 if FULL else 60)
            else [text(WORDS), *(call("count", n=n) for n in range(40))]
        )

    @gr.tool(replay="safe")
    async def count(n: int) -> int:
        """Counts."""
        return n

    stop = [gr.stop.MaxRounds(None)]
    helper = gr.Agent("many", tools=[count], model=FunctionModel(answer), execution="parallel_streaming", stop=stop)
    live: list[bytes] = []
    slow: list[bytes] = []
    with trio.fail_after(240):
        async with gr.open_runtime(tmp_path / "runs.db" if kind == "sqlite" else None, agents=[helper]) as runtime:
            run = await runtime.start(helper, "hi", run_id="r")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(frames, runtime, "r", live)
                nursery.start_soon(frames, runtime, "r", slow, 0, 0.01)
                await run.result()
            everything = await stored(runtime, "r")
            sizes: list[int] = []
            with runtime.reader.follow("r", after=RING_FRAMES // 2) as follower:
                async for found in follower:
                    assert found.frames == tuple(everything[found.first - 1 : found.last])
                    sizes.append(len(found.frames))
    assert len(everything) > (20_000 if FULL else 1.5 * RING_FRAMES)
    assert live == everything
    assert slow == everything
    assert sum(sizes) == len(everything) - RING_FRAMES // 2
    assert max(sizes) <= SLICE_FRAMES


# --- cancels and crashes at every step -------------------------------------------------------------------------------


@attrs.define(eq=False)
class World:
    """A run, some who follow it, and one of them who is cancelled by `scope` and comes back with what he has."""

    store: Any
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    injected: BaseException | None = None
    live: list[list[bytes]] = attrs.field(factory=lambda: [[] for _ in range(4)])
    everything: list[bytes] = attrs.field(factory=list)
    faults: list[str] = attrs.field(factory=list)

    async def scenario(self) -> None:
        helper = talker([text(WORDS), call("look", where="here", id="c1"), call("pay", cents=5, id="c2")], "done")
        with trio.fail_after(NEVER):
            async with gr.open_runtime(self.store, agents=[helper]) as runtime:
                run = await runtime.start(helper, "hi", run_id="r")
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(frames, runtime, "r", self.live[0], name="steady")
                    nursery.start_soon(self.interrupted, runtime, name="interrupted")
                    nursery.start_soon(self.decoded, run, name="decoded")
                    outcome = await run.wait()
                    nursery.start_soon(frames, runtime, "r", self.live[2], 0, 0.1, name="late and slow")
                    for ticket in outcome.tickets:
                        await run.decide(ticket.approve())
                    while isinstance(outcome := await run.wait(), gr.Waiting):  # asked again after a crash
                        for ticket in outcome.tickets:
                            await run.decide(ticket.approve())
                self.everything = list(await runtime.store.events("r"))
                if runtime._parts.services.signals.followed:
                    self.faults.append(f"still followed: {runtime._parts.services.signals.followed}")

    async def interrupted(self, runtime: gr.Runtime) -> None:
        with self.scope:
            await frames(runtime, "r", self.live[1])
        rest: list[bytes] = []
        await frames(runtime, "r", rest, len(self.live[1]))
        self.live[1] += rest

    async def decoded(self, run: gr.Run[Any]) -> None:
        async with run.events() as events:
            async for event in events:
                self.live[3].append(event.id.encode())

    def broken(self) -> list[str]:
        out = list(self.faults)
        sequences = [decode_event(frame).sequence for frame in self.everything]
        if not sequences or sequences != list(range(1, len(sequences) + 1)):
            out.append(f"the log has {sequences}")
        out += [f"follower {n} saw another log" for n in range(3) if self.live[n] != self.everything]
        if self.live[3] != [decode_event(frame).id.encode() for frame in self.everything]:
            out.append("the reader of events saw another log")
        return out


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], World]:
    """Makes worlds on fresh stores."""
    numbers = iter(range(100_000))

    def fresh() -> World:
        if request.param == "memory":
            return World(gr.MemoryStore())
        return World(gr.SQLiteStore(tmp_path / f"{next(numbers)}.db", writer="inline"))

    return fresh


@pytest.mark.no_cover
@pytest.mark.slow
def test_a_follower_that_is_cancelled_at_any_step_leaves_nothing_behind_and_comes_back(make, seed):
    report = chaos.sweep_cancel(
        make, World.scenario, World.broken, seeds=(1, 2), sample=None if FULL else (25, seed), settle_within=60
    )
    report.require()


@pytest.mark.slow
def test_a_run_actor_that_crashes_at_any_step_leaves_no_follower_waiting_and_no_hole(make, seed):
    """Also between a commit and its receipt: the store tells of what is durable, not the actor."""

    def in_the_actor(task: trio.lowlevel.Task) -> bool:
        return task.name == "runtime/r" and not chaos.waits_for_children(task)

    report = chaos.sweep_crash(
        make,
        World.scenario,
        World.broken,
        match_task=in_the_actor,
        seeds=(1, 2),
        sample=None if FULL else (25, seed),
        settle_within=60,
    )
    report.require()


@pytest.mark.slow
async def test_many_random_followers_under_the_thread_that_writes(tmp_path, seed):
    """The real writer: readers may see events before they are informed of them."""
    rng = random.Random(seed)
    helper = talker(WORDS * 10, chunk=2)
    seen: list[tuple[int, list[bytes]]] = []

    async def later(runtime: gr.Runtime) -> None:
        for _ in range(rng.randint(0, 200)):
            await trio.lowlevel.checkpoint()
        after = rng.randint(0, len(await runtime.store.events("r")))
        into: list[bytes] = []
        seen.append((after, into))
        await frames(runtime, "r", into, after, rng.choice([0.0, 0.0, 0.005]))

    with trio.fail_after(240):
        async with gr.open_runtime(tmp_path / "runs.db", agents=[helper]) as runtime:
            await runtime.start(helper, "hi", run_id="r")
            async with trio.open_nursery() as nursery:
                for _ in range(50):
                    nursery.start_soon(later, runtime)
            everything = await stored(runtime, "r")
    assert all(into == everything[after:] for after, into in seen)
