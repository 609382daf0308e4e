"""What is said between the bodies of calls, the actor of an MCP server and its transport."""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

import attrs
import trio

from greenroom.supervision import Reply

from ..contract.plain import JSONObject
from ..errors import GreenroomError, ToolError

LAST_ANSWERS: Final = 3.0
"""Seconds for the calls to end whose answers have arrived before the connection broke."""
MOST_STEPS: Final = 64
"""Reports of a call that wait for its body; more are dropped, for the newest ones count."""
NOT_SENT: Final = -39_001
"""Our own code of an error: the transport could not send the request."""
SESSION_GONE: Final = -39_002
"""Our own code of an error: the server has refused the request because it knows the session no more."""


class ServerUnavailable(ToolError):
    """The server is not there; nothing was sent."""

    def __init__(self, text: str) -> None:
        super().__init__(text, run_code="runtime_unavailable")


class CallCut(GreenroomError):
    """The connection was lost after a call was sent: whether it took effect is unknown."""


class CallRefused(ToolError):
    """The server has answered a call with an error of the protocol."""


@attrs.frozen(kw_only=True)
class ServerTool:
    """A tool as its server lists it.

    Attributes:
        name: The server's name of the tool.
        description: Its description, or its title.
        schema: JSON Schema of the arguments.
        output_schema: JSON Schema of the structured content; None: the server gives none.
        hints: The annotations.
    """

    name: str
    description: str
    schema: JSONObject
    output_schema: JSONObject | None
    hints: JSONObject


@attrs.frozen(kw_only=True)
class ToolListing:
    """The tools of a server.

    Attributes:
        tools: In the server's order.
        until: trio's time from which on the server is asked again.
    """

    tools: tuple[ServerTool, ...]
    until: float


@attrs.frozen(kw_only=True)
class Progressed:
    """A report about a call.

    Attributes:
        fraction: The part that is done, 0.0 to 1.0; 0.0 if the server names no total.
        text: A few words.
    """

    fraction: float
    text: str


@attrs.define(eq=False, repr=False, kw_only=True)
class Elicited:
    """A question of the server in the middle of a call, in the handshake era.

    The body answers with `reply.send({"action": "accept" | "decline" | "cancel", "content": {...}})`. `scope` is
    cancelled when the server does not wait any more, or the call ends.

    Attributes:
        params: The parameters of `elicitation/create`, as they stand in JSON.
    """

    params: JSONObject
    reply: Reply[JSONObject | None] = attrs.field(factory=Reply)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def __repr__(self) -> str:
        return f"<Elicited, {self.reply!r}>"


CallStep: TypeAlias = Progressed | Elicited
"""What happens in the middle of a call."""


@attrs.frozen(kw_only=True)
class ServerAnswer:
    """The answer of a server, as it stands in JSON.

    Attributes:
        result: A `CallToolResult`; or, in the modern era, one with resultType "input_required", inputRequests and
            requestState: the call is repeated with `input_responses` and `request_state`.
    """

    result: JSONObject

    @property
    def asks(self) -> bool:
        """Whether the server needs input before the call can end."""
        return self.result.get("resultType") == "input_required"


@attrs.frozen(kw_only=True)
class CallArguments:
    """What is sent for a call.

    Attributes:
        tool: The server's name of the tool.
        arguments: The arguments.
        meta: `_meta` of the request.
        input_responses: Answers to the inputRequests of the call before, by their keys.
        request_state: The requestState of the call before.
    """

    tool: str
    arguments: JSONObject
    meta: JSONObject
    input_responses: JSONObject | None = None
    request_state: str | None = None


@attrs.define(eq=False, repr=False, kw_only=True)
class ListTools:
    """Asks for the tools."""

    reply: Reply[ToolListing]

    def __repr__(self) -> str:
        return "<ListTools>"

    def fail(self, error: Exception) -> None:
        """Fail, nothing having been sent."""
        self.reply.fail(error)


@attrs.define(eq=False, repr=False, kw_only=True)
class CallTool:
    """Asks for a call of a tool.

    Attributes:
        reply: The answer.
        call: What to send.
        run_id: The run of the call.
        steps: Takes what happens meanwhile.
        scope: Cancelled by the asker.
        sent: Whether the server may have read the call.
        questions: Open questions of the server; while there is one, it waits for people, and may be silent.
        silence, idle: The scope that ends when nothing was said about the call for `idle` seconds.
    """

    reply: Reply[ServerAnswer]
    call: CallArguments
    run_id: str
    steps: trio.MemorySendChannel[CallStep]
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    sent: bool = False
    questions: dict[Elicited, None] = attrs.field(factory=dict)
    silence: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    idle: float = math.inf

    def __repr__(self) -> str:
        return f"<CallTool {self.call.tool!r} for run {self.run_id}>"

    def heard(self) -> None:
        """Note that the server has said something about the call."""
        self.silence.deadline = math.inf if self.questions else trio.current_time() + self.idle

    def fail(self, error: Exception) -> None:
        """Fail: as cut if the server may have read the call."""
        self.reply.fail(CallCut(str(error)) if self.sent else error)


Message: TypeAlias = ListTools | CallTool


@attrs.define(eq=False, repr=False, kw_only=True)
class ServerConnection:
    """A connection to a server, as a transport opens it.

    Attributes:
        streams: What the SDK's client enters.
        gone: Set when the connection is lost; never, of a server without one connection.
        is_one: There is one connection, which ends with the program; else each request has its own.
        why: Why it was lost.
    """

    streams: Any
    gone: trio.Event = attrs.field(factory=trio.Event)
    is_one: bool = False
    why: str = "the connection was lost"

    def lose(self, why: str) -> None:
        """Note that the connection is lost."""
        if not self.gone.is_set():
            self.why = why
            self.gone.set()

    async def end(self) -> str:
        """Return why the connection is lost: the end of a program says more than that of its pipe, and comes later."""
        with trio.move_on_after(LAST_ANSWERS):
            await self.gone.wait()
        return self.why

    def __repr__(self) -> str:
        return f"<ServerConnection{' lost' if self.gone.is_set() else ''}>"
