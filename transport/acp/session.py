"""One ACP session: a thread of the gateway. Its runs are followed, their tickets asked about, the answers decided."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from typing import Final, Literal, assert_never

import attrs
import trio

from greenroom.actors.backends.jsonrpc import INTERNAL_ERROR, Answered, RequestId
from greenroom.actors.contract.decisions import Ticket
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.errors import GreenroomError
from greenroom.actors.runtime.remembering import NOT_REMEMBERED
from greenroom.supervision.nursery import open_collapsing_nursery

from ..client import Client
from ..terminal import text_format
from ..terminal.difference import difference_of
from .editor import Editor, EditorRequest, RequestFailed
from .encoder import AcpEncoder
from .link import GatewayLink
from .questions import EditorQuestion, Unaskable, question_of, verdict_of
from .requests import ClientFeatures
from .updates import Ended, Out, Rested, StopReason, TicketClosed, TicketOpened, Update

DISMISSED: Final = 0.5
"""Seconds from a question that the editor dismisses to the end of the prompt: editors that cancel a prompt dismiss its
questions first, or a moment later."""
TRIES: Final = 3
"""Most times that a form is shown whose content the run refuses."""

_OVER: Final = ("already_decided", "expired", "run_done", "unknown_target")
"""Refusals of a decision about a ticket that is not open any more."""

_log = logging.getLogger("greenroom.acp")


@attrs.define(eq=False)
class _OpenTicket:
    """A ticket of a followed run, and what becomes of it here.

    Attributes:
        state: It is asked about, decided here, dismissed by the editor, or can only be answered elsewhere.
        request: The request to the editor, while it is open.
    """

    ticket: Ticket
    state: Literal["asked", "decided", "dismissed", "elsewhere"] = "asked"
    reason: str = ""
    request: EditorRequest | None = None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, repr=False)


@attrs.frozen(kw_only=True)
class Desk:
    """What the sessions of one editor share.

    Attributes:
        link: The gateway.
        editor: The editor.
        features: What the editor shows.
        where: Run id -> a sentence that says where else to answer.
    """

    link: GatewayLink
    editor: Editor
    features: ClientFeatures
    where: Callable[[str], str]


class FollowedRun:
    """A run that a session follows, until it ends.

    Args:
        desk: What the sessions share.
        session_id: The session.
        run_id: The run.
        prompt: The request that the end of the run answers; None for a run that the session has found.
    """

    def __init__(self, desk: Desk, session_id: str, run_id: str, prompt: RequestId | None = None) -> None:
        self._desk, self._session_id, self.run_id, self.prompt = desk, session_id, run_id, prompt
        self._encoder = AcpEncoder(run_id, notices=desk.features.notices)
        self._tickets: dict[str, _OpenTicket] = {}
        self._resting = False
        self._ended = trio.Event()
        self._cancelled = self._cancelling = False
        self._asking: trio.Nursery | None = None

    def __repr__(self) -> str:
        return f"<FollowedRun {self.run_id}: {len(self._tickets)} open tickets>"

    @property
    def ended(self) -> bool:
        """True after the last update of the run."""
        return self._ended.is_set()

    async def replay(self, last: int, *, shown: bool) -> None:
        """Take the events up to `last`; with `shown`, the editor gets them as history.

        Raises:
            GreenroomError: The run cannot be followed.
        """
        await self._desk.link.call(lambda client: self._replay(client, last, shown=shown))
        await self._replayed(self._encoder.live(), shown=shown)

    async def _replay(self, client: Client, last: int, *, shown: bool) -> None:
        async with client.follow(self.run_id, after=self._encoder.last) as events:
            while self._encoder.last < last:
                await self._replayed(self._encoder.take(await anext(events)), shown=shown)

    async def _replayed(self, outs: list[Out], *, shown: bool) -> None:
        for out in outs:
            match out:
                case Update(fields=fields):
                    self._resting = False
                    if shown:
                        await self._desk.editor.update(self._session_id, fields)
                case TicketOpened(ticket=ticket):
                    self._tickets[ticket.ticket_id] = _OpenTicket(ticket)
                case TicketClosed(ticket_id=ticket_id):
                    self._tickets.pop(ticket_id, None)
                case Rested():
                    self._resting = True
                case Ended():
                    self._ended.set()
                case _:
                    assert_never(out)

    async def follow(self) -> None:
        """Follow the run from where it is to its end; answer the prompt at the end, or before it with an error."""
        try:
            async with open_collapsing_nursery() as nursery:
                self._asking = nursery
                for ticket in tuple(self._tickets.values()):
                    nursery.start_soon(self._ask, ticket)
                self._encoder.live()
                await self._desk.link.call(lambda client: self._follow(client, nursery))
                nursery.cancel_scope.cancel()
        except GreenroomError as error:
            await self._answer_with(RequestFailed(INTERNAL_ERROR, str(error), {"runId": self.run_id}))
        finally:
            self._asking = None
            self._ended.set()

    def ask_again(self) -> None:
        """Ask again about the tickets whose questions the editor has dismissed: the person is there again."""
        for ticket_id, opened in tuple(self._tickets.items()):
            if opened.state == "dismissed" and self._asking is not None:
                self._tickets[ticket_id] = again = _OpenTicket(opened.ticket)
                self._asking.start_soon(self._ask, again)

    async def _follow(self, client: Client, nursery: trio.Nursery) -> None:
        async with client.follow(self.run_id, after=self._encoder.last) as events:
            async for event in events:
                for out in self._encoder.take(event):
                    await self._take(out, nursery)

    async def cancel(self) -> None:
        """Cancel the run, and withdraw its questions; nothing happens while an earlier cancel is on its way.

        Raises:
            GreenroomError: The gateway does not answer, or refuses.
        """
        if self._cancelling:
            return
        self._cancelled = self._cancelling = True
        try:
            for ticket in tuple(self._tickets.values()):
                await self._withdraw(ticket)
            command_id = secrets.token_hex(16)
            await self._desk.link.call(lambda client: client.cancel(self.run_id, command_id=command_id))
        finally:
            self._cancelling = False

    async def wait_ended(self) -> None:
        """Wait until the run is over, or cannot be followed."""
        await self._ended.wait()

    # --- events ------------------------------------------------------------------------------------------------------

    async def _take(self, out: Out, nursery: trio.Nursery) -> None:
        match out:
            case Update(fields=fields):
                self._resting = False
                await self._desk.editor.update(self._session_id, fields)
            case TicketOpened(ticket=ticket):
                self._tickets[ticket.ticket_id] = opened = _OpenTicket(ticket)
                nursery.start_soon(self._ask, opened)
            case TicketClosed(ticket_id=ticket_id):
                settled = self._tickets.pop(ticket_id, None)
                if settled is not None:
                    await self._withdraw(settled)
            case Rested():
                self._resting = True
                await self._hand_over()
            case Ended():
                await self._end(out)
            case _:
                assert_never(out)

    async def _end(self, end: Ended) -> None:
        if self._cancelled:  # whatever came first: the protocol demands this answer to a cancel
            await self._respond("cancelled", end.meta)
        elif end.failure is not None:
            error = RequestFailed(INTERNAL_ERROR, f"{end.failure['code']}: {end.failure['message']}", end.failure)
            await self._answer_with(error)
        else:
            await self._respond(end.stop, end.meta)

    async def _respond(self, stop: StopReason | None, meta: JSONObject) -> None:
        prompt, self.prompt = self.prompt, None
        if prompt is not None:
            await self._desk.editor.respond(prompt, {"stopReason": stop, "_meta": meta})

    async def _answer_with(self, error: RequestFailed) -> None:
        """Report an error: to the prompt, otherwise as a notice."""
        if self.prompt is not None:
            prompt, self.prompt = self.prompt, None
            await self._desk.editor.fail(prompt, error)
        else:
            await self._notice("error", str(error))

    async def _notice(self, severity: str, text: str) -> None:
        if self._desk.features.notices:
            fields = {"sessionUpdate": "notice", "severity": severity, "title": text_format.one_line(text, 500)}
            await self._desk.editor.update(self._session_id, fields)
        else:
            _log.warning("%s: %s", self.run_id, text)

    # --- tickets -----------------------------------------------------------------------------------------------------

    async def _ask(self, opened: _OpenTicket) -> None:
        """Ask about a ticket until it is decided, here or elsewhere, or the editor dismisses the question."""
        with opened.scope:
            note = ""
            for _ in range(TRIES):
                asking = await self._question(opened.ticket, note)
                if isinstance(asking, Unaskable):
                    opened.state, opened.reason = "elsewhere", asking.reason
                    break
                opened.request = await self._desk.editor.ask(asking.method, asking.params)
                note = await self._decide(asking, await opened.request.wait(), opened)
                if opened.state != "asked":
                    break
            else:
                opened.state, opened.reason = "elsewhere", note
            if opened.state == "dismissed" and not self._cancelled:
                await trio.sleep(DISMISSED)
            await self._hand_over()
        if opened.scope.cancelled_caught and opened.request is not None:  # it may have been sent meanwhile
            await self._desk.editor.withdraw(opened.request)

    async def _question(self, ticket: Ticket, note: str) -> EditorQuestion | Unaskable:
        client = await self._desk.link.client()
        change = await self._desk.link.call(lambda client: difference_of(client, ticket))
        return question_of(
            ticket,
            self._session_id,
            self._encoder.call_name(ticket.call_id or ticket.ticket_id),
            principal=client.principal,
            forms=self._desk.features.forms,
            change=change,
            note=note,
        )

    async def _decide(self, question: EditorQuestion, answer: Answered, opened: _OpenTicket) -> str:
        """Decide as the editor has answered; return why the run refuses an answer that another one may replace."""
        verdict = None if answer.code is not None else verdict_of(question, answer.result)
        if verdict is None:
            opened.state = "dismissed"
            return ""
        opened.state = "decided"
        decision = attrs.evolve(verdict.decision, decision_id=secrets.token_hex(16))
        result = await self._desk.link.call(
            lambda client: client.decide(self.run_id, decision, remember=verdict.remember)
        )
        if result.code == NOT_REMEMBERED:
            await self._notice("warning", result.detail or "The answer was not remembered.")
        if result.ok or result.code in _OVER:
            return ""
        refusal = f"not accepted ({result.code}): {result.detail or 'no reason was given'}"
        if result.code == "invalid_result":
            opened.state = "asked"
        else:
            opened.state, opened.reason = "elsewhere", refusal
        return refusal

    async def _withdraw(self, opened: _OpenTicket) -> None:
        if opened.state != "decided":
            opened.scope.cancel()
        if opened.request is not None:
            await self._desk.editor.withdraw(opened.request)

    async def _hand_over(self) -> None:
        """End the prompt of a run that waits for what this editor does not decide; the run is followed further."""
        open_tickets = tuple(self._tickets.values())
        if (
            not self._resting
            or not open_tickets
            or self._cancelled
            or any(opened.state in ("asked", "decided") for opened in open_tickets)
        ):
            return
        if self.prompt is None:
            return
        lines = [f"The run waits for {text_format.plural(len(open_tickets), 'decision')}:"]
        for opened in open_tickets:
            words = filter(None, (text_format.one_line(opened.ticket.message, 200), opened.reason))
            lines.append(f"- {text_format.subject(opened.ticket.tool)}: {' '.join(words)}")
        text = {"type": "text", "text": "\n".join([*lines, self._desk.where(self.run_id)])}
        fields = {"sessionUpdate": "agent_message_chunk", "messageId": f"{self.run_id}:waits", "content": text}
        await self._desk.editor.update(self._session_id, fields)
        await self._respond("end_turn", {"greenroom/run": self.run_id})
