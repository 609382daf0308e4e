"""The actor of one tool call: runs the body when the machine starts an attempt, and waits while the call is suspended.

Theory of operation. A call that never suspends is one task that runs one body. A suspended call keeps its task: the
task parks on a mailbox with the ticket, and the decision arrives as a message (`StartCall` with the decision), or
`Release` if the call ended without its body. After a restart a parked call gets a new actor from its rows (`parked`). A
body that ignores its time limit or runs in a thread that ignores its cancel is given up: the call fails, its late
result is dropped, and the run's end names the body.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import attrs
import trio
from msgspec.structs import replace

from greenroom.supervision import Mailbox, Returned, acapture, capture

from ..agents.agent import Agent
from ..agents.attachments import with_attachments
from ..agents.handoff import Filter, Handoff
from ..contract.calls import CallStatus
from ..contract.codec import failure_text, normalise_result
from ..contract.decisions import Suspend
from ..contract.facts import CallFacts
from ..contract.ids import body_error_id
from ..contract.parts import InvalidPart
from ..contract.phases import Phase
from ..contract.plain import JSONObject, JSONValue
from ..contract.rows import CallRow, RunRow
from ..contract.sizes import TooLarge
from ..contract.spec import OfferedTool
from ..contract.state import Keys
from ..engine.body_inputs import CallRaised, CallSuspended, ResultRefused, Spent
from ..engine.effects import StartCall, StartTask
from ..engine.inputs import Input
from ..plugins.contexts import PhaseContext
from ..services.child_call import ChildCall
from ..services.children import SLACK, Child, Cue, Release
from ..services.error_log import ErrorLog
from ..services.sanitize import InvalidValue, messages_of, suspend_of, text_of
from ..state.access import State, WritableState
from ..state.snapshot import StateSnapshot
from ..state.values import copied, copied_decision, copied_message
from ..tools.agent_tool import AgentTool
from ..tools.context import SyncToolContext, ToolContext
from ..tools.definition import Tool
from ..tools.invoke import Invocation, ToolFailed, invoke, out_of_time, shown_text
from ..user_code.calls import HookFailed
from ..user_code.guardrails import in_order, log_failure
from ..user_code.toolsets import offered_tool
from .body_port import BodyPort
from .body_reports import BodyReports
from .masking import Mask
from .results import kept, stored
from .run_context import RunContext
from .step_tools import tool_of_call

_MAILBOX: Final = 8
"""Capacity of a parked call's mailbox. The machine sends one message at a time."""


@attrs.define(eq=False, repr=False)
class CallActor:
    """Runs the attempts of one call, or one attempt of a background task.

    Attributes:
        tool: The tool of the agent; None if the agent does not have the tool any more.
    """

    _run: RunContext
    _agent: Agent[object]
    tool: Tool[..., object] | None
    _run_row: RunRow

    async def start(self, cue: StartCall, child: Child) -> None:
        """The body of an actor that starts with an attempt."""
        if await self._attempt(child, cue):
            await self.parked(child)

    async def start_task(self, effect: StartTask, child: Child) -> None:
        """The body of an actor that runs a background task. It never waits for a decision: the machine ends it then."""
        cue = StartCall(
            call_id=effect.task_id,
            attempt=effect.attempt,
            tool=effect.tool,
            arguments=effect.arguments,
            state=effect.state,
        )
        await self._attempt(child, cue, of_call=effect.call_id)

    async def parked(self, child: Child) -> None:
        """Run an actor that begins parked."""
        mailbox = child.mailbox
        if mailbox is None:
            raise RuntimeError(f"{child!r} has no mailbox to wait on")
        again = True
        while again:
            await mailbox.wait()
            if not len(mailbox):
                continue
            # the cancel may have come after the message: the body must not begin
            await trio.lowlevel.checkpoint_if_cancelled()
            # popped and acted on without a checkpoint between: a popped message is never lost to a cancel
            cue = mailbox.pop()
            again = not isinstance(cue, Release) and await self._attempt(child, cue)

    async def _attempt(self, child: Child, cue: StartCall, of_call: str | None = None) -> bool:
        """Run the body once. Returns True if the call is suspended and waits.

        `of_call`: for a task, the call it came from.
        """
        tool = self.tool
        if cue.child_run is not None:
            call = ChildCall(
                parent=self._run.info,
                call_id=cue.call_id,
                attempt=cue.attempt,
                child_run=cue.child_run,
                tool=tool if isinstance(tool, AgentTool) else None,
                arguments=cue.arguments,
                known_tickets=cue.known_tickets,
                deps=self._run.deps,
                submit=self._run.children.submit_input,
                nudge=self._run.children.nudge,
                log=self._run.log,
            )
            await self._run.services.directory.child_runs.watch(call, child)
            return False
        body = tool if cue.offered is None else await self._offered_tool(cue, cue.offered)
        if body is None:
            text = f"the tool {cue.tool!r} is not there any more"
            outcome: Input = CallRaised(call_id=cue.call_id, attempt=cue.attempt, code="unknown_tool", shown=text)
        elif isinstance(body, Tool):
            children, of_task = self._run.children, of_call is not None
            reports = BodyReports(children, cue.call_id, cue.attempt, body.name, of_task=of_task)
            outcome = reports.with_usage(await self._invoke(child, body, cue, of_call, reports=reports))
        else:
            outcome = body
        waits = of_call is None and not self._run.children.given_up(child)
        is_suspended = isinstance(outcome, CallSuspended) and waits
        if is_suspended and child.mailbox is None:
            child.mailbox = make_mailbox(cue.call_id)
        submit = self._run.children.submit_input if is_suspended else self._run.children.submit_last
        submit(outcome)
        return is_suspended

    async def _offered_tool(self, cue: StartCall, offered: OfferedTool) -> Tool[..., object] | Input | None:
        """Return the tool of a toolset, or the outcome of a call that cannot run, or not before people were asked."""
        call_id, attempt = cue.call_id, cue.attempt
        tool = await tool_of_call(self._run, self._agent, offered, again=cue.waited)
        if isinstance(tool, str):
            return CallRaised(call_id=call_id, attempt=attempt, code="runtime_unavailable", shown=tool)
        now = None if tool is None else offered_tool(tool, offered.toolset)
        if now is None or now.definition == offered.definition:
            return tool
        text = f"The tool {offered.name!r} has changed since it was called. Approve the call with the tool of now?"
        definitions = {"called": _definition(offered), "now": _definition(now)}
        question = Suspend(reason="tool_permission", message=text, parameters=definitions)
        return CallSuspended(call_id=call_id, attempt=attempt, suspend=question, offered=now)

    async def _invoke(
        self, child: Child, tool: Tool[..., object], cue: StartCall, of_call: str | None, *, reports: BodyReports
    ) -> Input:
        call_id, attempt = cue.call_id, cue.attempt
        record, state = Invocation(fence=self._run.children.fence), WritableState(cue.state, self._agent.spec.keys)
        end = self._timed(child, tool, cue, of_call, reports)
        ctx, threads = self._context(tool, cue, state, of_call, reports), self._run.services.threads
        try:
            await self._keep_step(tool)
            value = await invoke(tool, ctx, cue.arguments, limiter=threads, record=record)
        except ToolFailed as error:
            return self._failed(tool, cue, of_call, error)
        finally:
            if end is not None:
                end.set()
            state.close("the body has ended")
            if record.ended is not None:
                self._run.children.give_up(child, record.stack, record.ended)
        if isinstance(value, Suspend):
            return self._suspended(tool, cue, value)
        if isinstance(tool, Handoff):
            return await self._handed_over(tool, cue, state)
        try:
            result = await stored(value)
            done = kept(call_id, attempt, result, state, children=self._run.children, step=self._run_row.step)
        except (InvalidPart, TooLarge) as error:
            return self._unkept(tool, cue, of_call, error)
        if tool.output_guardrails:
            data, parts, _ = result
            copy = partial(with_attachments, value, data) if parts else partial(copied, data)
            refusal = await self._guarded(child, tool, cue, of_call, copy, spent=reports.usage)
            if refusal is not None:
                return refusal
        return done

    def _timed(
        self, child: Child, tool: Tool[..., object], cue: StartCall, of_call: str | None, reports: BodyReports
    ) -> trio.Event | None:
        """Give up an async body that ignores the end of its time; see `_limited`. Returns None if its time is free."""
        if tool.timeout is None or not tool.is_async:
            return None

        def late() -> Input:
            return reports.with_usage(self._failed(tool, cue, of_call, out_of_time(tool)))

        return self._limited(child, f"{cue.call_id}:{cue.attempt}", tool.timeout + tool.grace + SLACK, late)

    async def _keep_step(self, tool: Tool[..., object]) -> None:
        """Let the run's workspace keep what it has, before a body may change that.

        Raises:
            ToolFailed: the workspace cannot, so the body does not begin.
        """
        if tool.effect == "read":
            return
        kept_step = await acapture(self._run.keep_step, self._run_row.step - 1)
        if not isinstance(kept_step, Returned):
            text = f"The call has not begun: the workspace cannot keep its files. {shown_text(kept_step.error)}"
            raise ToolFailed(text, code="tool_error", fatal=tool.on_error == "raise") from kept_step.error

    @staticmethod
    def _suspended(tool: Tool[..., object], cue: StartCall, value: Suspend) -> Input:
        """Return the input about a body that asks for a decision."""
        suspend = capture(suspend_of, value)  # its values are the tool's objects, and reading them may run any code
        if isinstance(suspend, Returned):
            return CallSuspended(call_id=cue.call_id, attempt=cue.attempt, suspend=suspend.value)
        why = suspend.error if isinstance(suspend.error, InvalidValue) else failure_text(suspend.error)
        text = f"The tool {tool.name!r} asked for a decision that cannot be stored: {why}."
        fatal = tool.on_error == "raise"
        return CallRaised(call_id=cue.call_id, attempt=cue.attempt, code="tool_error", shown=text, fatal=fatal)

    async def _handed_over(self, tool: Handoff, cue: StartCall, state: WritableState) -> Input:
        """Return the outcome of a handoff whose callback has returned: its input filter is asked now."""
        result, step = normalise_result({"agent": tool.key}), self._run_row.step
        try:
            done = kept(cue.call_id, cue.attempt, result, state, children=self._run.children, step=step)
        except TooLarge as error:  # its callback wrote too much to state
            return self._unkept(tool, cue, None, error)
        if tool.input_filter is None:
            return done
        filter_result = await acapture(self._filtered, tool.input_filter)
        if isinstance(filter_result, Returned):
            return replace(done, inherited=filter_result.value)
        text = f"The input filter of the handoff failed: {shown_text(filter_result.error)}"
        failure = ToolFailed(text, code="tool_error", fatal=tool.on_error == "raise")
        failure.__cause__ = filter_result.error
        return self._failed(tool, cue, None, failure)

    async def _filtered(self, function: Filter) -> tuple[JSONValue, ...]:
        """Return the result of an input filter for the thread, up to the message with the handoff's call, as JSON.

        Raises:
            InvalidValue: the filter returned anything but messages.
            BaseException: raised by the filter.
        """
        draft = self._run_row.draft
        thread = (*await self._run.thread(), *(() if draft is None else (draft,)))
        messages: Any = function(tuple(map(copied_message, thread)))
        return messages_of(await messages if inspect.isawaitable(messages) else messages, thread)

    async def _guarded(
        self,
        child: Child,
        tool: Tool[..., object],
        cue: StartCall,
        of_call: str | None,
        copy: Callable[[], object],
        *,
        spent: tuple[Spent, ...],
    ) -> ResultRefused | None:
        """Ask the output guardrails of the tool. Returns the verdict unless all allow.

        The body has returned: whatever happens to its guardrails, the machine learns that, and nothing of the result.
        `copy` returns the result for a guardrail: images and files themselves, with their bytes. `spent`: the usage of
        the body.
        """
        guardrails = tool.output_guardrails
        refusal = partial(ResultRefused, call_id=cue.call_id, attempt=cue.attempt, usage=spent)
        late = f"the output guardrails of the tool {tool.name!r} did not obey the end of their time"
        patience = sum(guardrail.timeout for guardrail in guardrails) + tool.grace + SLACK
        end = self._limited(child, f"guardrails:{cue.call_id}:{cue.attempt}", patience, partial(refusal, failure=late))
        try:
            trip = await in_order(guardrails, self._guardrail_context(tool, cue), copy)
            return None if trip is None else refusal(tripped=trip)
        except HookFailed as failure:
            log_failure(self._log_of(tool, cue, of_call), self._run.info.run_id, failure)
            return refusal(failure=text_of(str(failure)))
        except trio.Cancelled:
            if not self._run.children.given_up(child):
                self._run.children.submit_input(refusal(failure="the output guardrails were cancelled"))
            raise
        finally:
            end.set()

    def _guardrail_context(self, tool: Tool[..., object], cue: StartCall) -> PhaseContext:
        facts = CallFacts(
            call_id=cue.call_id,
            tool=tool.name,
            arguments=cue.arguments,
            effect=tool.effect,
            status=CallStatus.RUNNING,
            attempt=cue.attempt,
            decision=None if cue.decision is None else copied_decision(cue.decision),
        )
        return PhaseContext(
            phase=Phase.AFTER_TOOL_EXECUTE,
            run_id=self._run.info.run_id,
            thread_id=self._run.info.thread_id,
            agent=self._agent.key,
            by=self._run.info.by,
            step=self._run_row.step,
            deps=self._run.deps,
            workspace=self._run.workspace,
            state=State(cue.state, self._agent.spec.keys),
            usage=self._run_row.usage,
            text=self._run_row.answer,
            call=facts,
        )

    def _limited(self, child: Child, name: str, patience: float, late: Callable[[], Input]) -> trio.Event:
        """Give up user code that ignores its time limit. The caller sets the returned event when the code ends."""
        end = trio.Event()

        async def watch(_: Child) -> None:
            with trio.move_on_after(patience):
                await end.wait()
            if not end.is_set():
                self._run.children.give_up(child, (self._run.children.where(child),), child.ended)
                self._run.children.submit_input(late())

        self._run.children.start(f"limit:{name}", watch, broke=None, ours=True)
        return end

    def _unkept(self, tool: Tool[..., object], cue: StartCall, of_call: str | None, error: Exception) -> Input:
        """Return the input about a body whose result cannot be stored."""
        text = f"The tool {tool.name!r} ran, and its result cannot be kept: {error}."
        return self._failed(tool, cue, of_call, ToolFailed(text, code="tool_error", fatal=tool.on_error == "raise"))

    def _log_of(self, tool: Tool[..., object], cue: StartCall, of_call: str | None) -> ErrorLog:
        """Return the log of the run, with the fields of every line about an attempt."""
        return self._run.log.bind(
            error_id=body_error_id(self._run.info.run_id, cue.call_id, cue.attempt),
            agent=self._agent.key,
            tool=tool.name,
            call_id=of_call or cue.call_id,
            task_id=None if of_call is None else cue.call_id,
        )

    def _failed(self, tool: Tool[..., object], cue: StartCall, of_call: str | None, error: ToolFailed) -> Input:
        """Log the failure of a body and return the input about it."""
        run_id, call_id = self._run.info.run_id, cue.call_id
        place = "call" if of_call is None else "task"
        what = f"tool {tool.name!r} failed in {place} {call_id} of run {run_id}"
        self._log_of(tool, cue, of_call).tool_failed(what, error, code=error.code, attempt=cue.attempt)
        text = text_of(str(error))
        return CallRaised(
            call_id=call_id,
            attempt=cue.attempt,
            code=error.code,
            shown=text,
            fatal=error.fatal,
            run_code=error.run_code,
        )

    def _context(
        self,
        tool: Tool[..., object],
        cue: StartCall,
        state: WritableState,
        of_call: str | None,
        reports: BodyReports,
    ) -> ToolContext | SyncToolContext:
        facts: dict[str, Any] = {
            "deps": self._run.deps,
            "workspace": self._run.workspace,
            "run_id": self._run.info.run_id,
            "thread_id": self._run.info.thread_id,
            "call_id": of_call or cue.call_id,
            "task_id": None if of_call is None else cue.call_id,
            "attempt": cue.attempt,
            "decision": cue.decision,
            "state": state,
            "memo": copied(cue.memo),
        }
        mask = Mask(self._run.services, self._run.info.workspace)
        port = BodyPort(self._run.children, cue.call_id, cue.attempt, self._run_row.step, mask=mask)
        read_messages = partial(self._run.messages, self._run_row, cue.state)
        if tool.is_async:
            return ToolContext(
                **facts,
                report_progress=port.progress,
                report_output=port.output,
                start_task=port.start,
                stop_task=port.stop,
                see_tasks=port.see,
                ask_people=port.ask,
                call_nested=port.call_nested,
                end_nested=port.end_nested,
                reports=reports,
                save_memo=reports.save,
                count_usage=reports.spend,
                see_stop=lambda: self._run.children.stopped,
                publish=port.publish,
                read_messages=read_messages,
            )
        return SyncToolContext(
            **facts,
            report_progress=lambda part, text: trio.from_thread.run_sync(port.set_progress, part, text),
            report_output=port.output_from_thread,
            start_task=lambda name, arguments: trio.from_thread.run(port.start, name, arguments),
            stop_task=lambda task_id: trio.from_thread.run(port.stop, task_id),
            see_tasks=lambda: trio.from_thread.run(port.see),
            ask_people=lambda suspend: trio.from_thread.run(port.ask, suspend),
            save_memo=lambda memo: trio.from_thread.run(reports.save, memo),
            count_usage=lambda usage, model: trio.from_thread.run_sync(reports.spend, usage, model),
            publish=lambda artifact: trio.from_thread.run(port.publish, artifact),
            read_messages=lambda: trio.from_thread.run(read_messages),
        )


def gate_context(run: RunContext, call: CallRow, snapshot: StateSnapshot, keys: Keys) -> ToolContext:
    """Return the context for a needs_approval predicate. It reads state and cannot write it."""
    return ToolContext(
        deps=run.deps,
        workspace=run.workspace,
        run_id=run.info.run_id,
        thread_id=run.info.thread_id,
        call_id=call.call_id,
        attempt=1,
        decision=call.decision,
        state=WritableState(snapshot, keys).close("an approval is asked for; only the tool's body writes"),
    )


def _definition(offered: OfferedTool) -> JSONObject:
    return {
        "definition": offered.definition,
        "description": offered.description,
        "effect": offered.effect,
        "schema": offered.schema,
    }


def make_mailbox(call_id: str) -> Mailbox[Cue]:
    """Return the mailbox of a parked call."""
    return Mailbox(f"call {call_id}", _MAILBOX)
