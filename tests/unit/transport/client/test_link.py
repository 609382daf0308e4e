"""The decisions of a client's connections, without I/O: bytes and times in, bytes and times out."""

import json
from collections.abc import Iterator

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Event, Ping, RejectConnection, Request, TextMessage

import greenroom as gr
from greenroom.transport.client.close_reasons import ConnectionLost
from greenroom.transport.client.endpoint import Endpoint
from greenroom.transport.client.errors import NotAGateway, NotReachable
from greenroom.transport.client.link import ClientLink
from greenroom.transport.client.timing import ConnectionTiming
from greenroom.transport.client.unread_events import UnreadEvents

from ....support.fake_gateway import event

PACE = ConnectionTiming(handshake=10.0, ping=20.0, silence=45.0, first=1.0)
WELCOME = {
    "type": "gw.welcome", "connection": "c1", "server": "fake", "protocol": "greenroom.v1", "epoch": "e1",
    "principal": "ann", "scopes": [], "heartbeatSeconds": 20, "limits": {"messagesPerSecond": 20},
}  # fmt: skip


class Peer:
    """The other end of a link: what the link has sent, and bytes for the link."""

    def __init__(self) -> None:
        self._socket = WSConnection(ConnectionType.SERVER)

    def hear(self, data: bytes) -> list[Event]:
        self._socket.receive_data(data)
        return list(self._socket.events())

    def say(self, *events: Event) -> bytes:
        return b"".join(self._socket.send(one) for one in events)

    def text(self, frame: object) -> bytes:
        return self.say(TextMessage(data=frame if isinstance(frame, str) else json.dumps(frame)))


def new_link() -> ClientLink:
    return ClientLink(Endpoint(host="h", port=1), token="t", program="test/1", pace=PACE, poke=lambda: None)


def drain(link: ClientLink, now: float = 0.0) -> bytes:
    return b"".join(iter(lambda: link.send(now), b""))


def welcomed(link: ClientLink, now: float = 0.0) -> Peer:
    """Begin a connection of the link, up to the welcome."""
    peer = Peer()
    link.begin(now)
    (request,) = peer.hear(drain(link, now))
    assert isinstance(request, Request)
    link.receive(peer.say(AcceptConnection(subprotocol="greenroom.v1")) + peer.text(WELCOME), now)
    assert link.welcomed
    return peer


def frames(peer: Peer, data: bytes) -> list[dict[str, object]]:
    return [json.loads(one.data) for one in peer.hear(data) if isinstance(one, TextMessage)]


def session(peer: Peer) -> Iterator[bytes]:
    """What a gateway sends in a whole connection, with the answer to the first subscribe."""
    yield peer.say(AcceptConnection(subprotocol="greenroom.v1"))
    yield peer.text(WELCOME)
    yield peer.text({"type": "gw.subscribed", "run": "r", "after": 0, "head": 3, "mode": "live", "id": "follow-1"})
    for sequence in (1, 2, 3):
        yield peer.text(event("r", sequence, "run.completed" if sequence == 3 else "run.message.delta"))


def test_a_connection_that_is_cut_at_any_byte_is_followed_by_one_that_gives_the_rest() -> None:
    cut, length = 0, 1
    while cut < length:
        link = new_link()
        buffer = UnreadEvents("r", after=0, epoch=None, on_reset="raise", poke=link.poke)
        link.runs.join("r", buffer)
        link.begin(0.0)
        first = Peer()
        first.hear(drain(link))
        whole = b"".join(session(first))  # the answer to this upgrade: it has a random key
        length = len(whole)
        for position in range(cut):  # in single bytes
            link.receive(whole[position : position + 1], 0.0)
            drain(link)
        with pytest.raises(ConnectionLost) as lost:
            link.receive(b"", 0.0)
        assert isinstance(lost.value.error, NotReachable)
        assert link.lost(lost.value, 0.0, 1.0, patient=True) == 1.0
        peer = welcomed(link, 1.0)
        for subscribe in frames(peer, drain(link, 1.0)):  # none if all events had come
            after = int(str(subscribe["after"]))
            answer = {"type": "gw.subscribed", "run": "r", "after": after, "head": 3, "mode": "live"}
            rest = [event("r", n, "run.completed" if n == 3 else "run.message.delta") for n in range(after + 1, 4)]
            link.receive(b"".join(map(peer.text, [answer | {"id": subscribe["id"]}, *rest])), 1.0)
        assert [one.sequence for one in _until_end(buffer)] == [1, 2, 3]
        cut += 7


def _until_end(buffer: UnreadEvents) -> Iterator[gr.Event]:
    for _ in range(3):
        one = buffer.read()
        assert one is not None
        yield one


def test_a_silent_gateway_is_pinged_and_then_lost() -> None:
    link = new_link()
    peer = welcomed(link, 100.0)
    assert link.watch(100.0) == 120.0
    assert drain(link, 119.0) == b""
    assert link.watch(120.0) == 140.0
    assert [frame["type"] for frame in frames(peer, drain(link, 120.0))] == ["ping"]
    assert link.watch(140.0) == 145.0
    with pytest.raises(ConnectionLost, match="nothing was received for 45 s"):
        link.watch(145.0)


def test_a_gateway_that_does_not_welcome_in_time_is_lost() -> None:
    link = new_link()
    assert link.begin(5.0) == 15.0
    assert link.watch(14.0) == 15.0
    with pytest.raises(ConnectionLost, match="no welcome within 10 s"):
        link.watch(15.0)


def test_the_close_frame_goes_out_after_the_requests_also_at_the_limit_of_the_rate() -> None:
    link = new_link()
    peer = welcomed(link)
    for number in range(45):
        link.calls.open(str(number), json.dumps({"type": "ping", "n": number}), lambda: None)
    link.closing = True
    now, heard = 0.0, list[Event]()
    while not any(isinstance(one, CloseConnection) for one in heard):
        data = link.send(now)
        heard += peer.hear(data) if data else []
        now = now if data else link.send_again_at(now)
        assert now < 10.0
    assert sum(isinstance(one, TextMessage) for one in heard) == 45
    assert link.send_again_at(now) == float("inf")
    with pytest.raises(ConnectionLost):
        link.receive(peer.say(CloseConnection(code=1000)), now)


def test_a_ping_is_answered_and_a_close_frame_too() -> None:
    link = new_link()
    peer = welcomed(link)
    link.receive(peer.say(Ping(payload=b"x")), 0.0)
    assert [type(one).__name__ for one in peer.hear(drain(link))] == ["Pong"]
    link.receive(peer.say(CloseConnection(code=1012, reason="restart")), 0.0)
    assert [type(one).__name__ for one in peer.hear(link.send(0.0))] == ["CloseConnection"]
    with pytest.raises(ConnectionLost, match="restart"):
        link.send(0.0)


@pytest.mark.parametrize("text", ["HTTP/1.1 200 OK\r\n\r\n", "SSH-2.0-OpenSSH\r\n", "\x00" * 40])
def test_what_is_not_a_gateway_ends_the_connection(text: str) -> None:
    link = new_link()
    link.begin(0.0)
    drain(link)
    with pytest.raises(ConnectionLost):  # noqa: PT012 - at once, or at the end
        link.receive(text.encode(), 0.0)
        link.receive(b"", 0.0)


def test_a_rejection_has_its_status() -> None:
    link, peer = new_link(), Peer()
    link.begin(0.0)
    peer.hear(drain(link))
    with pytest.raises(ConnectionLost) as lost:
        link.receive(peer.say(RejectConnection(status_code=404, has_body=False)), 0.0)
    assert lost.value.fatal
    assert isinstance(lost.value.error, NotAGateway)
