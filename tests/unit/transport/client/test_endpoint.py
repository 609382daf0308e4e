"""What URLs mean, and what of them is ever reported."""

import pytest
import trio
import trio.testing

import greenroom as gr
from greenroom.transport.client import NotReachable
from greenroom.transport.client.endpoint import Endpoint, read_endpoint
from greenroom.transport.client.trio_streams import open_stream


@pytest.mark.parametrize(
    ("url", "host", "port", "secure", "prefix"),
    [
        ("ws://127.0.0.1:8765", "127.0.0.1", 8765, False, ""),
        ("http://127.0.0.1:8765/", "127.0.0.1", 8765, False, ""),
        ("ws://localhost:1/v1/ws", "localhost", 1, False, ""),
        ("ws://host", "host", 80, False, ""),
        ("wss://host", "host", 443, True, ""),
        ("https://host/team/greenroom/", "host", 443, True, "/team/greenroom"),
        ("wss://host:9/team/v1/ws", "host", 9, True, "/team"),
        ("http://[::1]:8765", "::1", 8765, False, ""),
    ],
)
def test_every_form_of_an_address_is_understood(url: str, host: str, port: int, secure: bool, prefix: str) -> None:
    assert read_endpoint(url) == Endpoint(host=host, port=port, secure=secure, prefix=prefix)


@pytest.mark.parametrize(
    ("address", "authority", "url", "path"),
    [
        (Endpoint(host="h", port=80), "h", "http://h", "/v1/ws"),
        (Endpoint(host="h", port=8765), "h:8765", "http://h:8765", "/v1/ws"),
        (Endpoint(host="h", port=443, secure=True, prefix="/x"), "h", "https://h/x", "/x/v1/ws"),
        (Endpoint(host="::1", port=443), "[::1]:443", "http://[::1]:443", "/v1/ws"),
    ],
)
def test_an_address_says_how_it_is_reached(address: Endpoint, authority: str, url: str, path: str) -> None:
    assert (address.authority, address.url, address.path) == (authority, url, path)


def test_the_token_of_the_console_is_taken_from_the_fragment_and_not_shown() -> None:
    address = read_endpoint("http://127.0.0.1:8765/#token=abc")
    assert address.token == "abc"
    assert "abc" not in repr(address)
    assert read_endpoint("http://127.0.0.1:8765/#other").token is None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://host", "write ws://HOST:PORT"),
        ("127.0.0.1:8765", "write ws://HOST:PORT"),
        ("ws://", "write ws://HOST:PORT"),
        ("ws://host:port", "not a URL"),
        ("ws://host:99999", "not a URL"),
        ("ws://host?token=secret", "would be logged"),
        ("ws://me:secret@host", "would be logged"),
    ],
)
def test_a_faulty_address_is_refused_without_its_secrets(url: str, words: str) -> None:
    with pytest.raises(gr.UsageError, match=words) as caught:
        read_endpoint(url)
    assert "secret" not in str(caught.value)


async def test_a_server_without_tls_is_not_reachable_with_it() -> None:
    async def plain(stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, plain, 0)
        port = listeners[0].socket.getsockname()[1]
        with pytest.raises(NotReachable, match="TLS"):
            await open_stream(Endpoint(host="127.0.0.1", port=port, secure=True))
        nursery.cancel_scope.cancel()


async def test_a_name_without_an_owner_is_not_reachable() -> None:
    with pytest.raises(NotReachable, match=r"no gateway answers at http://name\.invalid:1"):
        await open_stream(Endpoint(host="name.invalid", port=1))
