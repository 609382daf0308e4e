"""The actor that speaks with one MCP server: owns the SDK's client in its task, and answers messages.

Theory of operation. An incarnation connects when it is first asked, and holds the connection until that breaks. Each
list and each call is a task of the actor; a call that is cancelled by its asker is cancelled in its scope, which is the
SDK's cancel. An incarnation that ends fails all that was asked of it: calls that were sent as `CallCut`, all else as
`ServerUnavailable`. The supervisor's back-off bounds how often a server is started.

What a server asks in the middle of a call (handshake era) goes to the body of that call as an `Elicited`. On HTTP the
SDK's context says which call that is; a program has one pipe, so there it is the only call, or the newest of one run.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from typing import Final, TypeAlias

import trio

from greenroom.supervision import ActorContext, Backoff, Mailbox, Raised, acapture, leaves

from ...supervision.nursery import open_collapsing_nursery
from ..contract.codec import MESSAGE_LIMIT, failure_text, shortened
from ..errors import ToolError, UsageError
from .mcp_limits import limited
from .mcp_messages import (
    LAST_ANSWERS,
    NOT_SENT,
    SESSION_GONE,
    CallCut,
    CallRefused,
    CallStep,
    CallTool,
    Elicited,
    ListTools,
    Message,
    Progressed,
    ServerAnswer,
    ServerConnection,
    ServerTool,
    ServerUnavailable,
    ToolListing,
)
from .mcp_sdk import LOG, Client, MCPError, TypeAdapter, ValidationError, types

ANSWERING: Final = 25.0
"""Seconds to connect, and to list all tools; a step waits 30 s for a toolset."""
MOST_PAGES: Final = 100
MOST_TOOLS: Final = 2_000
"""Tools of a server; a step offers no more."""
KEPT: Final = 60.0
"""Seconds for which a list is kept, if the server does not say."""
KEPT_LONGEST: Final = 3_600.0
BACKOFF: Final = Backoff(initial=0.2, factor=2.0, maximum=30.0)
WITHIN: Final = 300.0
"""Seconds for which a restart counts in the back-off."""
PATIENCE: Final = 2.0
"""Seconds of a pause before a restart for which messages wait; in a longer one they are refused."""
MOST_LEFT: Final = 64
"""Questions of ended calls that wait for the server to withdraw them."""
REMEMBERED: Final = 16
"""Restarts that are counted; the pause is the longest one before that."""

INVALID: Final = "schema_validation_failed"
_CLOSED: Final = ("Connection closed", "SSE stream ", "the connection was lost")
"""How the SDK and the transport say that a connection was lost; servers use the same code for errors of their own."""

_ANSWER: Final[TypeAdapter[types.CallToolResult | types.InputRequiredResult]] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_running: ContextVar[CallTool | None] = ContextVar("the call for which a request is sent", default=None)


Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[ServerConnection]]
"""Opens a connection."""


class ServerActor:
    """The actor of one server in one runtime, or in one run.

    Attributes:
        changes: How often the server has said that its tools have changed.

    Args:
        server: The name of the server.
        connect: Opens a connection.
        log: (level, text): writes a line to the log, redacted.
        idle: Seconds without a word about a call after which the call fails; None: no limit.
        version: Of this library, for the server.
    """

    def __init__(
        self, server: str, connect: Connect, *, log: Callable[[int, str], None], idle: float | None, version: str
    ) -> None:
        self._server, self._connect, self._log, self._idle, self._version = server, connect, log, idle, version
        self._calls: dict[CallTool, None] = {}
        self._lists: dict[ListTools, None] = {}
        self._left: deque[Elicited] = deque()
        self._answered = trio.Event()
        self._down: str | None = None
        self._connection: ServerConnection | None = None
        self._has_connected = False
        self._ends: deque[float] = deque(maxlen=REMEMBERED)
        self.changes = 0

    def __repr__(self) -> str:
        return f"<ServerActor {self._server!r}: {len(self._calls)} calls>"

    @property
    def refusal(self) -> ServerUnavailable | None:
        """Why messages would wait for long now: the server has failed again and again, and is tried again later."""
        if self._down is None or BACKOFF.delay(self._restarts()) < PATIENCE:
            return None
        return self.unavailable(self._down)

    def _restarts(self) -> int:
        return sum(end > trio.current_time() - WITHIN for end in self._ends)

    def unavailable(self, why: str) -> ServerUnavailable:
        """Return the error of a server that is not there."""
        return ServerUnavailable(f"MCP server {self._server!r} is not available: {why}")

    async def body(self, ctx: ActorContext[Message]) -> None:
        """Run one incarnation."""
        self._down, self._connection, self._has_connected = None, None, False
        self._left.clear()
        self.changes += 1  # another process of the server may have other tools
        outcome = await acapture(self._live, ctx.mailbox)
        why = self._why(outcome.error) if isinstance(outcome, Raised) else "it was stopped"
        self._down = why
        self._ends.append(trio.current_time())
        if not self._has_connected:  # else the next incarnation takes what was not sent
            for _ in range(len(ctx.mailbox)):
                ctx.mailbox.pop().fail(self.unavailable(why))
        if isinstance(outcome, Raised):
            self._log(logging.WARNING, f"the connection has ended: {why}")
            raise outcome.error

    def _why(self, error: BaseException) -> str:
        connection = self._connection
        if connection is not None and connection.is_one and any(map(_is_closed, leaves(error))):
            return connection.why  # the end of a program says more than that of its pipe
        return text_of_failure(error)

    async def _live(self, mailbox: Mailbox[Message]) -> None:
        await mailbox.wait()
        try:
            async with self._connected() as (client, connection), open_collapsing_nursery() as nursery:
                nursery.start_soon(self._watch, connection)
                while True:
                    await mailbox.wait()
                    if connection.gone.is_set():
                        await trio.sleep_forever()  # until `_watch` ends all this
                    while len(mailbox):
                        message = mailbox.pop()
                        if isinstance(message, CallTool):
                            self._take(message)
                            nursery.start_soon(self._call, client, connection, message)
                        else:
                            self._lists[message] = None
                            nursery.start_soon(self._list, client, connection, message)
        finally:
            why = "the connection was lost" if self._connection is None else self._connection.why
            open_messages: tuple[Message, ...] = (*self._calls, *self._lists)
            for message in open_messages:
                message.fail(self.unavailable(why))
            self._calls.clear()
            self._lists.clear()

    def _take(self, call: CallTool) -> None:
        if not self._calls:
            self._answered = trio.Event()
        self._calls[call] = None

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[Client, ServerConnection]]:
        async with self._connect() as connection:
            client = Client(
                limited(connection.streams),
                cache=None,
                client_info=types.Implementation(name="greenroom", version=self._version),
                elicitation_callback=self._elicited,
                logging_callback=self._logged,
                message_handler=self._noted,
                log_level="debug" if LOG.isEnabledFor(logging.DEBUG) else None,
            )
            self._connection = connection
            with trio.CancelScope(deadline=trio.current_time() + ANSWERING) as limit:
                async with client:
                    limit.deadline = math.inf
                    self._has_connected = True
                    yield client, connection
            if limit.cancelled_caught:
                raise TimeoutError(f"it did not answer within {ANSWERING:g} s")

    async def _watch(self, connection: ServerConnection) -> None:
        """End the incarnation when the connection is lost; answers that have arrived come to their bodies first."""
        await connection.gone.wait()
        with trio.move_on_after(LAST_ANSWERS):
            if self._calls:
                await self._answered.wait()
        raise ConnectionResetError(connection.why)

    # --- lists -------------------------------------------------------------------------------------------------------

    async def _list(self, client: Client, connection: ServerConnection, message: ListTools) -> None:
        with trio.move_on_after(ANSWERING):
            outcome = await acapture(self._listing, client)
            if not isinstance(outcome, Raised):
                message.reply.send(outcome.value)
            elif connection.is_one and any(map(_is_closed, leaves(outcome.error))):
                message.fail(self.unavailable(await connection.end()))
            else:
                message.fail(self.unavailable(text_of_failure(outcome.error)))
        message.fail(self.unavailable(f"it did not list its tools within {ANSWERING:g} s"))
        del self._lists[message]

    async def _listing(self, client: Client) -> ToolListing:
        tools: list[ServerTool] = []
        seconds, cursor = KEPT_LONGEST, None
        for _ in range(MOST_PAGES):
            page = await client.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            tools += map(_tool, page.tools)
            seconds = min(seconds, page.ttl_ms / 1000 if client.session.initialize_result is None else KEPT)
            cursor = page.next_cursor
            if cursor is None or len(tools) > MOST_TOOLS:
                break
        return ToolListing(tools=tuple(tools), until=trio.current_time() + seconds)

    async def _noted(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.changes += 1

    async def _logged(self, params: types.LoggingMessageNotificationParams) -> None:
        if LOG.isEnabledFor(logging.DEBUG):  # a server may send what nobody has asked for, and large data take long
            self._log(logging.DEBUG, f"{params.level}: {params.data}")

    # --- calls -------------------------------------------------------------------------------------------------------

    async def _call(self, client: Client, connection: ServerConnection, message: CallTool) -> None:
        try:
            with message.scope:
                outcome = await acapture(self._answer, client, message)
                if not isinstance(outcome, Raised):
                    message.reply.send(outcome.value)
                    return
                message.reply.fail(await self._failure(outcome.error, connection))
        finally:
            for question in message.questions:
                self._leave(question)
            self._calls.pop(message, None)
            if not self._calls:
                self._answered.set()

    async def _answer(self, client: Client, message: CallTool) -> ServerAnswer:
        """Send a call, and once more if the server has not looked at it because our list of tools is old."""
        _running.set(message)
        with trio.CancelScope() as silence:
            message.silence, message.idle = silence, self._idle or math.inf
            message.heard()
            try:
                return await self._send(client, message)
            except MCPError as error:
                if error.code != types.HEADER_MISMATCH:
                    raise
            await self._listing(client)
            return await self._send(client, message)
        raise ToolError(f"MCP server {self._server!r} said nothing for {self._idle:g} s.", run_code="run_timeout")

    async def _send(self, client: Client, call: CallTool) -> ServerAnswer:
        parameters = call.call
        request = types.CallToolRequest(
            params=types.CallToolRequestParams.model_validate(
                {
                    "name": parameters.tool,
                    "arguments": parameters.arguments,
                    "inputResponses": parameters.input_responses,
                    "requestState": parameters.request_state,
                    "_meta": parameters.meta,
                }
            )
        )

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            part = progress / total if total else 0.0
            call.heard()
            fraction = 0.0 if math.isnan(part) else min(max(part, 0.0), 1.0)
            _offer(call.steps, Progressed(fraction=fraction, text=shortened(message or "", MESSAGE_LIMIT)))

        call.sent = True
        result = await client.session.send_request(request, _ANSWER, progress_callback=progressed)
        return ServerAnswer(result=result.model_dump(by_alias=True, mode="json", exclude_none=True))

    async def _failure(self, error: BaseException, connection: ServerConnection) -> Exception:
        match error:
            case ToolError():
                return error
            case ValidationError():
                return CallRefused(f"MCP server {self._server!r} has sent an invalid result.", run_code=INVALID)
            case MCPError(code=code) if code == SESSION_GONE:
                connection.lose(error.error.message)
                return self.unavailable(error.error.message)
            case MCPError(code=code) if code == NOT_SENT:
                return self.unavailable(error.error.message)
            case MCPError() if connection.is_one and _is_closed(error):
                return CallCut(await connection.end())
            case MCPError() if not _is_closed(error):
                return CallRefused(f"MCP server {self._server!r} has refused the call: {error.error.message}")
            case _:
                return CallCut(text_of_failure(error))

    async def _elicited(
        self, context: object, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Let the body of the call answer a question of the server."""
        call = self._asking()
        if call is None:
            self._log(logging.WARNING, "it asked for input, and it is unknown for which call; the answer is cancel")
            return types.ElicitResult(action="cancel")
        question = Elicited(params=params.model_dump(by_alias=True, mode="json", exclude_none=True))
        call.questions[question] = None
        call.heard()
        try:
            if not _offer(call.steps, question):
                return types.ElicitResult(action="cancel")
            answer = await question.reply.wait()
            if answer is None:
                return types.ErrorData(code=types.INVALID_REQUEST, message="the call has ended")
            return types.ElicitResult.model_validate(answer)
        finally:
            question.reply.abandon()
            question.scope.cancel()
            del call.questions[question]
            call.heard()

    def _leave(self, question: Elicited) -> None:
        """Give up a question whose call has ended: a server that knows of the end needs no answer.

        One that waits all the same gets an error at last; a careless one might take that for a word to go on.
        """
        self._left.append(question)
        if len(self._left) > MOST_LEFT:
            self._left.popleft().reply.send(None)

    def _asking(self) -> CallTool | None:
        """Return the call for which the server asks."""
        call = _running.get()
        if call is not None:
            return call if call in self._calls else None
        runs = {other.run_id for other in self._calls}
        return next(reversed(self._calls)) if len(runs) == 1 else None


def _offer(steps: trio.MemorySendChannel[CallStep], step: CallStep) -> bool:
    """Put a report where the body reads; return False if the body reads no more, or is too far behind."""
    try:
        steps.send_nowait(step)
    except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
        return False
    return True


def _is_closed(error: BaseException) -> bool:
    if isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED:
        return error.error.message.startswith(_CLOSED)
    return isinstance(error, ConnectionError)


def _tool(tool: types.Tool) -> ServerTool:
    hints = {} if tool.annotations is None else tool.annotations.model_dump(by_alias=True, exclude_none=True)
    return ServerTool(
        name=tool.name,
        description=tool.description or tool.title or "",
        schema=tool.input_schema,
        output_schema=tool.output_schema,
        hints=hints,
    )


def text_of_failure(error: BaseException) -> str:
    """Return why a server is not there, for people."""
    return "; ".join(map(_text_of_leaf, leaves(error)))


def _text_of_leaf(error: BaseException) -> str:
    if isinstance(error, MCPError):
        return shortened(error.error.message, MESSAGE_LIMIT)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"it sent an invalid answer: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error) if isinstance(error, ConnectionResetError | TimeoutError | UsageError) else failure_text(error)
