"""The contexts of tool bodies: the facts of a call, and reports while the body runs.

The runtime creates the contexts. A unit test creates one itself: `ToolContext(deps=fake)` is enough, and reports of the
body are then dropped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol

import attrs
import trio

from ..contract.artifacts import Artifact, ArtifactKind
from ..contract.decisions import Decision, Suspend
from ..contract.ids import idempotency_key
from ..contract.messages import Message, Usage
from ..contract.plain import JSONObject
from ..contract.tasks import TaskView
from ..errors import ToolError, UsageError
from ..state.access import WritableState, check_state
from ..state.values import copied_decision
from . import by_hand
from .artifacts import artifact_of, read_whole

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")


class Spawnable(Protocol):
    """A tool as `spawn` accepts it, apart from a name."""

    @property
    def name(self) -> str:
        """The tool's name for the model."""

    @property
    def background(self) -> bool:
        """Whether each call of the tool becomes a task."""


def _question(suspend: object) -> Suspend:
    if not isinstance(suspend, Suspend):
        raise UsageError(f"ask({suspend!r:.100}): give a gr.Suspend(message=...), not {type(suspend).__name__}")
    return suspend


def _named(tool: Spawnable | str) -> str:
    name = getattr(tool, "name", tool)
    if not isinstance(name, str):
        raise ToolError(f"spawn({tool!r}): that is no tool; give a tool of the agent, or its name")
    return name


def _fraction(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0.0 <= value <= 1.0:
        raise UsageError(f"progress({value!r}): the fraction done is a number from 0.0 to 1.0")
    return float(value)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{where}: the text is a str, not {type(value).__name__}; use str(...) or .decode()")
    return value


@attrs.frozen(kw_only=True)
class _ContextBase(Generic[Deps]):
    """The facts in both contexts."""

    deps: Deps = attrs.field(default=None)
    run_id: str = ""
    thread_id: str = ""
    call_id: str = ""
    task_id: str | None = None
    attempt: int = 1
    decision: Decision | None = attrs.field(default=None, converter=attrs.converters.optional(copied_decision))
    state: WritableState = attrs.field(factory=WritableState, validator=check_state)
    workspace: Any = attrs.field(default=None)
    memo: Any = None
    count_usage: Callable[[Usage, str], None] = attrs.field(default=by_hand.count_nothing, repr=False)

    def spend(self, usage: Usage, model: str = "") -> None:
        """Add what a model has used that this body has asked itself. The usage joins that of the run, and its budget.

        It counts when the body ends, with a result, a failure or a question; the usage of a body that is cut off by a
        cancel or the end of its process is lost.

        Args:
            usage: The tokens and requests since the last report.
            model: The name of the model, for the prices of a budget; "" has no price.

        Raises:
            ToolError: a count is invalid, or the body has named more than 16 models.
        """
        self.count_usage(usage, model)

    @property
    def idempotency_key(self) -> str:
        """A key per call or task, equal in every attempt, by which an outside system can detect a repetition."""
        return idempotency_key(self.run_id, self.task_id or self.call_id)


@attrs.frozen(kw_only=True)
class ToolContext(_ContextBase[Deps]):
    """The first parameter of an async tool.

    Attributes:
        deps: the dependencies of the run.
        run_id, thread_id, call_id: the place of the call.
        task_id: for a background task, its id; else None.
        attempt: counts from 1; a body that runs again (after a crash, a suspension, a decision) sees a higher number.
        decision: the newest answer to a `Suspend` of this body; None until then. Permissions (an approval, a plugin's
            gate, the repetition of a lost body) are not answers; gates see those.
        state: state keys. The body reads its own writes; others see them when the body has returned.
        memo: what an earlier attempt of this call has kept with `save`, a copy; None if nothing.
        save_memo, count_usage: set by the runtime; call `save` and `spend` instead.
        reports: set by the runtime, for bodies that let another program work: what it says and does, as events of the
            run. See `BodyReports` for errors and delivery.
        workspace: what the run works in, such as a `gr.ext.Worktree`; None for a run without a workspace.
        report_progress, report_output: set by the runtime; call `progress` and `output` instead.
        start_task, stop_task, see_tasks: set by the runtime; call `spawn`, `cancel_task` and `tasks` instead.
        ask_people: set by the runtime; call `ask` instead.
        publish: set by the runtime; call `artifact` instead.
        read_messages: set by the runtime; call `messages` instead.
        see_stop: set by the runtime; read `stopped` instead.
        call_nested, end_nested: set by the runtime, for bodies that let another program work: such a body asks before
            the program acts, does the work only if the answer has arguments, and reports the end. Calls and answers are
            concurrent. See `BodyPort` for errors and cancellation.
    """

    report_progress: Callable[[float, str], Awaitable[None]] = attrs.field(
        default=by_hand.nobody_hears_progress, repr=False
    )
    report_output: Callable[[str], Awaitable[None]] = attrs.field(default=by_hand.nobody_hears_output, repr=False)
    start_task: Callable[[str, JSONObject], Awaitable[str]] = attrs.field(default=by_hand.start_nothing, repr=False)
    stop_task: Callable[[str], Awaitable[bool]] = attrs.field(default=by_hand.stop_nothing, repr=False)
    see_tasks: Callable[[], Awaitable[tuple[TaskView, ...]]] = attrs.field(default=by_hand.see_nothing, repr=False)
    ask_people: Callable[[Suspend], Awaitable[Decision]] = attrs.field(default=by_hand.ask_nobody, repr=False)
    publish: Callable[[Artifact], Awaitable[Artifact]] = attrs.field(default=by_hand.publish_nowhere, repr=False)
    read_messages: Callable[[], Awaitable[tuple[Message, ...]]] = attrs.field(default=by_hand.no_thread, repr=False)
    see_stop: Callable[[], bool] = attrs.field(default=bool, repr=False)
    call_nested: by_hand.CallNested = attrs.field(default=by_hand.call_nothing, repr=False)
    end_nested: by_hand.EndNested = attrs.field(default=by_hand.end_nothing, repr=False)
    reports: by_hand.Reports = attrs.field(factory=by_hand.NoReports, repr=False)
    save_memo: Callable[[object], Awaitable[None]] = attrs.field(default=by_hand.keep_no_memo, repr=False)

    @property
    def stopped(self) -> bool:
        """True once the run has cancelled this call: nothing goes on with its work.

        A body that is cancelled while this is False loses its process only: another one may go on with the memo. So a
        body that has work done elsewhere ends that work only if this is True.
        """
        return self.see_stop()

    async def progress(self, fraction: float, text: str = "") -> None:
        """Report the progress of the body. Reports may be merged; the newest one wins. A checkpoint.

        Args:
            fraction: 0.0 to 1.0.
            text: a few words for people.

        Raises:
            UsageError: the fraction is out of range, or the text is not a str.
        """
        fraction, text = _fraction(fraction), _text(text, "progress")
        await trio.lowlevel.checkpoint()
        await self.report_progress(fraction, text)

    async def output(self, chunk: str) -> None:
        """Stream a piece of output to followers of the run; the model gets the return value instead. A checkpoint.

        Delivery: in order; chunks may be merged. Waits while too much output is unsaved.

        Raises:
            UsageError: the chunk is not a str.
        """
        chunk = _text(chunk, "output")
        await trio.lowlevel.checkpoint()
        await self.report_output(chunk)

    async def save(self, memo: object) -> None:
        """Keep a memo for the next attempt of this call, in place of the one before. A checkpoint.

        A body that runs again, after a crash, a decision or a conflict, reads the newest memo as `ctx.memo`: the id of
        a job elsewhere, for example, at which it looks before it begins another one. The memo is private: no event, no
        model and no view has it.

        Delivery: durable when this method returns. Cancellation: the memo may be kept.

        Args:
            memo: Plain JSON data, at most 16 KiB as JSON.

        Raises:
            ToolError: the memo is too large or has no form in JSON, the body is a background task's, or the run does
                not wait for this call any more.
        """
        await trio.lowlevel.checkpoint()
        await self.save_memo(memo)

    async def messages(self) -> tuple[Message, ...]:
        """Return the thread as the request had it whose answer made this call, without instructions. A checkpoint.

        Images and files have their bytes; one whose bytes are lost is there without. The messages are copies. A context
        that was made by hand has none.

        Cancellation: nothing is lost.

        Raises:
            StoreDown: the store has failed for good.
        """
        await trio.lowlevel.checkpoint()
        return await self.read_messages()

    async def ask(self, suspend: Suspend) -> Decision:
        """Ask people, and wait in this body for their decision: the run rests meanwhile, and this process waits.

        The ticket is live: it is withdrawn if this body or its process ends. A tool that can run again asks with
        `raise gr.Suspend(...)` instead: that question outlives the process. The time limit of the tool counts on.
        `resume_mode` is not used: the decision is the return value, and no arguments can be edited.

        Cancellation: the question is withdrawn.

        Returns:
            The decision: its `action` is "resume" or "cancel". If the ticket expires, the decision is made by "clock":
            "cancel", or "resume" with the result of `on_expiry=gr.SetResult(...)`.

        Raises:
            ToolError: the question is refused: the body is a background task's, the run does not wait for this call any
                more, too many questions are open, or a value cannot be stored.
            UsageError: the argument is no `Suspend`, or the context was made by hand and has no runtime.
        """
        question = _question(suspend)
        await trio.lowlevel.checkpoint()
        return await self.ask_people(question)

    async def artifact(
        self,
        name: str,
        data: bytes | str | Path | None = None,
        /,
        *,
        kind: ArtifactKind = "file",
        media_type: str | None = None,
        **metadata: object,
    ) -> Artifact:
        """Publish bytes: followers of the run see them, and `GET /v1/runs/{run}/artifacts/{id}` serves them.

        Secrets in a text (bytes that are UTF-8) are masked as in events. The artifact is whole or not there, and
        durable on return. A body that runs again (after a crash, a suspension) and publishes the same again gets the
        artifact of before.

        Cancellation: the artifact may be published.

        Args:
            name: the name of a file, at most 255 characters, and no path.
            data: 1 byte to 8 MiB, a text, or the path of a file that is read whole. None: only of a preview with `url`.
            kind: "file"; "document", "screenshot" or "preview", which require metadata; "diff", "transcript" or "raw",
                which are texts.
            media_type: such as "text/html". None: what the bytes and the end of the name show.
            **metadata: JSON data of at most 2,048 bytes. A document requires the texts source_route, language and
                build_status; a screenshot the texts viewport, route, theme, language and privacy_review ("none",
                "passed", or "blocked": its bytes are not stored); a preview read_at, a datetime with a zone, and path
                (the file that the bytes are from) or url (an address, as a text: nothing fetches it).

        Returns:
            The artifact with its id, without its bytes.

        Raises:
            UsageError: an argument is invalid, metadata is missing, or the bytes are too many.
            ToolError: the run has 200 artifacts or 64 MiB of them, or does not wait for this call any more, or the
                body is a background task's.
        """
        await trio.lowlevel.checkpoint()
        body = await trio.to_thread.run_sync(read_whole, data) if isinstance(data, Path) else data
        return await self.publish(artifact_of(name, body, kind=kind, media_type=media_type, metadata=metadata))

    async def spawn(self, tool: Spawnable | str, /, **arguments: object) -> str:
        """Start a tool of the agent as a background task of this run and continue beside it.

        The task belongs to the run, not to this call: it continues when this body has ended, and the model gets its
        result as a message. The task is durable before this method returns. A body that runs again (after a crash, a
        suspension) spawns the same tasks again: a spawn with the same tool and arguments, with the same number among
        equal spawns of its attempt, is the existing task, even if that has ended.

        Cancellation: the task may run; the same spawn again, also in this attempt, returns the same task.

        Args:
            tool: a tool of the agent that needs no approval and is neither ordered nor exclusive.
            arguments: as the model would give them, JSON data.

        Returns:
            The task's id.

        Raises:
            ToolError: the task is refused: unknown tool, approval needed, invalid arguments, or too many tasks
                (`Agent(max_tasks=...)`).
            UsageError: the context was made by hand and has no runtime.
        """
        await trio.lowlevel.checkpoint()
        return await self.start_task(_named(tool), arguments)

    async def cancel_task(self, task_id: str) -> bool:
        """Cancel a background task of this run. Its clean-up has its tool's grace; its outcome comes as a message.

        Returns:
            True if the task was alive.

        Raises:
            ToolError: the run has no owner any more.
            UsageError: the context was made by hand and has no runtime.
        """
        await trio.lowlevel.checkpoint()
        return await self.stop_task(task_id)

    async def tasks(self) -> tuple[TaskView, ...]:
        """Return the live background tasks of this run, oldest first.

        Raises:
            ToolError: the run has no owner any more.
            UsageError: the context was made by hand and has no runtime.
        """
        await trio.lowlevel.checkpoint()
        return await self.see_tasks()


@attrs.frozen(kw_only=True)
class SyncToolContext(_ContextBase[Deps]):
    """The first parameter of a sync tool: the same facts, plain functions. The body runs in a worker thread.

    A thread cannot be cancelled from outside. `progress`, `output` and `check_cancelled` raise `trio.Cancelled` once
    the call was cancelled or has timed out. A body that calls one of them regularly ends in time.

    Attributes:
        deps: the dependencies of the run.
        run_id, thread_id, call_id: the place of the call.
        task_id: for a background task, its id; else None.
        attempt: counts from 1.
        decision: the newest answer to a `Suspend` of this body; None until then. Permissions (an approval, a plugin's
            gate, the repetition of a lost body) are not answers; gates see those.
        state, memo, workspace: as in `ToolContext`.
        report_progress, report_output, heed, start_task, stop_task, see_tasks, ask_people, publish, save_memo,
            count_usage, read_messages: set by the runtime.
    """

    report_progress: Callable[[float, str], None] = attrs.field(default=by_hand.deaf_progress, repr=False)
    report_output: Callable[[str], None] = attrs.field(default=by_hand.deaf_output, repr=False)
    heed: Callable[[], None] = attrs.field(default=by_hand.carry_on, repr=False)
    start_task: Callable[[str, JSONObject], str] = attrs.field(default=by_hand.start_none, repr=False)
    stop_task: Callable[[str], bool] = attrs.field(default=by_hand.stop_none, repr=False)
    see_tasks: Callable[[], tuple[TaskView, ...]] = attrs.field(default=by_hand.see_none, repr=False)
    ask_people: Callable[[Suspend], Decision] = attrs.field(default=by_hand.ask_none, repr=False)
    save_memo: Callable[[object], None] = attrs.field(default=by_hand.forget_memo, repr=False)
    publish: Callable[[Artifact], Artifact] = attrs.field(default=by_hand.publish_nothing, repr=False)
    read_messages: Callable[[], tuple[Message, ...]] = attrs.field(default=tuple, repr=False)

    def progress(self, fraction: float, text: str = "") -> None:
        """Report the progress of the body; as `ToolContext.progress`.

        Raises:
            UsageError: the fraction is out of range, or the text is not a str.
            trio.Cancelled: the call was cancelled.
        """
        fraction, text = _fraction(fraction), _text(text, "progress")
        self.heed()
        self.report_progress(fraction, text)

    def output(self, chunk: str) -> None:
        """Stream a piece of output; as `ToolContext.output`.

        Raises:
            UsageError: the chunk is not a str.
            trio.Cancelled: the call was cancelled.
        """
        chunk = _text(chunk, "output")
        self.heed()
        self.report_output(chunk)

    def save(self, memo: object) -> None:
        """Keep a memo for the next attempt of this call; as `ToolContext.save`.

        Raises:
            ToolError: the memo is refused, with the reason.
            trio.Cancelled: the call was cancelled.
        """
        self.heed()
        self.save_memo(memo)

    def messages(self) -> tuple[Message, ...]:
        """Return the thread as the request had it; as `ToolContext.messages`.

        Raises:
            StoreDown: the store has failed for good.
            trio.Cancelled: the call was cancelled.
        """
        self.heed()
        return self.read_messages()

    def ask(self, suspend: Suspend) -> Decision:
        """Ask people, and wait in this thread for their decision; as `ToolContext.ask`.

        Raises:
            ToolError: the question is refused, with the reason.
            UsageError: the argument is no `Suspend`, or the context was made by hand and has no runtime.
            trio.Cancelled: the call was cancelled.
        """
        question = _question(suspend)
        self.heed()
        return self.ask_people(question)

    def artifact(
        self,
        name: str,
        data: bytes | str | Path | None = None,
        /,
        *,
        kind: ArtifactKind = "file",
        media_type: str | None = None,
        **metadata: object,
    ) -> Artifact:
        """Publish bytes; as `ToolContext.artifact`.

        Raises:
            UsageError: an argument is invalid, metadata is missing, or the bytes are too many.
            ToolError: the artifact is refused, with the reason.
            trio.Cancelled: the call was cancelled.
        """
        self.heed()
        body = read_whole(data) if isinstance(data, Path) else data
        return self.publish(artifact_of(name, body, kind=kind, media_type=media_type, metadata=metadata))

    def spawn(self, tool: Spawnable | str, /, **arguments: object) -> str:
        """Start a tool of the agent as a background task of this run; as `ToolContext.spawn`.

        Raises:
            ToolError: the task is refused, with the reason.
            UsageError: the context was made by hand and has no runtime.
            trio.Cancelled: the call was cancelled.
        """
        self.heed()
        return self.start_task(_named(tool), arguments)

    def cancel_task(self, task_id: str) -> bool:
        """Cancel a background task of this run; as `ToolContext.cancel_task`.

        Raises:
            ToolError: the run has no owner any more.
            UsageError: the context was made by hand and has no runtime.
            trio.Cancelled: the call was cancelled.
        """
        self.heed()
        return self.stop_task(task_id)

    def tasks(self) -> tuple[TaskView, ...]:
        """Return the live background tasks of this run; as `ToolContext.tasks`.

        Raises:
            ToolError: the run has no owner any more.
            UsageError: the context was made by hand and has no runtime.
            trio.Cancelled: the call was cancelled.
        """
        self.heed()
        return self.see_tasks()

    def check_cancelled(self) -> None:
        """End the body here if its call was cancelled.

        Raises:
            trio.Cancelled: the call was cancelled.
        """
        self.heed()
