"""Readers that take nothing, or little, or come and go: no one else notices, memory is bounded, events come once."""

import random
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest
import trio
from tests.support.event_writer import Author
from tests.support.gateway import TOKEN
from tests.support.gateway_inside import HELPER, house, until
from tests.support.raw_ws import CLOSE, PING, PONG, TEXT, Ended, closing, frame, head, said, talking_raw

from greenroom.transport import Address, Limits
from greenroom.transport.protocol.ws_output import ANSWER_BYTES

pytestmark = pytest.mark.slow


class Reader:
    """Applies the events of one run, and sees to it that each comes once, in order."""

    def __init__(self, run):
        self.run, self.cursor, self.frames = run, 0, []

    def take(self, heard):
        """A frame; True if it was the next event."""
        data = heard.json()
        if data["type"].startswith("gw."):
            return False
        assert data["sequence"] == self.cursor + 1, f"{data['sequence']} after {self.cursor}"
        self.cursor += 1
        self.frames.append(heard.payload)
        return True

    async def read(self, raw, last):
        """Read until an event has been applied."""
        while self.cursor < last:
            received = await raw.hear()
            if received.opcode == TEXT:
                self.take(received)


async def follow(here, run, last, **options):
    """Read a run from its beginning to an event, on one connection."""
    reader = Reader(run)
    async with here.talking(**options) as raw:
        await raw.send(said("subscribe", run=run))
        await reader.read(raw, last)
        await raw.send(closing())
        await raw.parting()
    return reader


async def metric(here, name):
    text = here.gateway.metrics.text().decode()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


# --- who takes nothing -----------------------------------------------------------------------------------------------


async def test_who_stops_reading_is_cut_and_nobody_else_notices_and_the_cursor_brings_the_rest():
    async with house(limits=Limits(stall_seconds=2.0)) as here:
        author = await Author.create(here.runtime, HELPER, "r")
        stalled = Reader("r")
        async with here.talking(buffer=4096) as raw, trio.open_nursery() as nursery:
            await raw.send(said("subscribe", run="r"))
            await raw.find("gw.live")
            readers = []

            async def honest():
                readers.append(await follow(here, "r", 501))

            for _ in range(3):
                nursery.start_soon(honest)
            for _ in range(50):
                await author.write(["x" * 8_000] * 10)
            await until(lambda: len(readers) == 3)
            assert {reader.cursor for reader in readers} == {501}
            await until(lambda: here.gateway.open == 0)
            assert await metric(here, 'greenroom_connections_cut_total{why="stalled"}') == 1
            stalled.cursor = 1  # the first one was passed over
            with pytest.raises(Ended):
                await stalled.read(raw, 501)
            assert stalled.cursor < 501
        before = stalled.cursor
        async with here.talking() as raw:
            await raw.send(said("subscribe", run="r", after=before))
            assert (await raw.find("gw.subscribed"))["after"] == before
            await stalled.read(raw, 501)
        stored = await here.runtime.store.events("r", limit=1000)
        assert stalled.frames == list(stored[1:])
        assert readers[0].frames == list(stored)


async def test_a_stalled_reader_of_a_page_or_a_stream_is_cut():
    async with house(limits=Limits(stall_seconds=0.3)) as here:
        author = await Author.create(here.runtime, HELPER, "r")
        for _ in range(20):
            await author.write(["x" * 40_000] * 10)
        headers = {"Host": here.host, "Authorization": f"Bearer {TOKEN}"}
        for more in ({}, {"Accept": "text/event-stream"}):
            async with here.calling(buffer=4096) as raw:
                await raw.send(head("GET /v1/runs/r/events?limit=500 HTTP/1.1", {**headers, **more}))
                assert (await raw.heading())[0] == 200
                await until(lambda: here.gateway.open == 0)
                assert here.gateway.open == 0
        assert await metric(here, 'greenroom_connections_cut_total{why="stalled"}') == 2


async def test_memory_does_not_grow_with_readers_that_take_nothing(tmp_path):
    """30 readers, none of which reads, while 40 MB pass: what one has not taken is in the store and nowhere else."""
    script = str(Path(__file__).with_name("slow_server.py"))
    command = [sys.executable, script, str(tmp_path / "runs.db"), TOKEN, "60"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220
    try:
        address = Address(host="127.0.0.1", port=int(process.stdout.readline()))

        async def ordered(megabytes):
            process.stdin.write(f"{megabytes}\n")
            process.stdin.flush()
            peak, last = (await trio.to_thread.run_sync(process.stdout.readline)).split()
            return int(peak), int(last)

        async def stand(*, task_status):
            async with talking_raw(address, TOKEN, buffer=4096) as raw:
                await raw.send(said("subscribe", run="r"))
                await raw.find("gw.live")
                task_status.started()
                await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            for _ in range(30):
                await nursery.start(stand)
            before, _ = await ordered(5)
            after, last = await ordered(40)
            assert after - before < 40_000_000, "more than the log itself, of which there are 30 readers"
            reader = Reader("r")
            async with talking_raw(address, TOKEN) as raw:
                await raw.send(said("subscribe", run="r"))
                with trio.fail_after(240):
                    await reader.read(raw, last)
            nursery.cancel_scope.cancel()
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.mark.parametrize("size", [10, 60_000])
async def test_who_asks_and_does_not_listen_is_not_received_any_more(size):
    """Answers wait in memory: not more of them than are allowed, however much is asked."""
    limits, most, asked = Limits(stall_seconds=1.0, messages_per_second=100_000), 0, 0
    async with house(limits=limits) as here, here.talking(buffer=4096) as raw, trio.open_nursery() as nursery:
        (conversation,) = here.gateway.conversations

        async def ask():
            nonlocal asked
            try:
                while True:
                    await raw.send(said("ping", id="x" * size))
                    asked += 1
            except trio.BrokenResourceError:
                pass

        nursery.start_soon(ask)
        while here.gateway.open:
            most = max(most, conversation.output.size)
            await trio.sleep(0.01)
        assert 0 < most <= ANSWER_BYTES + 70_000
        assert asked * size > 2 * 4096
        assert await metric(here, 'greenroom_connections_cut_total{why="stalled"}') == 1


# --- who takes little ------------------------------------------------------------------------------------------------


async def test_who_reads_a_byte_every_now_and_then_is_not_cut_and_nobody_else_notices():
    async with house(limits=Limits(stall_seconds=0.4, heartbeat_seconds=0.5, pong_seconds=5)) as here:
        author = await Author.create(here.runtime, HELPER, "r")
        async with here.talking(buffer=4096) as raw, trio.open_nursery() as nursery:
            await raw.send(said("subscribe", run="r"))

            async def crawl():
                while True:
                    await trio.sleep(0.05)
                    raw.left += await raw.stream.receive_some(1)

            nursery.start_soon(crawl)
            for i in range(20):
                await author.write([f"event {i}"])
                await trio.sleep(0.05)
            assert (await follow(here, "r", 21)).cursor == 21
            await until(lambda: here.gateway.open == 1)
            assert here.gateway.open == 1, "still there"
            nursery.cancel_scope.cancel()
        assert await metric(here, "greenroom_connections_cut_total") == 0


async def test_a_slow_reader_of_much_is_not_cut_however_late_it_comes_to_a_ping():
    """What is on its way to it takes longer than a pong may: who makes room is alive."""
    limits = Limits(stall_seconds=30.0, heartbeat_seconds=0.2, pong_seconds=2.0)
    async with house(limits=limits) as here:
        author, last = await Author.create(here.runtime, HELPER, "r"), 121
        await author.write(["x" * 4_000] * (last - 1))
        reader, pings = Reader("r"), 0
        async with here.talking(buffer=4096) as raw:
            with trio.fail_after(240):  # 4 s on a quiet machine; what is asked is who is cut, not how fast it is
                await raw.send(said("subscribe", run="r"))
                while reader.cursor < last:
                    await trio.sleep(0.05)
                    raw.left += await raw.stream.receive_some(8_000)
                    while reader.cursor < last and (len(raw.left) > 5_000 or reader.cursor > last - 3):
                        received = await raw.hear()
                        pings += received.opcode == PING
                        if received.opcode == TEXT:
                            reader.take(received)
        assert pings, "a ping was under way"
        assert await metric(here, "greenroom_connections_cut_total") == 0


async def test_who_never_answers_a_ping_is_cut():
    async with house(limits=Limits(heartbeat_seconds=0.2, pong_seconds=0.2)) as here:
        started_at = trio.current_time()
        async with here.talking() as raw:
            received = await raw.to_the_end()
        assert 0.4 <= trio.current_time() - started_at < Limits().heartbeat_seconds
        assert CLOSE not in [one.opcode for one in received], "nobody is there to read it"
        assert await metric(here, 'greenroom_connections_cut_total{why="no_pong"}') == 1


async def test_a_ping_and_a_command_in_the_middle_of_a_long_replay_are_answered_in_the_middle():
    """The writer does not keep the connection to itself while it has something to write."""
    async with house() as here:
        author = await Author.create(here.runtime, HELPER, "r")
        for _ in range(20):
            await author.write(["x" * 8_000] * 100)
        async with here.talking() as raw:
            await raw.send(said("subscribe", run="r"))
            await raw.find("run.message.delta")
            await raw.send(frame("a", PING), said("ping", id="b"))
            reader, pong, tick = Reader("r"), None, None
            reader.cursor = 2
            while reader.cursor < author.head:
                received = await raw.hear()
                if received.opcode == PONG:
                    pong = reader.cursor
                elif not reader.take(received) and received.json()["type"] == "gw.tick":
                    tick = reader.cursor
            assert pong < author.head / 2
            assert tick < author.head / 2


# --- who comes and goes ----------------------------------------------------------------------------------------------


class Wanderer:
    """Follows several runs at random: leaves and comes back, subscribes, unsubscribes and subscribes again anywhere.

    Attributes:
        cursors: run -> the newest event that has been applied, in order and once.
    """

    def __init__(self, here, rng, runs):
        self.here, self.rng = here, rng
        self.cursors = dict.fromkeys(runs, 0)
        self.frames = {run: {} for run in runs}
        self.asked = {}
        self.places = {}
        self.late = False

    async def wander(self, heads):
        """Until everything has been applied."""
        while True:
            self.asked, self.places = {run: deque() for run in self.cursors}, dict.fromkeys(self.cursors)
            buffer = self.rng.choice([None, None, 4096, 30_000])
            async with self.here.talking(buffer=buffer) as raw:
                for run in self.cursors:
                    await self.subscribe(raw, run, self.cursors[run])
                if await self.stay(raw, heads):
                    return
                if self.rng.random() < 0.5:
                    raw.reset()

    async def stay(self, raw, heads):
        """One connection; True if there is nothing more to come."""
        for _ in range(self.rng.randrange(5, 60)) if not self.late else iter(int, 1):
            for _ in range(self.rng.randrange(30)):
                if self.late and self.cursors == heads():
                    return True
                received = await raw.hear()
                if received.opcode == TEXT:
                    self.take(received)
            await trio.sleep(self.rng.choice([0, 0, 0, 0.001, 0.01]))
            if not self.late:
                await self.act(raw)
        return False

    async def act(self, raw):
        run = self.rng.choice(list(self.cursors))
        match self.rng.randrange(8):
            case 0:
                await self.subscribe(raw, run, self.cursors[run])
            case 1:
                await self.subscribe(raw, run, self.rng.randint(0, self.cursors[run]))
            case 2:
                await raw.send(said("unsubscribe", run=run), said("ping"))
                self.asked[run].append(None)
                await self.subscribe(raw, run, self.cursors[run])
            case 3:
                await raw.send(said("ping", id="?"))

    async def subscribe(self, raw, run, after):
        await raw.send(said("subscribe", run=run, after=after))
        self.asked[run].append(after)

    def take(self, heard):
        data = heard.json()
        match data["type"]:
            case "gw.subscribed":
                asked = self.asked[data["run"]].popleft()
                assert data["after"] == asked, (data, asked)
                self.places[data["run"]] = asked
            case "gw.unsubscribed":
                assert self.asked[data["run"]].popleft() is None, data
                self.places[data["run"]] = None
            case "gw.live":
                assert self.places[data["run"]] == data["sequence"], (data, self.places)
            case "gw.tick":
                pass
            case kind:
                assert not kind.startswith("gw."), data
                self.event(data["runId"], data["sequence"], heard.payload)

    def event(self, run, sequence, payload):
        place = self.places[run]
        assert place is not None, f"{run} {sequence} after it was left"
        assert sequence == place + 1, f"{run} {sequence} after {place}"
        self.places[run] = sequence
        assert self.frames[run].setdefault(sequence, payload) == payload, "the same event in other bytes"
        self.cursors[run] = max(self.cursors[run], sequence)


async def write_slowly(author, rng, events):
    left = events
    while left:
        count = min(left, rng.choice([1, 1, 2, 5, 40]))
        await author.write([rng.choice(["", "x" * 100, "y" * 3_000]) for _ in range(count)])
        left -= count
        await trio.sleep(rng.choice([0, 0, 0.002, 0.01]))


@pytest.mark.no_cover
async def test_every_reader_gets_every_event_once_and_in_order_however_it_comes_and_goes(seed, sampled):
    for number in sampled(range(30), 3):
        rng = random.Random(f"{seed} {number}")
        limits = Limits(messages_per_second=100_000)
        async with house(limits=limits) as here:
            authors = [await Author.create(here.runtime, HELPER, f"r{i}") for i in range(3)]
            wanderers = [Wanderer(here, random.Random(rng.random()), [a.run for a in authors]) for _ in range(10)]

            def heads(authors=authors):
                return {author.run: author.head for author in authors}

            with trio.fail_after(120):
                async with trio.open_nursery() as nursery:
                    for wanderer in wanderers:
                        nursery.start_soon(wanderer.wander, heads)
                    async with trio.open_nursery() as writing:
                        for author in authors:
                            writing.start_soon(write_slowly, author, random.Random(rng.random()), 600)
                    for wanderer in wanderers:
                        wanderer.late = True
                    for author in authors:  # for those who wait for a frame
                        await author.write(["the last one"])
            for author in authors:
                stored = await here.runtime.store.events(author.run, limit=10_000)
                for wanderer in wanderers:
                    assert [wanderer.frames[author.run].get(i) for i in range(1, author.head + 1)] == list(stored)


async def test_a_hundred_readers_learn_of_the_end_of_a_run_and_the_gateway_forgets_it():
    async with house() as here:
        run = await here.runtime.start("helper", "hi", run_id="r")
        async with trio.open_nursery() as nursery:

            async def hear():
                async with here.talking() as raw:
                    await raw.send(said("subscribe", run="r"))
                    assert (await raw.find("gw.unsubscribed"))["reason"] == "done"
                    await raw.send(frame("", PING))
                    assert (await raw.hear()).opcode == 10
                    assert here.runtime._parts.services.signals.followed <= 1

            for _ in range(100):
                nursery.start_soon(hear)
        await run.result()
