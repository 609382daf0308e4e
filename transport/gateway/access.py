"""Access control: principals, tokens, scopes, and the headers that a browser sets and a page cannot forge."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Final, Literal

import attrs

from greenroom.actors.contract.codec import failure_text
from greenroom.actors.contract.rows import RunInfo
from greenroom.actors.errors import UsageError
from greenroom.supervision import Raised, capture

from ..protocol.codes import Refused

Scope = Literal["follow", "decide", "start", "admin"]
SCOPES: Final[tuple[Scope, ...]] = ("follow", "decide", "start", "admin")
"""follow: see runs and rules. decide: answer tickets, send, pause, revoke rules. start: start and cancel runs. admin:
everything, and metrics."""


def everything(_: RunInfo) -> bool:
    """Return True: the visibility of a principal that sees every run."""
    return True


def _scopes(scopes: Iterable[Scope]) -> frozenset[Scope]:
    if isinstance(scopes, str):
        raise UsageError(f"scopes={scopes!r}: give a set, such as {{{scopes!r}}}")
    return frozenset(scopes)


class SeesFailed(Exception):
    """A principal's `sees` raised, or returned a value without a truth value."""


@attrs.frozen
class GuardedSees:
    """A principal's `sees` behind the border to user code: an exception ends the request that asked, and nothing else.

    Raises:
        SeesFailed: By a call: `sees` failed.
    """

    sees: Callable[[RunInfo], object]

    def __call__(self, info: RunInfo) -> bool:
        """Return True if the principal may see the run."""
        seen = capture(lambda: bool(self.sees(info)))
        if isinstance(seen, Raised):
            why = failure_text(seen.error)
            raise SeesFailed(f"Principal(sees=...) failed for run {info.run_id}: {why}") from seen.error
        return seen.value


def _guarded(sees: Callable[[RunInfo], bool]) -> Callable[[RunInfo], bool]:
    return sees if sees is everything or isinstance(sees, GuardedSees) else GuardedSees(sees)


@attrs.frozen(kw_only=True)
class Principal:
    """A person or program that may use the gateway.

    Attributes:
        name: Appears in events and rows as the author of starts and decisions.
        token: At least 16 characters; never logged and never shown. Required in `serve(principals=...)`. For a
            principal of `authenticate` any text that only the principal and the program know: cursors and MCP sessions
            are sealed with it. By default that text is derived from the credential.
        scopes: The permissions of the principal; "admin" includes the others.
        sees: Returns True for the runs that the principal may see; the others are answered as unknown.

    Raises:
        UsageError: The name or the token is invalid, or a scope is unknown.
    """

    name: str
    token: str = attrs.field(default="", repr=False)
    scopes: frozenset[Scope] = attrs.field(default=frozenset({"admin"}), converter=_scopes)
    sees: Callable[[RunInfo], bool] = attrs.field(default=everything, converter=_guarded)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise UsageError(f"Principal(name={self.name!r}): give a name")
        if not isinstance(self.token, str) or 0 < len(self.token) < 16:
            raise UsageError(f"the token of {self.name!r} is too short; make one with secrets.token_hex(24)")
        unknown = self.scopes - set(SCOPES)
        if unknown:
            raise UsageError(f"scope {sorted(unknown)[0]!r} is not known; use some of {', '.join(SCOPES)}")

    def may(self, scope: Scope) -> bool:
        """Return True if the principal has this scope."""
        return scope in self.scopes or "admin" in self.scopes

    def need(self, scope: Scope) -> None:
        """Check that the principal has this scope.

        Raises:
            Refused: not_allowed.
        """
        if not self.may(scope):
            raise Refused("not_allowed", f"{self.name} has no scope {scope!r}; ask for a token that has it")


def _token_of(principal: Principal) -> str:
    if not principal.token:
        raise UsageError(f"the principal {principal.name!r} has no token; make one with secrets.token_hex(24)")
    return principal.token


class TokenTable:
    """The principals of a gateway by token; the time of a lookup reveals nothing about the tokens.

    Attributes:
        names: The names of the principals.
    """

    def __init__(self, principals: Iterable[Principal]) -> None:
        """Create a table.

        Raises:
            UsageError: A principal has no token: anybody would be this principal.
        """
        self._by_digest = [(sha256(_token_of(principal).encode()).digest(), principal) for principal in principals]
        self.names = frozenset(principal.name for _, principal in self._by_digest)

    def __repr__(self) -> str:
        return f"<TokenTable of {len(self._by_digest)}>"

    def find(self, token: str) -> Principal | None:
        """Return the principal of a token, or None. The token is compared with every known one, in constant time."""
        digest, match = sha256(token.encode(errors="surrogatepass")).digest(), None
        for known, principal in self._by_digest:
            if hmac.compare_digest(known, digest):
                match = principal
        return match

    def of_header(self, header: str | None) -> Principal | None:
        """Return the principal of an Authorization header; None if it holds no token that is known here."""
        token = None if header is None else bearer_token(header)
        return None if token is None else self.find(token)

    def bearer(self, header: str | None) -> Principal | None:
        """Return the principal of an Authorization header; None if there is no header.

        Raises:
            Refused: unauthenticated: the header has no bearer token, or an unknown one.
        """
        principal = self.of_header(header)
        if principal is None and header is not None:
            raise Refused("unauthenticated", "the Authorization header holds no token that is known here")
        return principal


def bearer_token(header: str) -> str | None:
    """Return the token of an Authorization header; None for another scheme."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


@attrs.frozen(kw_only=True)
class OriginPolicy:
    """The Host and Origin headers that are accepted; cross-site pages and DNS rebinding are not.

    A page of another site can open a WebSocket to this gateway, and a name of another site can resolve to its address.
    Browsers state both in headers that scripts cannot set. Programs send no Origin.

    Attributes:
        hosts: Accepted Host headers, in lower case, with port. None accepts all (bound to an address other than
            loopback without a list).
        origins: Accepted Origin headers in addition to those of `hosts`.
    """

    hosts: frozenset[str] | None
    origins: frozenset[str] = frozenset()

    def check(self, host: str | None, origin: str | None) -> None:
        """Check the Host and Origin headers of a request.

        Raises:
            Refused: forbidden_origin.
        """
        if self.hosts is not None and (host or "").lower() not in self.hosts:
            raise Refused(
                "forbidden_origin",
                f"the Host {host!r:.100} is not on the list; add it with --host-name, or hosts=[...]",
            )
        if origin is None or origin in self.origins:
            return
        own = (host or "").lower()
        if not own or origin.lower() not in (f"http://{own}", f"https://{own}"):  # an Origin has no path
            raise Refused(
                "forbidden_origin",
                f"the Origin {origin!r:.100} is not on the list; add it with --origin, or origins=[...]",
            )


def own_hosts(addresses: Sequence[tuple[str, int]], names: Iterable[str]) -> frozenset[str]:
    """Return the Host headers of loopback addresses, and the given names."""
    hosts = {name.lower() for name in names}
    for address, port in addresses:
        own = f"[{address}]" if ":" in address else address
        for name in ("localhost", "127.0.0.1", "[::1]", own.lower()):
            hosts |= {f"{name}:{port}"} | ({name} if port == 80 else set())
    return frozenset(hosts)


def is_loopback(host: str) -> bool:
    """Return True if the address is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
