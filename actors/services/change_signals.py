"""Signals of changes of runs: one `RunSignal` per run that a task waits for or follows, and one for the runtime.

Theory of operation. A notice is a one-shot event. Take the notice first, read the store next, wait for the notice last:
a change between the read and the wait has set the notice already, so no change is missed. A signal exists while a task
holds it (weak values); a run that is neither awaited nor followed costs nothing here. In a shared store, a signal of a
run without an owner here holds a watch of the store, whose reports become changes and rests of the signal
(`moved_runs.py`).

The loop of every reader:

    signal = signals.signal(run_id)
    while True:
        notice = signal.change()
        if await enough(run_id):
            break
        await notice.wait()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from weakref import WeakValueDictionary, finalize

import trio

from ..errors import RuntimeClosed, StoreDown
from .event_buffer import EventBuffer


class RunSignal:
    """Reports changes and rests of a run, and buffers its newest events while the run is followed.

    Keep a reference for as long as you wait for one of its notices.

    Attributes:
        followers: how many followers the run has.
        tail: the newest events, filled while the run is followed; None while it is not.
        listeners: called synchronously at each change and when the runtime closes; must be short and must not raise.
        watched: the store reports what other processes do to the run, for as long as this signal exists.
    """

    __slots__ = ("__weakref__", "_change", "_closed", "_news", "_rest", "followers", "listeners", "tail", "watched")

    def __init__(self) -> None:
        self._change: trio.Event | None = None
        self._news: trio.Event | None = None
        self._rest: trio.Event | None = None
        self._closed = False
        self.followers = 0
        self.tail: EventBuffer | None = None
        self.listeners: set[Callable[[], None]] = set()
        self.watched = False

    @property
    def rest_awaited(self) -> bool:
        """True if a notice of a rest was taken since the last rest."""
        return self._rest is not None

    def change(self) -> trio.Event:
        """Return a notice of the next durable change; also set when the run's owner exits or the runtime closes.

        Raises:
            RuntimeClosed: the runtime is closed; no further change is reported.
        """
        if self._closed:
            raise closed()
        if self._change is None:
            self._change = trio.Event()
        return self._change

    def rest(self) -> trio.Event:
        """Return a notice of the next rest: the run is done, waits or has no owner here, or the runtime closes.

        Raises:
            RuntimeClosed: the runtime is closed; no further change is reported.
        """
        if self._closed:
            raise closed()
        if self._rest is None:
            self._rest = trio.Event()
        return self._rest

    def news(self) -> trio.Event:
        """Return a notice of the next news for a parent run: status or tickets change, or commands were read.

        Each rest is news, and each change of a run of another process.

        Raises:
            RuntimeClosed: the runtime is closed; no further change is reported.
        """
        if self._closed:
            raise closed()
        if self._news is None:
            self._news = trio.Event()
        return self._news

    def changed(self) -> None:
        """Set the notice of a change, and call the listeners."""
        if self._change is not None:
            self._change.set()
            self._change = None
        for listener in tuple(self.listeners):
            listener()

    def report(self) -> None:
        """Set the notice of news."""
        if self._news is not None:
            self._news.set()
            self._news = None

    def rested(self) -> None:
        """Set the notices of a rest and of news."""
        if self._rest is not None:
            self._rest.set()
            self._rest = None
        if self._news is not None:
            self._news.set()
            self._news = None

    def close(self) -> None:
        """Set all notices; later requests for a notice raise RuntimeClosed."""
        self._closed = True
        self.rested()
        self.changed()


def closed() -> RuntimeClosed:
    """Return the error for reads of a closed runtime."""
    return RuntimeClosed("the runtime is closed; open it again to look at its runs and to follow them")


class _Looking:
    """The context of `ChangeSignals.looking`. A class, because entering a generator context costs ten times as much."""

    __slots__ = ("_check",)

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    def __enter__(self) -> None:
        self._check()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, StoreDown):
            self._check()


class ChangeSignals:
    """The signals of a runtime's runs, and the listeners for all runs.

    Attributes:
        runtime: the signal of the runtime itself: its rest is set whenever a run rests; it has no changes until it
            closes.
        followed: how many runs are followed.
        listeners: called synchronously with the id of each changed run and the events of its commit (empty: another
            fact about the run changed); must be short and must not raise.
        sweep_listeners: called synchronously after runs were pruned, and if any run may have changed elsewhere; must be
            short and must not raise.
        rename_listeners: called synchronously with the new epoch of the logs; must be short and must not raise.
        watch: asks a shared store for reports about a run of another process; None: the store is not shared.
        owned: returns whether a run has an owner here.
        closed: reads raise RuntimeClosed.
    """

    def __init__(self) -> None:
        self.runtime = RunSignal()
        self.followed = 0
        self.listeners: set[Callable[[str, Sequence[bytes]], None]] = set()
        self.sweep_listeners: set[Callable[[], None]] = set()
        self.rename_listeners: set[Callable[[str], None]] = set()
        self.watch: Callable[[str], AbstractContextManager[None]] | None = None
        self.owned: Callable[[str], bool] = lambda _: True
        self.closed = False
        self._looking = _Looking(self.check_open)
        self._signals: WeakValueDictionary[str, RunSignal] = WeakValueDictionary()

    def __len__(self) -> int:
        """Return the number of runs that a task waits for or follows."""
        return len(self._signals)

    # --- readers -----------------------------------------------------------------------------------------------------

    def signal(self, run_id: str) -> RunSignal:
        """Return the run's signal, the same object for all holders.

        Raises:
            RuntimeClosed: the runtime is closed; no further change is reported.
        """
        if self.closed:
            raise closed()
        signal = self._signals.get(run_id)
        if signal is None:
            signal = self._signals[run_id] = RunSignal()
            if self.watch is not None:
                self._watch(run_id, signal, self.watch)
        return signal

    def find(self, run_id: str) -> RunSignal | None:
        """Return the run's signal if a task waits for the run or follows it."""
        return self._signals.get(run_id)

    def elsewhere(self) -> list[str]:
        """Return the ids of the runs that a task here waits for or follows, and that have no owner here."""
        return [run_id for run_id, signal in tuple(self._signals.items()) if signal.watched and not self.owned(run_id)]

    def _watch(self, run_id: str, signal: RunSignal, watch: Callable[[str], AbstractContextManager[None]]) -> None:
        """Ask the store for reports about a run without an owner here, until the last holder drops the signal."""
        if signal.watched or self.closed or self.owned(run_id):
            return
        signal.watched = True
        reports = watch(run_id)
        # The watch ends with the last holder of the signal, and no block of code knows who that is: so the collector
        # leaves the context. At the exit of the interpreter the store is gone, and nothing is left to tell it.
        reports.__enter__()
        finalize(signal, reports.__exit__, None, None, None).atexit = False

    @contextmanager
    def follow(self, run_id: str) -> Iterator[tuple[RunSignal, EventBuffer]]:
        """Yield the run's signal and its tail, which is filled for the time of the block.

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
        """Raise once reads are refused.

        Raises:
            RuntimeClosed: the runtime is closed.
        """
        if self.closed:
            raise closed()

    def looking(self) -> _Looking:
        """Return a context for a read of the store.

        Raises:
            RuntimeClosed: the runtime is closed, or closes during the read.
        """
        return self._looking

    # --- writers
    # -------------------------------------------------------------------------------------------------------

    def committed(self, run_id: str, last: int, frames: Sequence[bytes]) -> None:
        """Publish events of a run, up to sequence `last`, that became durable; no frames: another fact changed."""
        signal = self._signals.get(run_id)
        if frames and signal is not None and signal.tail is not None:
            signal.tail.append(last, frames)
        for listener in tuple(self.listeners):
            listener(run_id, frames)
        if signal is not None:
            signal.changed()

    def report(self, run_id: str) -> None:
        """Publish news of a child run, or that a run of another process may have some (`RunSignal.news`)."""
        signal = self._signals.get(run_id)
        if signal is not None:
            signal.report()

    def rested(self, run_id: str) -> None:
        """Publish that the run is durably done or waiting."""
        signal = self._signals.get(run_id)
        if signal is not None:
            signal.rested()
        self.runtime.rested()

    def left(self, run_id: str) -> None:
        """Publish that the run has no owner here any more."""
        if self.watch is not None and (signal := self._signals.get(run_id)) is not None:
            self._watch(run_id, signal, self.watch)
        self.committed(run_id, 0, ())
        self.rested(run_id)

    def pruned(self) -> None:
        """Publish that runs were pruned: lists have to be read again."""
        for listener in tuple(self.sweep_listeners):
            listener()

    def renamed(self, epoch: str) -> None:
        """Publish that the logs have another identity: followers end with LogReplaced, and waiting tasks read again."""
        signals = [*self._signals.values()]
        for signal in signals:
            if signal.tail is not None:
                signal.tail.replace()
                signal.tail = EventBuffer()  # for the followers that begin from now on
        for listener in tuple(self.rename_listeners):
            listener(epoch)
        for signal in (self.runtime, *signals):
            signal.rested()
            signal.changed()

    def close(self) -> None:
        """Set all notices; later reads and notices raise RuntimeClosed."""
        self.closed = True
        for signal in (self.runtime, *self._signals.values()):
            signal.close()
