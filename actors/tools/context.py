"""What a tool's body is told about its call, and how it speaks while it works.

The runtime makes the contexts. A unit test makes one itself: `ToolContext(deps=fake)` is enough, and what a body
reports then goes nowhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic

import attrs
import trio

from greenroom.actors.contract.decisions import Decision
from greenroom.actors.contract.ids import idempotency_key
from greenroom.actors.state.access import WritableState

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")


async def _nobody_hears_progress(fraction: float, text: str) -> None: ...


async def _nobody_hears_output(text: str) -> None: ...


def _deaf_progress(fraction: float, text: str) -> None: ...


def _deaf_output(text: str) -> None: ...


def _carry_on() -> None: ...


def _fraction(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0.0 <= value <= 1.0:
        raise ValueError(f"progress({value!r}): the fraction done is a number from 0.0 to 1.0")
    return float(value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where}: the text is a str, not {type(value).__name__}; use str(...) or .decode()")  # noqa: TRY004
    return value


@attrs.frozen(kw_only=True)
class _Call(Generic[Deps]):
    """The facts that both contexts carry."""

    deps: Deps = attrs.field(default=None)
    run_id: str = ""
    thread_id: str = ""
    call_id: str = ""
    attempt: int = 1
    decision: Decision | None = None
    state: WritableState = attrs.field(factory=WritableState)

    @property
    def idempotency_key(self) -> str:
        """One key per call, the same in every attempt: the outside world recognises a repetition by it."""
        return idempotency_key(self.run_id, self.call_id)


@attrs.frozen(kw_only=True)
class ToolContext(_Call[Deps]):
    """What an async tool is given as its first parameter.

    Attributes:
        deps: what the run was started with.
        run_id, thread_id, call_id: where we are.
        attempt: counts from 1; a tool that is run again (after a crash, a suspension, a decision) sees a higher one.
        decision: the decision that made the call go on; None in the first attempt.
        state: state keys. What the body writes it reads; others see it when the body has returned.
        report_progress, report_output: where the runtime takes reports; call `progress` and `output` instead.
    """

    report_progress: Callable[[float, str], Awaitable[None]] = attrs.field(default=_nobody_hears_progress, repr=False)
    report_output: Callable[[str], Awaitable[None]] = attrs.field(default=_nobody_hears_output, repr=False)

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


@attrs.frozen(kw_only=True)
class SyncToolContext(_Call[Deps]):
    """What a sync tool is given as its first parameter: the same facts, plain functions. It works in a worker thread.

    A thread can not be cancelled from outside. `progress`, `output` and `check_cancelled` are where it hears of it:
    they raise `trio.Cancelled` once the call has been cancelled or has timed out. A body that calls one of them now and
    then ends in time.

    Attributes:
        deps: what the run was started with.
        run_id, thread_id, call_id: where we are.
        attempt: counts from 1.
        decision: the decision that made the call go on; None in the first attempt.
        state: as in `ToolContext`.
        report_progress, report_output, heed: set by the runtime.
    """

    report_progress: Callable[[float, str], None] = attrs.field(default=_deaf_progress, repr=False)
    report_output: Callable[[str], None] = attrs.field(default=_deaf_output, repr=False)
    heed: Callable[[], None] = attrs.field(default=_carry_on, repr=False)

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

    def check_cancelled(self) -> None:
        """End here if nobody wants the result any more.

        Raises:
            trio.Cancelled: the call has been cancelled.
        """
        self.heed()
