"""Sign-in by a proxy: the proxy knows the person, by OpenID Connect for example, and says the name in a header."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from hashlib import sha256
from typing import Final

import attrs

from greenroom.actors.errors import UsageError

from ..access import Principal, Scope
from .sign_in import SignIn, SignInRefusal, SignInRequest

PROOF_HEADER: Final = "x-greenroom-proxy"
"""The header in which the proxy shows its secret."""
PERSON: Final[frozenset[Scope]] = frozenset({"follow", "decide", "start"})
"""The scopes of a person, if nothing else decides."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
MakePrincipal = Callable[
    [str, SignInRequest], Awaitable[Principal | SignInRefusal | None] | Principal | SignInRefusal | None
]


@attrs.define(eq=False, repr=False)
class TrustedProxy:
    """What is known about the proxy, for `SignIn`."""

    header: str
    proxies: tuple[Network, ...]
    secret: bytes
    principal: MakePrincipal

    def __repr__(self) -> str:
        return f"<TrustedProxy: {self.header} from {', '.join(map(str, self.proxies))}>"

    async def __call__(self, request: SignInRequest) -> Principal | SignInRefusal | None:
        """Return the principal that the proxy names; None for a request that names nobody."""
        value, secret, peer = request.headers.get(self.header), request.headers.get(PROOF_HEADER, ""), request.peer
        if value is None:
            return None
        proof = sha256(secret.encode(errors="surrogatepass")).digest()
        if not hmac.compare_digest(proof, self.secret) or not self._trusts(peer):
            return SignInRefusal(message=f"the header {self.header} is accepted from the proxy only", status=403)
        name = _utf_8(value).strip()
        if not name or "," in name or not name.isprintable():
            return SignInRefusal(message=f"the header {self.header} does not name one person", status=403)
        answer = self.principal(name, request)
        return await answer if isinstance(answer, Awaitable) else answer

    def _trusts(self, peer: str | None) -> bool:
        try:
            address = ipaddress.ip_address((peer or "").partition("%")[0])
        except ValueError:  # an ASGI server may have another text there, or what a client has sent to it
            return False
        ipv4 = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any((ipv4 or address) in network for network in self.proxies)


def _utf_8(value: str) -> str:
    """Return a header's text: headers are bytes, which HTTP reads as Latin-1 and proxies write in UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def trusted_proxy(
    header: str,
    *,
    proxies: Iterable[str],
    secret: str,
    scopes: Iterable[Scope] = PERSON,
    principal: MakePrincipal | None = None,
    seconds: float = 30.0,
) -> SignIn:
    """Return the sign-in by a proxy, for `serve(authenticate=trusted_proxy(...))`.

    The proxy has to set the header for each request, also to an empty text: a client can send any header. It shows that
    it is the proxy by its address and by a secret in the header `X-Greenroom-Proxy`: any program of a machine reaches
    the machine's own gateway, from the address of the proxy. A request with the header that is not from the proxy is
    refused with 403. A request without the header has no principal here, and may have one by its token.

    Args:
        header: The header with the name, such as "X-Forwarded-Email".
        proxies: Addresses or networks of the proxy, such as "127.0.0.1" and "10.1.0.0/16".
        secret: At least 16 characters, such as those of secrets.token_hex(24).
        scopes: Of each person.
        principal: Returns the principal of a name and a request, a refusal, or None, in place of `scopes`; sync or
            async. For example by a header with the person's groups.
        seconds: The time for which an answer counts, as of `SignIn`.

    Raises:
        UsageError: A value is invalid.
    """
    if not isinstance(secret, str) or len(secret) < 16:
        raise UsageError("the secret of the proxy is too short; make one with secrets.token_hex(24)")
    if not isinstance(header, str) or not header.isascii() or not header.replace("-", "").isalnum():
        raise UsageError(f"header={header!r:.100}: give the name of a header, such as 'X-Forwarded-Email'")
    if header.lower() in ("authorization", "cookie", PROOF_HEADER):
        raise UsageError(f"header={header!r}: a client's own header names nobody; give the one that the proxy sets")
    networks = tuple(map(_network, (proxies,) if isinstance(proxies, str) else proxies))
    if not networks:
        raise UsageError("proxies=(): give the addresses of the proxy, such as ['127.0.0.1']")
    rights = Principal(name="-", scopes=scopes).scopes  # checks the scopes
    plain: MakePrincipal = lambda name, _: Principal(name=name, scopes=rights)  # noqa: E731 - a default
    digest = sha256(secret.encode(errors="surrogatepass")).digest()
    return SignIn(TrustedProxy(header.lower(), networks, digest, principal or plain), seconds=seconds)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise UsageError(f"proxies has {text!r:.100}: give an address, or a network such as '10.1.0.0/16'") from error
