"""The border to user code: decides what an exception that leaves user code means.

A tool, a hook, a predicate, a model, an actor's body or a callback may raise any BaseException: argparse raises
SystemExit, a bridge to asyncio passes on `asyncio.CancelledError`, a bug raises GeneratorExit. Unchecked, each of these
would unwind every task of the process because of one call. Therefore exactly three kinds of exception pass the border,
and every other exception is a failure of the code that raised it:

* a real Ctrl-C: a KeyboardInterrupt raised by the SIGINT handler (`is_interrupt`);
* a `trio.Cancelled` of a cancel scope around the border (`is_stray` finds the others);
* a GeneratorExit outside of any trio task: Python closes a coroutine whose event loop has ended.

How a real Ctrl-C is recognised. Python runs signal handlers in the main thread, between two instructions of the code
that runs there, so a SIGINT may surface inside a tool. Trio installs its own handler, and the interrupt that this
handler raises has the handler's frame at the inner end of its traceback; so has the interrupt that trio raises in the
main task after the signal arrived in protected code. A `raise KeyboardInterrupt` in a tool has no such frame, and
neither has an interrupt from a worker thread. If a program installs a SIGINT handler that raises, the frame
of that handler identifies the interrupt (`note_handler`). If Python's default handler, which leaves no frame, is active
inside trio, every KeyboardInterrupt counts as real: an operator must always be able to stop a program.

This module does no I/O and has no await, so pure code may call it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Final, Generic, ParamSpec, TypeVar
from weakref import WeakSet

import trio
from attrs import frozen

from .exits import STRAY, flatten, is_stray, leaves
from .nursery import raise_bare

CHAIN: Final = 100
"""Maximum number of links followed from an exception to its causes; a chain of causes may be circular."""

P = ParamSpec("P")
T = TypeVar("T")
_CALL: Final = "__call__"
_TRIO: Final = "trio._core."
"""Prefix of the modules in which trio raises the interrupts that it delivers."""


@frozen
class Returned(Generic[T]):
    """User code has returned.

    Attributes:
        value: The value that it returned.
    """

    value: T


@frozen
class Raised:
    """User code has raised an exception that is its failure.

    Attributes:
        error: The failure, as `failure_of` and `failure_of_call` return it.
    """

    error: BaseException


class _Handlers:
    """The SIGINT handlers that were installed when a supervisor was opened.

    Attributes:
        codes: Code objects of the handlers written in Python.
        bare: True if Python's default handler is active inside trio; the interrupts that it raises have no frame of
            their own.
    """

    def __init__(self) -> None:
        self.codes: WeakSet[CodeType] = WeakSet()
        self.bare = False


_handlers: Final = _Handlers()


def note_handler(handler: object, *, bare: bool) -> None:
    """Register a SIGINT handler, so that the interrupts that it raises are recognised.

    Args:
        handler: As returned by `signal.getsignal(signal.SIGINT)`; anything but a function or callable object is
            ignored.
        bare: True if `handler` is Python's default handler and the current thread is the thread that SIGINT interrupts.
    """
    _handlers.bare = bare
    while isinstance(handler, functools.partial):
        handler = handler.func
    code = getattr(handler, "__code__", None) or getattr(getattr(type(handler), _CALL, None), "__code__", None)
    if isinstance(code, CodeType):
        _handlers.codes.add(code)


def is_interrupt(error: BaseException) -> bool:
    """Return True for a real Ctrl-C.

    A KeyboardInterrupt is real if a SIGINT handler raised it, or if it was raised while a real one was handled. A bare
    `raise KeyboardInterrupt` in a tool is not real. A tool that catches a real interrupt and raises it, or another
    KeyboardInterrupt in its place, passes the interrupt on.
    """
    cause: BaseException | None = error
    for _ in range(CHAIN):
        if not isinstance(cause, KeyboardInterrupt):
            return False
        if _handlers.bare or _from_handler(cause):
            return True
        # `is None`: bool() of a foreign exception may be False
        cause = cause.__context__ if cause.__cause__ is None else cause.__cause__
    return False


def _from_handler(error: BaseException) -> bool:
    frame: FrameType | None = None
    for frame in _frames(error):
        if frame.f_code in _handlers.codes:
            return True
    return frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_TRIO)


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Yield the frames of a traceback, outermost first."""
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame
        step = step.tb_next


def failure_of(error: BaseException) -> BaseException:
    """Return the failure that an exception from user code means, or raise an exception that must pass the border.

    Call this function in the task that ran the code, in the handler that caught the exception.

    Args:
        error: The caught exception. Groups are flattened, and a cancellation beside a real error is dropped: a
            cancellation that races a failure must not hide the failure, and is delivered again at the next checkpoint.

    Returns:
        The one failure, or one flat group of several. The failure need not be an `Exception`.

    Raises:
        KeyboardInterrupt: `error` contains a real Ctrl-C.
        trio.Cancelled: `error` contains nothing else, and a scope around the caller is cancelled.
        GeneratorExit: The coroutine is being closed outside of a trio task.
    """
    real = flatten(error)
    passing = passing_in(real)
    if passing is not None:
        raise_bare(passing)
    if not isinstance(real, trio.Cancelled):
        return real
    if not is_stray(real):
        raise_bare(real)
    return RuntimeError(STRAY)


def capture(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Returned[T] | Raised:
    """Call a synchronous function of the user's and return how the call ended, as `outcome.capture` does.

    See `async_border.acapture` for a function that may be asynchronous.

    Raises:
        KeyboardInterrupt: A real Ctrl-C.
    """
    try:
        return Returned(function(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001, ASYNC103 - user code may raise anything
        return Raised(failure_of_call(error))  # noqa: ASYNC104 - `failure_of_call` has raised what passes


def failure_of_call(error: BaseException) -> BaseException:
    """Do the same as `failure_of` for a synchronous function, which cannot deliver a cancellation to its caller.

    Raises:
        KeyboardInterrupt: `error` contains a real Ctrl-C.
    """
    for leaf in leaves(error):
        if is_interrupt(leaf):
            raise_bare(leaf)
    return RuntimeError(STRAY) if isinstance(error, trio.Cancelled) else error


def passes_through(error: BaseException) -> bool:
    """Return True for what no actor may keep: a real Ctrl-C, a GeneratorExit outside of trio, a trio internal error."""
    return passing_in(error) is not None or any(isinstance(leaf, trio.TrioInternalError) for leaf in leaves(error))


def passing_in(error: BaseException) -> BaseException | None:
    """Return the leaf that must pass every border, or None.

    Such a leaf is a real Ctrl-C, or a GeneratorExit outside of a trio task. Cancellations are not considered here; see
    `failure_of`.
    """
    if isinstance(error, Exception):  # fast path: an Exception, or a group of nothing but Exceptions
        return None
    for leaf in leaves(error):
        if is_interrupt(leaf) or (isinstance(leaf, GeneratorExit) and not trio.lowlevel.in_trio_task()):
            return leaf
    return None
