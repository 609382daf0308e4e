"""`ChildRuns`: starts, watches, decides about and cancels child runs (`Agent.as_tool`).

Theory of operation. A child run is a run like every other: its own actor, thread and log, a child of the runtime's
supervisor, not of its parent's tasks. It is linked to its parent by its id, which is derived from parent and call, so a
start is idempotent and a restarted parent finds the run again. The call's actor watches: it takes a notice, reads the
child's rows, reports them to the parent's machine as a state, and waits for the notice. Reports are compared with the
parent's rows, so none has to arrive exactly once. A watcher that is cancelled leaves its child run alone, because its
owner may only leave memory; the machine names the child runs that it wants cancelled (`CancelChild`).
"""

from __future__ import annotations

import math
from typing import Any, Final, cast

import attrs
import trio

from greenroom.supervision import Raised, acapture, failure_of

from ..agents.agent import Agent
from ..contract.calls import CallStatus
from ..contract.codec import StoredResult, normalise_result
from ..contract.decisions import Command, Decision
from ..contract.excerpt import shown_result
from ..contract.ids import body_error_id
from ..contract.lifecycle import RunStatus, Stage
from ..contract.messages import Usage
from ..contract.outcomes import Cancelled, Completed, Failed, Stopped, Waiting
from ..contract.rows import RunRecord
from ..engine.body_inputs import CallRaised
from ..engine.command_rules import reject
from ..engine.effects import CancelChild
from ..engine.inputs import ChildOutcome, ChildSeen, RefusedDecision
from ..errors import RunExists, RunPruned, RuntimeClosed, UnknownRun
from ..run.view import outcome_steps
from ..services.agents import Agents
from ..services.child_call import ChildCall
from ..services.children import Child
from ..services.sanitize import text_of
from ..services.services import Services, retry_until_available
from ..services.stepping import in_steps
from ..tools.agent_tool import AgentTool
from ..tools.arguments import ArgumentsError
from ..tools.invoke import ToolFailed, out_of_time, shown_text
from .run_registry import RunRegistry
from .start_request import StartRequest, new_run
from .starting import Starter

AGAIN: Final = 1.0
"""Seconds until a command that could not be journaled is posted again."""
PRUNED: Final = "The child run is done and was deleted before its result was read."


class _NotStarted(Exception):
    """The child run cannot be started: the code of the call, and the text for the model."""

    def __init__(self, code: str, text: str, *, fatal: bool = False) -> None:
        super().__init__(text)
        self.code, self.fatal = code, fatal


@attrs.define(eq=False, repr=False)
class ChildRuns:
    """The child runs of one runtime, as their parents' calls see them (`ChildWork`)."""

    _services: Services
    _registry: RunRegistry
    _agents: Agents
    _starter: Starter
    _max_depth: int | None

    def __repr__(self) -> str:
        return f"<ChildRuns, at most {self._max_depth} deep>"

    # --- starting ----------------------------------------------------------------------------------------------------

    async def watch(self, call: ChildCall, child: Child) -> None:
        """Start the child run of a call, or find it, and report its changes until its end.

        Cancellation: the child run is left alone.
        """
        try:
            await self._watch(call, child)
        except RuntimeClosed:  # the parent's owner is being stopped, too; the next one begins here again
            child.pausing = True
            await trio.sleep_forever()

    async def _watch(self, call: ChildCall, child: Child) -> None:
        try:
            await self._begin(call)
        except _NotStarted as error:
            text = text_of(str(error))
            call.submit(
                CallRaised(call_id=call.call_id, attempt=call.attempt, code=error.code, shown=text, fatal=error.fatal)
            )
            return
        tool = call.tool
        patience = math.inf if tool is None or tool.timeout is None else tool.timeout
        with trio.CancelScope() as limit:
            await self._report(call, limit, patience, watcher=child)
            return
        assert tool is not None  # noqa: S101 - without a tool there is no limit
        await self._post_cancel(call, f"timeout:{call.parent.run_id}/{call.call_id}", str(out_of_time(tool)), None)
        await self._report(call, trio.CancelScope(), math.inf, late=out_of_time(tool))

    async def _begin(self, call: ChildCall) -> None:
        """Start the child run if it does not exist.

        Raises:
            _NotStarted: it cannot be started.
        """
        outline = await retry_until_available(self._services.store.outline, call.child_run)
        if outline is None:
            await self._create(call)
        elif outline.info.parent_run != call.parent.run_id:
            raise _NotStarted("child_failed", f"another run has the id {call.child_run} of the child run")
        elif outline.status is not RunStatus.DONE:
            agent = self._agents.get(outline.info.agent)
            if agent is not None:
                self._registry.admit_child(call.child_run, agent, call.deps)

    async def _create(self, call: ChildCall) -> None:
        tool, parent = call.tool, call.parent
        if tool is None:
            raise _NotStarted("unknown_tool", "the agent has no such tool any more")
        depth = parent.depth + 1
        if self._max_depth is not None and depth > self._max_depth:
            text = f"Child runs are nested {self._max_depth} deep already (max_depth): the agent was not asked."
            raise _NotStarted("depth_exceeded", text)
        agent = cast("Agent[object]", tool.agent)
        try:
            text = await tool.input_for(call.arguments)
            request = StartRequest(
                agent=agent,
                text=text,
                run_id=call.child_run,
                session_id=parent.session_id,
                by=parent.by,
                workspace=parent.workspace,
                deadline=parent.deadline,
                has_deps=parent.has_deps,
                parent_run=parent.run_id,
                parent_call=call.call_id,
                depth=depth,
            )
            self._agents.startable(agent)
        except ArgumentsError as error:
            raise _NotStarted("invalid_arguments", str(error)) from None
        except BaseException as error:  # noqa: BLE001, ASYNC103 - user code: a failure of the tool
            failure = failure_of(error)
            failure_text = self._logged(call, tool, failure)
            raise _NotStarted("tool_error", failure_text, fatal=tool.on_error == "raise") from failure  # noqa: ASYNC104 - the border has raised what passes
        new = new_run(request, self._services.clock.now(), self._services.redactor, place=parent.place)
        try:
            await retry_until_available(self._starter.begin, new, agent, call.deps)
        except RunExists:  # an earlier incarnation has started it meanwhile
            return
        except RunPruned:
            raise _NotStarted("child_failed", PRUNED) from None

    def _logged(self, call: ChildCall, tool: AgentTool, error: BaseException) -> str:
        """Log a failure of a function of the tool; returns the text for the model."""
        run_id, fatal = call.parent.run_id, tool.on_error == "raise"
        failure = ToolFailed(shown_text(error), code="tool_error", fatal=fatal)
        failure.__cause__ = error
        call.log.tool_failed(
            f"tool {tool.name!r} failed in call {call.call_id} of run {run_id}",
            failure,
            code="tool_error",
            error_id=body_error_id(run_id, call.call_id, call.attempt),
            tool=tool.name,
            call_id=call.call_id,
            attempt=call.attempt,
        )
        return str(failure)

    # --- watching ----------------------------------------------------------------------------------------------------

    async def _report(
        self,
        call: ChildCall,
        limit: trio.CancelScope,
        patience: float,
        *,
        late: ToolFailed | None = None,
        watcher: Child | None = None,
    ) -> None:
        """Report the child run until its end. `patience`: seconds without a wait after which `limit` is cancelled.

        The `watcher` keeps the parent run in memory until the first report: the child run may have woken its parent.
        """
        known_ids = set(call.known_tickets)
        last: ChildSeen | None = None
        signal = self._services.signals.signal(call.child_run)
        while True:
            notice = signal.news()
            report = await self._look(call, known_ids, late)
            waits, was = report.status is RunStatus.WAITING, None if last is None else last.status
            if waits:
                limit.deadline = math.inf
            elif was is not report.status:
                limit.deadline = trio.current_time() + patience
            if watcher is not None:  # from here on another owner can watch, but not before it has looked
                watcher.pausing, watcher.notice = True, notice
            if report != last:
                call.submit(report)
            else:
                call.nudge()
            if report.outcome is not None:
                return
            last = report
            await notice.wait()

    async def _look(
        self,
        call: ChildCall,
        known_ids: set[str],
        late: ToolFailed | None = None,
        refused: RefusedDecision | None = None,
    ) -> ChildSeen:
        """Return the stored child run. `known_ids`: The tickets to report in any case; the open ones are added."""
        store = self._services.store
        record = await retry_until_available(store.load, call.child_run)
        if record is None:
            end = ChildOutcome(stage=Stage.FAILED, status=CallStatus.FAILED, shown=PRUNED, call_code="child_failed")
            return ChildSeen(call_id=call.call_id, status=RunStatus.DONE, agent="", outcome=end, refused=refused)
        by_id = {ticket.ticket_id: ticket for ticket in record.tickets}
        for ticket_id in known_ids - by_id.keys():
            ticket = await retry_until_available(store.ticket, call.child_run, ticket_id)
            if ticket is not None:
                by_id[ticket_id] = ticket
        tickets = tuple(t for t in by_id.values() if t.status == "open" or t.ticket_id in known_ids)
        known_ids.update(ticket.ticket_id for ticket in tickets)
        done = record.row.status is RunStatus.DONE
        if done:
            await self._registry.tasks_ended(call.child_run, record)
        return ChildSeen(
            call_id=call.call_id,
            status=record.row.status if record.at_rest or done else RunStatus.RUNNING,
            agent=record.info.agent,
            tickets=tickets,
            outcome=await self._outcome(call, record, late) if done else None,
            usage=record.row.usage if done else Usage(),
            refused=refused,
        )

    async def _outcome(self, call: ChildCall, record: RunRecord, late: ToolFailed | None) -> ChildOutcome:
        """Return the outcome of a call whose child run is done."""
        agent = self._agents.present(self._agents.get(record.info.agent), record.row.agent)
        outcome = await in_steps(outcome_steps(record, agent, self._services.redactor))
        stage, tool = record.row.stage, call.tool
        fatal = tool is not None and tool.on_error == "raise"
        code = None if record.row.termination is None else record.row.termination.code
        if late is not None:
            text = str(late)
            return ChildOutcome(
                stage=stage, status=CallStatus.FAILED, shown=text, code=code, call_code=late.code, fatal=late.fatal
            )
        text = ""
        match outcome:
            case Stopped(output=None):
                text = f"The agent was stopped and gave no answer ({outcome.code})."
            case Completed():
                return await self._completed(call, outcome, stage, code)
            case Cancelled():
                why = "" if outcome.reason is None else f": {outcome.reason}"
                text = f"The agent's run was cancelled{why}"
                return ChildOutcome(
                    stage=stage, status=CallStatus.CANCELLED, shown=text, code=code, call_code="cancelled"
                )
            case Failed():
                text = f"The agent failed ({outcome.code}): {outcome.message}"
            case Waiting():  # never: the run is done
                pass
        return ChildOutcome(
            stage=stage, status=CallStatus.FAILED, shown=text, code=code, call_code="child_failed", fatal=fatal
        )

    async def _completed(
        self, call: ChildCall, outcome: Completed[object], stage: Stage, code: str | None
    ) -> ChildOutcome:
        tool = call.tool
        result = await acapture(_result_of, tool, outcome)
        if isinstance(result, Raised):
            # without a tool nothing but the size of the output can fail
            text = text_of(str(result.error) if tool is None else self._logged(call, tool, result.error))
            fatal = tool is not None and tool.on_error == "raise"
            return ChildOutcome(
                stage=stage, status=CallStatus.FAILED, shown=text, code=code, call_code="tool_error", fatal=fatal
            )
        (data, parts, why), text, large = result.value
        if why is not None:
            text, large = f"The call succeeded, but its result cannot be shown ({why}).", False
        ends: dict[str, Any] = {"stage": stage, "code": code, "result": data, "parts": parts}
        return ChildOutcome(status=CallStatus.SUCCEEDED, shown=text, large=large, **ends)

    # --- commands ----------------------------------------------------------------------------------------------------

    async def forward(self, call: ChildCall, decision: Decision, _: Child) -> None:
        """Post a decision about a mirror to the child run, until it is answered; a rejection is reported.

        The decision keeps its id: posted twice, it acts once.
        """
        name = decision.decision_id
        command = Command(command_id=name, kind="decide", decision=decision, by=decision.decided_by)
        while True:
            try:
                result = await self._services.directory.post(call.child_run, command)
            except UnknownRun:
                result = reject(command, "unknown_target", "the child run does not exist")
            if result.ok:
                return
            if result.code not in ("store_unavailable", "busy"):
                break
            await trio.sleep(AGAIN)
        refusal = RefusedDecision(decision_id=name, code=result.code or "", detail=result.detail or "")
        call.submit(await self._look(call, set(call.known_tickets), refused=refusal))

    async def cancel(self, call: ChildCall, watcher: Child | None, effect: CancelChild, _: Child) -> None:
        """Cancel the child run of a call, and report its end if no other task does."""
        is_followed = watcher is not None and not watcher.scope.cancel_called
        if watcher is not None and not is_followed:
            await watcher.ended.wait()  # it may have been starting the child run
        name = f"cancel:{call.parent.run_id}/{call.call_id}"
        try:
            if await self._post_cancel(call, name, effect.reason, effect.by) and not is_followed:
                await self._report(call, trio.CancelScope(), math.inf)
        except RuntimeClosed:
            await trio.sleep_forever()

    async def _post_cancel(self, call: ChildCall, name: str, reason: str, by: str | None) -> bool:
        """Ask the child run to end. Returns False if it was never started."""
        command = Command(command_id=name, kind="cancel", reason=reason, by=by)
        while True:
            try:
                result = await self._services.directory.post(call.child_run, command)
            except UnknownRun:
                return False
            if result.code not in ("store_unavailable", "busy"):
                return True
            await trio.sleep(AGAIN)


async def _result_of(tool: AgentTool | None, outcome: Completed[object]) -> tuple[StoredResult, str, bool]:
    """Return the result of a call whose child run has completed, and how it is shown."""
    result = normalise_result(outcome.output if tool is None else await tool.result_of(outcome))
    text, large, _ = shown_result(result[0])
    return result, text, large
