"""Where tasks wait for a run to change. Take the notice first, then look at the store, then wait: nothing is missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import trio

from ..errors import RuntimeClosed, StoreDown
from .tails import Tails


class _Looking:
    """The context of `Board.looking`: a class, because entering a generator costs ten times as much."""

    __slots__ = ("_check",)

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check

    def __enter__(self) -> None:
        self._check()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, StoreDown):
            self._check()


class Board:
    """One event per run that somebody waits for; a change wakes them all.

    Attributes:
        tails: the newest events of the runs that somebody follows.
        listeners: called, synchronously, with each run that has changed and the events of its commit (none: something
            else about it is new); must be short and must not raise.
        sweep_listeners: called, synchronously, after runs were deleted; must be short and must not raise.
        closed: nothing can be looked up here any more.
    """

    def __init__(self) -> None:
        self.tails = Tails()
        self.listeners: set[Callable[[str, Sequence[bytes]], None]] = set()
        self.sweep_listeners: set[Callable[[], None]] = set()
        self.closed = False
        self._looking = _Looking(self.check_open)
        self._notices: WeakValueDictionary[str, trio.Event] = WeakValueDictionary()  # kept by those who wait

    def __len__(self) -> int:
        """How many runs somebody waits for."""
        return len(self._notices)

    def notice(self, run_id: str) -> trio.Event:
        """What will be set at the run's next durable change, or when the runtime closes.

        Raises:
            RuntimeClosed: the runtime is closed; nothing will change here any more.
        """
        self.check_open()
        notice = self._notices.get(run_id)
        if notice is None:
            notice = self._notices[run_id] = trio.Event()
        return notice

    def check_open(self) -> None:
        """Raises once nothing can be looked up here any more.

        Raises:
            RuntimeClosed: the runtime is closed.
        """
        if self.closed:
            raise RuntimeClosed("the runtime is closed; open it again to look at its runs and to follow them")

    def looking(self) -> _Looking:
        """A context for a read of the store.

        Raises:
            RuntimeClosed: the runtime is closed, or closes meanwhile.
        """
        return self._looking

    def committed(self, run_id: str, last: int, frames: Sequence[bytes]) -> None:
        """These events of a run, up to sequence `last`, have become durable."""
        self.tails.committed(run_id, last, frames)
        self._publish(run_id, frames)

    def changed(self, run_id: str) -> None:
        """The run has changed durably, or nobody works on it any more."""
        self._publish(run_id, ())

    def posted(self, run_id: str) -> None:
        """A command to the run is durable, and has not acted yet: lists say so."""
        for listener in tuple(self.listeners):
            listener(run_id, ())

    def pruned(self) -> None:
        """Runs have been deleted: lists are to be read again."""
        for listener in tuple(self.sweep_listeners):
            listener()

    def _publish(self, run_id: str, frames: Sequence[bytes]) -> None:
        if self.listeners:
            for listener in tuple(self.listeners):
                listener(run_id, frames)
        notice = self._notices.pop(run_id, None)
        if notice is not None:
            notice.set()
        self.tails.tell(run_id)

    def close(self) -> None:
        """Wake everybody; whoever looks again hears that the runtime is closed."""
        self.closed = True
        for notice in self._notices.values():
            notice.set()
        self._notices.clear()
        self.tails.tell_all()
