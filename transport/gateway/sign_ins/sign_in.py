"""`SignIn`: a function of the program that says who sends a request, called once for a credential and a while.

Theory of operation. The gateway calls `SignIn.answer` for each request, each WebSocket, and again for each one that
stays open. Most calls are answered from a cache. Its key is whatever the function has read of the requests so far, as
HTTP caches follow `Vary` (RFC 9110 section 12.5.5): a function that reads the token is called once for a token, and a
function that reads the path, too, once for a token and a path. So no answer reaches a request for which the function
could have answered otherwise, as long as its answer depends on the request and on nothing that changes sooner than
`seconds`.

Requests with the same key share one call. The request that came first makes the call in its own task; if that task is
cancelled, the next request calls. The followers look at the cache again, for meanwhile the key may have more parts.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from hashlib import sha256
from typing import Final, Literal

import attrs
import trio

from greenroom.actors.errors import UsageError
from greenroom.actors.user_code.calls import Late, call_user
from greenroom.supervision import Raised, Returned

from ..access import Principal, bearer_token
from ..request_head import Head

REFUSED_SECONDS: Final = 5.0
"""Seconds at most for which a refusal is remembered: a new person gets in soon."""
FAILED_SECONDS: Final = 1.0
"""Seconds for which a failure of the function is remembered, so that not every request waits for a broken service."""
REFUSED_SHARE: Final = 8
"""Refusals are remembered for at most this part of `entries`; made-up credentials displace no known ones."""
KEPT_SHARE: Final = 4
"""This part of the concurrent calls is for credentials that were known: made-up ones do not keep people waiting."""
MOST_READ: Final = 32
"""Headers that the key names one by one; a function that has read more is called once for a set of all headers."""
LONGEST_NAME: Final = 200
"""Most characters of a principal's name: events and rows repeat it."""
LONGEST_TEXT: Final = 300
"""Most characters of a refusal's text."""
_ALL: Final = "headers"


class ReadHeaders(Mapping[str, str]):
    """The headers of a request; notes which of them are read. Names are in lower case; a look-up takes any case."""

    def __init__(self, headers: Mapping[str, str], fields: set[str]) -> None:
        self._headers, self._fields = headers, fields

    def __repr__(self) -> str:
        return f"<ReadHeaders of {len(self._headers)} headers>"

    def __getitem__(self, name: str) -> str:
        name = name.lower()
        self._fields.add(f"header {name}")
        return self._headers[name]

    def __iter__(self) -> Iterator[str]:
        self._fields.add(_ALL)
        return iter(self._headers)

    def __len__(self) -> int:
        self._fields.add(_ALL)
        return len(self._headers)


class SignInRequest:
    """The head of a request, for `authenticate`: an HTTP request, the upgrade to a WebSocket, or its first message.

    The properties note what is read of the request; see the module.

    Attributes:
        fields: What has been read so far.
    """

    def __init__(
        self,
        *,
        method: str = "GET",
        path: str = "/",
        headers: Mapping[str, str] | None = None,
        peer: str | None = None,
        token: str | None = None,
    ) -> None:
        """Create a request. `token`: of a WebSocket's first message; by default the Authorization header's."""
        self._method, self._path, self._peer = method, path, peer
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        header = self._headers.get("authorization")
        self._token = token if token is not None or header is None else bearer_token(header)
        self.fields = set[str]()

    def __repr__(self) -> str:
        return f"<SignInRequest {self._method} {self._path:.100} from {self._peer}>"

    @property
    def method(self) -> str:
        """Such as GET."""
        self.fields.add("method")
        return self._method

    @property
    def path(self) -> str:
        """The path as sent, without the query."""
        self.fields.add("path")
        return self._path

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers by name in lower case; the values of a repeated one are joined with commas."""
        return ReadHeaders(self._headers, self.fields)

    @property
    def peer(self) -> str | None:
        """The IP address at the other end of the connection, which may be a proxy's."""
        self.fields.add("peer")
        return self._peer

    @property
    def token(self) -> str | None:
        """The bearer token of the Authorization header, or of a WebSocket's first message."""
        self.fields.add("token")
        return self._token

    def value(self, field: str) -> object:
        """Return what a field of `fields` stands for."""
        match field:
            case "method":
                return self._method
            case "path":
                return self._path
            case "peer":
                return self._peer
            case "token":
                return self._token
            case "headers":
                return sorted(self._headers.items())
            case _:
                return self._headers.get(field.removeprefix("header "))


def request_of(head: Head, token: str | None = None) -> SignInRequest:
    """Return the request of a head, and of the token in a WebSocket's first message."""
    return SignInRequest(method=head.method, path=head.path, headers=head.headers, peer=head.peer, token=token)


@attrs.frozen(kw_only=True)
class SignInRefusal:
    """The answer of `authenticate` for a request that is not let in.

    Attributes:
        message: The text for the client, on one line; no secret.
        status: 401: another credential may be accepted. 403: this person or program is known, and not allowed.

    Raises:
        UsageError: The status or the message is invalid.
    """

    message: str
    status: Literal[401, 403] = 401

    def __attrs_post_init__(self) -> None:
        if self.status not in (401, 403):
            raise UsageError(f"SignInRefusal(status={self.status!r:.50}): give 401 or 403")
        if not isinstance(self.message, str) or not 0 < len(self.message) <= LONGEST_TEXT:
            raise UsageError(f"SignInRefusal(message=...): give a text of 1 to {LONGEST_TEXT} characters")
        if not self.message.isprintable():
            raise UsageError(f"SignInRefusal(message={self.message!r}): the text must be printable, on one line")


@attrs.frozen(kw_only=True)
class SignInFailure:
    """The function raised, or returned a value of another type, or (`late`) did not answer in time."""

    late: bool
    error: BaseException | None = None


Authenticate = Callable[[SignInRequest], Awaitable[Principal | SignInRefusal | None]]
"""Returns the principal of a request, a refusal, or None for a request without a credential for this function."""
Answer = Principal | SignInRefusal | SignInFailure | None


@attrs.frozen
class TimedAnswer:
    """An answer, and the trio time until which it counts. `fresh`: the function was called for it."""

    answer: Answer
    until: float
    fresh: bool = False


class SignIn:
    """A function that says who sends a request, with its cache and its limits.

    Give the object, or only the function, to `serve(authenticate=...)`. Several gateways may share one object.
    """

    def __init__(
        self,
        authenticate: Authenticate,
        *,
        seconds: float = 30.0,
        limit: float = 10.0,
        entries: int = 10_000,
        concurrent: int = 64,
    ) -> None:
        """Create a sign-in.

        Args:
            authenticate: The function. It may raise anything, which refuses the request as `internal`.
            seconds: The time for which an answer counts. An open connection is asked about again after that time.
            limit: Seconds for one answer, the wait for a free place included; then the request is refused as
                `sign_in_unavailable`.
            entries: Answers that are remembered; the least recently used ones are forgotten first.
            concurrent: Calls of the function at the same time; further ones wait. A quarter of these places is for
                credentials that were known before.

        Raises:
            UsageError: A value is invalid.
        """
        if not callable(authenticate):
            raise UsageError(f"authenticate={authenticate!r:.100}: give an async function, or a SignIn")
        for name, value in (("seconds", seconds), ("limit", limit), ("entries", entries), ("concurrent", concurrent)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise UsageError(f"SignIn({name}={value!r:.50}): give a number above 0")
        self.seconds, self.limit = float(seconds), float(limit)
        self._authenticate = authenticate
        self._known = Answers(max(1, int(entries)))
        self._refused = Answers(max(1, int(entries) // REFUSED_SHARE))
        self._slots = trio.CapacityLimiter(places := max(1, int(concurrent)))
        self._of_strangers = trio.CapacityLimiter(places - places // KEPT_SHARE)
        self._read = frozenset[str]()
        self._calls: dict[bytes, trio.Event] = {}
        self._secret = secrets.token_bytes(32)
        self._revocations = 0
        self._token: trio.lowlevel.TrioToken | None = None
        self._listeners: list[Callable[[str], int]] = []

    def __repr__(self) -> str:
        return f"<SignIn with {len(self._known)} principals>"

    async def answer(self, request: SignInRequest) -> TimedAnswer:
        """Return who sends a request. Nothing is raised but Cancelled, after which the request may be asked again."""
        with trio.move_on_after(self.limit):
            while True:
                key = self._key(request)
                entry = self._known.find(key) or self._refused.find(key)
                if entry is not None:
                    return entry
                call = self._calls.get(key)
                if call is not None:
                    await call.wait()
                    continue
                call = self._calls[key] = trio.Event()
                revocations = self._revocations
                try:
                    async with AsyncExitStack() as stack:
                        if not self._known.has(key):
                            await stack.enter_async_context(self._of_strangers)
                        await stack.enter_async_context(self._slots)
                        answer = await self._asked(request)
                finally:
                    del self._calls[key]
                    call.set()
                if revocations == self._revocations or not isinstance(answer, Principal):
                    return self._keep(request, answer)
        return self._keep(request, SignInFailure(late=True))

    def revoke(self, name: str) -> int:
        """Forget the answers that named a principal, and close its open WebSockets and streams; return their number.

        The closed WebSockets get the code 4401. Requests that are being answered end with their answer. The next
        request of the person calls the function again, which decides whether the person gets in. An answer that the
        function was called for before this call is not used. May be called from any thread; one without trio waits
        for trio.
        """
        if self._token is not None and not trio.lowlevel.in_trio_run():
            with suppress(trio.RunFinishedError):
                return trio.from_thread.run_sync(self._revoke, name, trio_token=self._token)
        return self._revoke(name)

    def _revoke(self, name: str) -> int:
        self._revocations += 1
        self._known.forget(name)
        return sum(listener(name) for listener in tuple(self._listeners))

    def listen(self, listener: Callable[[str], int]) -> Callable[[], None]:
        """Call `listener` with the name at each `revoke`, for its number of closed connections; returns the end."""
        self._token = trio.lowlevel.current_trio_token()
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _key(self, request: SignInRequest) -> bytes:
        values = [(field, request.value(field)) for field in sorted(self._read)]
        return sha256(repr(values).encode()).digest()  # a digest: comparing it tells nothing about a token

    async def _asked(self, request: SignInRequest) -> Answer:
        outcome = await call_user(self._authenticate, request, limit=self.limit)
        match outcome:
            case Returned(value):
                return self._checked(request, value)
            case Raised(error):
                return SignInFailure(late=False, error=error)
            case Late():
                return SignInFailure(late=True)

    def _checked(self, request: SignInRequest, answer: object) -> Answer:
        if isinstance(answer, Principal):
            if len(answer.name) <= LONGEST_NAME and answer.name.isprintable():
                return answer if answer.token else attrs.evolve(answer, token=self._seal(request, answer.name))
            reason = f"a principal has the name {answer.name!r:.250}: give at most {LONGEST_NAME} printable characters"
        elif answer is None or isinstance(answer, SignInRefusal):
            return answer
        else:
            reason = f"it returned {answer!r:.100}; return a Principal, a SignInRefusal or None"
        return SignInFailure(late=False, error=UsageError(f"authenticate: {reason}"))

    def _seal(self, request: SignInRequest, name: str) -> str:
        """Return the text with which what a principal carries for the gateway is sealed.

        Derived from the token, if the function has read it, so that other processes and later ones open the seals, too.
        """
        token = request.value("token") if "token" in request.fields else None
        if isinstance(token, str):
            return sha256(b"greenroom sign-in\n" + token.encode(errors="surrogatepass")).hexdigest()
        return hmac.digest(self._secret, name.encode(errors="surrogatepass"), "sha256").hex()

    def _keep(self, request: SignInRequest, answer: Answer) -> TimedAnswer:
        self._note_fields(request.fields)
        match answer:
            case Principal():
                seconds, answers = self.seconds, self._known
            case SignInFailure():
                seconds, answers = min(self.seconds, FAILED_SECONDS), self._refused
            case _:
                seconds, answers = min(self.seconds, REFUSED_SECONDS), self._refused
        until = trio.current_time() + seconds
        answers.keep(self._key(request), TimedAnswer(answer, until))
        return TimedAnswer(answer, until, fresh=True)

    def _note_fields(self, fields: set[str]) -> None:
        """Widen the key by what a call has read; answers under the narrower key are forgotten."""
        read = self._read | fields
        if _ALL in read or len(read) > MOST_READ:
            read = frozenset({*(field for field in read if not field.startswith("header ")), _ALL})
        if read != self._read:
            self._read = read
            self._known.clear()
            self._refused.clear()


class Answers:
    """A bounded number of answers by key; the least recently used one is forgotten first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._answers = OrderedDict[bytes, TimedAnswer]()

    def __repr__(self) -> str:
        return f"<Answers: {len(self)} of {self._most}>"

    def __len__(self) -> int:
        return len(self._answers)

    def find(self, key: bytes) -> TimedAnswer | None:
        """Return an answer that still counts."""
        entry = self._answers.get(key)
        if entry is None or entry.until <= trio.current_time():
            return None
        self._answers.move_to_end(key)
        return entry

    def has(self, key: bytes) -> bool:
        """Return True if there is an answer, also one that counts no more."""
        return key in self._answers

    def keep(self, key: bytes, answer: TimedAnswer) -> None:
        """Keep an answer."""
        self._answers[key] = answer
        self._answers.move_to_end(key)
        if len(self._answers) > self._most:
            self._answers.popitem(last=False)

    def forget(self, name: str) -> None:
        """Forget the answers that name a principal. Linear in their number."""
        for key, entry in tuple(self._answers.items()):
            if isinstance(entry.answer, Principal) and entry.answer.name == name:
                del self._answers[key]

    def clear(self) -> None:
        """Forget all."""
        self._answers.clear()
