"""The border to code of the user's: what an exception that leaves such code means, decided in one place.

A tool, a hook, a predicate, a model, an actor's body, a callback may raise anything, also what is no `Exception`:
argparse ends with SystemExit, a bridge to asyncio hands on `asyncio.CancelledError`, a bug raises GeneratorExit. Let
through, each of these would unwind every task of the process for the fault of one call. So exactly three things pass
the border, and everything else is the failure of the code that raised it:

* a real Ctrl-C: a KeyboardInterrupt that the SIGINT handler has raised (`is_interrupt`);
* a `trio.Cancelled` of a cancel scope around the border (`is_stray` finds the others);
* a GeneratorExit by which Python closes a coroutine whose program is gone: outside of any trio task.

How a real Ctrl-C is recognised. Python runs signal handlers in the main thread, between two instructions of whatever
runs there, so a SIGINT may surface inside a tool. Trio installs a handler of its own, and the interrupt that this
handler raises has its frame at the inner end of the traceback; so has the one that trio raises in the main task when
the signal has met protected code. A `raise KeyboardInterrupt` of a tool has no such frame, and nothing from a worker
thread has. A program with a SIGINT handler of its own that raises is recognised by that handler's frame
(`note_handler`). If Python's default handler is at work inside of trio, which leaves no frame, every KeyboardInterrupt
counts as real: an operator must always be able to stop a program.

No I/O and no await here: pure code calls this, too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Final
from weakref import WeakSet

import trio

from .exits import STRAY, flatten, is_stray, leaves
from .nursery import raise_bare

CHAIN: Final = 100
"""Links that are followed from an exception to its cause: a chain may be a circle."""

_CALL: Final = "__call__"
_TRIO: Final = "trio._core."
"""Begins the name of the modules in which trio raises the interrupts that it delivers."""


class _Handlers:
    """The SIGINT handlers that have been seen at work.

    Attributes:
        codes: of those that are written in Python.
        bare: Python's default handler is at work inside of trio; what it raises has no frame of its own.
    """

    def __init__(self) -> None:
        self.codes: WeakSet[CodeType] = WeakSet()
        self.bare = False


_handlers: Final = _Handlers()


def note_handler(handler: object, *, bare: bool) -> None:
    """Remember a SIGINT handler, so that the interrupts that it raises are recognised.

    Args:
        handler: as `signal.getsignal(signal.SIGINT)` has it; anything but a function or callable object is ignored.
        bare: it is Python's default handler, and this is the thread that it interrupts.
    """
    _handlers.bare = bare
    while isinstance(handler, functools.partial):
        handler = handler.func
    code = getattr(handler, "__code__", None) or getattr(getattr(type(handler), _CALL, None), "__code__", None)
    if isinstance(code, CodeType):
        _handlers.codes.add(code)


def is_interrupt(error: BaseException) -> bool:
    """True for a real Ctrl-C: a KeyboardInterrupt that a SIGINT handler has raised, or one raised while it was handled.

    A bare `raise KeyboardInterrupt` in a tool is none; a tool that catches the real one and raises it again, or another
    KeyboardInterrupt in its place, hands it on.
    """
    seen: BaseException | None = error
    for _ in range(CHAIN):
        if not isinstance(seen, KeyboardInterrupt):
            return False
        if _handlers.bare or _from_handler(seen):
            return True
        seen = seen.__context__ if seen.__cause__ is None else seen.__cause__  # an error may be false
    return False


def _from_handler(error: BaseException) -> bool:
    frame: FrameType | None = None
    for frame in _frames(error):
        if frame.f_code in _handlers.codes:
            return True
    return frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_TRIO)


def _frames(error: BaseException) -> Iterator[FrameType]:
    """Outermost first."""
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame
        step = step.tb_next


def failure_of(error: BaseException) -> BaseException:
    """What an exception that has left user code means: the failure of that code.

    To be called in the task in which the code ran, in the handler that has caught the exception.

    Args:
        error: what was caught; groups are flattened, and a cancellation beside a real error is dropped (a cancellation
            that races a failure must not hide it, and is delivered again at the next checkpoint).

    Returns:
        The one failure, or one flat group of several. It need not be an `Exception`.

    Raises:
        KeyboardInterrupt: a real Ctrl-C is in it.
        trio.Cancelled: there is nothing else in it, and a scope around the caller is cancelled.
        GeneratorExit: the coroutine is being closed outside of a trio task.
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


def failure_of_call(error: BaseException) -> BaseException:
    """As `failure_of`, for a function that was called and does not await: no cancellation can be meant for its caller.

    Raises:
        KeyboardInterrupt: a real Ctrl-C is in it.
    """
    for leaf in leaves(error):
        if is_interrupt(leaf):
            raise_bare(leaf)
    return RuntimeError(STRAY) if isinstance(error, trio.Cancelled) else error


def passes_through(error: BaseException) -> bool:
    """True for what no actor may keep: a real Ctrl-C, a GeneratorExit outside of trio, a broken trio."""
    return passing_in(error) is not None or any(isinstance(leaf, trio.TrioInternalError) for leaf in leaves(error))


def passing_in(error: BaseException) -> BaseException | None:
    """What no border may keep, cancellations aside: a real Ctrl-C, or a GeneratorExit outside of a trio task."""
    if isinstance(error, Exception):  # an Exception, and a group of nothing else: the usual case
        return None
    for leaf in leaves(error):
        if is_interrupt(leaf) or (isinstance(leaf, GeneratorExit) and not trio.lowlevel.in_trio_task()):
            return leaf
    return None
