"""What a principal may ask of a runtime: the one handler behind the WebSocket, HTTP and the chat protocols."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import attrs

import greenroom as gr
from greenroom.actors.abc import RunSummary
from greenroom.actors.contract.decisions import REJECTIONS, Answer, Command, Decision
from greenroom.actors.contract.rows import RunInfo
from greenroom.actors.run.view import RunView

from ..protocol.codes import Refused
from ..protocol.down import Ack
from ..protocol.up import Cancel, Decide, Pause, RunCommand, Start
from .access import Principal, everything


class Api:
    """Asks on behalf of a principal.

    What is refused raises `Refused`; beside it only RuntimeClosed, StoreDown and StoreError come out of here.
    """

    def __init__(self, runtime: gr.Runtime) -> None:
        self.runtime = runtime

    def __repr__(self) -> str:
        return f"<Api of {self.runtime!r}>"

    # --- seeing ------------------------------------------------------------------------------------------------------

    async def info(self, who: Principal, run_id: str) -> RunInfo:
        """The constant facts of a run that the principal may see.

        Raises:
            Refused: not_allowed, unknown_run.
        """
        who.need("follow")
        return await self._visible(who, run_id)

    async def head(self, who: Principal, run_id: str) -> int:
        """The sequence of the newest event of a run that the principal may see.

        Raises:
            Refused: not_allowed, unknown_run.
        """
        await self.info(who, run_id)
        with self.runtime.board.looking():
            record = await self.runtime.store.load(run_id)
        return 0 if record is None else record.row.last_sequence

    async def view(self, who: Principal, run_id: str) -> RunView:
        """One consistent snapshot; `plain_view` makes it what clients get.

        Raises:
            Refused: not_allowed, unknown_run.
        """
        who.need("follow")
        await self._visible(who, run_id)
        return await (await self._run(run_id)).view()

    async def runs(
        self,
        who: Principal,
        *,
        status: str | None = None,
        agent: str | None = None,
        thread_id: str | None = None,
        prefix: str = "",
        limit: int = 50,
        cursor: str | None = None,
    ) -> tuple[tuple[RunSummary, ...], str | None]:
        """A page of the runs that the principal may see, newest first, and the cursor of the next one.

        Raises:
            Refused: not_allowed; unprocessable: a value can not be.
        """
        who.need("follow")
        try:
            page = await self.runtime.runs(
                status=status, agent=agent, thread_id=thread_id, prefix=prefix, limit=limit, cursor=cursor
            )
        except gr.UsageError as error:
            raise Refused("unprocessable", str(error)) from error
        return tuple(one for one in page.runs if who.sees(one.info)), page.cursor

    # --- commands ----------------------------------------------------------------------------------------------------

    async def start(self, who: Principal, order: Start) -> Ack:
        """Start a run; durable when this returns. The same order again is a duplicate.

        Raises:
            Refused: not_allowed, unknown_agent, run_exists, thread_busy, unprocessable, store_unavailable, closing.
        """
        who.need("start")
        run_id = order.run or run_of(who, order.id)
        known = await self._exists(run_id)
        if order.thread is not None:
            await self._check_thread(who, order.thread)
        try:
            run = await self.runtime.start(
                order.agent,
                order.text,
                run_id=run_id,
                thread_id=order.thread,
                session_id=order.session,
                by=who.name,
                on_busy=order.on_busy,
            )
        except gr.UnknownAgent as error:
            raise Refused("unknown_agent", str(error)) from error
        except gr.RunExists as error:
            raise Refused("run_exists", str(error)) from error
        except gr.ThreadBusy as error:
            raise Refused("thread_busy", str(error)) from error
        except (gr.UsageError, gr.AgentDefinitionError) as error:
            raise Refused("unprocessable", str(error)) from error
        except (gr.StoreUnavailable, gr.StoreDown) as error:
            raise Refused("store_unavailable", str(error)) from error
        except gr.RuntimeClosed as error:
            raise Refused("closing", str(error)) from error
        return Ack(id=order.id, run=run.id, thread=run.thread_id, status="duplicate" if known else "accepted")

    async def command(self, who: Principal, command: RunCommand) -> Ack:
        """Judge and journal a command to a run.

        Raises:
            Refused: not_allowed, unknown_run, unprocessable, and every rejection of `REJECTIONS`.
        """
        who.need("start" if isinstance(command, Cancel) else "decide")
        await self._visible(who, command.run)
        try:
            answer = await self._answer(who, command)
        except gr.UsageError as error:
            raise Refused("unprocessable", str(error)) from error
        if answer.status == "rejected":
            raise await self._rejection(command, answer)
        return Ack(id=command.id, run=command.run, status=answer.status, code=answer.code)

    async def _answer(self, who: Principal, command: RunCommand) -> Answer:
        if isinstance(command, Decide):
            decision = Decision(
                target=command.target,
                action=command.action,
                decision_id=command.id,
                result=command.result,
                edited_arguments=command.edited_arguments,
                reason=command.reason,
                fingerprint=command.fingerprint,
                decided_by=who.name,
            )
            return await self.runtime.decide(command.run, decision)
        if isinstance(command, Cancel):
            asked = Command(command_id=command.id, kind="cancel", mode=command.mode, reason=command.reason, by=who.name)
        elif isinstance(command, Pause):
            asked = Command(command_id=command.id, kind="pause", reason=command.reason, by=who.name)
        else:
            asked = Command(command_id=command.id, kind="send", text=command.text, by=who.name)
        return await self.runtime.post(command.run, asked)

    async def _rejection(self, command: RunCommand, answer: Answer) -> Refused:
        code = answer.code if answer.code in REJECTIONS else "internal"
        current = None
        if code == "already_decided" and isinstance(command, Decide):
            current = await self._decided(command.run, command.target)
        return Refused(str(code), answer.detail or f"the command was rejected: {code}", current=current)

    async def _decided(self, run_id: str, target: str) -> Mapping[str, Any] | None:
        """How a ticket was decided, for whoever came too late."""
        record = await self.runtime.store.load(run_id, calls="all")
        tickets = [] if record is None else [one for one in record.tickets if target in (one.ticket_id, one.call_id)]
        if not tickets:
            return None
        names = ("ticket_id", "call_id", "status", "decided_by", "decided_at")
        return {name: getattr(tickets[-1], name) for name in names}

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _run(self, run_id: str) -> gr.Run[Any]:
        try:
            return await self.runtime.get(run_id)
        except gr.UnknownRun as error:
            raise Refused("unknown_run", str(error)) from error

    async def _visible(self, who: Principal, run_id: str) -> RunInfo:
        info = await self._info(run_id)
        if info is None or not who.sees(info):
            raise Refused("unknown_run", f"no run has the id {run_id!r:.200}; GET /v1/runs lists those you may see")
        return info

    async def _check_thread(self, who: Principal, thread_id: str) -> None:
        """A run reads its whole thread: one that holds a run that the principal may not see is not to be had."""
        cursor = None
        while who.sees is not everything:
            page = await self.runtime.runs(thread_id=thread_id, cursor=cursor)
            if not all(who.sees(one.info) for one in page.runs):
                raise Refused("not_allowed", f"the thread {thread_id!r:.200} is not yours; leave it away for a new one")
            cursor = page.cursor
            if cursor is None:
                return

    async def _info(self, run_id: str) -> RunInfo | None:
        actor = self.runtime.roster.get(run_id)
        if actor is not None and actor.durable is not None:
            return actor.durable.info
        with self.runtime.board.looking():
            record = await self.runtime.store.load(run_id)
        return None if record is None else record.info

    async def _exists(self, run_id: str) -> bool:
        return await self._info(run_id) is not None


def run_of(who: Principal, command_id: str) -> str:
    """The id of the run that a start without one begins: the same principal and command id, the same run."""
    return "run_" + sha256(f"{who.name}\n{command_id}".encode()).hexdigest()[:16]


def plain_view(view: RunView) -> dict[str, Any]:
    """What a client gets of a run at one moment: no messages, no state (those are private)."""
    return {
        "run": view.run_id,
        "thread": view.thread_id,
        "agent": view.agent,
        "by": view.by,
        "stage": view.stage,
        "status": view.status,
        "termination": None if view.termination is None else attrs.asdict(view.termination),
        "calls": dict(view.calls),
        "tickets": [plain_ticket(one) for one in view.tickets],
        "tasks": {name: attrs.asdict(task) for name, task in view.tasks.items()},
        "usage": attrs.asdict(view.usage),
        "step": view.step,
        "sequence": view.last_sequence,
        "pending": view.pending,
        "degraded": view.degraded,
    }


def plain_ticket(ticket: gr.Ticket) -> dict[str, Any]:
    """An open ticket: what a client needs to decide it."""
    names = ("ticket_id", "call_id", "tool", "arguments", "fingerprint", "reason", "action", "message", "parameters")
    more = ("response_schema", "resume_mode", "requested_at", "expires_at", "on_expiry", "reviewers")
    return {name: getattr(ticket, name) for name in (*names, *more)}


def plain_summary(summary: RunSummary) -> dict[str, Any]:
    """One line of a list of runs."""
    info, row = summary.info, summary.row
    return {
        "run": info.run_id,
        "thread": info.thread_id,
        "agent": info.agent,
        "by": info.by,
        "stage": row.stage,
        "status": row.status,
        "created_at": info.created_at,
        "step": row.step,
        "sequence": row.last_sequence,
        "usage": attrs.asdict(row.usage),
        "pending": summary.pending,
    }
