"""Connections: when they are made, when they are made again, and when there is no use."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio_websocket import WebSocketRequest

import greenroom as gr
from greenroom.transport.client import (
    ConnectError,
    ConnectionState,
    ConnectionTiming,
    Forbidden,
    NotAGateway,
    NotAuthenticated,
    NotReachable,
    connect,
)
from greenroom.transport.client.timing import RateLimit

from ....support.fake_gateway import TOKEN, Connection, FakeGateway
from ....support.tls import contexts
from .kit import FAST, client_of, some


@pytest.fixture
async def gateway(road: str) -> AsyncIterator[FakeGateway]:
    async with FakeGateway().open() as gateway:
        yield gateway


async def test_a_client_knows_where_it_is_and_as_whom(gateway: FakeGateway) -> None:
    async with client_of(gateway) as client:
        assert (client.principal, client.epoch, client.state) == ("operator", "first", ConnectionState(connected=True))
        assert client.url == f"http://127.0.0.1:{gateway.port}"
        assert repr(client) == f"<Client of <ClientLink to http://127.0.0.1:{gateway.port}: connected>>"


async def test_the_consoles_url_is_enough(gateway: FakeGateway) -> None:
    async with connect(f"http://127.0.0.1:{gateway.port}/#token={TOKEN}".replace(" ", "%20")) as client:
        assert client.principal == "operator"


async def test_leaving_closes_the_connection_in_order(gateway: FakeGateway) -> None:
    codes = []

    async def greet(connection: Connection) -> None:
        try:
            await connection.serve()
        finally:
            codes.append(connection.socket.closed.code)

    gateway.authenticate = greet
    async with client_of(gateway):
        pass
    await gateway.until(lambda: codes == [1000])


async def test_through_tls_it_is_the_same(tmp_path: Path) -> None:
    server, client_side = contexts(tmp_path)
    gateway = FakeGateway()
    gateway.tls = server
    async with gateway.open():
        gateway.append("r", 3)
        async with client_of(gateway, ssl_context=client_side) as client, client.follow("r") as events:
            assert await some(events, 3) == [1, 2, 3]
            await gateway.connections[0].cut()
            gateway.append("r", 1)
            assert await some(events, 1) == [4]
            assert (await client.cancel("r")).ok
        with pytest.raises(NotReachable, match=r"TLS: .*certificate"):
            async with client_of(gateway):
                pytest.fail("nobody has signed this certificate")


# --- the first attempt -----------------------------------------------------------------------------------------------


async def test_a_missing_gateway_raises_at_once_and_names_the_way_out() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()
    with pytest.raises(NotReachable, match=r"\(Connection refused\); start one with `greenroom serve`") as caught:
        async with connect(f"ws://127.0.0.1:{port}"):
            pytest.fail("there is no gateway")
    assert caught.value.url == f"http://127.0.0.1:{port}"


async def test_the_patient_wait_for_the_gateway(gateway: FakeGateway) -> None:
    await gateway.down()
    states: list[ConnectionState] = []
    async with trio.open_nursery() as nursery:

        async def comes_up() -> None:
            while not states:  # noqa: ASYNC110 - the first attempt comes to nothing
                await trio.sleep(0.005)
            await gateway.up()

        nursery.start_soon(comes_up)
        async with client_of(gateway, patient=True, on_change=states.append) as client:
            assert (await client.cancel("r")).ok
    assert states[0].connected is False
    assert [state.connected for state in states].count(True) == 1


@pytest.mark.parametrize("patient", [False, True])
async def test_a_wrong_token_is_refused_for_good(gateway: FakeGateway, patient: bool) -> None:
    with pytest.raises(NotAuthenticated, match="token file") as caught:
        async with client_of(gateway, token="nobody's", patient=patient):
            pytest.fail("this token is nobody's")
    assert "nobody's" not in str(caught.value)


async def test_without_a_token_it_says_so_at_once_and_is_reported(gateway: FakeGateway) -> None:
    """The gateway would wait for a hello."""

    async def refuse(request: WebSocketRequest) -> None:
        socket = await request.accept(subprotocol="greenroom.v1")
        hello = json.loads(await socket.get_message())
        assert (hello["type"], hello["token"]) == ("hello", "")
        await socket.aclose(4401, "the token is unknown")

    gateway.refuse = refuse
    with pytest.raises(NotAuthenticated, match="the token is unknown"):
        async with client_of(gateway, token=None):
            pytest.fail("there is no token")


@pytest.mark.parametrize(
    ("code", "kind"), [(4403, Forbidden), (4406, NotAGateway), (4400, ConnectError), (1009, ConnectError)]
)
async def test_close_codes_that_stay_the_same_are_refused_for_good(
    gateway: FakeGateway, code: int, kind: type[Exception]
) -> None:
    async def greet(connection: Connection) -> None:
        await connection.close(code, "because")

    gateway.authenticate = greet
    with pytest.raises(kind, match="because"):
        async with client_of(gateway, patient=True):
            pytest.fail("it was refused")
    assert gateway.upgrades == 1


@pytest.mark.parametrize(
    ("status", "kind"), [(401, NotAuthenticated), (403, Forbidden), (404, NotAGateway), (200, NotAGateway)]
)
async def test_an_http_answer_that_stays_the_same_is_refused_for_good(
    gateway: FakeGateway, status: int, kind: type[Exception]
) -> None:
    async def refuse(request: WebSocketRequest) -> None:
        body = json.dumps({"error": {"code": "x", "message": "the Host is not on the list"}}).encode()
        await request.reject(status, extra_headers=[(b"content-length", str(len(body)).encode())], body=body)

    gateway.refuse = refuse
    with pytest.raises(kind, match="the Host is not on the list"):
        async with client_of(gateway, patient=True):
            pytest.fail("it was refused")


async def test_a_server_that_is_overloaded_is_tried_again(gateway: FakeGateway) -> None:
    async def refuse(request: WebSocketRequest) -> None:
        if gateway.upgrades == 3:
            gateway.refuse = None
        await request.reject(503, extra_headers=[(b"content-length", b"0")])

    gateway.refuse = refuse
    with pytest.raises(NotReachable, match="HTTP 503"):
        async with client_of(gateway):
            pytest.fail("it was refused")
    async with client_of(gateway, patient=True) as client:
        assert client.state.connected
    assert gateway.upgrades == 4


async def test_what_speaks_no_websocket_is_no_gateway() -> None:
    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.aclose()

    async def ssh(stream: trio.SocketStream) -> None:
        await stream.send_all(b"SSH-2.0-OpenSSH\r\n")
        await stream.receive_some()

    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep_forever()

    for handler in (hang_up, ssh, silent):
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(trio.serve_tcp, handler, 0)
            port = listeners[0].socket.getsockname()[1]
            with pytest.raises(NotReachable, match=r"closed before it was open|no welcome within 0.2 s"):
                async with connect(f"ws://127.0.0.1:{port}", pace=attrs.evolve(FAST, handshake=0.2)):
                    pytest.fail("that is no gateway")
            nursery.cancel_scope.cancel()


async def test_another_protocol_or_another_first_frame_is_no_gateway(gateway: FakeGateway) -> None:
    async def greet(connection: Connection) -> None:
        await connection.tell(type="gw.tick", heads={})
        await trio.sleep_forever()

    gateway.authenticate = greet
    with pytest.raises(NotAGateway, match=r"Tick before gw\.welcome"):
        async with client_of(gateway, patient=True):
            pytest.fail("it does not welcome")

    async def refuse(request: WebSocketRequest) -> None:
        await request.accept()
        await trio.sleep_forever()

    gateway.refuse = refuse
    with pytest.raises(NotAGateway, match="subprotocol"):
        async with client_of(gateway, patient=True):
            pytest.fail("it speaks another protocol")


@pytest.mark.parametrize("junk", ["{", '{"type": 7}', '{"type":"gw.ack"}', '{"type":"run.x","runId":"r"}', b"binary"])
async def test_what_is_not_greenroom_ends_the_client_and_says_so(gateway: FakeGateway, junk: Any) -> None:
    gateway.append("r", 1)
    async with client_of(gateway) as client, client.follow("r") as events:
        await some(events, 1)
        await gateway.connections[0].socket.send_message(junk)
        with pytest.raises(NotAGateway, match="use the client of the server's release"):
            await anext(events)


async def test_frames_of_a_newer_gateway_are_passed_over(gateway: FakeGateway) -> None:
    gateway.append("r", 1, end=True)
    async with client_of(gateway) as client, client.follow("r") as events:
        await gateway.connections[0].tell(type="gw.weather", sun=True)
        await gateway.connections[0].tell(type="gw.live", run="r", sequence=1, more=7)
        assert await some(events, 1) == [1]


# --- coming back -----------------------------------------------------------------------------------------------------


async def test_refused_when_it_comes_back_is_raised_in_each_waiter(gateway: FakeGateway) -> None:
    """The server has another token now: the body itself is not disturbed."""
    gateway.append("r", 1)
    async with client_of(gateway) as client, client.follow("r") as events:
        await some(events, 1)

        async def greet(connection: Connection) -> None:
            await connection.close(4401, "no such token")

        gateway.authenticate = greet
        await gateway.connections[0].cut()
        for _ in range(2):
            with pytest.raises(NotAuthenticated):
                await anext(events)
        with pytest.raises(NotAuthenticated):
            await client.cancel("r")
        with pytest.raises(NotAuthenticated):
            await client.view("r")
        with pytest.raises(NotAuthenticated):
            client.follow("r")
        assert not client.state.connected


async def test_it_comes_back_when_the_gateway_says(gateway: FakeGateway) -> None:
    slow = ConnectionTiming(first=60.0, slowest=60.0, lots=lambda: 1.0)
    states: list[ConnectionState] = []
    async with client_of(gateway, pace=slow, on_change=states.append) as client:
        began = trio.current_time()
        await gateway.connections[0].close(1012, bye={"retryAfterMs": 80, "reason": "a new release"})
        await gateway.until(lambda: gateway.upgrades == 2)
        assert trio.current_time() - began >= 0.08
        assert (await client.cancel("r")).ok
    assert states[1].wait == 0.08
    assert "restart: a new release" in states[1].reason


async def test_the_waits_double_up_to_the_longest_and_begin_anew_after_a_good_connection() -> None:
    pace = ConnectionTiming()
    assert [pace.wait(attempt, 1.0) for attempt in range(1, 9)] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    assert pace.wait(10_000, 1.0) == 15.0
    assert pace.wait(1, 0.5) == 0.125


async def test_a_gateway_that_always_closes_at_once_is_not_stormed(gateway: FakeGateway) -> None:
    states: list[ConnectionState] = []
    async with client_of(gateway, pace=attrs.evolve(FAST, settled=10.0), on_change=states.append):

        async def greet(connection: Connection) -> None:
            await connection.tell(type="gw.welcome", **gateway.welcome())
            await connection.close(4429, "too fast")

        gateway.authenticate = greet
        await gateway.connections[0].cut()
        await gateway.until(lambda: gateway.upgrades == 6)
    waits = [state.wait for state in states if not state.connected]
    assert waits[:5] == [0.001, 0.002, 0.004, 0.008, 0.01]


async def test_a_connection_that_lasted_makes_the_next_wait_the_first_one(gateway: FakeGateway) -> None:
    states: list[ConnectionState] = []
    async with client_of(gateway, pace=attrs.evolve(FAST, settled=0.02), on_change=states.append):
        for connections in (1, 2):
            while sum(state.connected for state in states) < connections:  # noqa: ASYNC110 - the client knows, too
                await trio.sleep(0.005)
            await trio.sleep(0.03)
            await gateway.connections[0].cut()
            await gateway.until(lambda upgrades=connections + 1: gateway.upgrades == upgrades)
    assert [state.attempt for state in states if not state.connected][:2] == [1, 1]


# --- the watchdog ----------------------------------------------------------------------------------------------------


async def test_a_quiet_gateway_is_asked_for_a_sign_of_life(gateway: FakeGateway) -> None:
    async with client_of(gateway, pace=attrs.evolve(FAST, ping=0.02, silence=60.0)):
        await gateway.until(lambda: sum(frame["type"] == "ping" for frame in gateway.received) == 3)
    assert gateway.upgrades == 1


@pytest.mark.slow
async def test_a_gateway_that_gives_no_sign_of_life_is_left(gateway: FakeGateway) -> None:
    gateway.append("r", 1)
    states: list[ConnectionState] = []
    pace = attrs.evolve(FAST, ping=0.05, silence=0.3)
    async with client_of(gateway, pace=pace, on_change=states.append) as client, client.follow("r") as events:
        await some(events, 1)
        silent = gateway.upgrades  # more than one where the machine itself was silent for so long
        gateway.tamper = lambda text: [text] if gateway.upgrades > silent else []
        gateway.append("r", 1)
        assert await some(events, 1) == [2]
    assert gateway.upgrades > silent
    assert "nothing was received for" in states[1].reason


class FewSteps(trio.abc.Instrument):
    """Cancels its scope once the watchdogs have taken more steps than anything but a busy loop needs."""

    def __init__(self) -> None:
        self.scope, self.left = trio.CancelScope(), 200

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= task.name.endswith("Connection._watch")
        if self.left < 0:
            self.scope.cancel()


async def test_no_rounding_of_times_keeps_the_watchdog_busy(autojump_clock: trio.testing.MockClock) -> None:
    steps = FewSteps()
    trio.lowlevel.add_instrument(steps)
    try:
        with steps.scope:
            for number in range(20):
                await trio.sleep(1 / (number + 3))
                async with FakeGateway().open() as gateway, client_of(gateway, pace=attrs.evolve(FAST, ping=0.7)):
                    await trio.sleep(1.0)
    finally:
        trio.lowlevel.remove_instrument(steps)
    assert steps.left >= 0


# --- how it leaves ---------------------------------------------------------------------------------------------------


class Mine(Exception):
    pass


async def test_an_exception_of_the_block_leaves_bare(gateway: FakeGateway) -> None:
    with pytest.raises(Mine) as caught:
        async with client_of(gateway) as client, client.follow("r"):
            raise Mine
    assert caught.value.__cause__ is None


async def test_an_exception_of_the_block_leaves_bare_while_there_is_no_connection(gateway: FakeGateway) -> None:
    with pytest.raises(Mine):  # noqa: PT012
        async with client_of(gateway):
            await gateway.down()
            await trio.sleep(0.02)
            raise Mine


async def test_cancelled_from_outside_it_ends_at_once(gateway: FakeGateway) -> None:
    gateway.mute = True
    with trio.move_on_after(0.05) as scope:
        async with client_of(gateway) as client:
            await client.cancel("r")
    assert scope.cancelled_caught


async def test_cancelled_at_any_moment_of_the_handshake_it_ends(gateway: FakeGateway) -> None:
    for number in range(40):
        with trio.move_on_after(number * 0.0002):
            async with client_of(gateway) as client:
                await client.cancel("r")
                break
    await gateway.until(lambda: not gateway.connections)


async def test_a_gateway_that_does_not_answer_the_goodbye_is_left(gateway: FakeGateway) -> None:
    """Its side of the close handshake never comes."""

    async def greet(connection: Connection) -> None:
        await connection.tell(type="gw.welcome", **gateway.welcome())
        connection.socket._reader_running = False
        await trio.sleep_forever()

    gateway.authenticate = greet
    with trio.fail_after(60):
        async with client_of(gateway, pace=attrs.evolve(FAST, closing=0.05)):
            pass


@pytest.mark.parametrize("token", ["line\nbreak", "schlüssel"])
async def test_a_token_that_cannot_be_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(gr.UsageError) as caught:
        async with connect("ws://127.0.0.1:1", token=token):
            pytest.fail("that is no token")
    assert token not in str(caught.value)


def test_the_allowance_lets_a_second_go_at_once_and_then_at_its_pace() -> None:
    allowance, now, sent = RateLimit(10.0), 100.0, []
    for _ in range(25):
        now = max(now, allowance.free_at)
        allowance.spend(now)
        sent.append(now - 100.0)
    assert sent[9] == 0.0
    assert sent[24] == pytest.approx(1.5, abs=0.11)
    assert repr(allowance) == "<RateLimit of 10 a second>"
