"""`Client`: the client of a gateway, for any event loop; `connect`: its opening on trio."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal, Unpack, overload
from urllib.parse import quote

from greenroom.actors.abc import Pruned
from greenroom.actors.agents.attachments import File, Image, parts_of
from greenroom.actors.contract.decisions import ActionWord, CommandResult, Decision, decision_of
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.contract.run_lists import RunFilters, WatchFilters
from greenroom.actors.entry import checks_options
from greenroom.actors.errors import UsageError
from greenroom.actors.options import unknown_value
from greenroom.actors.permission.remembered import Always, RememberedRule
from greenroom.actors.processes import QueueInfo
from greenroom.actors.run.view import RunView
from greenroom.actors.runtime.queueing import Queueing
from greenroom.actors.services.sanitize import InvalidValue, data_of, input_of, object_of
from greenroom.supervision.nursery import open_collapsing_nursery

from ..protocol.down import Ack, Error
from ..protocol.limits import Limits
from ..protocol.up import Cancel, Decide, Fork, Pause, RunCommand, Send, Start, Watch
from . import frames, http_requests, remembered_rules
from .arguments import checked, command_id_of, filter_fields, moment_text, optional, sent_always, sent_attachment
from .endpoint import read_target
from .errors import refusal
from .event_iterator import EventIterator
from .link import ClientLink, ConnectionState
from .list_buffer import PREFIX, ListedRuns
from .run_lists import RunListIterator
from .started_run import StartedRun, started_of
from .thread_requests import ThreadRequests
from .timing import ConnectionTiming
from .trio_connection import TrioConnection
from .trio_streams import TRIO
from .unread_events import OnReset
from .waiting import Loop, ask

_DECIDE: Final = ("result", "edited_arguments", "reason", "fingerprint", "decision_id")


class Client(ThreadRequests):
    """A gateway, returned by `connect`. Any number of tasks may use one client concurrently.

    A request made while there is no connection waits for the next connection. Requests have no timeout; use a cancel
    scope.
    """

    def __init__(self, link: ClientLink, loop: Loop, context: ssl.SSLContext | None) -> None:
        self._link, self._loop, self._context = link, loop, context
        self._address = link.address

    def __repr__(self) -> str:
        """Show the address and the state of the connection."""
        return f"<Client of {self._link!r}>"

    @property
    def url(self) -> str:
        """The address of the gateway, without secrets."""
        return self._link.address.url

    @property
    def state(self) -> ConnectionState:
        """The present state of the connection."""
        return self._link.state

    @property
    def principal(self) -> str:
        """The name of the authenticated principal; empty before the first connection."""
        return "" if self._link.welcome is None else self._link.welcome.principal

    @property
    def epoch(self) -> str:
        """The epoch of the gateway's log. Store the epoch with your cursors, and pass both to `follow`."""
        return self._link.runs.epoch

    # --- following ---------------------------------------------------------------------------------------------------

    def follow(
        self, run_id: str, *, after: int = 0, epoch: str | None = None, on_reset: OnReset = "raise"
    ) -> AbstractAsyncContextManager[EventIterator]:
        """Follow a run: `async with client.follow(run_id) as events: async for event in events: ...`.

        Events are delivered exactly once and in order, from sequence `after + 1` on, across any number of connections.
        The iteration ends after the terminal event. At most 1,024 events (or 4 MB) are buffered: a slow reader receives
        events in stretches, delays no other reader, and loses nothing. A run may be followed several times in parallel,
        each time with its own cursor.

        Args:
            run_id: The run.
            after: Sequence of the last event that has been applied (not only received); 0 for none.
            epoch: Epoch of the log that `after` belongs to, from `client.epoch`; None for the gateway's present epoch.
            on_reset: Reaction to a cursor that is not of the gateway's log: "raise" LogReset from the iteration, or
                "continue" with the events after the snapshot in `events.reset`.

        Raises:
            UsageError: An argument is invalid.
            ConnectError: The connection was given up.
            UnknownRun, RunDegraded, LogReset, NotAllowed, RequestRefused, ConnectError: From the iteration, after all
            buffered events.
        """
        if type(after) is not int or not 0 <= after < 2**53 or on_reset not in ("raise", "continue"):
            raise UsageError(
                f"follow(after={after!r}, on_reset={on_reset!r}): give after >= 0 and on_reset 'raise' or 'continue'"
            )
        self._link.check()
        return self._follow(checked(run_id, "run_id"), after, epoch, on_reset)

    @asynccontextmanager
    async def _follow(
        self, run_id: str, after: int, epoch: str | None, on_reset: OnReset
    ) -> AsyncIterator[EventIterator]:
        link = self._link
        events = EventIterator(self._loop, run_id, after=after, epoch=epoch, on_reset=on_reset, poke=link.poke)
        link.runs.join(run_id, events)
        link.poke()
        try:
            yield events
        finally:
            link.runs.leave(run_id, events)
            link.poke()

    # --- commands ----------------------------------------------------------------------------------------------------

    @overload
    async def decide(self, run_id: str, target: Decision, /, *, remember: Always | None = None) -> CommandResult: ...
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
        remember: Always | None = None,
    ) -> CommandResult: ...
    async def decide(
        self,
        run_id: str,
        target: object,
        action: object = None,
        /,
        *,
        remember: Always | None = None,
        **options: object,
    ) -> CommandResult:
        """Decide a ticket or call. A rejected decision is a value of the result, never an exception.

        An accepted decision is durable and acts exactly once, across crashes.

        Args:
            run_id: The run.
            target: A ticket id, a call id, or a complete Decision (`ticket.approve()`, `ticket.deny()`).
            action: "approve" or "deny"; "resume" and "cancel" are synonyms.
            remember: A person's "always" beside an approval, as in `Run.decide`.
            options: result, edited_arguments, reason, fingerprint (of the ticket that was shown), decision_id.

        Raises:
            ValueError: The action or an option is unknown, options accompany a complete Decision, or the id is invalid.
            ConnectError: The connection was given up.

        Cancellation: the decision may or may not have been sent. Repeat the call with the same `decision_id`; the
        result is "duplicate" if the first one arrived.
        """
        decision = decision_of(target, action, options, _DECIDE)
        id_, always = command_id_of(decision.decision_id), sent_always(remember)
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
                run=checked(run_id, "run_id"),
                target=checked(decision.target, "target"),
                action=decision.action,
                result=result,
                edited_arguments=edited,
                reason=optional(decision.reason, "reason"),
                fingerprint=optional(decision.fingerprint, "fingerprint"),
                remember=always,
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
        """Ask a run to end. An accepted cancel is durable.

        Raises:
            ValueError: The mode is unknown, or the id is invalid.
            ConnectError: The connection was given up.

        Cancellation: the command may or may not have been sent. Repeat the call with the same `command_id`.
        """
        if mode not in ("now", "after_step"):
            raise unknown_value("mode", mode, ("now", "after_step"))
        run = checked(run_id, "run_id")
        return await self._command(
            Cancel(id=command_id_of(command_id), run=run, mode=mode, reason=optional(reason, "reason"))
        )

    async def pause(self, run_id: str, *, reason: str | None = None, command_id: str | None = None) -> CommandResult:
        """Pause a run before its next step, or immediately if the run waits.

        The run then has a separate ticket (call_id None). An accepted pause is durable.

        Raises:
            UsageError: The id is invalid.
            ConnectError: The connection was given up.

        Cancellation: the command may or may not have been sent. Repeat the call with the same `command_id`.
        """
        run = checked(run_id, "run_id")
        return await self._command(Pause(id=command_id_of(command_id), run=run, reason=optional(reason, "reason")))

    async def send(
        self, run_id: str, text: str, *, attachments: Sequence[Image | File] = (), command_id: str | None = None
    ) -> CommandResult:
        """Give a run more input, with images and files as in `start`. An accepted input is durable.

        Raises:
            UsageError: The text is not a str, or blank without attachments; or the id is invalid.
            ConnectError: The connection was given up.

        Cancellation: the command may or may not have been sent. Repeat the call with the same `command_id`.
        """
        run = checked(run_id, "run_id")
        parts = parts_of(attachments)
        text_value = input_of(text, "the text", may_be_blank=bool(parts))
        return await self._command(
            Send(id=command_id_of(command_id), run=run, text=text_value, attachments=tuple(map(sent_attachment, parts)))
        )

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
        attachments: Sequence[Image | File] = (),
        deadline: datetime | None = None,
        background: bool | None = None,
        queue: str | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        dedupe: str | None = None,
        command_id: str | None = None,
    ) -> StartedRun:
        """Start a run; the run is durable when `start` returns.

        Args:
            agent: Key of an agent that the server knows.
            text: The input; not blank without attachments.
            run_id: Id of the new run; generated by the gateway if None.
            thread_id: The thread of the run; a new thread if None.
            session_id: A label of your own that groups runs.
            on_busy: Reaction if the thread has an active run: queue the run or refuse it.
            title: One line for lists of runs; the first line of the text if None.
            attachments: Images and files of the input. A start above the gateway's limit of a message (64 KiB by
                default) is sent with POST /v1/runs, within the limit of a body (1 MiB by default).
            deadline: The run ends then at the latest; with a time zone.
            background: True: the run waits in its queue until a process has room.
            queue: Name of the queue; the agent's key if None. Needs the scope admin.
            at: The run does not begin before; with a time zone.
            priority: -100 to 100, as in `Runtime.start`. Needs the scope admin.
            dedupe: While an open run of this principal was started with the same text, that run is returned. For a
                principal that sees all runs it may be a run of others.
            command_id: Id of this request.

        Raises:
            UsageError: An argument is invalid.
            UnknownAgent: No agent has this key.
            RunExists: The id belongs to a run with another content.
            ThreadBusy: The thread is busy and on_busy is "refuse".
            NotAllowed: The principal lacks the scope.
            StoreUnavailable: The store did not answer; the run was not started.
            RequestRefused: The start is above the limit of a body (too_big).
            NotReachable: The gateway does not answer a start with POST now.
            ConnectError: The connection was given up.

        Cancellation: the run may or may not have been started. Repeat the call with the same `command_id` and the same
        content; the run is started at most once.
        """
        if on_busy not in ("queue", "refuse"):
            raise UsageError(f"on_busy={on_busy!r} is not known; use 'queue' or 'refuse'")
        parts, places = (
            parts_of(attachments),
            Queueing(background=background, queue=queue, at=at, priority=priority, dedupe=dedupe),
        )
        order = Start(
            attachments=tuple(map(sent_attachment, parts)),
            id=command_id_of(command_id),
            agent=checked(agent, "agent"),
            text=input_of(text, "the text", may_be_blank=bool(parts)),
            run=optional(run_id, "run_id"),
            thread=optional(thread_id, "thread_id"),
            session=optional(session_id, "session_id"),
            on_busy=on_busy,
            title=None if title is None else input_of(title, "the title"),
            deadline=moment_text(deadline, "deadline"),
            background=background,
            queue=places.queue,
            at=moment_text(at, "at"),
            priority=priority,
            dedupe=places.dedupe,
        )
        return await self._start(order, run_id or "")

    async def fork(
        self, run_id: str, *, step: int, new_run_id: str | None = None, command_id: str | None = None
    ) -> StartedRun:
        """Start a run that begins where another run was at the end of `step`; the fork is durable when `fork` returns.

        The fork has a new thread and belongs to the principal of this client.

        Args:
            run_id: The run to begin from; the principal must see the run.
            step: Number of a finished step of that run, or 0 for its beginning.
            new_run_id: Id of the fork; derived from `command_id` by the gateway if None.
            command_id: Id of this request.

        Raises:
            UsageError: The run has not finished this step, or an argument is invalid.
            UnknownRun: No run that the principal sees has this id.
            UnknownAgent: The server no longer knows the agent of the run.
            RunExists: The new id belongs to another run; RunPruned if that run was pruned.
            NotAllowed: The principal lacks the scope.
            StoreUnavailable: The store did not answer; the run was not forked.
            ConnectError: The connection was given up.

        Cancellation: the fork may or may not have been started. Repeat the call with the same `command_id`; the run is
        forked at most once.
        """
        run = checked(run_id, "run_id")
        if type(step) is not int or not 0 <= step < 2**53:
            raise UsageError(f"step={step!r:.200}: give 0 or the number of a finished step")
        order = Fork(id=command_id_of(command_id), run=run, step=step, new_run=optional(new_run_id, "new_run_id"))
        return await self._start(order, run)

    async def _start(self, order: Start | Fork, run_id: str) -> StartedRun:
        if isinstance(order, Start) and len(frames.write(order).encode()) > self._message_bytes:
            answer = await self._get("/v1/runs", body=frames.fields(order), run_id=run_id)
            return started_of(self._link.address, answer)
        result = await self._ask(order)
        if isinstance(result, Error):
            raise refusal(result.code, result.message, run_id=run_id, retry=result.retry, current=result.current)
        return StartedRun(run_id=result.run, thread_id=result.thread or "", duplicate=result.status == "duplicate")

    async def _command(self, order: RunCommand) -> CommandResult:
        result = await self._ask(order)
        if isinstance(result, Error):
            return _rejected(order.id, result.code, result.message)
        return CommandResult(status=result.status, code=result.code, command_id=order.id)

    async def _ask(self, order: RunCommand | Start | Fork) -> Ack | Error:
        self._link.check()
        text, most = frames.write(order), self._message_bytes
        size = len(text.encode())
        if size > most:
            reason = f"the request has {size:,} bytes and the gateway takes {most:,.0f}; shorten it"
            return Error(code="too_big", message=reason, id=order.id)
        return await ask(self._loop, self._link.calls, order.id, text)

    @property
    def _message_bytes(self) -> float:
        welcome = self._link.welcome
        return (welcome.limits if welcome else {}).get("messageBytes", Limits().message_bytes)

    # --- looking -----------------------------------------------------------------------------------------------------

    async def agents(self) -> tuple[str, ...]:
        """Return the keys of the agents that can be started, in order, over HTTP.

        Raises:
            NotReachable: The gateway does not answer now.
            ConnectError: The connection was given up.
        """
        return http_requests.agents_of(self._link.address, await self._get("/v1/agents"))

    async def view(self, run_id: str) -> RunView:
        """Return one consistent snapshot of a run, over HTTP.

        Messages and state are private, and empty in the snapshot.

        Raises:
            UnknownRun: This principal sees no such run.
            NotAllowed: The principal lacks the scope `follow`.
            NotReachable: The gateway does not answer now.
            ConnectError: The connection was given up.
        """
        run_id = checked(run_id, "run_id")
        return http_requests.view_of(self._link.address, await self._get(http_requests.run_path(run_id), run_id=run_id))

    async def runs(self, **filters: Unpack[RunFilters]) -> ListedRuns:
        """Return a page of the runs that this principal may see, over HTTP.

        The filters are those of `Runtime.runs`; a page has at most 50 lines by default.

        Raises:
            UsageError: An argument is invalid.
            NotAllowed: The principal lacks the scope `follow`.
            NotReachable: The gateway does not answer now.
            ConnectError: The connection was given up.
        """
        counts = {"counts": "true"} if filters.pop("counts", False) else {}
        query = filter_fields("runs", filters, RunFilters) | counts
        return http_requests.lines_of(self._link.address, await self._get("/v1/runs", query))

    def watch_runs(self, **filters: Unpack[WatchFilters]) -> AbstractAsyncContextManager[RunListIterator]:
        """Watch a list of runs: `async with client.watch_runs(...) as changes: async for change in changes: ...`.

        The first change is a `ListedRuns`: the first page of the list, as returned by `runs`. Afterwards each changed
        run is delivered as a `ListedRunChanged`, and the number of unfinished runs as a `RunCounts`. Another
        `ListedRuns` replaces everything delivered before; it follows a lost connection, or more changes than are
        delivered one by one. A slow reader receives the newest line of each run. A connection watches few lists: see
        `watches` in the gateway's limits.

        Raises:
            UsageError: An argument is invalid; also from the iteration.
            ConnectError: The connection was given up.
            NotAllowed, RequestRefused, ConnectError: From the iteration.
        """
        self._link.check()
        fields = filter_fields("watch_runs", filters, WatchFilters)
        frame = Watch(id=f"{PREFIX}{secrets.token_hex(8)}", **fields)
        return self._watch(RunListIterator(self._loop, frame, self._link.poke))

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

    # --- the store ---------------------------------------------------------------------------------------------------

    async def queues(self) -> Sequence[QueueInfo]:
        """Return the queues of the gateway's store, by name, over HTTP.

        Raises:
            NotAllowed: The principal lacks the scope `admin`.
            NotReachable: The gateway does not answer now.
            ConnectError: The connection was given up.
        """
        return http_requests.queues_of(self._link.address, await self._get("/v1/queues"))

    async def set_queue(self, name: str, *, max_running: int | None = None, paused: bool = False) -> None:
        """Limit a queue, or pause it, over HTTP; both are set. Runs that work already continue.

        Raises:
            UsageError: The limit is less than 1, or no queue can have the name.
            NotAllowed, NotReachable, ConnectError: See `queues`.
        """
        path = f"/v1/queues/{quote(checked(name, 'name'), safe='')}"
        await self._get(path, body={"maxRunning": max_running, "paused": paused})

    async def rules(self, run_id: str | None = None) -> Sequence[RememberedRule]:
        """Return the remembered rules that this principal may see, over HTTP, the newest first; see `Runtime.rules`.

        `covered` and `definition` of a rule are empty.

        Raises:
            UnknownRun: This principal sees no such run.
            UsageError: The store of the gateway keeps no values.
            NotAllowed, NotReachable, ConnectError: See `queues`; the scope is `follow`.
        """
        return await remembered_rules.list_rules(self._link.address, self._get, optional(run_id, "run_id"))

    async def revoke_rule(self, rule_id: str) -> RememberedRule | None:
        """Revoke a remembered rule, over HTTP; None if this principal sees no rule with this id.

        Raises:
            UsageError, NotAllowed, NotReachable, ConnectError: See `rules`; the scope is `decide`.
        """
        return await remembered_rules.revoke_rule(self._link.address, self._get, checked(rule_id, "rule_id"))

    async def prune(self, before: datetime) -> Pruned:
        """Delete the runs that ended before a time, over HTTP; see `Store.prune`.

        Raises:
            UsageError: The time has no zone.
            NotAllowed, NotReachable, ConnectError: See `queues`.
        """
        answer = await self._get("/v1/prune", body={"before": moment_text(before, "before")})
        return http_requests.pruned_of(self._link.address, answer)

    async def revive_run(self, run_id: str) -> bool:
        """Let a dead letter be claimed again, over HTTP. False if the run is not a dead letter.

        Raises:
            UnknownRun: This principal sees no such run.
            NotAllowed: The principal lacks the scope `start`.
            NotReachable, ConnectError: See `queues`.
        """
        run_id = checked(run_id, "run_id")
        answer = await self._get(f"{http_requests.run_path(run_id)}/revive", run_id=run_id, body={})
        return answer.get("revived") is True

    async def _get(
        self, path: str, query: JSONObject | None = None, *, body: JSONObject | None = None, **ids: str
    ) -> dict[str, Any]:
        link = self._link
        link.check()
        return await http_requests.fetch(
            link.address, path, query, token=link.token, context=self._context, ids=ids, body=body, loop=self._loop
        )

    async def _bytes(self, path: str, **ids: str) -> bytes:
        link = self._link
        link.check()
        return await http_requests.fetch_bytes(
            link.address, path, token=link.token, context=self._context, ids=ids, loop=self._loop
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
    """Connect to a gateway for the block; a lost connection is reopened until the block ends.

    Leaving the block closes the connection and cancels no run.

    Args:
        url: A ws, wss, http or https URL, with or without the path of the WebSocket. The console's URL is valid too:
            its fragment contains the token.
        token: The token, as printed by `greenroom serve`.
        patient: Keep trying if the first attempt fails. Otherwise the first attempt must succeed.
        pace: Times of the connection.
        ssl_context: For wss and https; the system's certificates if None.
        on_change: Called with each new state of the connection; must not block.

    Raises:
        UsageError: The URL or the token is invalid.
        NotReachable: The gateway does not answer (not raised if `patient`).
        NotAuthenticated, Forbidden, NotAGateway: The gateway refused the client permanently. After the first
        connection, pending calls raise this error.
        BaseException: The block's own exception, bare.
    """
    address, token = read_target(url, token)
    pace = pace or ConnectionTiming()
    connection = TrioConnection(address, token=token, pace=pace, context=ssl_context, on_change=on_change)
    async with open_collapsing_nursery() as nursery:
        try:
            await nursery.start(partial(connection.run, patient=patient))
            yield Client(connection.link, TRIO, ssl_context)
            await connection.close()
        finally:
            connection.link.end()
            nursery.cancel_scope.cancel()


def _rejected(id_: str, code: str, detail: str) -> CommandResult:
    return CommandResult(status="rejected", code=code, detail=detail, command_id=id_)
