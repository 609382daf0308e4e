"""Systems that have run out of something."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import trio


@contextmanager
def no_threads() -> Iterator[None]:
    """The system gives no thread: each would need a larger stack than there are addresses; idle ones are kept busy."""
    over = threading.Event()
    threading.stack_size(1 << 48)
    try:
        with suppress(RuntimeError):
            while True:
                trio.lowlevel.start_thread_soon(over.wait, lambda _: None)
        yield
    finally:
        threading.stack_size(0)
        over.set()
