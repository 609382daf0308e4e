"""The operations that a principal may request of a runtime, shared by the WebSocket, HTTP and the chat protocols."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import attrs
from msgspec.structs import replace

import greenroom as gr
from greenroom.actors.agents.attachments import attachment_of, decoded, decoded_url
from greenroom.actors.contract.artifacts import facts_on_wire
from greenroom.actors.contract.casing import wire, wire_of
from greenroom.actors.contract.decisions import REJECTIONS, CommandResult, Decision
from greenroom.actors.contract.ids import content_digest
from greenroom.actors.contract.lifecycle import RunStatus
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.contract.rows import RunInfo
from greenroom.actors.contract.run_lists import RunSummary
from greenroom.actors.contract.waiting_for import WaitingFor
from greenroom.actors.evidence.account import RunEvidence
from greenroom.actors.permission.remembered import Always, RememberedRule
from greenroom.actors.processes import QueueInfo
from greenroom.actors.run.view import RunView
from greenroom.actors.runtime.listing import query_of
from greenroom.actors.runtime.queueing import Queueing
from greenroom.actors.runtime.remembering import stored_rules
from greenroom.actors.runtime.start_request import check_id
from greenroom.actors.runtime.thread_access import MayJoin
from greenroom.actors.services.sanitize import moment_of

from ..protocol.codes import Refused
from ..protocol.down import Ack
from ..protocol.up import (
    FILTERS,
    Cancel,
    Decide,
    Fork,
    LimitQueue,
    Pause,
    PruneRuns,
    RunCommand,
    Send,
    SentAttachment,
    Start,
)
from .access import Principal, everything
from .listing import VisiblePage, visible_page

AHEAD: Final = 100
"""Newest runs of a thread that are searched for the run that blocks the others."""
LONGEST_QUEUE: Final = 128
"""Most characters of a queue's name, as in a start; a longer one could only be a mistake."""


@contextmanager
def refusals() -> Iterator[None]:
    """Raise the errors of a runtime as `Refused`."""
    try:
        yield
    except gr.UnknownRun as error:
        raise Refused("unknown_run", str(error)) from error
    except gr.UnknownAgent as error:
        raise Refused("unknown_agent", str(error)) from error
    except gr.UnknownArtifact as error:
        raise Refused("unknown_artifact", str(error)) from error
    except gr.UnknownThread as error:
        way = "GET /v1/threads lists those you may read"
        raise Refused("unknown_thread", f"no thread has the id {error.thread_id!r:.200}; {way}") from error
    except gr.UnknownPart as error:
        raise Refused("unknown_part", str(error)) from error
    except (gr.UsageError, gr.AgentDefinitionError) as error:
        raise Refused("unprocessable", str(error)) from error
    except (gr.StoreUnavailable, gr.StoreDown) as error:
        raise Refused("store_unavailable", str(error)) from error
    except gr.RuntimeClosed as error:
        raise Refused("closing", str(error)) from error


def decision_by(who: Principal, command: Decide) -> Decision:
    """Return the decision that a principal's command asks for."""
    return Decision(
        target=command.target,
        action=command.action,
        decision_id=command.id,
        result=command.result,
        edited_arguments=command.edited_arguments,
        reason=command.reason,
        fingerprint=command.fingerprint,
        decided_by=who.name,
    )


class Api:
    """The operations, each on behalf of a principal.

    Refusals raise `Refused`; the only other exceptions are RuntimeClosed, StoreDown and StoreError.
    """

    def __init__(self, runtime: gr.Runtime) -> None:
        self.runtime = runtime

    def __repr__(self) -> str:
        return f"<Api of {self.runtime!r}>"

    # --- seeing ------------------------------------------------------------------------------------------------------

    async def info(self, who: Principal, run_id: str) -> RunInfo:
        """Return the constant facts of a run that the principal may see.

        Raises:
            Refused: not_allowed, unknown_run.
        """
        who.need("follow")
        return await self._visible(who, run_id)

    async def head(self, who: Principal, run_id: str) -> int:
        """Return the sequence of the newest event of a run that the principal may see.

        Raises:
            Refused: not_allowed, unknown_run.
        """
        await self.info(who, run_id)
        outline = await self.runtime.reader.outline(run_id)
        return 0 if outline is None else outline.last_sequence

    async def view(self, who: Principal, run_id: str) -> RunView:
        """Return one consistent snapshot; `plain_view` converts it to the clients' form.

        Raises:
            Refused: not_allowed, unknown_run.
        """
        who.need("follow")
        await self._visible(who, run_id)
        view = await (await self._run(run_id)).view()
        waits = view.waiting_for
        if waits is None or waits.run_id is None or await self._sees(who, waits.run_id):
            return view
        return attrs.evolve(view, waiting_for=attrs.evolve(waits, run_id=None))

    async def artifact(self, who: Principal, run_id: str, artifact_id: str) -> gr.Artifact:
        """Return an artifact of a run that the principal may see, with its bytes.

        Raises:
            Refused: not_allowed, unknown_run, unknown_artifact.
        """
        who.need("follow")
        await self._visible(who, run_id)
        with refusals():
            return await self.runtime.reader.artifact(run_id, artifact_id)

    async def evidence(self, who: Principal, run_id: str) -> RunEvidence:
        """Return the account of a run, without the child runs that the principal may not see.

        Raises:
            Refused: not_allowed, unknown_run.
        """
        who.need("follow")
        await self._visible(who, run_id)
        with refusals():
            return await self._seen_by(who, await self.runtime.evidence(run_id))

    async def _seen_by(self, who: Principal, account: RunEvidence) -> RunEvidence:
        children = [child for child in account.children if await self._sees(who, child.run_id)]
        return replace(account, children=tuple([await self._seen_by(who, child) for child in children]))

    def query(self, who: Principal, fields: JSONObject) -> gr.RunQuery:
        """Build the query of a list from a request; the names are those of the frame `watch`.

        Raises:
            Refused: not_allowed; unprocessable: a value is invalid.
        """
        who.need("follow")
        try:
            filters: dict[str, Any] = {name: fields.get(field) for name, field in FILTERS.items() if name != "counts"}
            filters |= {name: _moment(name, filters[name]) for name in ("since", "until")}
            filters["order"] = filters["order"] or "newest"
            return query_of(**{name: value for name, value in filters.items() if value is not None})
        except gr.UsageError as error:
            raise Refused("unprocessable", str(error)) from error

    async def runs(self, who: Principal, query: gr.RunQuery) -> VisiblePage:
        """Return a page of the runs that the principal may see; only the last page has no cursor.

        Raises:
            Refused: not_allowed; unprocessable: a value is invalid.
        """
        who.need("follow")
        try:
            return await visible_page(self.runtime.reader, who, query)
        except gr.UsageError as error:
            raise Refused("unprocessable", str(error)) from error

    async def ahead(self, who: Principal, thread_id: str, run_id: str) -> tuple[str, ...]:
        """Return the visible run of a thread that blocks `run_id` by working or waiting; empty if there is none.

        Raises:
            Refused: not_allowed.
        """
        lines = (await self.runs(who, gr.RunQuery(thread_id=thread_id, limit=AHEAD))).lines
        order = [line.info.run_id for line in lines if line.row.status is not RunStatus.DONE]
        return (order[-1],) if run_id in order[:-1] else ()

    async def current(self, who: Principal, thread_id: str, agent: str) -> RunSummary | None:
        """Return the visible run that a thread is at: the oldest unfinished one, or the newest.

        The newest `AHEAD` runs that the agent has begun are searched.

        Raises:
            Refused: not_allowed.
        """
        lines = (await self.runs(who, gr.RunQuery(thread_id=thread_id, agent=agent, limit=AHEAD))).lines
        active = [line for line in lines if line.row.status is not RunStatus.DONE]
        return active[-1] if active else lines[0] if lines else None

    async def knows_agent(self, key: str) -> bool:
        """Return True if this process, or another one on the same store, has an agent with this key."""
        return key in self.runtime.agents or key in await self.runtime.store.agents()

    # --- commands ----------------------------------------------------------------------------------------------------

    async def start(self, who: Principal, order: Start) -> Ack:
        """Start a run; the run is durable when this returns. A repeated order is a duplicate.

        Raises:
            Refused: not_allowed, unknown_agent, run_exists, run_pruned, thread_busy, unprocessable, store_unavailable,
                closing.
        """
        who.need("start")
        if (order.queue is not None or order.priority is not None) and not who.may("admin"):
            raise Refused("not_allowed", "queue and priority move the runs of others: they need the scope 'admin'")
        run_id = run_of(who, order.id) if order.run is None else order.run
        known = await self._exists(run_id)
        with refusals():
            try:
                for name in ("run", "thread", "session"):  # before the runtime does, whose messages have other names
                    check_id(name, getattr(order, name))
                run = await self.runtime.start(
                    order.agent,
                    order.text,
                    run_id=run_id,
                    thread_id=order.thread,
                    session_id=order.session,
                    by=who.name,
                    on_busy=order.on_busy,
                    title=order.title,
                    attachments=tuple(map(_attachment, order.attachments)),
                    deadline=_moment("deadline", order.deadline),
                    may_join=_asked(who),
                    **_queueing(who, order),
                )
            except gr.ThreadForbidden as error:
                text = f"the thread {order.thread!r:.200} is not open to you; omit the thread for a new one"
                raise Refused("not_allowed", text) from error
            except gr.RunExists as error:
                raise await self._taken(who, run_id, error) from error
            except gr.ThreadBusy as error:
                raise await self._busy(who, order, error) from error
        known = known or run.id != run_id  # the open run with the same `dedupe`
        return Ack(id=order.id, run=run.id, thread=run.thread_id, status="duplicate" if known else "accepted")

    async def fork(self, who: Principal, order: Fork) -> Ack:
        """Start a run at a step of another one; the run is durable when this returns. A repeated order is a duplicate.

        The principal must see the run, and each run of whose messages the fork gets a copy. The principal owns the fork
        and its thread.

        Raises:
            Refused: not_allowed, unknown_run, unknown_agent, run_exists, run_pruned, unprocessable (the run has not
                finished this step), store_unavailable, closing.
        """
        who.need("start")
        await self._visible(who, order.run)
        run_id = run_of(who, order.id) if order.new_run is None else order.new_run
        known = await self._exists(run_id)
        with refusals():
            try:
                check_id("newRun", order.new_run)
                run = await self.runtime.fork(
                    order.run, step=order.step, new_run_id=run_id, by=who.name, may_join=_asked(who)
                )
            except gr.ThreadForbidden as error:
                raise _shut(order.run) from error
            except gr.RunExists as error:
                raise await self._taken(who, run_id, error) from error
        return Ack(id=order.id, run=run.id, thread=run.thread_id, status="duplicate" if known else "accepted")

    async def _taken(self, who: Principal, run_id: str, error: gr.RunExists) -> Refused:
        """Return the refusal of a run id. The refusal reveals nothing of a run that the principal may not see."""
        if isinstance(error, gr.RunPruned):
            mine = error.same or who.sees is everything
        else:
            mine = await self._sees(who, run_id)
        if mine:
            if isinstance(error, gr.RunPruned):
                return Refused("run_pruned", str(error))
            text = f"the run {run_id!r:.200} exists with another content; give another id for a new run"
            return Refused("run_exists", text)
        return Refused("not_allowed", f"the run id {run_id!r:.200} is not open to you; omit the id for a new one")

    async def _busy(self, who: Principal, order: Start, error: gr.ThreadBusy) -> Refused:
        """Return the refusal of a busy thread. A run that the principal may not see is not named."""
        if await self._sees(who, error.active):
            busy = f"thread {order.thread!r:.200} is busy with run {error.active!r:.200}"
            return Refused("thread_busy", f"{busy}; wait for its end, or let the new run queue")
        text = f"thread {order.thread!r:.200} is busy; wait, or let the new run queue"
        return Refused("thread_busy", text)

    async def command(self, who: Principal, command: RunCommand) -> Ack:
        """Check and journal a command to a run.

        Words that the run has not asked for are a road into its thread, as a start is: `send`, and a result for a
        pause, which joins the conversation. An answer to a question of the run is different, unless it is remembered
        for the whole thread. A rule for a workspace concerns runs of everybody: only who sees all runs makes one.

        Raises:
            Refused: not_allowed, unknown_run, unprocessable, and every rejection of `REJECTIONS`.
        """
        who.need("start" if isinstance(command, Cancel) else "decide")
        info = await self._visible(who, command.run)
        may_join = _asked(who)
        if may_join is not None and (_goes_far(command) or await self._brings_words(command)):
            try:
                await self.runtime.reader.check_thread(info, who.name, may_join)
            except gr.ThreadForbidden as error:
                raise _shut(command.run) from error
        try:
            result = await self._answer(who, command)
        except gr.UsageError as error:
            raise Refused("unprocessable", str(error)) from error
        if result.status == "rejected":
            raise await self._rejection(command, result)
        return Ack(id=command.id, run=command.run, status=result.status, code=result.code)

    async def queues(self) -> Sequence[QueueInfo]:
        """Return the queues of the store.

        Raises:
            Refused: store_unavailable.
        """
        with refusals():
            return await self.runtime.store.queues()

    async def set_queue(self, who: Principal, name: str, order: LimitQueue) -> QueueInfo:
        """Limit or pause a queue; return its new facts.

        Raises:
            Refused: not_allowed, unprocessable, store_unavailable.
        """
        who.need("admin")
        if not name.isprintable() or " " in name or not 0 < len(name) <= LONGEST_QUEUE:
            text = f"{name!r:.150} names no queue: a name has 1 to {LONGEST_QUEUE} characters, and no spaces"
            raise Refused("unprocessable", text)
        with refusals():
            await self.runtime.store.set_queue(name, max_running=order.max_running, paused=order.paused)
            return next(queue for queue in await self.runtime.store.queues() if queue.name == name)

    async def rules(self, who: Principal, run_id: str) -> Sequence[RememberedRule]:
        """Return the remembered rules that hold for a run, as far as the principal sees the runs that made them.

        Raises:
            Refused: not_allowed, unknown_run, unprocessable (the store keeps no values), store_unavailable.
        """
        who.need("follow")
        await self._visible(who, run_id)
        with refusals():
            return await self._visible_rules(who, await self.runtime.rules(run_id))

    async def rules_page(self, who: Principal, after: str, limit: int) -> tuple[Sequence[RememberedRule], str | None]:
        """Return a page of the remembered rules that the principal may see, and the cursor of the next one.

        A principal that does not see every run may get a page with fewer rules than there are.

        Raises:
            Refused: not_allowed, unprocessable (the store keeps no values), store_unavailable.
        """
        who.need("follow")
        with refusals():
            page = await stored_rules(self.runtime.store).page(after, limit)
            return await self._visible_rules(who, page), page[-1].rule_id if len(page) == limit else None

    async def revoke_rule(self, who: Principal, rule_id: str) -> RememberedRule:
        """Revoke a remembered rule; twice is once.

        Raises:
            Refused: not_allowed, unknown_rule, unprocessable (the store keeps no values), store_unavailable.
        """
        who.need("decide")
        with refusals():
            rule = await stored_rules(self.runtime.store).find(rule_id)
            if rule is not None and await self._visible_rules(who, [rule]):
                rule = await self.runtime.as_principal(who.name).revoke_rule(rule_id)
                if rule is not None:
                    return rule
        raise Refused("unknown_rule", f"no remembered rule has the id {rule_id!r:.100}; GET /v1/rules lists them")

    async def _visible_rules(self, who: Principal, rules: Sequence[RememberedRule]) -> Sequence[RememberedRule]:
        """Return the rules that were made in runs that the principal may see."""
        if who.sees is everything:
            return rules
        visible = {run_id: await self._sees(who, run_id) for run_id in {rule.run_id for rule in rules}}
        return [rule for rule in rules if visible[rule.run_id]]

    async def prune(self, who: Principal, order: PruneRuns) -> gr.Pruned:
        """Delete the runs that ended before a time, with the messages of threads that have no run left.

        Raises:
            Refused: not_allowed, unprocessable, store_unavailable.
        """
        who.need("admin")
        with refusals():
            before = moment_of(_moment("before", order.before), "before")
            return await self.runtime.store.prune(before)

    async def revive(self, who: Principal, run_id: str) -> bool:
        """Let a dead letter be claimed again; False if the run is not a dead letter.

        Raises:
            Refused: not_allowed, unknown_run, store_unavailable, closing.
        """
        who.need("start")
        await self._visible(who, run_id)
        with refusals():
            dead = any(line.dead for line in (await self.runtime.reader.summaries([run_id])).runs)
            if dead:
                await self.runtime.resume(run_id)
        return dead

    async def _brings_words(self, command: RunCommand) -> bool:
        """Return True if a command has words for the model that no call of the run has asked for."""
        if isinstance(command, Decide):
            if command.result is None:
                return False
            ticket = await self.runtime.reader.ticket(command.run, command.target)
            return ticket is None or ticket.call_id is None
        return isinstance(command, Send)

    async def _answer(self, who: Principal, command: RunCommand) -> CommandResult:
        commands = self.runtime.commands
        if isinstance(command, Decide):
            answer = command.remember
            remember = None if answer is None else Always(scope=answer.scope, form=answer.form)
            return await commands.decide(command.run, decision_by(who, command), remember=remember)
        if isinstance(command, Cancel):
            return await commands.cancel(
                command.run, mode=command.mode, reason=command.reason, by=who.name, command_id=command.id
            )
        if isinstance(command, Pause):
            return await commands.pause(command.run, reason=command.reason, by=who.name, command_id=command.id)
        attachments = tuple(map(_attachment, command.attachments))
        return await commands.send(
            command.run, command.text, attachments=attachments, by=who.name, command_id=command.id
        )

    async def _rejection(self, command: RunCommand, result: CommandResult) -> Refused:
        code = result.code if result.code in REJECTIONS else "internal"
        current = None
        if code == "already_decided" and isinstance(command, Decide):
            current = await self._decided(command.run, command.target)
        return Refused(str(code), result.detail or f"the command was rejected: {code}", current=current)

    async def _decided(self, run_id: str, target: str) -> JSONObject | None:
        """Return how a ticket was decided, for a decision that came too late."""
        ticket = await self.runtime.reader.ticket(run_id, target)
        if ticket is None:
            return None
        return wire_of(ticket, ("ticket_id", "call_id", "status", "decided_by", "decided_at"))

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _run(self, run_id: str) -> gr.Run[object]:
        try:
            return await self.runtime.get(run_id)
        except gr.UnknownRun as error:
            raise Refused("unknown_run", str(error)) from error

    async def _visible(self, who: Principal, run_id: str) -> RunInfo:
        info = await self.runtime.reader.info(run_id)
        if info is None or not who.sees(info):
            raise Refused("unknown_run", f"no run has the id {run_id!r:.200}; GET /v1/runs lists those you may see")
        return info

    async def _sees(self, who: Principal, run_id: str) -> bool:
        info = await self.runtime.reader.info(run_id)
        return info is not None and who.sees(info)

    async def _exists(self, run_id: str) -> bool:
        return await self.runtime.reader.info(run_id) is not None


def _asked(who: Principal) -> MayJoin | None:
    """Return the question that each road into a thread asks about its runs; None for a principal that sees all."""
    return None if who.sees is everything else who.sees


def _goes_far(command: RunCommand) -> bool:
    """Return True if a command makes a rule that other runs pass by.

    Raises:
        Refused: not_allowed: the rule would count in runs that the principal may not see.
    """
    if not isinstance(command, Decide) or command.remember is None or command.remember.scope == "run":
        return False
    if command.remember.scope == "workspace":
        text = "a rule for a workspace counts in runs that are not open to you; use the scope run or thread"
        raise Refused("not_allowed", text)
    return True


def _queueing(who: Principal, order: Start) -> dict[str, Any]:
    """Return the options of a start about its queue, as far as they are given.

    A key that several principals choose must not join their runs, or tell one of them that another has such a run: it
    counts per principal, unless the principal sees all runs.

    Raises:
        UsageError: a value is invalid.
    """
    key = Queueing(dedupe=order.dedupe).dedupe
    dedupe = key if key is None or who.sees is everything else f"by.{content_digest([who.name, key])}"
    values: dict[str, Any] = {"background": order.background, "queue": order.queue, "at": _moment("at", order.at)}
    values |= {"priority": order.priority, "dedupe": dedupe}
    return {name: value for name, value in values.items() if value is not None}


def _shut(run_id: str) -> Refused:
    """Return the refusal of a road into the thread of a visible run."""
    return Refused("not_allowed", f"the thread of run {run_id!r:.200} is not open to you; start a run in another one")


def run_of(who: Principal, command_id: str) -> str:
    """Return the id of the run for a start without one; the same principal and command id give the same run."""
    return "run_" + sha256(f"{who.name}\n{command_id}".encode()).hexdigest()[:16]


def _attachment(attachment: SentAttachment) -> gr.Image | gr.File:
    """Return an image or a file as a client sent it.

    Raises:
        InvalidAttachment: it is invalid.
    """
    url, data = attachment.url, attachment.data
    if (url is None) == (data is None):
        raise gr.InvalidAttachment("an attachment has data (base64) or url, one of the two")
    if url is not None and not url.startswith("data:"):
        return gr.Image(url=url, media_type=attachment.media_type)
    body, name = decoded_url(url) if url is not None else (decoded(data or "", "data"), "")
    return attachment_of(body, attachment.media_type or name or None, attachment.name)


def plain_view(view: RunView) -> dict[str, Any]:
    """Return the clients' form of a snapshot, without messages and state, which are private."""
    return {
        "run": view.run_id,
        "thread": view.thread_id,
        "agent": view.agent,
        "activeAgent": view.active_agent,
        "by": view.by,
        "title": view.title,
        "stage": view.stage,
        "status": view.status,
        "termination": wire(view.termination),
        "calls": dict(view.calls),
        "tickets": [plain_ticket(ticket) for ticket in view.tickets],
        "tasks": {name: wire(task) for name, task in view.tasks.items()},
        "usage": wire(view.usage),
        "step": view.step,
        "sequence": view.last_sequence,
        "pending": view.pending,
        "degraded": view.degraded,
        "waitingFor": plain_wait(view.waiting_for),
        "artifacts": [facts_on_wire(artifact) for artifact in view.artifacts],
    }


def plain_wait(waits: WaitingFor | None) -> dict[str, Any] | None:
    """Return the clients' form of what a run waits for."""
    return None if waits is None else {"kind": waits.kind, "detail": waits.detail, "run": waits.run_id}


def plain_ticket(ticket: gr.Ticket) -> dict[str, Any]:
    """Return the clients' form of an open ticket: what is needed to decide it."""
    names = ("ticket_id", "call_id", "tool", "arguments", "fingerprint", "reason", "action", "message", "parameters")
    more = ("response_schema", "resume_mode", "requested_at", "expires_at", "on_expiry", "reviewers", "live")
    return wire_of(ticket, (*names, *more))


def _moment(name: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text.replace(" ", "+"))  # an unquoted + in a query arrives as a blank
    except ValueError as error:
        raise gr.UsageError(f"{name}={text!r:.100} is no time; write it as 2026-01-31T09:30:00Z") from error
