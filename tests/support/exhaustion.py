"""Systems that have run out of something, and disks that cannot be read."""

import ctypes
import errno
import os
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest
import trio

_PREAD: Final = {"x86_64": 17, "aarch64": 67}
"""Number of the system call `pread64`."""
_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_REFUSE, _ALLOW = 0x0005_0000, 0x7FFF_0000


class _Rule(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_ushort),
        ("if_so", ctypes.c_ubyte),
        ("if_not", ctypes.c_ubyte),
        ("k", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("rules", ctypes.POINTER(_Rule))]


def refuse_pages(behind: int) -> None:
    """From now on this thread reads no page of 4,096 bytes behind an offset of any file, nor more at once: EIO.

    A filter of system calls (seccomp), which the kernel keeps for each thread as long as it lives: others read well.
    """
    call = _PREAD.get(platform.machine())
    if call is None:
        pytest.skip("the number of pread64 is unknown here")
    size, offset = 16 + 8 * 2, 16 + 8 * 3
    rules = [
        (_LOAD, 0, 0, 0),
        (_EQUAL, 0, 8, call),
        (_LOAD, 0, 0, size),
        (_AT_LEAST, 5, 0, 4097),
        (_AT_LEAST, 0, 5, 4096),
        (_LOAD, 0, 0, offset),
        (_AT_LEAST, 0, 3, behind),
        (_AND, 0, 0, 4095),
        (_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _REFUSE | errno.EIO),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program = _Program(len(rules), (_Rule * len(rules))(*(_Rule(*rule) for rule in rules)))
    system = ctypes.CDLL(None, use_errno=True)
    if system.prctl(38, 1, 0, 0, 0) or system.prctl(22, 2, ctypes.byref(program), 0, 0):
        pytest.skip(f"the system takes no filter of system calls: {os.strerror(ctypes.get_errno())}")


def in_thread(function: Callable[[], Any]) -> Any:
    """Call a function in a thread of its own, which ends with it; its result, or its error."""
    results: list[Any] = []

    def call() -> None:
        try:
            results.append((function(), None))
        except BaseException as error:  # noqa: BLE001, ASYNC103 - raised by the caller
            results.append((None, error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    value, error = results[0]
    if error is not None:
        raise error
    return value


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
