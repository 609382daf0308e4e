"""`connect` and `Client`: a gateway as a program on trio uses it."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal, overload

import attrs

from greenroom.actors.contract.decisions import ActionWord, CommandResult, Decision, decision_of
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.entry import checks_options
from greenroom.actors.errors import UsageError
from greenroom.actors.options import unknown_value
from greenroom.actors.run.sanitize import InvalidValue, data_of, input_of, object_of, text_of
from greenroom.actors.run.view import RunView
from greenroom.supervision.nursery import open_collapsing_nursery

from ..protocol.down import Ack, Error
from ..protocol.limits import Limits
from ..protocol.up import MAX_ID, Cancel, Decide, Pause, RunCommand, Send, Start, Watch
from . import frames, http_requests
from .connection import Connection, ConnectionState
from .endpoint import read_endpoint
from .errors import refusal
from .event_iterator import EventIterator, OnReset
from .run_lists import PREFIX, ListedRuns, Order, RunListIterator
from .timing import ConnectionTiming

_DECIDE: Final = ("result", "edited_arguments", "reason", "fingerprint", "decision_id")


@attrs.frozen(kw_only=True)
class StartedRun:
    """A run that was started. duplicate: it was there already; `start` was repeated."""

    run_id: str
    thread_id: str
    duplicate: bool


class Client:
    """A gateway, as `connect` gives it. Any number of tasks may use it at once.

    A request that is made while there is no connection waits for the next one. None has a timeout: put it into a
    cancel scope.
    """

    def __init__(self, link: Connection) -> None:
        self._link = link

    def __repr__(self) -> str:
        """Where the gateway is, and whether there is a connection."""
        return f"<Client of {self._link!r}>"

    @property
    def url(self) -> str:
        """Where the gateway is."""
        return self._link.address.url

    @property
    def state(self) -> ConnectionState:
        """How the connection stands now."""
        return self._link.state

    @property
    def principal(self) -> str:
        """Who the gateway says we are."""
        return "" if self._link.welcome is None else self._link.welcome.principal

    @property
    def epoch(self) -> str:
        """Of the gateway's log: keep it beside your cursors, and give both to `follow`."""
        return self._link.runs.epoch

    # --- following ---------------------------------------------------------------------------------------------------

    def follow(
        self, run_id: str, *, after: int = 0, epoch: str | None = None, on_reset: OnReset = "raise"
    ) -> AbstractAsyncContextManager[EventIterator]:
        """Follow a run: `async with client.follow(run_id) as events: async for event in events: ...`.

        Each event comes exactly once and in order, from sequence `after + 1` on, through any number of connections.
        The iteration ends after the terminal event. At most 1,024 events (or 4 MB) wait for it: a slow reader is served
        in stretches, holds nobody up, and loses nothing. A run may be followed several times at once, each with its own
        cursor.

        Args:
            run_id: whose events.
            after: sequence of the last event that is known (applied, not only received).
            epoch: of the log that `after` belongs to, from `client.epoch`; None: the gateway's present one.
            on_reset: what happens if the cursor is not of the gateway's log: "raise" LogReset from the iteration, or
                "continue" with the events after the snapshot in `events.reset`.

        Raises:
            UsageError: an argument can not be. ConnectError: there is no connection any more.
            UnknownRun, RunDegraded, LogReset, NotAllowed, RequestRefused, ConnectError: from the iteration, after
                everything that came before.
        """
        if type(after) is not int or not 0 <= after < 2**53 or on_reset not in ("raise", "continue"):
            raise UsageError(
                f"follow(after={after!r}, on_reset={on_reset!r}): give after >= 0 and on_reset 'raise' or 'continue'"
            )
        self._link.check()
        return self._follow(_checked(run_id, "run_id"), after, epoch, on_reset)

    @asynccontextmanager
    async def _follow(
        self, run_id: str, after: int, epoch: str | None, on_reset: OnReset
    ) -> AsyncIterator[EventIterator]:
        link = self._link
        events = EventIterator(run_id, after=after, epoch=epoch, on_reset=on_reset, poke=link.poke)
        link.runs.join(run_id, events)
        link.poke()
        try:
            yield events
        finally:
            link.runs.leave(run_id, events)
            link.poke()

    # --- commands ----------------------------------------------------------------------------------------------------

    @overload
    async def decide(self, run_id: str, target: Decision, /) -> CommandResult: ...
    @overload
    async def decide(
        self,
        run_id: str,
        target: str,
        action: ActionWord,
        /,
        *,
        result: object = None,
        edited_arguments: JSONObject | None = None,
        reason: str | None = None,
        fingerprint: str | None = None,
        decision_id: str | None = None,
    ) -> CommandResult: ...
    async def decide(self, run_id: str, target: object, action: object = None, /, **options: object) -> CommandResult:
        """Decide about a ticket or call. The answer says what became of it; a wrong decision never raises.

        Accepted means durable: the decision acts exactly once, whatever crashes. Cancelled, it may have been sent or
        not: repeat it with its `decision_id`, and the answer is "duplicate" if it was.

        Args:
            run_id: of the run.
            target: a ticket id, a call id, or a whole Decision (`ticket.approve()`, `ticket.deny()`).
            action: "approve" or "deny"; "resume" and "cancel" mean the same.
            options: result, edited_arguments, reason, fingerprint (of the ticket that was looked at), decision_id.

        Raises:
            ValueError: the action or an option is not known, options stand beside a whole Decision, or the id can not
                be. ConnectError: there is no connection any more.
        """
        decision = decision_of(target, action, options, _DECIDE)
        id_ = _id(decision.decision_id)
        edited = decision.edited_arguments
        try:
            edited = None if edited is None else object_of(edited, "edited_arguments")
        except InvalidValue as error:
            return _rejected(id_, "invalid_arguments", f"{error}; give an object of plain JSON data")
        try:
            result = data_of(decision.result, "the result")
        except InvalidValue as error:
            return _rejected(id_, "invalid_result", f"{error}; give plain JSON data")
        return await self._command(
            Decide(
                id=id_,
                run=_checked(run_id, "run_id"),
                target=_checked(decision.target, "target"),
                action=decision.action,
                result=result,
                edited_arguments=edited,
                reason=_text(decision.reason, "reason"),
                fingerprint=_text(decision.fingerprint, "fingerprint"),
            )
        )

    async def cancel(
        self,
        run_id: str,
        *,
        mode: Literal["now", "after_step"] = "now",
        reason: str | None = None,
        command_id: str | None = None,
    ) -> CommandResult:
        """Ask a run to end. Accepted means durable. Cancelled, it may have been sent: repeat it with its `command_id`.

        Raises:
            ValueError: the mode is not known, or the id can not be. ConnectError: there is no connection any more.
        """
        if mode not in ("now", "after_step"):
            raise unknown_value("mode", mode, ("now", "after_step"))
        run = _checked(run_id, "run_id")
        return await self._command(Cancel(id=_id(command_id), run=run, mode=mode, reason=_text(reason, "reason")))

    async def pause(self, run_id: str, *, reason: str | None = None, command_id: str | None = None) -> CommandResult:
        """Hold a run before its next step, or at once if it waits; then its own ticket (call_id None) is to be decided.

        Accepted means durable. Cancelled, it may have been sent: repeat it with its `command_id`.

        Raises:
            UsageError: the id can not be. ConnectError: there is no connection any more.
        """
        run = _checked(run_id, "run_id")
        return await self._command(Pause(id=_id(command_id), run=run, reason=_text(reason, "reason")))

    async def send(self, run_id: str, text: str, *, command_id: str | None = None) -> CommandResult:
        """Give a run more input. Accepted means durable. Cancelled, it may have been sent: repeat it with its id.

        Raises:
            UsageError: the text is blank or no str; the id can not be. ConnectError: there is no connection any more.
        """
        run = _checked(run_id, "run_id")
        return await self._command(Send(id=_id(command_id), run=run, text=input_of(text, "the text")))

    async def start(
        self,
        agent: str,
        text: str,
        *,
        run_id: str | None = None,
        thread_id: str | None = None,
        session_id: str | None = None,
        on_busy: Literal["queue", "refuse"] = "queue",
        title: str | None = None,
        command_id: str | None = None,
    ) -> StartedRun:
        """Start a run; it is durable when this returns.

        Cancelled, it may have been started or not: repeat it with its `command_id` (and the same content), which starts
        it once.

        Args:
            agent: key of an agent that the server knows.
            text: what it is asked; not blank.
            run_id: of the new run; made by the gateway if None.
            thread_id: the thread it joins; a new one if None.
            session_id: for your own bookkeeping.
            on_busy: what happens if the thread has an active run.
            title: one line for lists of runs; the first line of the text if None.
            command_id: of this request.

        Raises:
            UsageError: an argument can not be. UnknownAgent: no agent has this key. RunExists: the id is another run's.
            ThreadBusy: the thread is busy and on_busy is "refuse". NotAllowed: without the scope.
            StoreUnavailable: not started. ConnectError: there is no connection any more.
        """
        if on_busy not in ("queue", "refuse"):
            raise UsageError(f"on_busy={on_busy!r} is not known; use 'queue' or 'refuse'")
        order = Start(
            id=_id(command_id),
            agent=_checked(agent, "agent"),
            text=input_of(text, "the text"),
            run=_text(run_id, "run_id"),
            thread=_text(thread_id, "thread_id"),
            session=_text(session_id, "session_id"),
            on_busy=on_busy,
            title=None if title is None else input_of(title, "the title"),
        )
        answer = await self._ask(order)
        if isinstance(answer, Error):
            run = run_id or ""
            raise refusal(answer.code, answer.message, run_id=run, retry=answer.retry, current=answer.current)
        return StartedRun(run_id=answer.run, thread_id=answer.thread or "", duplicate=answer.status == "duplicate")

    async def _command(self, order: RunCommand) -> CommandResult:
        answer = await self._ask(order)
        if isinstance(answer, Error):
            return _rejected(order.id, answer.code, answer.message)
        return CommandResult(status=answer.status, code=answer.code, command_id=order.id)

    async def _ask(self, order: RunCommand | Start) -> Ack | Error:
        self._link.check()
        text = frames.write(order)
        welcome = self._link.welcome
        most = (welcome.limits if welcome else {}).get("message_bytes", Limits().message_bytes)
        size = len(text.encode())
        if size > most:
            reason = (
                f"the request has {size:,} bytes and the gateway takes {most:,.0f}; POST it to /v1/runs, or shorten it"
            )
            return Error(code="too_big", message=reason, id=order.id)
        return await self._link.calls.ask(order.id, text)

    # --- looking -----------------------------------------------------------------------------------------------------

    async def view(self, run_id: str) -> RunView:
        """One consistent snapshot of a run, over HTTP. Its messages and state are private, and empty here.

        Raises:
            UnknownRun: no such run, or none that this principal may see. NotAllowed: without the scope `follow`.
            NotReachable: nobody answers now. ConnectError: there is no connection any more.
        """
        run_id = _checked(run_id, "run_id")
        return http_requests.view_of(self._link.address, await self._get(http_requests.run_path(run_id), run_id=run_id))

    async def runs(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        by: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        text: str | None = None,
        order: Order = "newest",
        limit: int = 50,
        cursor: str | None = None,
        counts: bool = False,
    ) -> ListedRuns:
        """A page of the runs that this principal may see, over HTTP. The filters are those of `Runtime.runs`.

        Raises:
            UsageError: an argument can not be. NotAllowed: without the scope `follow`.
            NotReachable: nobody answers now. ConnectError: there is no connection any more.
        """
        query = {
            "status": status,
            "agent": agent,
            "thread": thread_id,
            "prefix": prefix,
            "by": by,
            "since": _moment(since, "since"),
            "until": _moment(until, "until"),
            "text": text,
            "order": order,
            "limit": limit,
            "cursor": cursor,
            "counts": "true" if counts else None,
        }
        return http_requests.lines_of(self._link.address, await self._get("/v1/runs", query))

    def watch_runs(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        thread_id: str | None = None,
        prefix: str | None = None,
        by: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        text: str | None = None,
        order: Order = "newest",
        limit: int = 50,
    ) -> AbstractAsyncContextManager[RunListIterator]:
        """Watch a list of runs: `async with client.watch_runs(...) as changes: async for change in changes: ...`.

        The first change is a `ListedRuns`: the first page of the list, as `runs` gives it. After that page each changed
        run comes as a `ListedRunChanged`, and the number of runs that are not done as a `RunCounts`. Another
        `ListedRuns` means: begin again with this page; that happens after a lost connection, and when too many runs
        have changed for single changes. A slow reader gets the newest line of each run. A connection watches few lists:
        see `watches` in the gateway's limits.

        Raises:
            UsageError: an argument can not be, also from the iteration. ConnectError: there is no connection any more.
            NotAllowed, RequestRefused, ConnectError: from the iteration.
        """
        self._link.check()
        frame = Watch(
            id=f"{PREFIX}{secrets.token_hex(8)}",
            status=_text(status, "status"),
            agent=_text(agent, "agent"),
            thread=_text(thread_id, "thread_id"),
            prefix=_text(prefix, "prefix"),
            by=_text(by, "by"),
            since=_moment(since, "since"),
            until=_moment(until, "until"),
            text=_text(text, "text"),
            order=order,
            limit=limit,
        )
        return self._watch(RunListIterator(frame, self._link.poke))

    @asynccontextmanager
    async def _watch(self, watching: RunListIterator) -> AsyncIterator[RunListIterator]:
        link = self._link
        link.lists.join(watching)
        link.poke()
        try:
            yield watching
        finally:
            link.lists.leave(watching)
            link.poke()

    async def _get(self, path: str, query: JSONObject | None = None, *, run_id: str = "") -> dict[str, Any]:
        link = self._link
        link.check()
        return await http_requests.fetch(
            link.address, path, query, token=link.token, context=link.context, run_id=run_id
        )


@checks_options
@asynccontextmanager
async def connect(
    url: str,
    *,
    token: str | None = None,
    patient: bool = False,
    pace: ConnectionTiming | None = None,
    ssl_context: ssl.SSLContext | None = None,
    on_change: Callable[[ConnectionState], None] | None = None,
) -> AsyncIterator[Client]:
    """A gateway for the time of the block; a connection that is lost is made again until the block is left.

    Leaving the block closes the connection. It cancels no run.

    Args:
        url: ws, wss, http or https, with or without the path of the WebSocket. The console's URL does, too: its
            fragment has the token.
        token: who we are, as `greenroom serve` prints it.
        patient: go on trying if the gateway does not let us in at once. Without it the first attempt has to succeed.
        pace: how the connection keeps time.
        ssl_context: for wss and https; the system's certificates if None.
        on_change: called with each new state of the connection; it must not block.

    Raises:
        UsageError: the URL or the token can not be. NotReachable: nobody answers (not if patient).
        NotAuthenticated, Forbidden, NotAGateway: refused for good. If that comes later, what is waited for raises it.
        BaseException: the block's own exception, bare.
    """
    address = read_endpoint(url)
    token = token if token is not None else address.token
    if token is not None and not (token.isascii() and token.isprintable()):
        raise UsageError("the token has characters that no token has; give what `greenroom serve` has written")
    link = Connection(address, token=token, pace=pace or ConnectionTiming(), context=ssl_context, on_change=on_change)
    async with open_collapsing_nursery() as nursery:
        try:
            await nursery.start(partial(link.run, patient=patient))
            yield Client(link)
            await link.close()
        finally:
            link.end()
            nursery.cancel_scope.cancel()


def _id(given: str | None) -> str:
    """The id of a request; a fresh random one (128 bits) if none is given.

    Raises:
        UsageError: it can not be.
    """
    if not given:
        return secrets.token_hex(16)
    if not isinstance(given, str) or len(given) > MAX_ID or not given.isprintable():
        raise UsageError(f"the id {given!r:.200} can not be; give at most {MAX_ID} printable characters")
    return given


def _checked(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{what}={value!r:.200}: give a str")
    return text_of(value)


def _moment(value: object, what: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise UsageError(f"{what}={value!r:.200}: give a datetime with a time zone")
    return value.isoformat()


def _text(value: object, what: str) -> str | None:
    return None if value is None else _checked(value, what)


def _rejected(id_: str, code: str, detail: str) -> CommandResult:
    return CommandResult(status="rejected", code=code, detail=detail, command_id=id_)
