"""Heads of requests: what two readers could understand differently is refused; trio-websocket reads our own words."""

import h11
import pytest
from tests.support.raw_ws import KEY, head, upgrade
from wsproto import ConnectionType, WSConnection
from wsproto.events import Request

from greenroom.transport.gateway.request_head import check_upgrade, handshake, read_head
from greenroom.transport.protocol.codes import Refused


def parsed(data):
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    event = connection.next_event()
    assert isinstance(event, h11.Request)
    return event


def refused(data, *, upgrading=False):
    request = parsed(data)
    with pytest.raises(Refused) as caught:
        check_upgrade(read_head(request)) if upgrading else read_head(request)
    return caught.value


def test_a_plain_request_is_read():
    found = read_head(parsed(head("GET /v1/runs?limit=3&limit=4&x=&y=%C3%A9 HTTP/1.1", X_A="one")))
    assert (found.method, found.path, found.modern, found.upgrade, found.size) == ("GET", "/v1/runs", True, False, 0)
    assert found.query == {"limit": "4", "x": "", "y": "é"}
    assert found.headers["x-a"] == "one"


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/", "/"),
        ("//evil/v1/runs", "//evil/v1/runs"),
        ("//[", "//["),
        ("/a;b", "/a;b"),
        ("/v1/%00", "/v1/%00"),
        ("http://localhost/v1/runs", "/v1/runs"),
        ("HTTP://LOCALHOST/v1/runs", "/v1/runs"),
        ("https://localhost", "/"),
    ],
)
def test_the_path_is_what_is_between_host_and_query(target, path):
    assert read_head(parsed(head(f"GET {target} HTTP/1.1"))).path == path


@pytest.mark.parametrize(
    "target",
    ["*", "x", "evil:80", "http://evil/v1/runs", "http://localhost@evil/", "http:/v1", "a:/v1/runs", "/v1/runs#x",
     "http://localhost?x=1", "http://[/", "http://", "ftp://localhost/"],
)  # fmt: skip
def test_a_target_that_is_no_path_of_this_host_is_refused(target):
    assert refused(head(f"GET {target} HTTP/1.1")).error.code == "bad_message"


def test_an_absolute_target_needs_the_header_that_it_names():
    assert refused(b"GET http://localhost/ HTTP/1.0\r\n\r\n").error.code == "bad_message"


@pytest.mark.parametrize("name", ["Authorization", "Origin", "Sec-WebSocket-Key"])
def test_two_headers_that_decide_something_are_refused(name):
    data = head("GET / HTTP/1.1", {name: "a"})[:-2] + f"{name.upper()}: a\r\n\r\n".encode()
    error = refused(data)
    assert (error.error.code, name.lower() in error.message) == ("bad_message", True)


def test_a_body_of_two_lengths_is_refused():
    assert refused(head("POST / HTTP/1.1", Content_Length="3", Transfer_Encoding="chunked")).error.status == 400


def test_the_size_of_a_body_is_reported():
    assert read_head(parsed(head("POST / HTTP/1.1", Content_Length="0012"))).size == 12
    assert read_head(parsed(head("POST / HTTP/1.1", Transfer_Encoding="chunked"))).size is None


def test_a_good_handshake_is_reported_to_trio_websocket_in_our_own_words():
    """Nothing of the client's but the key is in it: not the path, the hosts, the extensions or the other headers."""
    data = upgrade(
        "xn--\xff",
        "secret",
        Sec_WebSocket_Protocol="other, greenroom.v1",
        Sec_WebSocket_Extensions="permessage-deflate",
    )
    found = read_head(parsed(data.replace(b"/v1/ws", b"/v1/ws?token=x")))
    check_upgrade(found)
    reported = handshake(found)
    assert b"secret" not in reported
    assert b"deflate" not in reported
    server = WSConnection(ConnectionType.SERVER)
    server.receive_data(reported)
    (event,) = server.events()
    assert isinstance(event, Request)
    assert (event.target, event.subprotocols, event.extensions) == ("/v1/ws", ["greenroom.v1"], [])
    assert (b"sec-websocket-key", KEY.encode()) in [(name.lower(), value) for name, value in event.extra_headers]


@pytest.mark.parametrize("offered", [None, "", "other", "greenroom.v2", "\xff", "GREENROOM.V1"])
def test_a_client_that_does_not_offer_our_protocol_is_given_none(offered):
    found = read_head(parsed(upgrade("localhost", Sec_WebSocket_Protocol=offered)))
    check_upgrade(found)
    assert b"Protocol" not in handshake(found)


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({}, "GET /v1/other HTTP/1.1"),
        ({}, "GET //v1/ws HTTP/1.1"),
        ({}, "POST /v1/ws HTTP/1.1"),
        ({}, "GET /v1/ws HTTP/1.0"),
        ({"Connection": None}, None),
        ({"Connection": "keep-alive"}, None),
        ({"Sec_WebSocket_Version": None}, None),
        ({"Sec_WebSocket_Version": "8"}, None),
        ({"Sec_WebSocket_Version": "13, 8"}, None),
        ({"Sec_WebSocket_Key": None}, None),
        ({"Sec_WebSocket_Key": "short"}, None),
        ({"Sec_WebSocket_Key": "\xff" * 24}, None),
        ({"Sec_WebSocket_Key": "c2l4dGVlbiBieXRlcyEhIQ==\x09x"}, None),
        ({"Content_Length": "4"}, None),
        ({"Transfer_Encoding": "chunked"}, None),
    ],
)
def test_what_is_no_handshake_is_refused(changes, first):
    data = upgrade("localhost", **changes)
    if first is not None:
        data = data.replace(b"GET /v1/ws HTTP/1.1", first.encode())
    assert refused(data, upgrading=True).error.code in ("bad_message", "not_found")


@pytest.mark.parametrize("value", ["websocket", "WebSocket"])
def test_an_upgrade_to_anything_else_is_a_plain_request(value):
    assert read_head(parsed(upgrade("localhost", Upgrade=value))).upgrade
    assert not read_head(parsed(upgrade("localhost", Upgrade="h2c"))).upgrade
    assert not read_head(parsed(upgrade("localhost", Upgrade=None))).upgrade
