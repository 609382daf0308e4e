"""`CallStream`: the messages of one call as server-sent events, until the call is answered.

Theory of operation. The stream folds the events of the run, and reads the rows when events say that tickets have
changed, or when the run is at rest. The two eras differ in what answers a call:

| | handshake era | modern era |
|---|---|---|
| the run has ended | the result | the result |
| open tickets that the client may decide | a question each, and the stream goes on | `input_required` |
| at rest, with other tickets only | an error that says who decides | the same |
| the time of the call is over | how the run is | how the run is, or its task |
| the gateway stops | nothing: the client resumes, in any process | an error |

The stream holds nothing that a restart could lose: another process makes the same messages from log and rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

import attrs
import msgspec
import trio

import greenroom as gr
from greenroom.actors.contract.decisions import Ticket
from greenroom.actors.contract.envelope import decode_event, event_type
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.services.services import retry_until_available

from ...gateway.access import Principal
from ...gateway.http import Streamed
from ...protocol.sealed import seal
from . import encoder as mcp
from .commands import cancel
from .forms import form
from .messages import HANDSHAKE, INTERNAL, MODERN, REFUSED, RUN, McpCapabilities, McpFault, RequestId
from .reading import askable, ended_result, may_read, open_tickets, time_of
from .results import failed, waiting

if TYPE_CHECKING:
    from ...gateway.gateway import Gateway

EVENT: Final = "mcp event"
"""Purpose of the ids of events: (run, request id, sequence, progress token, kind of call)."""
QUESTION: Final = "mcp question"
"""Purpose of the ids of questions: (run, ticket, fingerprint)."""
STATE: Final = "mcp state"
"""Purpose of `requestState`: (run, {key of a form: (ticket, fingerprint)})."""
RETRY: Final = 1_000
"""Milliseconds before a client resumes a torn stream."""
BEAT: Final = 15.0
"""Seconds of silence before a progress says that the call goes on; many clients give a call up after 60."""

_encode = msgspec.json.Encoder().encode

Kind = Literal["call", "task", "result"]
_Sequence = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
EventId = tuple[str, RequestId, _Sequence, RequestId | None, Kind, bool]
Question = tuple[str, str, str]
RequestState = tuple[str, dict[str, tuple[str, str]]]
"""The data of the sealed texts."""


@attrs.frozen(kw_only=True)
class McpCall:
    """One call of a tool.

    Attributes:
        request_id: The client's id of the call.
        run_id: The run of the call.
        version: The revision of the protocol.
        capabilities: What the client can do.
        token: The client's progress token.
        kind: "task": the call may answer with its task; "result": it reads a run, and neither asks nor cancels.
        wait: Seconds for the call; None: as long as the run takes.
        structured: The tool has an output schema.
        after: The newest event that the client has had.
        dismissed: Ticket id -> why the client's answer about it decided nothing.
    """

    request_id: RequestId
    run_id: str
    version: str
    capabilities: McpCapabilities
    token: RequestId | None = None
    kind: Kind = "call"
    wait: float | None = None
    structured: bool = False
    after: int = 0
    dismissed: dict[str, str] = attrs.field(factory=dict)

    @property
    def modern(self) -> bool:
        """True for the era without a handshake."""
        return self.version == MODERN


class CallStream:
    """The messages of one call: an iterator of chunks, for one pass.

    Args:
        gateway: Source of events and rows.
        who: The client.
        call: The call.
        late: Returns the answer when the time of the call is over.
    """

    def __init__(
        self, gateway: Gateway, who: Principal, call: McpCall, late: Callable[[], Awaitable[JSONObject]]
    ) -> None:
        self._gateway, self._who, self._call, self._late = gateway, who, call, late
        self._state = mcp.begin(call.request_id, token=call.token, after=call.after)
        self._dismissed = dict(call.dismissed)
        self._begun = self._visible = False
        self._until = trio.current_time() + call.wait if call.wait is not None else float("inf")
        self._beat_at = self._next_beat()
        self._waiting = trio.CancelScope()
        self._follower: gr.Follower

    def __repr__(self) -> str:
        return f"<CallStream of {self._call.run_id}>"

    def response(self) -> Streamed:
        """Return the response."""
        cancels = self._call.modern and self._call.kind != "result"
        abandoned = self._abandoned if cancels else None
        return Streamed(chunks=self.open, last=self.last, abandoned=abandoned, run=self._call.run_id)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncIterator[bytes]]:
        """Follow the run while the response is open."""
        run_id = self._call.run_id
        with ExitStack() as stack:
            reader = self._gateway.runtime.reader
            self._follower = stack.enter_context(reader.follow(run_id, after=self._call.after, until="rest"))
            stack.callback(self._gateway.questions.listen(self._who, run_id, self._answered))
            yield self

    def last(self) -> bytes:
        """Return the end of the stream for a stopping gateway."""
        if self._state.ended or not self._call.modern:
            return b""
        return self._end(self._stopped("closing", "the server stops"))

    async def _abandoned(self) -> None:
        """Cancel the run: a closed response stream is the modern era's cancel."""
        if not self._state.ended:
            await cancel(self._gateway, self._who, self._call.run_id, "the client has closed its call")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._state.ended:
            raise StopAsyncIteration
        if not self._begun:
            self._begun = True
            if head := self._head():
                return head
        try:
            await self._check_visible()
            while not (chunk := await self._next()):
                pass
        except (gr.RunDegradedError, gr.UnknownRun) as error:
            return self._end(failed(str(error), self._call.run_id))
        except (gr.StoreError, gr.RuntimeClosed) as error:
            return self._broken(error)
        self._beat_at = self._next_beat()
        return chunk

    async def _check_visible(self) -> None:
        """Check that the client may read the run: a sealed text gives no right, for its token's owner can make one.

        Raises:
            UnknownRun: The client may not, or the run was pruned.
        """
        if not self._visible:
            info = await retry_until_available(self._gateway.runtime.reader.info, self._call.run_id)
            if info is None or not may_read(self._who, info):
                raise gr.UnknownRun(self._call.run_id)
            self._visible = True

    async def _next(self) -> bytes:
        """Return the next chunk; empty if there is none yet."""
        follower = self._follower
        notice = follower.signal.change()
        events = await retry_until_available(follower.fetch)
        if events is not None:
            return self._folded(events)
        at_rest = await retry_until_available(follower.finished)
        if (at_rest or self._state.stale) and (chunk := await self._looked()):
            return chunk
        if follower.behind():
            return b""
        return await self._waited(notice)

    def _head(self) -> bytes:
        """Return the empty event that makes a stream resumable before its first message."""
        if self._call.version != HANDSHAKE[0]:
            return b""  # older clients read the data of each event as JSON
        return b"retry: %d\nid: %b\ndata: \n\n" % (RETRY, self._event_id())

    def _folded(self, events: gr.EventSlice) -> bytes:
        chunks = list[bytes]()
        for frame in events.frames:
            if event_type(frame) in mcp.READ:
                self._state, messages = mcp.step(self._state, decode_event(frame))
                chunks.append(self._framed(messages))
        self._state = mcp.passed(self._state, events.last)
        return b"".join(chunks)

    # --- rows --------------------------------------------------------------------------------------------------------

    async def _looked(self) -> bytes:
        """Read the rows, and return what follows from them."""
        call, reader = self._call, self._gateway.runtime.reader
        record = await retry_until_available(reader.record, call.run_id)
        if record is None:
            raise gr.UnknownRun(call.run_id)
        if record.row.status is RunStatus.DONE:
            result = await retry_until_available(ended_result, self._gateway, call.run_id, structured=call.structured)
            return self._end(result or failed(f"the run {call.run_id} was pruned", call.run_id))
        tickets = await open_tickets(self._gateway, record)
        return await self._asked(tickets, at_rest=record.at_rest)

    async def _asked(self, tickets: Sequence[Ticket], *, at_rest: bool) -> bytes:
        call = self._call
        questions = [ticket for ticket in tickets if self._may_ask(ticket)]
        if call.kind == "result":
            questions = []
        elif at_rest and tickets and not questions:
            if call.kind == "task":
                return self._end(await self._late())
            return self._end(waiting(call.run_id, tickets, self._dismissed.values()))
        elif call.modern and questions and at_rest:
            return self._end(self._input_required(questions))
        asked = () if call.modern else questions
        self._state, messages = mcp.ask(self._state, [self._question(ticket) for ticket in asked])
        return self._framed(messages)

    def _may_ask(self, ticket: Ticket) -> bool:
        """Return True if the client's person can and may decide a ticket, and has not dismissed the question."""
        asks = askable(self._who, self._call.capabilities, ticket)
        return asks and ticket.ticket_id not in self._dismissed

    def _question(self, ticket: Ticket) -> mcp.Elicitation:
        name = seal(QUESTION, [self._call.run_id, ticket.ticket_id, ticket.fingerprint], self._who.token)
        return mcp.Elicitation(id=name, ticket_id=ticket.ticket_id, params=self._form(ticket))

    def _form(self, ticket: Ticket) -> JSONObject:
        return form(ticket, lists=self._call.capabilities.lists)

    def _input_required(self, tickets: Sequence[Ticket]) -> JSONObject:
        asked = {ticket.ticket_id: [ticket.ticket_id, ticket.fingerprint] for ticket in tickets}
        requests = {
            ticket.ticket_id: {"method": "elicitation/create", "params": self._form(ticket)} for ticket in tickets
        }
        return {
            "resultType": "input_required",
            "inputRequests": requests,
            "requestState": seal(STATE, [self._call.run_id, asked], self._who.token),
            "_meta": {RUN: self._call.run_id},
        }

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def _waited(self, notice: trio.Event) -> bytes:
        """Wait for a change of the run, an answer of the client, or the next beat."""
        self._waiting = trio.CancelScope(deadline=min(self._until, self._beat_at))
        if not self._state.stale:
            with self._waiting:
                await notice.wait()
        if trio.current_time() >= self._until:
            return self._end(await self._late())
        if trio.current_time() < self._beat_at:
            return b""
        self._beat_at = self._next_beat()
        self._state, messages = mcp.beat(self._state, await self._silence())
        return self._framed(messages)

    def _next_beat(self) -> float:
        return float("inf") if self._call.token is None else trio.current_time() + BEAT

    async def _silence(self) -> float:
        """Return the seconds since the newest event, by the log, so that each process finds the same."""
        newest = await retry_until_available(time_of, self._gateway, self._call.run_id, self._state.sequence)
        return 0.0 if newest is None else (self._gateway.runtime.clock.now() - newest).total_seconds()

    def _answered(self, ticket_id: str, why_not: str | None) -> None:
        self._state = mcp.answered(self._state, ticket_id)
        if why_not is not None:
            self._dismissed[ticket_id] = f"{ticket_id}: {why_not}"
        self._waiting.cancel()

    # --- ends --------------------------------------------------------------------------------------------------------

    def _broken(self, error: Exception) -> bytes:
        """Return the end of a stream whose run cannot be followed any more."""
        if isinstance(error, gr.StoreError) and not isinstance(
            error, gr.StoreUnavailable | gr.StoreDown | gr.LogReplaced
        ):
            self._gateway.log_failure(self, error)  # an unreadable log does not become readable by itself
            return self._end(McpFault(INTERNAL, f"the log of the run {self._call.run_id} cannot be read"))
        if self._call.modern:
            return self._end(self._stopped("store_unavailable", str(error)))
        raise StopAsyncIteration  # without an answer: the client resumes

    def _stopped(self, code: str, why: str) -> McpFault:
        run_id = self._call.run_id
        text = f"{why}; the run {run_id} goes on: call again with _meta {RUN} = {run_id}"
        return McpFault(REFUSED, text, data={"code": code, RUN: run_id})

    def _end(self, answer: JSONObject | McpFault) -> bytes:
        if self._call.modern and not isinstance(answer, McpFault):
            answer = {"resultType": "complete", **answer}
        self._state, messages = mcp.end(self._state, answer)
        return self._framed(messages)

    def _framed(self, messages: Sequence[JSONObject]) -> bytes:
        """Encode messages as server-sent events, each with the id of the newest event behind which the call goes on."""
        if not messages:
            return b""
        name = b"" if self._call.modern else b"id: %b\n" % self._event_id()
        return b"".join([b"%bdata: %b\n\n" % (name, _encode(message)) for message in messages])

    def _event_id(self) -> bytes:
        call = self._call
        data = [call.run_id, call.request_id, self._state.sequence, call.token, call.kind, call.structured]
        return seal(EVENT, data, self._who.token).encode()
