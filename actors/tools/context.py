"""What a tool's body is told about its call, and how it speaks while it works.

The runtime makes the contexts. A unit test makes one itself: `ToolContext(deps=fake)` is enough, and what a body
reports then goes nowhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol

import attrs
import trio

from ..contract.decisions import Decision
from ..contract.ids import idempotency_key
from ..contract.plain import JSONObject
from ..contract.tasks import TaskView
from ..errors import ToolError, UsageError
from ..state.access import WritableState, check_state
from ..state.values import copied_decision

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")


class Spawnable(Protocol):
    """What `spawn` takes beside a name: a `Tool`."""

    @property
    def name(self) -> str:
        """What the model calls the tool by."""

    @property
    def background(self) -> bool:
        """Whether each call of the tool becomes a task."""


async def _nobody_hears_progress(fraction: float, text: str) -> None: ...


async def _nobody_hears_output(text: str) -> None: ...


def _deaf_progress(fraction: float, text: str) -> None: ...


def _deaf_output(text: str) -> None: ...


def _carry_on() -> None: ...


def _alone(what: str) -> UsageError:
    return UsageError(
        f"{what}: nobody runs tasks for a context that was made by hand; give it start_task=, stop_task=, see_tasks="
    )


async def _start_nothing(tool: str, arguments: JSONObject) -> str:
    raise _alone(f"spawn({tool!r})")


async def _stop_nothing(task_id: str) -> bool:
    raise _alone(f"cancel_task({task_id!r})")


async def _see_nothing() -> tuple[TaskView, ...]:
    raise _alone("tasks()")


def _start_none(tool: str, arguments: JSONObject) -> str:
    raise _alone(f"spawn({tool!r})")


def _stop_none(task_id: str) -> bool:
    raise _alone(f"cancel_task({task_id!r})")


def _see_none() -> tuple[TaskView, ...]:
    raise _alone("tasks()")


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
    """The facts that both contexts carry."""

    deps: Deps = attrs.field(default=None)
    run_id: str = ""
    thread_id: str = ""
    call_id: str = ""
    task_id: str | None = None
    attempt: int = 1
    decision: Decision | None = attrs.field(default=None, converter=attrs.converters.optional(copied_decision))
    state: WritableState = attrs.field(factory=WritableState, validator=check_state)

    @property
    def idempotency_key(self) -> str:
        """One key per call or task, the same in every attempt: the outside world recognises a repetition by it."""
        return idempotency_key(self.run_id, self.task_id or self.call_id)


@attrs.frozen(kw_only=True)
class ToolContext(_ContextBase[Deps]):
    """What an async tool is given as its first parameter.

    Attributes:
        deps: what the run was started with.
        run_id, thread_id, call_id: where we are.
        task_id: in the background: of the task; else None.
        attempt: counts from 1; a tool that is run again (after a crash, a suspension, a decision) sees a higher one.
        decision: the newest answer to what the body has asked by a `Suspend`; None until then. Permissions (an
            approval, that of a plugin's gate, to run a lost body again) are no answers; the gates are told of them.
        state: state keys. What the body writes it reads; others see it when the body has returned.
        report_progress, report_output: where the runtime takes reports; call `progress` and `output` instead.
        start_task, stop_task, see_tasks: set by the runtime; call `spawn`, `cancel_task` and `tasks` instead.
    """

    report_progress: Callable[[float, str], Awaitable[None]] = attrs.field(default=_nobody_hears_progress, repr=False)
    report_output: Callable[[str], Awaitable[None]] = attrs.field(default=_nobody_hears_output, repr=False)
    start_task: Callable[[str, JSONObject], Awaitable[str]] = attrs.field(default=_start_nothing, repr=False)
    stop_task: Callable[[str], Awaitable[bool]] = attrs.field(default=_stop_nothing, repr=False)
    see_tasks: Callable[[], Awaitable[tuple[TaskView, ...]]] = attrs.field(default=_see_nothing, repr=False)

    async def progress(self, fraction: float, text: str = "") -> None:
        """Tell how far the body is. Reports may be merged; the newest one wins. A checkpoint.

        Args:
            fraction: done so far, 0.0 to 1.0.
            text: a few words for people.

        Raises:
            ValueError: the fraction is out of range, or the text is no str.
        """
        fraction, text = _fraction(fraction), _text(text, "progress")
        await trio.lowlevel.checkpoint()
        await self.report_progress(fraction, text)

    async def output(self, chunk: str) -> None:
        """Stream a piece of output to whoever follows the run; the model gets the return value, not this. A checkpoint.

        Chunks keep their order and may be merged. Waits while too much is on its way.

        Raises:
            ValueError: the chunk is no str.
        """
        chunk = _text(chunk, "output")
        await trio.lowlevel.checkpoint()
        await self.report_output(chunk)

    async def spawn(self, tool: Spawnable | str, /, **arguments: object) -> str:
        """Start a tool of the agent as a background task of this run, and go on beside it.

        The task belongs to the run, not to this call: it goes on when this body has ended, and its result comes to the
        model as a message. It is stored that it runs before this returns. A body that is run again (after a crash, a
        suspension) spawns the same tasks again: a spawn with the same tool and arguments, at the same place among such
        spawns of its attempt, is the task that there is already, also if that has ended.

        Cancellation: the task may run; the same spawn again, in this attempt too, is that one.

        Args:
            tool: of the agent; one that needs no approval, and is neither ordered nor exclusive.
            arguments: as the model would give them, JSON data.

        Returns:
            The task's id.

        Raises:
            ToolError: it can not be spawned: there is no such tool, it needs an approval, the arguments do not fit, or
                the run has as many tasks as it may have (`Agent(max_tasks=...)`).
            UsageError: nobody runs tasks here: the context was made by hand.
        """
        await trio.lowlevel.checkpoint()
        return await self.start_task(_named(tool), arguments)

    async def cancel_task(self, task_id: str) -> bool:
        """Cancel a background task of this run. Its clean-up has its tool's grace; how it ended comes as a message.

        Returns:
            True if the task lived.

        Raises:
            ToolError: the run has no owner any more.
            UsageError: nobody runs tasks here: the context was made by hand.
        """
        await trio.lowlevel.checkpoint()
        return await self.stop_task(task_id)

    async def tasks(self) -> tuple[TaskView, ...]:
        """The background tasks of this run that live now, oldest first.

        Raises:
            ToolError: the run has no owner any more.
            UsageError: nobody runs tasks here: the context was made by hand.
        """
        await trio.lowlevel.checkpoint()
        return await self.see_tasks()


@attrs.frozen(kw_only=True)
class SyncToolContext(_ContextBase[Deps]):
    """What a sync tool is given as its first parameter: the same facts, plain functions. It works in a worker thread.

    A thread can not be cancelled from outside. `progress`, `output` and `check_cancelled` are where it hears of it:
    they raise `trio.Cancelled` once the call has been cancelled or has timed out. A body that calls one of them now and
    then ends in time.

    Attributes:
        deps: what the run was started with.
        run_id, thread_id, call_id: where we are.
        task_id: in the background: of the task; else None.
        attempt: counts from 1.
        decision: the newest answer to what the body has asked by a `Suspend`; None until then. Permissions (an
            approval, that of a plugin's gate, to run a lost body again) are no answers; the gates are told of them.
        state: as in `ToolContext`.
        report_progress, report_output, heed, start_task, stop_task, see_tasks: set by the runtime.
    """

    report_progress: Callable[[float, str], None] = attrs.field(default=_deaf_progress, repr=False)
    report_output: Callable[[str], None] = attrs.field(default=_deaf_output, repr=False)
    heed: Callable[[], None] = attrs.field(default=_carry_on, repr=False)
    start_task: Callable[[str, JSONObject], str] = attrs.field(default=_start_none, repr=False)
    stop_task: Callable[[str], bool] = attrs.field(default=_stop_none, repr=False)
    see_tasks: Callable[[], tuple[TaskView, ...]] = attrs.field(default=_see_none, repr=False)

    def progress(self, fraction: float, text: str = "") -> None:
        """Tell how far the body is; as `ToolContext.progress`.

        Raises:
            ValueError: the fraction is out of range, or the text is no str.
            trio.Cancelled: the call has been cancelled.
        """
        fraction, text = _fraction(fraction), _text(text, "progress")
        self.heed()
        self.report_progress(fraction, text)

    def output(self, chunk: str) -> None:
        """Stream a piece of output; as `ToolContext.output`.

        Raises:
            ValueError: the chunk is no str.
            trio.Cancelled: the call has been cancelled.
        """
        chunk = _text(chunk, "output")
        self.heed()
        self.report_output(chunk)

    def spawn(self, tool: Spawnable | str, /, **arguments: object) -> str:
        """Start a tool of the agent as a background task of this run; as `ToolContext.spawn`.

        Raises:
            ToolError: it can not be spawned, and why.
            UsageError: nobody runs tasks here: the context was made by hand.
            trio.Cancelled: the call has been cancelled.
        """
        self.heed()
        return self.start_task(_named(tool), arguments)

    def cancel_task(self, task_id: str) -> bool:
        """Cancel a background task of this run; as `ToolContext.cancel_task`.

        Raises:
            ToolError: the run has no owner any more.
            UsageError: nobody runs tasks here: the context was made by hand.
            trio.Cancelled: the call has been cancelled.
        """
        self.heed()
        return self.stop_task(task_id)

    def tasks(self) -> tuple[TaskView, ...]:
        """The background tasks of this run that live now; as `ToolContext.tasks`.

        Raises:
            ToolError: the run has no owner any more.
            UsageError: nobody runs tasks here: the context was made by hand.
            trio.Cancelled: the call has been cancelled.
        """
        self.heed()
        return self.see_tasks()

    def check_cancelled(self) -> None:
        """End here if nobody wants the result any more.

        Raises:
            trio.Cancelled: the call has been cancelled.
        """
        self.heed()
