"""kill -9 of the gateway, twenty times, and of its clients: all who follow see the same sequence 1 to n.

And commands whose answers a kill has swallowed: sent again with their ids, they act once.
"""

import http.client
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.envelope import decode_event
from greenroom.transport import Client, connect
from greenroom.transport.client import ConnectionTiming

from ..support.ports import free_port
from .following_client import TERMINAL, plain

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
MOMENTS = ("start",) * 4 + ("ready",) * 4 + ("body",) * 4 + ("later",) * 8
"""What the gateway's killer waits for, each once, in an order by lot."""
KILLS = len(MOMENTS)
AT_ONCE = 4
"""Runs that are in work at a time, so that something always happens."""
TOKEN = "a-token-for-tests"
PATIENCE = 400.0
"""Seconds after which a test is informed that it does not come to its end; a quiet machine takes 15."""
HERE = Path(__file__).parent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.no_cover]


# --- processes -------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Nest:
    """Where the gateway's lives come from; one at a time.

    Attributes:
        port: of all lives. lives: how many have begun. alive: one is, and has not been killed.
    """

    process: trio.Process
    port: int
    lives: int = 0
    pid: int = 0
    alive: bool = False
    _said: dict[str, trio.Event] = attrs.field(factory=dict)
    codes: list[int] = attrs.field(factory=list)

    async def listen(self) -> None:
        """Take what the nest says."""
        rest = b""
        async for part in self.process.stdout:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                word, _, number = line.decode().partition(" ")
                if word == "pid":
                    self.pid = int(number)
                elif word == "dead":
                    self.codes.append(int(number))
                self._said[word].set()

    async def begin(self) -> None:
        """A life; returns when there is a process."""
        self._said = {word: trio.Event() for word in ("pid", "ready", "body", "dead")}
        await self.process.stdin.send_all(b"go\n")
        await self._said["pid"].wait()
        self.lives += 1
        self.alive = True

    async def until(self, word: str) -> None:
        """Wait until the life has said the word, or is over."""
        async with trio.open_nursery() as nursery:

            async def over() -> None:
                await self._said["dead"].wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(over)
            await self._said[word].wait()
            nursery.cancel_scope.cancel()

    async def kill(self) -> None:
        """Kill -9; returns when it is dead."""
        self.alive = False
        os.kill(self.pid, signal.SIGKILL)
        await self._said["dead"].wait()


@asynccontextmanager
async def gateway(folder: Path, port: int) -> AsyncIterator[Nest]:
    """The nest, for the time of the block; what lives at its end is killed."""
    command = [sys.executable, str(HERE / "followed_server.py"), str(folder), str(port), TOKEN]
    pipe = {"stdin": -1, "stdout": -1}
    with (folder / "errors").open("wb") as errors:
        process = await trio.lowlevel.open_process(command, **pipe, stderr=errors)
        nest = Nest(process, port)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(nest.listen)
                await nest.begin()
                yield nest
                nursery.cancel_scope.cancel()
        finally:
            if nest.alive:
                os.kill(nest.pid, signal.SIGKILL)
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                await process.stdin.aclose()
                await process.stdout.aclose()


@attrs.define(eq=False)
class Follower:
    """A client in a process of its own; `kill` and `begin` again give it another life with what it has.

    Attributes:
        kind: as in `following_client.py`. folder: what it has.
        kills: how often it was killed. halfway: how often that was when it had a part of a run.
    """

    kind: str
    folder: Path
    port: int
    kills: int = 0
    halfway: int = 0
    process: trio.Process | None = None

    async def begin(self) -> None:
        """A life."""
        command = [
            sys.executable,
            str(HERE / "following_client.py"),
            self.kind,
            str(self.folder),
            str(self.port),
            TOKEN,
        ]
        with self.folder.with_suffix(".errors").open("ab") as errors:
            self.process = await trio.lowlevel.open_process(command, stderr=errors)

    async def kill(self) -> None:
        """Kill -9; returns when it is dead."""
        assert self.process is not None
        assert self.process.poll() is None, self.errors()
        self.process.kill()
        await self.process.wait()
        self.kills += 1
        lasts = [lines[-1] for lines in self.logs().values() if lines]
        self.halfway += any(json.loads(last)["type"] not in TERMINAL for last in lasts)

    async def more(self) -> None:
        """Wait until it has more than now."""
        now = self.logs()
        while self.logs() == now:  # noqa: ASYNC110 - another process
            await trio.sleep(0.05)

    def logs(self) -> dict[str, list[bytes]]:
        """Run -> the lines that it has; half a line does not count."""
        return {path.stem: path.read_bytes().split(b"\n")[:-1] for path in self.folder.glob("*.log")}

    def errors(self) -> str:
        """What it has said about its end."""
        return self.folder.with_suffix(".errors").read_text()


@asynccontextmanager
async def followers(*all_of_them: Follower) -> AsyncIterator[None]:
    """Clients, for the time of the block."""
    try:
        for one in all_of_them:
            await one.begin()
        yield
    finally:
        for one in all_of_them:
            if one.process is not None:
                one.process.kill()
                with trio.CancelScope(shield=True):
                    await one.process.wait()


# --- what happens meanwhile ------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Operator:
    """Starts runs one after the other, and decides what they ask, through the gateway.

    Attributes:
        runs: that were asked for, started or not.
        enough: no more are started.
        done: how their ends are called.
    """

    client: Client
    folder: Path
    rng: random.Random
    runs: list[str] = attrs.field(factory=list)
    enough: bool = False
    done: Counter[str] = attrs.field(factory=Counter)
    answers: Counter[str] = attrs.field(factory=Counter)

    def announce(self, line: str) -> None:
        """To the clients."""
        with (self.folder / "runs").open("a") as file:
            file.write(f"{line}\n")

    async def work(self) -> None:
        """Until there is enough and all runs are done."""
        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(self._one_after_the_other)
        self.announce("END")

    async def _one_after_the_other(self) -> None:
        while not self.enough:
            run = f"run-{len(self.runs)}"
            self.runs.append(run)
            self.announce(run)  # some come too early for it
            await self._attend(run)

    async def _attend(self, run: str) -> None:
        await self.client.start("worker", "work", run_id=run, command_id=f"start:{run}")
        lot = self.rng.random()
        async with trio.open_nursery() as nursery:
            if lot < 0.15:
                nursery.start_soon(self._cancel, run, self.rng.uniform(0.1, 1.0))
            elif lot < 0.4:
                nursery.start_soon(self._send, run)
            async with self.client.follow(run) as events:
                async for event in events:
                    if event.type == "run.approval.requested":
                        nursery.start_soon(self._decide, run, event.payload)
            self.done[event.type] += 1
            nursery.cancel_scope.cancel()

    async def _decide(self, run: str, ticket: Any) -> None:
        """After a moment; of those with an unknown outcome one third each is run again, reported, or ended."""
        await trio.sleep(self.rng.uniform(0.0, 0.1))
        unknown, lot = ticket["reason"] == "outcome_unknown", self.rng.randrange(3)
        denied = (unknown and lot == 0) or (not unknown and self.rng.random() < 0.1)
        name = ticket["ticketId"]
        while True:
            answer = await self.client.decide(
                run,
                name,
                "cancel" if denied else "resume",
                result="told" if unknown and lot == 1 else None,
                fingerprint=ticket["fingerprint"],
                decision_id=f"d:{name}",
            )
            self.answers[f"{answer.status} {answer.code or ''}".strip()] += 1
            if answer.code not in ("store_unavailable", "closing", "busy"):
                return
            await trio.sleep(0.05)

    async def _cancel(self, run: str, moment: float) -> None:
        await trio.sleep(moment)
        await self.client.cancel(run, command_id=f"c:{run}", reason="enough")

    async def _send(self, run: str) -> None:
        await self.client.send(run, "and be quick", command_id=f"i:{run}")


async def kill_the_gateway(nest: Nest, rng: random.Random) -> None:
    """While it starts, while its clients come back, while a body runs, while it works."""
    for moment in rng.sample(MOMENTS, KILLS):
        if moment != "start":
            await nest.until("ready")
        if moment == "body":
            await nest.until("body")
        longest = {"start": 0.3, "ready": 0.1, "body": 0.06, "later": 1.2}[moment]
        await trio.sleep(rng.choice([0.0, rng.uniform(0.0, longest), rng.uniform(0.0, longest)]))
        await nest.kill()
        await trio.sleep(rng.choice([0.0, rng.uniform(0.0, 0.2)]))
        await nest.begin()
    await nest.until("ready")


async def kill_a_client(client: Follower, rng: random.Random) -> None:
    """Again and again, until cancelled; it is alive then."""
    while True:
        if rng.random() < 0.5:
            await trio.sleep(rng.uniform(0.6, 2.0))
        else:  # on a slow machine it is not even up by then
            await client.more()
            await trio.sleep(rng.uniform(0.0, 0.3))
        with trio.CancelScope(shield=True):
            await client.kill()
            await client.begin()


async def stored(path: Path) -> dict[str, list[bytes]]:
    """Every event of every run that the file has in the end."""
    async with gr.open_runtime(path) as runtime:
        names = [run.info.run_id for run in (await runtime.runs(limit=1000)).runs]
        return {name: list(await runtime.store.events(name, limit=100_000)) for name in names}


# --- the tests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lot", range(5 if FULL else 1))
async def test_clients_see_the_same_through_twenty_kills_of_the_gateway_and_kills_of_their_own(tmp_path, rng, lot):
    """No hole, no repeat, no change: what each client has on its disk is what the store has."""
    rng.seed(f"{rng.random()} {lot}")
    port = free_port(rng)
    steady = [Follower("frames", tmp_path / "steady", port), Follower("library", tmp_path / "library", port)]
    killed = [Follower("frames", tmp_path / "killed", port), Follower("stream", tmp_path / "stream", port)]
    pace = ConnectionTiming(first=0.05, slowest=0.3, patience=0.1)
    with trio.fail_after(PATIENCE):
        async with (
            followers(*steady, *killed),
            gateway(tmp_path, port) as nest,
            connect(f"ws://127.0.0.1:{port}", token=TOKEN, patient=True, pace=pace) as client,
        ):
            operator = Operator(client, tmp_path, rng)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(operator.work)
                async with trio.open_nursery() as killers:
                    for one in killed:
                        killers.start_soon(kill_a_client, one, random.Random(rng.random()))
                    await kill_the_gateway(nest, rng)
                    while not all(one.halfway for one in killed):  # noqa: ASYNC110 - other processes
                        await trio.sleep(0.05)
                    killers.cancel_scope.cancel()
                operator.enough = True
            for one in (*steady, *killed):
                assert await one.process.wait() == 0, f"{one.kind} in {one.folder.name}:\n{one.errors()}"
            await nest.kill()
            assert nest.codes == [-signal.SIGKILL] * (KILLS + 1), (tmp_path / "errors").read_text()
        truth = await stored(tmp_path / "runs.db")
    assert sorted(truth) == sorted(operator.runs)
    for run, frames in truth.items():
        events = [decode_event(frame) for frame in frames]
        assert [event.sequence for event in events] == list(range(1, len(frames) + 1))
        assert [event.type in TERMINAL for event in events] == [False] * (len(frames) - 1) + [True]
        for one in (*steady, *killed):
            wanted = [plain(event) for event in events] if one.kind == "library" else frames
            assert one.logs()[run] == wanted, f"{one.kind} in {one.folder.name} saw another {run}"
    kills = ", ".join(f"{one.kind} {one.kills} ({one.halfway} in the middle)" for one in killed)
    count = sum(map(len, truth.values()))
    print(f"\n{nest.lives} lives, {len(truth)} runs, {count} events; killed clients: {kills}")  # noqa: T201
    print(f"{dict(operator.done)}, answers {dict(operator.answers)}")  # noqa: T201
    assert nest.lives == KILLS + 1
    retried = sum(b'"run.inference.retried"' in frame for frames in truth.values() for frame in frames)
    unknown = sum(b'"reason":"outcome_unknown"' in frame for frames in truth.values() for frame in frames)
    assert retried, "no kill met a model that streamed"
    assert unknown, "no kill met a body that must not be repeated"


# --- commands whose answers are lost ---------------------------------------------------------------------------------


@attrs.frozen
class Order:
    """A command over HTTP. `name` is its Idempotency-Key."""

    run: str
    name: str
    path: str
    body: dict[str, Any]

    def request(self, port: int) -> bytes:
        """As it goes over the wire."""
        body = json.dumps(self.body).encode()
        head = f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        head += f"Content-Type: application/json\r\nIdempotency-Key: {self.name}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body


def command(run: str, name: str, **body: Any) -> Order:
    """A command to a run."""
    return Order(run, name, f"/v1/runs/{run}/commands", body)


def started(run: str) -> Order:
    """The start of a run."""
    return Order(run, f"start:{run}", "/v1/runs", {"agent": "payer", "text": "pay", "run": run})


async def ask(port: int, method: str, path: str, body: Any = None, name: str = "") -> tuple[int, Any]:
    """Status and body of one request; again and again while no answer comes."""

    def once() -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            headers = {"Authorization": f"Bearer {TOKEN}"} | ({"Idempotency-Key": name} if name else {})
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    while True:
        try:
            status, data = await trio.to_thread.run_sync(once, abandon_on_cancel=True)
        except (OSError, http.client.HTTPException):
            await trio.sleep(0.02)
            continue
        if status != 503:
            return status, data
        await trio.sleep(0.02)


async def status_of(port: int, order: Order) -> str:
    """What the answer to a command says: accepted or duplicate."""
    status, data = await ask(port, "POST", order.path, order.body, order.name)
    assert status in (200, 201, 202), data
    return data["status"]


async def ticket_of(port: int, run: str) -> dict[str, Any]:
    """The open ticket of a run."""
    while True:
        _, view = await ask(port, "GET", f"/v1/runs/{run}")
        if view["tickets"]:
            return view["tickets"][0]
        assert view["status"] != "done", view
        await trio.sleep(0.02)


async def finish(port: int, run: str) -> None:
    """Decide whatever a run asks until it is done."""
    while True:
        _, view = await ask(port, "GET", f"/v1/runs/{run}")
        if view["status"] == "done":
            return
        for ticket in view["tickets"]:
            name = ticket["ticketId"]
            await status_of(port, command(run, f"d:{name}", type="decide", target=name, action="resume"))
        await trio.sleep(0.02)


async def five_orders(port: int, lot: int) -> list[Order]:
    """One of each kind, to runs that wait for them."""
    approved, denied, sent, cancelled = (f"{name}-{lot}" for name in ("approved", "denied", "sent", "cancelled"))
    for run in (approved, denied, sent, cancelled):
        await status_of(port, started(run))
    tickets = {run: (await ticket_of(port, run))["ticketId"] for run in (approved, denied, sent, cancelled)}
    yes, no = tickets[approved], tickets[denied]
    return [
        command(approved, f"d:{yes}", type="decide", target=yes, action="resume"),
        command(denied, f"d:{no}", type="decide", target=no, action="cancel", reason="no"),
        command(sent, f"i:{sent}", type="send", text="by the way"),
        command(cancelled, f"c:{cancelled}", type="cancel", reason="enough"),
        started(f"started-{lot}"),
    ]


async def test_a_command_that_was_not_acknowledged_before_the_kill_is_sent_again_and_acts_once(tmp_path, rng):
    port, answers = free_port(rng), Counter[str]()
    orders: list[Order] = []
    with trio.fail_after(PATIENCE):
        async with gateway(tmp_path, port) as nest:
            for lot in range(100):
                if lot >= (20 if FULL else 6) and len(answers) == 2:
                    break  # which command is durable when the kill comes is chance
                await nest.until("ready")
                five = await five_orders(port, lot)
                rng.shuffle(five)
                streams = [await trio.open_tcp_stream("127.0.0.1", port) for _ in five]
                for number, (order, stream) in enumerate(zip(five, streams, strict=True)):
                    await stream.send_all(order.request(port))
                    if number == 1:  # the first two have time to become durable; no one learns of it
                        await trio.sleep(rng.uniform(0.0, 0.2))
                await trio.sleep(rng.choice([0.0, rng.uniform(0.0, 0.02)]))
                await nest.kill()
                for stream in streams:
                    await stream.aclose()
                await nest.begin()
                for order in five:
                    answers[await status_of(port, order)] += 1
                    assert await status_of(port, order) == "duplicate"
                for order in five:
                    await finish(port, order.run)
                orders += five
            await nest.kill()
        truth = await stored(tmp_path / "runs.db")
    print(f"\nsent again: {dict(answers)}")  # noqa: T201
    assert set(answers) == {"accepted", "duplicate"}, "some were lost, some were durable"
    for order in orders:
        events = [decode_event(frame) for frame in truth[order.run]]
        acted = [event for event in events if is_effect(event, order)]
        assert len(acted) == 1, f"{order} acted {len(acted)} times"
    starts = Counter(
        (line["run"], line["attempt"])
        for line in map(json.loads, (tmp_path / "effects.log").read_bytes().splitlines())
        if line["what"] == "begin"
    )
    assert set(starts.values()) == {1}, "a body began twice in one attempt"
    assert not [run for run, _ in starts if run.startswith(("denied", "cancelled"))]


def is_effect(event: gr.Event, order: Order) -> bool:
    """Whether the event is what a command has done."""
    match order.body:
        case {"type": "decide", "target": ticket, "action": action}:
            wanted = "approved" if action == "resume" else "denied"
            return event.type == "run.approval.resolved" and (
                (event.payload["ticketId"], event.payload["resolution"]) == (ticket, wanted)
            )
        case {"type": "send"}:
            return event.type == "run.input.received" and event.payload["commandId"] == order.name
        case {"type": "cancel"}:
            return event.type == "run.cancel.requested" and event.payload["commandId"] == order.name
        case _:
            return event.type == "run.created" and event.payload["input"] == order.body["text"]
