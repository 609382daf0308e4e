"""What is new about runs: one `RunSignal` for each run that a task waits for or follows, and one for the runtime.

The contract: take the notice first, look at the store next, wait for the notice last. Then no change is missed. A
signal exists while a task holds it; a run that is neither waited for nor followed costs nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from weakref import WeakValueDictionary

import trio

from ..errors import RuntimeClosed, StoreDown
from .event_buffer import EventBuffer


class RunSignal:
    """Says when a run has changed and when it has come to rest, and has its newest events while it is followed.

    Keep it for as long as you wait for one of its notices.

    Attributes:
        tail: the newest events, filled while the run is followed; None while it is not.
        listeners: called, synchronously, at each change and when the runtime closes; must be short and must not raise.
    """

    __slots__ = ("__weakref__", "_change", "_closed", "_rest", "followers", "listeners", "tail")

    def __init__(self) -> None:
        self._change: trio.Event | None = None
        self._rest: trio.Event | None = None
        self._closed = False
        self.followers = 0
        self.tail: EventBuffer | None = None
        self.listeners: set[Callable[[], None]] = set()

    def change(self) -> trio.Event:
        """A notice that is set at the next durable change, when the run's owner is gone, or when the runtime closes.

        Raises:
            RuntimeClosed: the runtime is closed; nothing changes here any more.
        """
        if self._closed:
            raise closed()
        if self._change is None:
            self._change = trio.Event()
        return self._change

    def rest(self) -> trio.Event:
        """A notice that is set when the run next is done, waits or has no owner here, or when the runtime closes.

        Raises:
            RuntimeClosed: the runtime is closed; nothing changes here any more.
        """
        if self._closed:
            raise closed()
        if self._rest is None:
            self._rest = trio.Event()
        return self._rest

    def changed(self) -> None:
        """Set the notices of a change."""
        if self._change is not None:
            self._change.set()
            self._change = None
        for listener in tuple(self.listeners):
            listener()

    def rested(self) -> None:
        """Set the notices of a rest."""
        if self._rest is not None:
            self._rest.set()
            self._rest = None

    def close(self) -> None:
        """Set all notices, and give out no more."""
        self._closed = True
        self.rested()
        self.changed()


def closed() -> RuntimeClosed:
    """The error of a runtime in which nothing can be looked up any more."""
    return RuntimeClosed("the runtime is closed; open it again to look at its runs and to follow them")


class _Looking:
    """The context of `ChangeSignals.looking`: a class, because entering a generator costs ten times as much."""

    __slots__ = ("_check",)

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    def __enter__(self) -> None:
        self._check()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, StoreDown):
            self._check()


class ChangeSignals:
    """The signals of a runtime's runs, and what is called for all runs.

    Attributes:
        runtime: the signal of the runtime itself: it comes to rest whenever a run does, and never changes.
        followed: how many runs are followed.
        listeners: called, synchronously, with each run that has changed and the events of its commit (none: something
            else about it is new); must be short and must not raise.
        sweep_listeners: called, synchronously, after runs were deleted; must be short and must not raise.
        closed: nothing can be looked up here any more.
    """

    def __init__(self) -> None:
        self.runtime = RunSignal()
        self.followed = 0
        self.listeners: set[Callable[[str, Sequence[bytes]], None]] = set()
        self.sweep_listeners: set[Callable[[], None]] = set()
        self.closed = False
        self._looking = _Looking(self.check_open)
        self._signals: WeakValueDictionary[str, RunSignal] = WeakValueDictionary()

    def __len__(self) -> int:
        """Runs that a task waits for or follows."""
        return len(self._signals)

    # --- for those who look ------------------------------------------------------------------------------------------

    def signal(self, run_id: str) -> RunSignal:
        """The run's signal, the same for all who hold it.

        Raises:
            RuntimeClosed: the runtime is closed; nothing changes here any more.
        """
        self.check_open()
        signal = self._signals.get(run_id)
        if signal is None:
            signal = self._signals[run_id] = RunSignal()
        return signal

    @contextmanager
    def follow(self, run_id: str) -> Iterator[tuple[RunSignal, EventBuffer]]:
        """The run's signal, and its tail, which is filled from now on for the time of the block.

        Raises:
            RuntimeClosed: the runtime is closed.
        """
        signal = self.signal(run_id)
        if signal.tail is None:
            signal.tail = EventBuffer()
            self.followed += 1
        signal.followers += 1
        try:
            yield signal, signal.tail
        finally:
            signal.followers -= 1
            if not signal.followers:
                signal.tail = None
                self.followed -= 1

    def check_open(self) -> None:
        """Raise once nothing can be looked up here any more.

        Raises:
            RuntimeClosed: the runtime is closed.
        """
        if self.closed:
            raise closed()

    def looking(self) -> _Looking:
        """A context for a read of the store.

        Raises:
            RuntimeClosed: the runtime is closed, or closes meanwhile.
        """
        return self._looking

    # --- for those who make changes ----------------------------------------------------------------------------------

    def committed(self, run_id: str, last: int, frames: Sequence[bytes]) -> None:
        """These events of a run, up to sequence `last`, have become durable."""
        signal = self._signals.get(run_id)
        if frames and signal is not None and signal.tail is not None:
            signal.tail.append(last, frames)
        self._changed(run_id, frames)

    def posted(self, run_id: str) -> None:
        """A command to the run is durable, and has not acted yet: lists say so."""
        for listener in tuple(self.listeners):
            listener(run_id, ())

    def rested(self, run_id: str) -> None:
        """The run is durably done or waits."""
        signal = self._signals.get(run_id)
        if signal is not None:
            signal.rested()
        self.runtime.rested()

    def left(self, run_id: str) -> None:
        """The run has no owner here any more."""
        self._changed(run_id, ())
        self.rested(run_id)

    def pruned(self) -> None:
        """Runs have been deleted: lists are to be read again."""
        for listener in tuple(self.sweep_listeners):
            listener()

    def _changed(self, run_id: str, frames: Sequence[bytes]) -> None:
        if self.listeners:
            for listener in tuple(self.listeners):
                listener(run_id, frames)
        signal = self._signals.get(run_id)
        if signal is not None:
            signal.changed()

    def close(self) -> None:
        """Set all notices; a task that looks again gets RuntimeClosed."""
        self.closed = True
        for signal in (self.runtime, *self._signals.values()):
            signal.close()
