"""`Authenticator`: who sends a request, and whether the principals of open connections are still let in.

The principals that `serve` was called with are looked up in memory and never asked about again. All others are of the
program's `SignIn`s, in order: the first one that has an answer decides. An open WebSocket or stream of such a principal
is asked about again whenever the answer has expired, with the head that it began with, and ends if the answer is now
another one, or if it follows a run that the principal may not see any more.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import attrs
import trio

import greenroom as gr
from greenroom.actors.contract.rows import RunInfo
from greenroom.supervision import open_collapsing_nursery

from ...protocol.codes import FORBIDDEN, INTERNAL, OVERLOADED, RESTART, UNAUTHENTICATED, CloseCode, Refused
from ..access import Principal, SeesFailed, TokenTable, everything
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
ReadInfo = Callable[[str], Awaitable[RunInfo | None]]
"""Returns the constant facts of a run; None for an unknown run."""


@attrs.define(eq=False)
class OpenSignIn:
    """An open WebSocket or stream, and who it is.

    Attributes:
        principal: As of the newest answer.
        head: The head that it began with.
        token: Of a WebSocket's first message; None if the head has the credential.
        end: Ends it.
        follows: Returns the ids of the runs whose events it gets.
        infos: The constant facts of these runs, as far as they were read.
        due: trio time at which the answer expires.
        failing: trio time since which there is no answer; None if there is one.
    """

    principal: Principal
    head: Head
    token: str | None
    end: End
    follows: Callable[[], Iterable[str]]
    due: float
    infos: dict[str, RunInfo | None] = attrs.field(factory=dict)
    failing: float | None = None

    def __repr__(self) -> str:
        return f"<OpenSignIn of {self.principal.name}>"


class Authenticator:
    """The sign-in of one gateway. `run` watches the open connections; without it they are never asked about again."""

    def __init__(
        self,
        keyring: TokenTable,
        sign_ins: Sequence[SignIn],
        log: Callable[[object, BaseException], None],
        read_info: ReadInfo,
    ) -> None:
        """`log`: takes what has failed, and the error."""
        self._keyring, self._sign_ins, self._log, self._read_info = keyring, tuple(sign_ins), log, read_info
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

    def begin(
        self, principal: Principal, head: Head, token: str | None, end: End, follows: Callable[[], Iterable[str]]
    ) -> OpenSignIn | None:
        """Watch an open connection until `finish`; None for a principal that is never asked about again."""
        if principal.name in self._keyring.names:
            return None
        connection = OpenSignIn(principal, head, token, end, follows, trio.current_time())
        self._open[connection] = None
        return connection

    def finish(self, connection: OpenSignIn | None) -> None:
        """End the watch."""
        if connection is not None:
            self._open.pop(connection, None)

    @contextmanager
    def watching(
        self, principal: Principal | None, head: Head, run: str | None, end: Callable[[], None]
    ) -> Iterator[None]:
        """Watch the stream of a principal for the block. `run`: the run that it follows. `end` ends the stream."""
        runs = () if run is None else (run,)
        connection = None if principal is None else self.begin(principal, head, None, lambda *_: end(), lambda: runs)
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
            principal, until = await self._same(connection)
            is_visible = await self._sees_all(connection, principal)
        except Refused as refused:
            self._refuse(connection, refused)
            return
        if not is_visible:
            self._end(connection, RESTART, "a run that this connection follows is not visible any more; connect again")
            return
        connection.principal, connection.due, connection.failing = principal, until, None

    async def _same(self, connection: OpenSignIn) -> tuple[Principal, float]:
        """Return the principal of a connection as of now, and the time until which it counts.

        Raises:
            Refused: there is none, or another one, or none is known now.
        """
        answer, before = await self._answered(connection.head, connection.token), connection.principal
        if answer is None:
            raise Refused("unauthenticated", "the credential is not known any more")
        if (answer[0].name, answer[0].scopes) != (before.name, before.scopes):
            raise Refused("unauthenticated", f"the scopes of {before.name} have changed; connect again")
        return answer

    async def _sees_all(self, connection: OpenSignIn, who: Principal) -> bool:
        """Return True if the principal may still see the runs that its connection follows.

        Raises:
            Refused: internal, store_unavailable: nobody can say.
        """
        if who.sees is everything:
            return True
        infos = connection.infos
        try:
            infos = {run: infos.get(run) or await self._read_info(run) for run in tuple(connection.follows())}
            connection.infos = infos
            return all(info is None or who.sees(info) for info in infos.values())
        except SeesFailed as error:
            raise self._failed(SignInFailure(late=False, error=error), fresh=True) from error
        except gr.StoreError as error:
            raise Refused("store_unavailable", str(error)) from error

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
