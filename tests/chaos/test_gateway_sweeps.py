"""One connection of a gateway, cancelled, left, crashed and sent away at every step: it ends, and the next is served.

Streams in memory run through `serve_connection` under virtual time. `GREENROOM_CHAOS=full` strikes every step under
several schedules; else a seeded sample. A violation names its token; `only="cancel:1:17"` in the sweep replays it.
"""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any, Literal

import attrs
import pytest
import trio
from tests.support.gateway_inside import CONNECTED, listening
from tests.support.raw_ws import ACCEPTED, CLOSE, TEXT, Ended, Heard, Raw, closing, frame, head, said, upgrade
from trio.testing import lockstep_stream_pair, memory_stream_pair

import greenroom as gr
from greenroom.supervision import chaos
from greenroom.testing import ScriptedModel, delay, text
from greenroom.transport.gateway.access import OriginPolicy, Principal, TokenTable
from greenroom.transport.gateway.gateway import Gateway
from greenroom.transport.gateway.http_connection import serve_connection
from greenroom.transport.gateway.sign_ins.sign_in import SignIn, SignInRequest
from greenroom.transport.protocol.limits import Limits
from greenroom.transport.server.routes import ROUTES

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
SEEDS = (1, 2, 3) if FULL else (1,)
POINTS = 12
"""Steps that are struck when not all of them are."""
TOKEN = "a-token-for-the-sweeps"
PIECE = 24
"""Bytes that the client reads at once: less than most frames, so that a write is cut in the middle of one."""
SETTLED = 60.0
"""Virtual seconds after which nothing may be left: longer than every time limit of a connection."""
BUDGET = 400.0
"""Virtual seconds from a fault to the end of the scenario."""

pytestmark = pytest.mark.slow
PAIRS: dict[str, Callable[[], tuple[trio.abc.Stream, trio.abc.Stream]]] = {
    "buffered": memory_stream_pair,
    "lockstep": lockstep_stream_pair,
}


class Pieces(Raw):
    """A client that reads in small pieces, and notes every frame."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self.received: list[Heard] = []

    async def more(self, most: int = PIECE) -> None:
        await super().more(most)

    async def hear(self) -> Heard:
        if self.received:
            assert self.received[-1].opcode != CLOSE or not self.left, "something came after a close frame"
        found = await super().hear()
        self.received.append(found)
        return found


class Goodbye:
    """In the place of a cancel scope: what strikes is the end of the gateway."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def cancel(self, _: str = "") -> None:
        gateway = self._world.gateway
        if gateway is not None and self._world.under_way:
            gateway.say_goodbye(restart=True)


@attrs.define(eq=False)
class World:
    """A gateway with one client that is struck, and one that comes afterwards.

    Attributes:
        strikes: what `scope` is: around the connection's task, around the client's, or the end of the gateway.
        reports: what was logged as a failure.
        ended: the first client has read up to the end of its connection.
    """

    kind: Literal["websocket", "http", "a2a", "people"]
    pair: str
    strikes: Literal["connection", "client", "goodbye", "crash"]
    scope: Any = attrs.field(factory=trio.CancelScope)
    gateway: Gateway | None = None
    injected: BaseException | None = None
    faults: list[str] = attrs.field(factory=list)
    reports: list[str] = attrs.field(factory=list)
    under_way: bool = False
    ended: bool = False
    client: Pieces | None = None

    def __attrs_post_init__(self) -> None:
        if self.strikes == "goodbye":
            self.scope = Goodbye(self)

    @property
    def struck(self) -> bool:
        """Whether there is a reason for the connection to end before its time."""
        if self.strikes == "goodbye":
            return self.gateway is not None and self.gateway.closing
        return self.strikes == "crash" or bool(self.scope.cancel_called)

    # --- the program -------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        steps = [text("Hello. "), delay(0.2), text("How are "), text("you?"), delay(0.2), text("Well.")]
        agent = gr.Agent("helper", model=ScriptedModel([steps] * 10, chunk=8))
        before = set(chaos.program_tasks())
        with listening("greenroom.gateway") as failures:
            async with gr.open_runtime(agents=[agent]) as runtime, trio.open_nursery() as hall:
                by_function = self.kind == "people"
                self.gateway = Gateway(
                    runtime=runtime,
                    keyring=TokenTable([] if by_function else [Principal(name="ann", token=TOKEN)]),
                    sign_ins=[SignIn(authenticate, seconds=0.1)] if by_function else [],
                    doorway=OriginPolicy(hosts=None),
                    limits=Limits(),
                    routes=ROUTES,
                )
                self.gateway.fanout.open(hall)
                hall.start_soon(self.gateway.authenticator.run)
                await self._first()
                await trio.sleep(SETTLED)
                self.faults += [f"left after the first: {one}" for one in self.left(before)]
                await self._second()
                await trio.sleep(SETTLED)
                self.faults += [f"left after the second: {one}" for one in self.left(before)]
                hall.cancel_scope.cancel()
        self.reports = failures.texts

    async def _first(self) -> None:
        ours, theirs = PAIRS[self.pair]()
        self.client, exchange = Pieces(theirs), CLIENTS[self.kind]
        self.under_way = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._serve, ours)
            with self.scope if self.strikes == "client" else trio.CancelScope():
                try:
                    await exchange(self, self.client)
                    self.ended = True
                except (Ended, trio.BrokenResourceError):
                    self.ended = True
                    if not self.struck:
                        raise
            await trio.aclose_forcefully(theirs)
        self.under_way = False

    async def _serve(self, ours: trio.abc.Stream) -> None:
        assert self.gateway is not None
        with self.scope if self.strikes == "connection" else trio.CancelScope():
            await serve_connection(self.gateway, ours)

    async def _second(self) -> None:
        """The next client is served as if nothing had been; or is informed that there is an end."""
        assert self.gateway is not None
        ours, theirs = memory_stream_pair()
        raw = Raw(theirs)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_connection, self.gateway, ours)
            await raw.send(head("GET /healthz HTTP/1.1"), upgrade("localhost", TOKEN))
            answer = await raw.answer()
            if answer.status == 503:
                assert self.gateway.closing
            else:
                assert answer.status == 200
                assert (await raw.until(b"\r\n\r\n")).startswith(ACCEPTED)
                await raw.send(said("start", id="second", agent="helper", text="hi"))
                run = (await raw.find("gw.ack"))["run"]
                await raw.send(said("subscribe", run=run))
                assert (await raw.find("gw.unsubscribed"))["reason"] == "done"
            await theirs.aclose()

    def left(self, before: set[trio.lowlevel.Task]) -> Iterator[str]:
        """What connections have left behind."""
        assert self.gateway is not None
        gateway = self.gateway
        for name in ("open", "turned_away", "idle", "conversations"):
            if getattr(gateway, name):
                yield f"{name}: {getattr(gateway, name)}"
        if gateway.authenticator._open:
            yield f"watched: {gateway.authenticator}"
        yield from (f"calls: {sign_in._calls}" for sign_in in gateway.sign_ins if sign_in._calls)
        if gateway._of.total():
            yield f"counted: {gateway._of}"
        if gateway.runtime._parts.services.signals.followed:
            yield f"followed: {gateway.runtime._parts.services.signals.followed}"
        if gateway.fanout._pumps:
            yield f"pumps: {gateway.fanout._pumps}"
        new = [task for task in chaos.program_tasks() if task not in before]
        yield from (f"task {task.name}" for task in new if any(part in task.name for part in CONNECTED))


# --- clients ---------------------------------------------------------------------------------------------------------


async def websocket(world: World, raw: Pieces) -> None:
    """Hello, a run that is started and followed to its end, followed again, left; an honest end."""
    await raw.send(upgrade("localhost"))
    answer = await raw.heading()
    if answer[0] == 503:
        assert world.struck
        return
    assert answer[0] == 101
    await raw.send(said("hello", token=TOKEN))
    assert (await talked(world, raw, "gw.welcome"))["principal"] == "ann"
    await raw.send(said("start", id="s", agent="helper", text="hi"))
    run = (await talked(world, raw, "gw.ack"))["run"]
    await raw.send(said("subscribe", run=run), frame("", 9))
    assert (await talked(world, raw, "gw.unsubscribed"))["reason"] == "done"
    await raw.send(
        said("subscribe", run=run, after=3), said("subscribe", run=run, after=5), said("unsubscribe", run=run)
    )
    await talked(world, raw, "gw.unsubscribed")
    await raw.send(closing())
    await hear_out(raw)


async def hear_out(raw: Pieces) -> None:
    """Up to the end of the connection, which is behind a whole frame."""
    try:
        while True:
            await raw.hear()
    except Ended as ended:
        if ended.rest:
            raise


async def talked(world: World, raw: Pieces, kind: str) -> dict[str, Any]:
    """The next frame of a type."""
    while True:
        received = await raw.hear()
        if received.opcode == CLOSE:
            await hear_out(raw)
            raise Ended(b"")
        if received.opcode == TEXT and received.json()["type"] == kind:
            return received.json()


async def http(world: World, raw: Pieces) -> None:
    """Requests on one connection that is kept: a start, a page, server-sent events up to the run's end."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    await raw.send(head("GET /healthz HTTP/1.1"))
    assert (await raw.answer()).status == 200 or world.struck
    body = json.dumps({"agent": "helper", "text": "hi"}).encode()
    await raw.send(head("POST /v1/runs HTTP/1.1", headers, Content_Length=str(len(body))), body[:7])
    await raw.send(body[7:])
    answer = await raw.answer()
    if answer.status >= 500:
        assert world.struck
        return
    run = answer.json()["run"]
    await raw.send(head(f"GET /v1/runs/{run} HTTP/1.1", headers))
    answer = await raw.answer()
    assert answer.json()["run"] == run if answer.status == 200 else world.strikes == "crash"
    await raw.send(head(f"GET /v1/runs/{run}/events HTTP/1.1", headers, Accept="text/event-stream"))
    status, _ = await raw.heading()
    if status != 200:
        assert world.strikes == "crash"
        return
    data = b""
    try:
        async for chunk in raw.chunks():
            data += chunk
    except Ended as ended:
        if world.strikes == "goodbye":
            raise AssertionError(f"the stream has no end: {ended.rest!r}") from ended
        raise
    events = [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: ")]
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    if not events or events[-1]["type"] != "run.completed":
        assert world.struck, "the stream has ended before the run"
    assert await raw.rest() == b""


async def a2a(world: World, raw: Pieces) -> None:
    """An A2A message, streamed and, sent again, answered when the run rests."""
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
    body = json.dumps({"message": message}).encode()
    fields = {"Authorization": f"Bearer {TOKEN}", "A2A-Version": "1.0", "Content-Length": str(len(body))}
    for name in ("stream", "send"):
        await raw.send(head(f"POST /v1/a2a/helper/message:{name} HTTP/1.1", fields), body)
        status, _ = await raw.heading()
        if status != 200:
            assert world.struck
            return
        data = b""
        async for chunk in raw.chunks():
            data += chunk
        lines = data.decode().splitlines()
        items = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith(("data: ", "{"))]
        if items and "error" not in items[-1]:
            assert "task" in items[0]
            (newest,) = items[-1].values()
            assert world.struck or newest["status"]["state"] == "TASK_STATE_COMPLETED"
        else:
            assert world.struck


async def authenticate(request: SignInRequest) -> Principal | None:
    """Know a person after some steps; asked at the start and again and again while the connection is open."""
    for _ in range(3):
        await trio.lowlevel.checkpoint()
    await trio.sleep(0.01)
    return Principal(name="ann") if request.token == TOKEN else None


CLIENTS = {"websocket": websocket, "http": http, "a2a": a2a, "people": websocket}


# --- promises --------------------------------------------------------------------------------------------------------


def broken(world: World) -> Iterator[str]:
    """One sentence per broken promise."""
    yield from world.faults
    if world.strikes != "crash":
        yield from (f"told as a failure: {report}" for report in world.reports)
    if world.client is None:
        return
    yield from broken_frames(world, world.client)


def broken_frames(world: World, client: Pieces) -> Iterator[str]:
    """Each run's events are in order, and the end is the end."""
    place, texts = 0, [one.json() for one in client.received if one.opcode == TEXT]
    for one in texts:
        if one["type"] == "gw.subscribed":
            place = one["after"]
        elif not one["type"].startswith("gw."):
            if one["sequence"] != place + 1:
                yield f"event {one['sequence']} after {place}"
            place = one["sequence"]
    closes = [one.code for one in client.received if one.opcode == CLOSE]
    if len(closes) > 1:
        yield f"{len(closes)} close frames"
    byes = [one for one in texts if one["type"] == "gw.bye"]
    if world.strikes == "goodbye" and world.kind == "websocket" and world.struck and client.received:
        if closes not in ([1012], [1000]):
            yield f"closed with {closes}"
        if closes == [1012] and [bye["code"] for bye in byes] != [1012]:
            yield f"no bye before the close frame: {byes}"


# --- sweeps ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=sorted(CLIENTS))
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=sorted(PAIRS))
def pair(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def sample(seed: int) -> tuple[int, int] | None:
    return None if FULL else (POINTS, seed)


def show(what: str, report: chaos.Report) -> None:
    """For the log of the CI (pytest -rA)."""
    print(f"\n{what}: {report}")  # noqa: T201
    report.require()


@pytest.mark.parametrize("strikes", ["connection", "client", "goodbye"])
def test_a_connection_that_is_struck_at_any_step_ends_well(strikes, kind, pair, sample, request):
    """Cancelled by its owner, left by its client, or sent away with all others."""

    def make() -> World:
        return World(kind=kind, pair=pair, strikes=strikes)

    report = chaos.sweep_cancel(make, World.live, broken, seeds=SEEDS, sample=sample, settle_within=BUDGET)
    show(request.node.name, report)


def test_a_task_of_a_connection_that_crashes_ends_no_other_task(kind, sample, request):
    """A bug in the reader, the writer or in what answers: reported to the operator, and this one connection ends."""

    def make() -> World:
        return World(kind=kind, pair="buffered", strikes="crash")

    def match(struck: trio.lowlevel.Task) -> bool:
        task: trio.lowlevel.Task | None = struck
        if chaos.site_of(struck).endswith(":serve_connection"):
            return False  # it closes both ways of a stream in memory; an error at the first is masked by the second
        if chaos.waits_for_children(struck):
            return False  # no error can arise while trio itself closes a nursery
        while task is not None and not task.name.endswith("World._serve"):
            task = None if task.parent_nursery is None else task.parent_nursery.parent_task
        return task is not None

    def promises(world: World) -> Iterator[str]:
        yield from broken(world)
        received = [] if world.client is None else [one.code for one in world.client.received if one.opcode == CLOSE]
        reported = any(str(world.injected) in report for report in world.reports)
        if (
            world.injected is not None and not reported and received != [1000]
        ):  # trio-websocket's reader, behind the end
            yield "nobody was told of the crash"

    report = chaos.sweep_crash(
        make, World.live, promises, contained=True, match_task=match, seeds=SEEDS, sample=sample, settle_within=BUDGET
    )
    show(request.node.name, report)
