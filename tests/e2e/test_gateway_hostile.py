"""Whatever a stranger sends: a clear answer, no other client notices, nothing is left behind, no bug is logged.

Every test is an attack on a gateway of its own. `house` checks after it that an honest client is served, that all
counts are back at zero, that no task is left, and that the log `greenroom` has no failure in it.
"""

import json
import struct

import pytest
import trio
from tests.support.event_writer import Author
from tests.support.gateway import TOKEN, http
from tests.support.gateway_inside import HELPER, house, until
from tests.support.raw_ws import (
    BINARY,
    CLOSE,
    MORE,
    PING,
    PONG,
    TEXT,
    Ended,
    closing,
    frame,
    head,
    said,
    upgrade,
)

from greenroom.transport import Limits

SMALL = Limits(
    message_bytes=1000,
    body_bytes=5000,
    header_bytes=4096,
    header_seconds=1.0,
    body_seconds=1.0,
    idle_seconds=1.0,
    hello_seconds=1.0,
    subscriptions=3,
)
PATIENT = Limits(message_bytes=1000, body_bytes=5000, header_bytes=4096)

pytestmark = pytest.mark.slow


def ask(line, host, body=b"", **headers):
    """A request of a person with a token."""
    head_fields = {"Host": host, "Authorization": f"Bearer {TOKEN}"}
    return head(line, head_fields, **headers) + body


def also(data, *lines):
    """The same head with more lines at its end."""
    start, end, body = data.partition(b"\r\n\r\n")
    return start + b"".join(b"\r\n" + line for line in lines) + end + body


# --- HTTP ------------------------------------------------------------------------------------------------------------

# name -> (what is sent; @ represents the host), status, code, whether the connection continues
HTTP = {
    "no-http": (lambda h: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "bad_message", False),
    "garbage": (lambda h: b"hello there\r\n\r\n", 400, "bad_message", False),
    "http-2": (lambda h: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "bad_message", False),
    "blank-lines": (lambda h: b"\r\n\r\n" + ask("GET /healthz HTTP/1.1", h), 400, "bad_message", False),
    "http-0.9": (lambda h: b"GET /healthz\r\n\r\n", 400, "bad_message", False),
    "no-host": (lambda h: head("GET /healthz HTTP/1.1", Host=None), 400, "bad_message", False),
    "two-hosts": (lambda h: also(ask("GET /healthz HTTP/1.1", h), b"Host: evil"), 400, "bad_message", False),
    "two-lengths": (
        lambda h: also(ask("POST /v1/runs HTTP/1.1", h, b"abcdef", Content_Length="5"), b"Content-Length: 6"),
        400, "bad_message", False,
    ),
    "length-list": (lambda h: ask("POST /v1/runs HTTP/1.1", h, Content_Length="5, 6"), 400, "bad_message", False),
    "length-sign": (lambda h: ask("POST /v1/runs HTTP/1.1", h, Content_Length="+5"), 400, "bad_message", False),
    "length-huge": (lambda h: ask("POST /v1/runs HTTP/1.1", h, Content_Length="9" * 20), 413, "too_big", False),
    "length-absurd": (lambda h: ask("POST /v1/runs HTTP/1.1", h, Content_Length="9" * 400), 400, "bad_message", False),
    "length-and-chunks": (
        lambda h: ask("POST /v1/runs HTTP/1.1", h, b"0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n", Content_Length="5",
                      Transfer_Encoding="chunked"),
        400, "bad_message", False,
    ),
    "two-encodings": (
        lambda h: also(ask("POST /v1/runs HTTP/1.1", h, Transfer_Encoding="chunked"), b"Transfer-Encoding: identity"),
        400, "bad_message", False,
    ),
    "other-encoding": (
        lambda h: ask("POST /v1/runs HTTP/1.1", h, Transfer_Encoding="gzip, chunked"), 400, "bad_message", False,
    ),
    "bad-chunk": (
        lambda h: ask("POST /v1/runs HTTP/1.1", h, b"zz\r\nabc\r\n", Transfer_Encoding="chunked"),
        400, "bad_message", False,
    ),
    "bad-chunk-end": (
        lambda h: ask("POST /v1/runs HTTP/1.1", h, b"3\r\nabcXX0\r\n\r\n", Transfer_Encoding="chunked"),
        400, "bad_message", False,
    ),
    "huge-chunk": (
        lambda h: ask("POST /v1/runs HTTP/1.1", h, b"ffffffffff\r\n" + b"x" * 9000, Transfer_Encoding="chunked"),
        413, "too_big", False,
    ),
    "space-before-colon": (lambda h: also(ask("GET /healthz HTTP/1.1", h), b"X : y"), 400, "bad_message", False),
    "nul-in-header": (lambda h: also(ask("GET /healthz HTTP/1.1", h), b"X: a\0b"), 400, "bad_message", False),
    "two-tokens": (
        lambda h: also(ask("GET /v1/runs HTTP/1.1", h), b"Authorization: Bearer " + TOKEN.encode()),
        400, "bad_message", False,
    ),
    "latin-token": (
        lambda h: head("GET /v1/runs HTTP/1.1", {"Host": h, "Authorization": "Bearer \xff\xfe"}),
        401, "unauthenticated", True,
    ),
    "token-in-query": (
        lambda h: head(f"GET /v1/runs?token={TOKEN}&access_token={TOKEN} HTTP/1.1", {"Host": h}),
        401, "unauthenticated", True,
    ),
    "token-in-cookie": (
        lambda h: head("GET /v1/runs HTTP/1.1", {"Host": h, "Cookie": f"token={TOKEN}"}), 401, "unauthenticated", True,
    ),
    "basic": (
        lambda h: head("GET /v1/runs HTTP/1.1", {"Host": h, "Authorization": f"Basic {TOKEN}"}),
        401, "unauthenticated", True,
    ),
    "bad-ipv6": (lambda h: ask("GET //[ HTTP/1.1", h), 404, "not_found", True),
    "two-slashes": (lambda h: ask("GET //evil/metrics HTTP/1.1", h), 404, "not_found", True),
    "absolute-elsewhere": (lambda h: ask("GET http://evil/metrics HTTP/1.1", h), 400, "bad_message", False),
    "absolute-user": (lambda h: ask(f"GET http://{h}@evil/metrics HTTP/1.1", h), 400, "bad_message", False),
    "connect": (lambda h: ask("CONNECT evil:80 HTTP/1.1", h), 400, "bad_message", False),
    "options-star": (lambda h: ask("OPTIONS * HTTP/1.1", h), 400, "bad_message", False),
    "fragment": (lambda h: ask("GET /v1/runs#/metrics HTTP/1.1", h), 400, "bad_message", False),
    "dots": (lambda h: ask("GET /v1/../metrics HTTP/1.1", h), 404, "not_found", True),
    "dots-in-console": (lambda h: ask("GET /console/..%2f..%2fpages.py HTTP/1.1", h), 404, "not_found", True),
    "nul-in-path": (lambda h: ask("GET /v1/runs/%00%ff%fe HTTP/1.1", h), 404, "unknown_run", True),
    "bad-percent": (lambda h: ask("GET /v1/runs/%zz%4 HTTP/1.1", h), 404, "unknown_run", True),
    "long-id": (lambda h: ask(f"GET /v1/runs/{'x' * 3000} HTTP/1.1", h), 404, "unknown_run", True),
    "other-method": (lambda h: ask("BREW /v1/runs HTTP/1.1", h), 405, "method_not_allowed", True),
    "trace": (lambda h: ask("TRACE /v1/runs HTTP/1.1", h), 405, "method_not_allowed", True),
    "after-text": (lambda h: ask("GET /v1/runs/x/events?after=1e3 HTTP/1.1", h), 400, "bad_message", True),
    "limit-text": (lambda h: ask("GET /v1/runs?limit=%D9%A3 HTTP/1.1", h), 400, "bad_message", True),
    "last-event-id": (
        lambda h: ask("GET /v1/runs/x/events HTTP/1.1", h, Accept="text/event-stream", Last_Event_ID="\xff-\xb2"),
        404, "unknown_run", True,
    ),
    "big-head": (lambda h: ask("GET /healthz HTTP/1.1", h, X="x" * 200_000), 431, "headers_too_large", False),
    "many-headers": (
        lambda h: also(ask("GET /healthz HTTP/1.1", h), *[b"a: b"] * 20_000), 431, "headers_too_large", False,
    ),
    "big-target": (lambda h: ask(f"GET /{'x' * 200_000} HTTP/1.1", h), 431, "headers_too_large", False),
    "endless-line": (lambda h: b"G" * 200_000, 431, "headers_too_large", False),
    "big-body": (
        lambda h: ask("POST /v1/runs HTTP/1.1", h, b"x" * 400_000, Content_Length="400000"), 413, "too_big", False,
    ),
    "big-chunks": (
        lambda h: ask("POST /v1/runs HTTP/1.1", h, b"3e8\r\n" + (b"x" * 1000 + b"\r\n3e8\r\n") * 400,
                      Transfer_Encoding="chunked"),
        413, "too_big", False,
    ),
    "body-without-permission": (
        lambda h: head("POST /v1/runs HTTP/1.1", {"Host": h}, Content_Length="4000") + b"x" * 100,
        401, "unauthenticated", False,
    ),
    "whole-body-without-permission": (
        lambda h: head("POST /v1/runs HTTP/1.1", {"Host": h}, Content_Length="2") + b"{}",
        401, "unauthenticated", True,
    ),
    "expect-too-much": (
        lambda h: ask("POST /v1/runs HTTP/1.1", h, Content_Length="400000", Expect="100-continue"),
        413, "too_big", False,
    ),
    "expect-without-permission": (
        lambda h: head("POST /v1/runs HTTP/1.1", {"Host": h}, Content_Length="4", Expect="100-continue"),
        401, "unauthenticated", False,
    ),
    "no-json": (lambda h: ask("POST /v1/runs HTTP/1.1", h, b"{", Content_Length="1"), 400, "bad_message", True),
    "json-list": (lambda h: ask("POST /v1/runs HTTP/1.1", h, b"[]", Content_Length="2"), 400, "bad_message", True),
    "json-utf8": (lambda h: ask("POST /v1/runs HTTP/1.1", h, b'"\xff"', Content_Length="3"), 400, "bad_message", True),
    "json-deep": (
        lambda h: ask("POST /v1/runs HTTP/1.1", h, b"[" * 5000, Content_Length="5000"), 400, "bad_message", True,
    ),
    "json-number": (
        lambda h: ask("POST /v1/runs HTTP/1.1", h, b'{"id":' + b"1" * 4900 + b"}", Content_Length="4907"),
        400, "bad_message", True,
    ),
    "key-too-long": (
        lambda h: ask("POST /v1/runs/x/commands HTTP/1.1", h, b'{"type":"cancel"}', Content_Length="17",
                      Idempotency_Key="k" * 129),
        400, "bad_message", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HTTP)
async def test_a_bad_request_is_answered(name):
    make, status, code, goes_on = HTTP[name]
    async with house(limits=PATIENT) as here:
        async with here.calling() as raw:
            await raw.send(make(here.host))
            answer = await raw.answer()
            assert answer.status == status
            if code is not None:
                assert answer.code == code
            if goes_on:
                await raw.send(ask("GET /healthz HTTP/1.1", here.host))
                assert (await raw.answer()).status == 200
            else:
                assert answer.headers["connection"] == "close"
                assert await raw.rest() == b""


LENIENT = {
    "bare-lf": lambda h: ask("GET /healthz HTTP/1.1", h).replace(b"\r\n", b"\n"),
    "folded": lambda h: also(ask("GET /healthz HTTP/1.1", h), b"X: a", b" b"),
    "get-with-body": lambda h: ask("GET /healthz HTTP/1.1", h, b"abc", Content_Length="3"),
    "chunked-get": lambda h: ask("GET /healthz HTTP/1.1", h, b"3\r\nabc\r\n0\r\n\r\n", Transfer_Encoding="chunked"),
    "same-length-twice": lambda h: ask("GET /healthz HTTP/1.1", h, b"abc", Content_Length="3, 3"),
    "absolute": lambda h: ask(f"GET http://{h}/healthz HTTP/1.1", h),
    "upgrade-to-http-2": lambda h: ask(
        "GET /healthz HTTP/1.1", h, Upgrade="h2c", Connection="Upgrade, HTTP2-Settings", HTTP2_Settings="AAMAAABk"
    ),
}


@pytest.mark.parametrize("name", LENIENT)
async def test_what_is_unusual_and_means_one_thing_only_is_answered(name):
    async with house(limits=PATIENT) as here, here.calling() as raw:
        for _ in range(2):
            await raw.send(LENIENT[name](here.host))
            assert (await raw.answer()).json() == {"status": "ok"}


async def test_requests_in_one_packet_are_answered_in_order_and_the_last_one_may_be_bad():
    async with house(limits=PATIENT) as here, here.calling() as raw:
        many = [ask("GET /healthz HTTP/1.1", here.host), ask("GET /nothing HTTP/1.1", here.host)] * 50
        await raw.send(*many, b"nonsense\r\n\r\n", ask("GET /healthz HTTP/1.1", here.host))
        found = [(await raw.answer()).status for _ in range(101)]
        assert found == [200, 404] * 50 + [400]
        assert await raw.rest() == b""


async def test_a_smuggled_request_is_never_answered():
    """What a proxy might take for a body is not a request here, and the other way round."""
    hidden = b"GET /v1/runs HTTP/1.1\r\nHost: x\r\n\r\n"
    async with house(limits=PATIENT) as here:
        for data in (
            ask("POST /v1/runs HTTP/1.1", here.host, b"0\r\n\r\n" + hidden, Content_Length="5",
                Transfer_Encoding="chunked"),
            also(ask("POST /v1/runs HTTP/1.1", here.host, hidden, Content_Length="0"), b"Content-Length: 40"),
            ask("POST /v1/runs HTTP/1.1", here.host, hidden, Transfer_Encoding="\x0bchunked"),
            ask("POST /v1/runs HTTP/1.1", here.host, hidden, Transfer_Encoding="xchunked"),
        ):  # fmt: skip
            async with here.calling() as raw:
                await raw.send(data)
                assert (await raw.answer()).status == 400
                assert await raw.rest() == b""


async def test_head_has_no_body_and_what_is_bad_after_it_is_answered_with_one():
    async with house(limits=PATIENT) as here, here.calling() as raw:
        await raw.send(ask("HEAD /healthz HTTP/1.1", here.host))
        answer = await raw.answer(body=False)
        assert (answer.status, answer.headers["content-length"]) == (200, "15")
        await raw.send(ask("HEAD /nothing HTTP/1.1", here.host))
        assert (await raw.answer(body=False)).status == 404
        await raw.send(b"nonsense\r\n\r\n")
        assert (await raw.answer()).code == "bad_message"


async def test_an_old_client_gets_its_answer_and_the_end():
    async with house(limits=PATIENT) as here:
        for keep in ("close", "keep-alive"):
            async with here.calling() as raw:
                await raw.send(head("GET /healthz HTTP/1.0", {"Host": here.host}, Connection=keep))
                answer = await raw.answer()
                assert (answer.status, answer.headers["connection"]) == (200, "close")
                assert await raw.rest() == b""


async def test_who_waits_for_100_continue_is_reported_to_continue_and_then_answered():
    async with house(limits=PATIENT) as here, here.calling() as raw:
        body = json.dumps({"agent": "helper", "text": "hi"}).encode()
        await raw.send(ask("POST /v1/runs HTTP/1.1", here.host, Content_Length=str(len(body)), Expect="100-continue"))
        assert (await raw.heading())[0] == 100
        await raw.send(body)
        assert (await raw.answer()).status == 201


async def test_metrics_are_for_admins_alone():
    async with house(limits=PATIENT) as here:
        assert (await http(here.address, "GET", "/metrics", token=None)).status == 401
        found = await http(here.address, "GET", "/metrics")
        assert found.status == 200
        assert TOKEN.encode() not in found.body


# --- time ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["line", "headers", "length-body", "chunked-body", "chunk-header", "second-request"])
async def test_a_request_that_comes_byte_by_byte_is_given_up(part):
    """The time limit is for the whole head, or the whole body, however busy the sender seems."""
    async with house(limits=SMALL) as here:
        chunked = ask("POST /v1/runs HTTP/1.1", here.host, Transfer_Encoding="chunked")
        start, slow = {
            "line": (b"", b"GET /healthz HTTP/1.1\r\n"),
            "headers": (b"GET / HTTP/1.1\r\nHost: x\r\n", b"X: " + b"x" * 100),
            "length-body": (ask("POST /v1/runs HTTP/1.1", here.host, Content_Length="100"), b"x" * 100),
            "chunked-body": (chunked, b"1\r\nx\r\n" * 20),
            "chunk-header": (chunked, b"0" * 15 + b"1\r\n"),
            "second-request": (ask("GET /healthz HTTP/1.1", here.host) + b"GET", b" /healthz HTTP/1.1\r\n"),
        }[part]  # fmt: skip
        started_at = trio.current_time()
        async with here.calling() as raw, trio.open_nursery() as nursery:
            await raw.send(start)
            nursery.start_soon(lambda: raw.trickle(slow, every=0.1))
            if part == "second-request":
                assert (await raw.answer()).status == 200
            assert (await raw.answer()).code == "request_timeout"
            assert SMALL.header_seconds <= trio.current_time() - started_at < Limits().header_seconds
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("asked", [0, 1, 3])
async def test_a_connection_that_asks_nothing_is_closed_without_a_word(asked):
    async with house(limits=SMALL) as here:
        started_at = trio.current_time()
        async with here.calling() as raw:
            for _ in range(asked):
                started_at = trio.current_time()
                await raw.send(ask("GET /healthz HTTP/1.1", here.host))
                assert (await raw.answer()).status == 200
            assert await raw.rest() == b""
        assert SMALL.idle_seconds <= trio.current_time() - started_at < Limits().idle_seconds


async def test_a_peer_that_closes_its_half_gets_the_answers_that_it_has_asked_for():
    async with house(limits=PATIENT) as here, here.calling() as raw:
        await raw.send(ask("GET /healthz HTTP/1.1", here.host) * 3)
        await raw.stream.send_eof()
        assert [(await raw.answer()).status for _ in range(3)] == [200] * 3
        assert await raw.rest() == b""


async def test_half_a_request_and_then_the_end_is_no_request():
    async with house(limits=PATIENT) as here:
        for data in (b"GET /heal", ask("POST /v1/runs HTTP/1.1", here.host, b"abc", Content_Length="10")):
            async with here.calling() as raw:
                await raw.send(data)
                await raw.stream.send_eof()
                assert (await raw.answer()).code == "bad_message"


async def test_a_refused_upload_can_read_why_while_it_is_still_sending():
    """Closing with unread bytes would be a reset, and take the answer away from the peer."""
    async with house(limits=PATIENT) as here, here.calling() as raw:
        async with trio.open_nursery() as nursery:
            data = ask("POST /v1/runs HTTP/1.1", here.host, b"x" * 3_000_000, Content_Length="3000000")
            nursery.start_soon(raw.stream.send_all, data)
            await trio.sleep(0.1)
            assert (await raw.answer()).code == "too_big"


# --- the handshake ---------------------------------------------------------------------------------------------------

# name -> (changes of the handshake, status)
HANDSHAKES = {
    "no-key": ({"Sec_WebSocket_Key": None}, 400),
    "bad-key": ({"Sec_WebSocket_Key": "not base64!"}, 400),
    "short-key": ({"Sec_WebSocket_Key": "c2hvcnQ="}, 400),
    "latin-key": ({"Sec_WebSocket_Key": "\xff" * 24}, 400),
    "no-version": ({"Sec_WebSocket_Version": None}, 400),
    "old-version": ({"Sec_WebSocket_Version": "8"}, 400),
    "no-connection": ({"Connection": None}, 400),
    "keep-alive": ({"Connection": "keep-alive"}, 400),
    "body": ({"Content_Length": "6"}, 400),
    "chunks": ({"Transfer_Encoding": "chunked"}, 400),
    "wrong-token": ({"Authorization": "Bearer wrong-wrong-wrong-wrong"}, 401),
    "basic": ({"Authorization": f"Basic {TOKEN}"}, 401),
    "other-origin": ({"Origin": "http://evil"}, 403),
    "null-origin": ({"Origin": "null"}, 403),
    "bad-origin": ({"Origin": "//["}, 403),
    "other-host": ({"Host": "evil"}, 403),
    "latin-host": ({"Host": "\xff\xfe"}, 403),
}


@pytest.mark.parametrize("name", HANDSHAKES)
async def test_a_bad_handshake_is_answered_and_closed(name):
    changes, status = HANDSHAKES[name]
    async with house(limits=PATIENT) as here, here.calling() as raw:
        await raw.send(upgrade(here.host, TOKEN, **changes), b"abcdef")
        answer = await raw.answer()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert answer.headers["sec-websocket-version"] == "13"
        assert await raw.rest() == b""


@pytest.mark.parametrize(
    ("line", "status"),
    [("POST /v1/ws HTTP/1.1", 400), ("GET /v1/ws HTTP/1.0", 400), ("GET /v1/wss HTTP/1.1", 404),
     ("GET //[ HTTP/1.1", 404), ("GET http://evil/v1/ws HTTP/1.1", 400), ("GET / HTTP/1.1", 404)],
)  # fmt: skip
async def test_a_handshake_at_another_place_or_of_another_kind_is_answered(line, status):
    async with house(limits=PATIENT) as here, here.calling() as raw:
        await raw.send(upgrade(here.host, TOKEN).replace(b"GET /v1/ws HTTP/1.1", line.encode()))
        assert (await raw.answer()).status == status


async def test_two_tokens_in_a_handshake_are_refused():
    async with house(limits=PATIENT) as here:
        for first, second in ((TOKEN, "x"), ("x", TOKEN)):
            async with here.calling() as raw:
                await raw.send(also(upgrade(here.host, first), f"Authorization: Bearer {second}".encode()))
                assert (await raw.answer()).code == "bad_message"


async def test_a_token_in_the_query_or_as_a_subprotocol_is_not_taken():
    async with house(limits=SMALL) as here:
        for data in (
            upgrade(here.host).replace(b"/v1/ws", f"/v1/ws?token={TOKEN}".encode()),
            upgrade(here.host, Sec_WebSocket_Protocol=f"greenroom.v1, {TOKEN}"),
        ):
            async with here.calling() as raw:
                await raw.upgraded(data)
                assert await raw.parting() == ("hello_timeout", 4408)


async def test_odd_headers_of_a_good_handshake_do_no_harm():
    async with house(limits=PATIENT) as here, here.calling() as raw:
        data = upgrade(
            here.host, TOKEN, Sec_WebSocket_Extensions="\xff; permessage-deflate; x=\x01".replace("\x01", "1")
        )
        data = data.replace(b"greenroom.v1", b"\xff\xfe, greenroom.v1").replace(b": Upgrade", b": \xff, Upgrade")
        await raw.send(data)
        answer = (await raw.until(b"\r\n\r\n")).lower()
        assert b"101" in answer
        assert b"deflate" not in answer
        assert (await raw.tell())["type"] == "gw.welcome"


async def test_frames_in_the_packet_of_the_handshake_are_received():
    async with house(limits=PATIENT) as here, here.calling() as raw:
        await raw.upgraded(upgrade(here.host) + said("hello", token=TOKEN) + said("ping", id="1"))
        assert [(await raw.tell())["type"] for _ in range(2)] == ["gw.welcome", "gw.tick"]


async def test_too_much_in_the_packet_of_the_handshake_is_refused_like_any():
    async with house(limits=PATIENT) as here, here.calling() as raw:
        await raw.upgraded(upgrade(here.host) + frame("x" * 1001))
        assert await raw.parting() == ("too_big", 1009)


async def test_a_handshake_after_requests_on_the_same_connection_is_a_handshake():
    async with house(limits=PATIENT) as here, here.calling() as raw:
        await raw.send(ask("GET /healthz HTTP/1.1", here.host) * 2, upgrade(here.host, TOKEN), said("ping", id="1"))
        assert [(await raw.answer()).status for _ in range(2)] == [200, 200]
        assert b" 101 " in await raw.until(b"\r\n\r\n")
        assert [(await raw.tell())["type"] for _ in range(2)] == ["gw.welcome", "gw.tick"]


# --- frames ----------------------------------------------------------------------------------------------------------

LATE = [frame("late"), frame("", PING), closing(), frame("x" * 5000)]
"""What comes after the fault in the same packet: no reader looks at it, no one stumbles over it."""
# name -> frames, name in gw.bye, close code
FRAMES = {
    "unmasked": ([frame("{}", mask=None)], None, 1002),
    "reserved-bits": ([frame("{}", rsv=4)], None, 1002),
    "reserved-opcode": ([frame("{}", 3)], None, 1002),
    "reserved-control": ([frame("", 0xB)], None, 1002),
    "control-fragment": ([frame("", PING, fin=False)], None, 1002),
    "long-control": ([frame("x" * 126, PING)], None, 1002),
    "lonely-continuation": ([frame("x", MORE)], None, 1002),
    "text-in-text": ([frame("{", fin=False), frame("{}")], None, 1002),
    "close-of-one-byte": ([frame("x", CLOSE)], None, 1002),
    "close-code-1005": ([closing(1005)], None, 1002),
    "close-code-99": ([closing(99)], None, 1002),
    "close-text": ([closing(1000, b"\xff")], None, 1007),
    "bad-utf8": ([frame(b'{"type": "\xff"}')], None, 1007),
    "cut-utf8": ([frame(b'{"\xc3', fin=False), frame(b"x", MORE)], None, 1007),
    "surrogate-utf8": ([frame(b'"\xed\xa0\x80"')], None, 1007),
    "long-length": ([b"\x81\xfe\x00\x05abcd" + b"x" * 5], None, 1002),
    "top-bit-length": ([b"\x81\xff" + struct.pack("!Q", 2**63) + b"abcd"], "too_big", 1009),
    "announced": ([frame("", says=2**60)], "too_big", 1009),
    "one-byte-too-long": ([frame("x" * 1001)], "too_big", 1009),
    "one-letter-too-long": ([frame("é" * 500 + "x")], "too_big", 1009),
    "twice-too-long": ([frame("x" * 5000), frame("x" * 5000)], "too_big", 1009),
    "fragments-too-long": ([frame("x" * 500, fin=False), frame("x" * 500, MORE, fin=False), frame("x", MORE)],
                           "too_big", 1009),
    "empty-fragments": ([frame("", fin=False), *[frame("", MORE, fin=False)] * 5000], "too_big", 1009),
    "binary": ([frame(b"{}", BINARY)], "bad_message", 4400),
    "empty": ([frame("")], "bad_message", 4400),
    "no-json": ([frame("{")], "bad_message", 4400),
    "list": ([frame("[]")], "bad_message", 4400),
    "deep": ([frame("[" * 1000)], "bad_message", 4400),
    "surrogate": ([frame('{"type": "\\ud800"}')], "bad_message", 4400),
    "infinite": ([frame('{"x": 1e999}')], "bad_message", 4400),
    "nan": ([frame('{"x": NaN}')], "bad_message", 4400),
    "ping-flood": ([frame("x", PING)] * 2000, "too_fast", 4429),
    "pong-flood": ([frame("x", PONG)] * 2000, "too_fast", 4429),
    "flood": ([said("ping")] * 300, "too_fast", 4429),
    "flood-of-nonsense": ([frame("{}")] * 300, "too_fast", 4429),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.parametrize("late", [True, False], ids=["and-more", "alone"])
async def test_a_bad_frame_is_answered_with_its_close_code(name, late):
    frames, bye, code = FRAMES[name]
    async with house(limits=PATIENT) as here, here.talking() as raw:
        await raw.send(*frames, *(LATE if late else ()))
        assert await raw.parting() == (bye, code)


async def test_messages_of_exactly_the_limit_are_received():
    async with house(limits=PATIENT) as here, here.talking() as raw:
        for letter, times in (("x", 972), ("é", 486)):
            message = json.dumps({"type": "ping", "id": letter * times}, ensure_ascii=False)
            message += " " * (1000 - len(message.encode()))
            await raw.send(frame(message))
            assert (await raw.tell())["id"] == letter * times
            data = message.encode()
            await raw.send(frame(data[:501], fin=False), frame("", PING), frame(data[501:], MORE))
            assert (await raw.tell())["id"] == letter * times


async def test_a_message_byte_by_byte_is_received():
    """Half frames are no fault: whatever arrives in pieces is put together."""
    async with house(limits=PATIENT) as here, here.talking() as raw:
        async with trio.open_nursery() as nursery:
            data = said("ping", id="1") + frame("", PING) + said("ping", id="2")
            nursery.start_soon(lambda: raw.trickle(data, every=0.001))
            assert [(await raw.tell())["id"] for _ in range(2)] == ["1", "2"]


async def test_half_a_frame_and_then_the_end_is_the_end():
    async with house(limits=PATIENT) as here:
        for data in (b"\x81", b"\x81\xfe", frame("{}")[:-1], frame("", fin=False), frame("x" * 500)[:100]):
            async with here.talking() as raw:
                await raw.send(data)
                await raw.stream.send_eof()
                assert await raw.to_the_end() == []


async def test_what_an_object_holds_that_cannot_be_is_an_error_and_the_connection_continues():
    cases = [
        ({}, "type (missing)"),
        ({"type": 7}, "type 7"),
        ({"type": ["ping"]}, "type"),
        ({"type": "nothing"}, "nothing"),
        ({"type": "hello", "token": TOKEN}, "hello comes once"),
        ({"type": "ping", "more": 1}, "more is not known"),
        ({"type": "ping", "id": 10**300}, "id"),
        ({"type": "subscribe"}, "run is missing"),
        ({"type": "subscribe", "run": "x", "after": -1}, "after"),
        ({"type": "subscribe", "run": "x", "after": 2**53}, "after"),
        ({"type": "subscribe", "run": "x", "after": 1.0}, "after"),
        ({"type": "subscribe", "run": "x", "after": True}, "after"),
        ({"type": "cancel", "run": "x", "id": "i" * 129}, "id"),
        ({"type": "cancel", "run": "x", "id": ""}, "id"),
        ({"type": "cancel", "run": "x", "id": "a\nb"}, "id"),
        ({"type": "cancel", "run": "x", "id": "1", "mode": "later"}, "mode"),
        ({"type": "decide", "run": "x", "id": "1", "target": "t", "action": "perhaps"}, "action"),
        ({"type": "decide", "run": "x", "id": "1", "target": "t", "action": "resume", "editedArguments": []}, "obj"),
    ]  # fmt: skip
    async with house(limits=PATIENT) as here, here.talking() as raw:
        for data, text in cases:
            await raw.send(frame(json.dumps(data)))
            found = await raw.tell()
            assert (found["type"], found["code"]) == ("gw.error", "bad_message"), data
            assert text in found["message"]
        await raw.send(said("cancel", run="\0nobody", id="i" * 128))
        assert (await raw.tell())["code"] == "unknown_run"


async def test_a_second_hello_is_an_error_also_from_who_has_said_one():
    async with house(limits=PATIENT) as here, here.talking(None) as raw:
        await raw.send(said("hello", token=TOKEN), said("hello", token=TOKEN))
        assert (await raw.tell())["type"] == "gw.welcome"
        assert (await raw.tell())["code"] == "bad_message"


HELLOS = {
    "nothing": (b"", "hello_timeout", 4408),
    "half": (said("hello", token=TOKEN)[:-1], "hello_timeout", 4408),
    "pings": (frame("", PING) * 3, "hello_timeout", 4408),
    "another-frame": (said("subscribe", run="x"), "unauthenticated", 4401),
    "no-token": (said("hello"), "unauthenticated", 4401),
    "wrong-token": (said("hello", token="wrong-wrong-wrong-wrong"), "unauthenticated", 4401),
    "other-token": (said("hello", token="\u00e9" * 20), "unauthenticated", 4401),
    "unknown-field": (said("hello", token=TOKEN, **{"日" * 90: 1}), "bad_message", 4400),
    "number": (said("hello", token=7), "bad_message", 4400),
    "binary": (frame(b"{}", BINARY), "bad_message", 4400),
    "other-protocol": (said("hello", token=TOKEN, protocol="greenroom.v2"), "wrong_protocol", 4406),
    "too-big": (said("hello", token="x" * 1000), "too_big", 1009),
}


@pytest.mark.parametrize("name", HELLOS)
async def test_who_does_not_say_who_they_are_is_closed(name):
    data, bye, code = HELLOS[name]
    async with house(limits=SMALL) as here, here.talking(None) as raw:
        await raw.send(data)
        assert await raw.parting() == (bye, code)


async def test_an_honest_close_is_answered_with_the_same_code_and_nothing_else():
    async with house(limits=PATIENT) as here:
        for code in (1000, 1001, 3000, 4999):
            async with here.talking() as raw:
                await raw.send(said("ping"), closing(code, b"enough"), frame("", PING), said("ping"))
                received = await raw.to_the_end()
                assert received[-1].code == code
                assert [one.opcode for one in received] in ([TEXT, CLOSE], [CLOSE])


# --- gone at any point -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_peer_that_is_gone_at_any_byte_of_its_handshake_or_request_leaves_nothing(how, sampled):
    async with house(limits=PATIENT) as here:
        body = json.dumps({"agent": "helper", "text": "hi"}).encode()
        post = ask("POST /v1/runs HTTP/1.1", here.host, body, Content_Length=str(len(body)))
        shake = upgrade(here.host) + said("hello", token=TOKEN) + said("subscribe", run="x") + closing()
        stream = ask("GET /v1/runs/x/events HTTP/1.1", here.host, Accept="text/event-stream")
        for data in (post, shake, stream):
            for size in sampled(range(len(data) + 1), 40):
                async with here.calling() as raw:
                    await raw.send(data[:size])
                    if how == "reset":
                        raw.reset()


async def test_a_peer_that_resets_between_any_two_steps_leaves_nothing():
    async with house(limits=PATIENT) as here:
        for steps in range(6):
            async with here.calling() as raw:
                if steps > 0:
                    await raw.upgraded(upgrade(here.host))
                if steps > 1:
                    await raw.send(said("hello", token=TOKEN))
                    assert (await raw.tell())["type"] == "gw.welcome"
                if steps > 2:
                    await raw.send(said("start", id=f"s{steps}", agent="helper", text="hi"))
                    run = (await raw.find("gw.ack"))["run"]
                    if steps > 3:
                        await raw.send(said("subscribe", run=run))
                        await raw.find("gw.subscribed")
                if steps > 4:
                    await raw.send(closing())
                raw.reset()


async def test_a_peer_that_closes_its_half_of_a_websocket_is_gone():
    async with house(limits=PATIENT) as here, here.talking() as raw:
        await raw.stream.send_eof()
        with pytest.raises(Ended):
            await raw.hear()


# --- too many --------------------------------------------------------------------------------------------------------


async def test_more_subscriptions_than_the_limit_are_refused_and_one_that_is_left_makes_room():
    async with house(limits=SMALL) as here:
        for i in range(5):
            await Author.create(here.runtime, HELPER, f"r{i}")
        await (await here.runtime.start("helper", "hi", run_id="done")).result()
        async with here.talking() as raw:
            for i in range(3):
                await raw.send(said("subscribe", run=f"r{i}"))
                await raw.find("gw.live")
            await raw.send(said("subscribe", run="r3"))
            assert (await raw.find("gw.error"))["code"] == "too_many_subscriptions"
            await raw.send(said("subscribe", run="r0", after=1))
            assert (await raw.find("gw.live"))["run"] == "r0", "again is not another one"
            await raw.send(said("unsubscribe", run="r0"), said("subscribe", run="done"))
            assert (await raw.find("gw.unsubscribed"))["run"] == "r0"
            assert (await raw.find("gw.unsubscribed"))["reason"] == "done"
            await raw.send(said("subscribe", run="r3"))
            assert (await raw.find("gw.live"))["run"] == "r3", "a run that has ended makes room, too"


async def test_more_connections_than_the_limit_are_reported_and_the_first_ones_continue():
    limits = Limits(connections=5)
    async with house(limits=limits) as here:
        async with here.talking() as raw:
            others = [await trio.open_tcp_stream(here.address.host, here.address.port) for _ in range(4)]
            await trio.testing.wait_all_tasks_blocked(0.05)
            for _ in range(3):
                async with here.calling() as turned:
                    answer = await turned.answer()
                    assert (answer.status, answer.code) == (429, "too_many_connections")
                    assert answer.headers["retry-after"] == "1"
            await raw.send(said("ping", id="1"))
            assert (await raw.tell())["id"] == "1"
            for stream in others:
                await stream.aclose()
            await trio.testing.wait_all_tasks_blocked(0.05)
            assert (await http(here.address, "GET", "/healthz")).status == 200


async def test_more_connections_than_one_principal_may_hold_are_refused_however_they_say_who_they_are():
    async with house(limits=Limits(per_principal=3)) as here:
        await Author.create(here.runtime, HELPER, "r")
        listen = ask("GET /v1/runs/r/events HTTP/1.1", here.host, Accept="text/event-stream")
        async with here.talking(), here.talking(None) as second, here.calling() as third:
            await second.send(said("hello", token=TOKEN))
            assert (await second.tell())["type"] == "gw.welcome"
            await third.send(listen)
            assert (await third.heading())[0] == 200
            async with here.calling() as raw:
                await raw.upgraded(upgrade(here.host, TOKEN))
                received = await raw.to_the_end()
                assert [one.json()["name"] for one in received[:-1]] == ["overloaded"], "no welcome before it"
                assert received[-1].code == 1013
            async with here.talking(None) as raw:
                await raw.send(said("hello", token=TOKEN))
                assert await raw.parting() == ("overloaded", 1013)
            async with here.calling() as raw:
                await raw.send(listen)
                assert (await raw.answer()).code == "too_many_connections"
                await raw.send(ask("GET /healthz HTTP/1.1", here.host))
                assert (await raw.answer()).status == 200, "short requests do not count"
        await here.settled()
        async with here.talking():
            pass


@pytest.mark.no_cover
async def test_two_thousand_connections_at_once_and_an_honest_one_is_served():
    async with house(limits=Limits(header_seconds=30)) as here:
        streams = []
        try:
            async with trio.open_nursery() as nursery:

                async def come(kind):
                    stream = await trio.open_tcp_stream(here.address.host, here.address.port)
                    streams.append(stream)
                    await stream.send_all([b"", b"GET /", upgrade(here.host)][kind])

                for i in range(2000):
                    nursery.start_soon(come, i % 3)
            await until(lambda: here.gateway.open >= 2000)
            await here.honest()
        finally:
            for stream in streams:
                stream.socket.close()
