"""No way out: connections to other machines are refused while a test runs."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

_CALLS: Final = ("connect", "connect_ex", "sendto", "sendmsg")
"""Methods of sockets whose last or only address is a peer."""
_LOCAL: Final = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", ""})


class OfflineError(RuntimeError):
    """A test that is offline asked for another machine. No OSError: providers would take that for an outage."""


class Offline:
    """The refusals of one test.

    Attributes:
        attempts: what was refused, one sentence each. A test that expects a refusal clears the list.
    """

    def __init__(self) -> None:
        self.attempts: list[str] = []

    def __repr__(self) -> str:
        return f"<Offline, {len(self.attempts)} refused>"

    def refuse(self, what: str) -> None:
        """Note an attempt and raise.

        Raises:
            OfflineError: always.
        """
        self.attempts.append(what)
        way = "use a model of greenroom.testing, runtime.override(...) or open_fault_server"
        raise OfflineError(f"{what}: refused, because this test is offline; {way}")


@contextmanager
def refuse_connections() -> Iterator[Offline]:
    """Refuse, in the whole process and all its threads, connections to and names of other machines.

    Loopback and Unix sockets stay open. Other processes, and libraries that do not use Python's sockets, are not
    watched.
    """
    offline, originals = Offline(), {name: getattr(socket.socket, name) for name in _CALLS}
    resolve = socket.getaddrinfo

    def guarded(name: str) -> Callable[..., object]:
        def call(self: socket.socket, *args: Any) -> object:
            address = args[0] if name.startswith("connect") else args[-1] if len(args) > 1 else None
            if isinstance(address, tuple) and not _is_local(address[0]):
                offline.refuse(f"{name} to {address[0]}:{address[1]}")
            return originals[name](self, *args)

        return call

    def guarded_resolve(host: str | bytes | None, *args: Any, **options: Any) -> object:
        if host is not None and not _is_local(host) and _address_of(host) is None:
            offline.refuse(f"the address of {host!r}")
        return resolve(host, *args, **options)

    for name in _CALLS:
        setattr(socket.socket, name, guarded(name))
    socket.getaddrinfo = cast("Any", guarded_resolve)
    try:
        yield offline
    finally:
        for name in _CALLS:
            delattr(socket.socket, name)
            if getattr(socket.socket, name) is not originals[name]:
                setattr(socket.socket, name, originals[name])
        socket.getaddrinfo = resolve


def _is_local(host: object) -> bool:
    address = _address_of(host)
    return _text(host) in _LOCAL or (address is not None and (address.is_loopback or address.is_unspecified))


def _address_of(host: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address, if the host is one and no name."""
    try:
        return ipaddress.ip_address(_text(host).partition("%")[0])
    except ValueError:
        return None


def _text(host: object) -> str:
    return host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else str(host)
