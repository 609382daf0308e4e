"""`Authenticator`: who sends a request, and whether the principals of open connections are still let in.

The principals that `serve` was called with are looked up in memory and never asked about again. All others are of the
program's `SignIn`s, in order: the first one that has an answer decides. An open WebSocket or stream of such a principal
is asked about again whenever the answer has expired, with the head that it began with, and ends if the answer is now
another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import attrs
import trio

from greenroom.supervision import open_collapsing_nursery

from ...protocol.codes import FORBIDDEN, INTERNAL, OVERLOADED, UNAUTHENTICATED, CloseCode, Refused
from ..access import Principal, TokenTable
from ..request_head import Head
from .sign_in import SignIn, SignInFailure, SignInRefusal, request_of

logger = logging.getLogger("greenroom.gateway")

ROUND: Final = 1.0
"""Seconds between two looks for open connections whose answer has expired."""
AGAIN: Final = 5.0
"""Seconds after which a failed question about an open connection is repeated."""
TOGETHER: Final = 64
"""Questions about open connections at the same time; one task each."""
LOG_AGAIN: Final = 1.0
"""Seconds between two logged failures of the function: a stranger must not fill the log."""
CLOSE_CODES: Final = {"unauthenticated": UNAUTHENTICATED, "not_allowed": FORBIDDEN, "sign_in_unavailable": OVERLOADED}
"""Error code of a refused sign-in -> close code of a WebSocket."""

End = Callable[[CloseCode, str], None]
"""Ends a connection with a code and a reason for its client."""


@attrs.define(eq=False)
class OpenSignIn:
    """An open WebSocket or stream, and who it is.

    Attributes:
        principal: As of the newest answer.
        head: The head that it began with.
        token: Of a WebSocket's first message; None if the head has the credential.
        end: Ends it.
        due: trio time at which the answer expires.
        failing: trio time since which there is no answer; None if there is one.
    """

    principal: Principal
    head: Head
    token: str | None
    end: End
    due: float
    failing: float | None = None

    def __repr__(self) -> str:
        return f"<OpenSignIn of {self.principal.name}>"


class Authenticator:
    """The sign-in of one gateway. `run` watches the open connections; without it they are never asked about again."""

    def __init__(
        self, keyring: TokenTable, sign_ins: Sequence[SignIn], log: Callable[[object, BaseException], None]
    ) -> None:
        """`log`: takes what has failed, and the error."""
        self._keyring, self._sign_ins, self._log = keyring, tuple(sign_ins), log
        self._open = dict[OpenSignIn, None]()  # in the order of their beginning
        self._tolerance = max([sign_in.seconds for sign_in in self._sign_ins], default=0.0)
        self._logged = float("-inf")

    def __repr__(self) -> str:
        return f"<Authenticator with {len(self._sign_ins)} sign-ins and {len(self._open)} open connections>"

    async def of_head(self, head: Head) -> Principal | None:
        """Return who sends a request; None without a credential.

        Raises:
            Refused: unauthenticated, not_allowed, sign_in_unavailable, internal.
        """
        header = head.headers.get("authorization")
        if not self._sign_ins:
            return self._keyring.bearer(header)
        principal = self._keyring.of_header(header)
        if principal is not None:
            return principal
        answer = await self._answered(head, None)
        if answer is None and header is not None:
            raise Refused("unauthenticated", "the Authorization header holds no token that is known here")
        return None if answer is None else answer[0]

    async def of_hello(self, head: Head, token: str) -> Principal:
        """Return who has opened a WebSocket with this head and sent this token.

        Raises:
            Refused: unauthenticated, not_allowed, sign_in_unavailable, internal.
        """
        principal = self._keyring.find(token)
        if principal is None:
            answer = await self._answered(head, token)
            principal = None if answer is None else answer[0]
        if principal is None:
            raise Refused("unauthenticated", "the token is unknown")
        return principal

    async def _answered(self, head: Head, token: str | None) -> tuple[Principal, float] | None:
        """Return the principal of the first sign-in that has an answer, and the time until which it counts."""
        for sign_in in self._sign_ins:
            dated_answer = await sign_in.answer(request_of(head, token))
            match dated_answer.answer:
                case None:
                    continue
                case Principal() as principal:
                    if principal.name in self._keyring.names:
                        text = f"the name {principal.name!r:.200} belongs to a principal that this gateway began with"
                        raise Refused("not_allowed", text)
                    return principal, dated_answer.until
                case SignInRefusal(message=message, status=status):
                    raise Refused("unauthenticated" if status == 401 else "not_allowed", message)
                case SignInFailure() as failure:
                    raise self._failed(failure, fresh=dated_answer.fresh)
        return None

    def _failed(self, failure: SignInFailure, *, fresh: bool) -> Refused:
        now = trio.current_time()
        if fresh and now >= self._logged + LOG_AGAIN:
            self._logged = now
            if failure.error is not None:
                self._log("authenticate", failure.error)
            else:
                logger.warning("authenticate did not answer in time; requests are refused meanwhile")
        if failure.late:
            return Refused("sign_in_unavailable", "the sign-in did not answer in time; send the request again")
        return Refused("internal", "the sign-in failed; a bug")

    # --- open connections --------------------------------------------------------------------------------------------

    def begin(self, principal: Principal, head: Head, token: str | None, end: End) -> OpenSignIn | None:
        """Watch an open connection until `finish`; None for a principal that is never asked about again."""
        if principal.name in self._keyring.names:
            return None
        connection = OpenSignIn(principal, head, token, end, trio.current_time())
        self._open[connection] = None
        return connection

    def finish(self, connection: OpenSignIn | None) -> None:
        """End the watch."""
        if connection is not None:
            self._open.pop(connection, None)

    @contextmanager
    def watching(self, principal: Principal | None, head: Head, end: Callable[[], None]) -> Iterator[None]:
        """Watch the stream of a principal for the block. `end` ends the stream."""
        connection = None if principal is None else self.begin(principal, head, None, lambda *_: end())
        try:
            yield
        finally:
            self.finish(connection)

    async def run(self) -> None:
        """Ask about open connections until cancelled. May be called again after a crash."""
        ends = [sign_in.listen(self._revoked) for sign_in in self._sign_ins]
        try:
            while True:
                await trio.sleep(ROUND)
                now = trio.current_time()
                due = [connection for connection in self._open if connection.due <= now]
                for start in range(0, len(due), TOGETHER):
                    async with open_collapsing_nursery() as nursery:
                        for connection in due[start : start + TOGETHER]:
                            nursery.start_soon(self._ask_again, connection)
        finally:
            for end in ends:
                end()

    async def _ask_again(self, connection: OpenSignIn) -> None:
        try:
            answer = await self._answered(connection.head, connection.token)
        except Refused as refused:
            self._refuse(connection, refused)
            return
        if answer is None:
            self._refuse(connection, Refused("unauthenticated", "the credential is not known any more"))
            return
        principal, until = answer
        before = connection.principal
        if (principal.name, principal.scopes) != (before.name, before.scopes):
            text = f"the scopes of {before.name} have changed; connect again"
            self._end(connection, UNAUTHENTICATED, text)
            return
        connection.principal, connection.due, connection.failing = principal, until, None

    def _refuse(self, connection: OpenSignIn, refused: Refused) -> None:
        """End a connection; if only the sign-in has failed, not before this has lasted as long as an answer counts."""
        code = close_code_of(refused)
        if code in (UNAUTHENTICATED, FORBIDDEN):
            self._end(connection, code, refused.message)
            return
        now = trio.current_time()
        connection.failing = now if connection.failing is None else connection.failing
        if now - connection.failing >= self._tolerance:
            self._end(connection, code, refused.message)
        connection.due = now + min(AGAIN, self._tolerance)

    def _end(self, connection: OpenSignIn, code: CloseCode, text: str) -> None:
        if connection in self._open:  # otherwise it has ended meanwhile
            self.finish(connection)
            connection.end(code, text)

    def _revoked(self, name: str) -> int:
        connections = [connection for connection in self._open if connection.principal.name == name]
        for connection in connections:
            self._end(connection, UNAUTHENTICATED, f"the sign-in of {name} was revoked")
        return len(connections)


def close_code_of(refused: Refused) -> CloseCode:
    """Return the close code for a WebSocket whose sign-in was refused."""
    return CLOSE_CODES.get(refused.error.code, INTERNAL)
