"""`CallbackPost`: callbacks for the event loop of another thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class CallbackPost:
    """Carries callbacks to another thread, in order; any thread may send.

    Waking a loop costs a system call, and the threads would compete for the interpreter at each one. Therefore the
    receiver is woken once for all callbacks that are sent until it runs, and calls all of them in one turn.
    """

    def __init__(self, wake: Callable[[Callable[[], None]], object]) -> None:
        """`wake`: calls a function in the receiving thread, soon; as `loop.call_soon_threadsafe` does."""
        self._wake = wake
        self._callbacks: deque[Callable[[], object]] = deque()
        self._awake = False

    def __repr__(self) -> str:
        return f"<CallbackPost with {len(self._callbacks)} callbacks>"

    def send(self, callback: Callable[[], object]) -> None:
        """Call a function in the other thread, soon. The function must not raise.

        Raises:
            RuntimeError: The other loop has ended; the function is not called.
        """
        self._callbacks.append(callback)
        if not self._awake:
            self._awake = True
            self._wake(self._deliver)

    def _deliver(self) -> None:
        # In this order: a sender that still reads True has appended before, so the count below includes its callback.
        self._awake = False
        for _ in range(len(self._callbacks)):
            self._callbacks.popleft()()
