"""One attempt to open a connection, which any thread may give up.

Theory of operation. The driver looks hosts up and waits for them in the calling thread, and no call of another thread
ends that wait. So an attempt has a separate thread, and its caller waits for either: the attempt's end, or `give_up`.
An attempt that was given up ends by itself, when the time for each of its hosts is over, and closes what it has opened.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from ._driver import psycopg

GIVEN_UP: Final = "the attempt to connect was given up"


class Attempt:
    """Opens one connection. `result` is called once; `give_up` in any thread, at any time."""

    def __init__(self, connect: Callable[[], psycopg.Connection[tuple[Any, ...]]]) -> None:
        """`connect`: opens the connection, or raises."""
        self._connect = connect
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._given_up = False
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._error: BaseException | None = None

    def result(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Open the connection.

        Raises:
            psycopg.OperationalError: it cannot be opened, or `give_up` was called.
            psycopg.Error: a field of the address is invalid.
            OSError: the system gave no thread.
        """
        try:
            threading.Thread(target=self._run, name="greenroom connects", daemon=True).start()
        except RuntimeError as error:
            raise OSError(f"the system gives no thread to connect with ({error})") from None
        try:
            self._over.wait()
        except BaseException:  # Ctrl-C in the main thread; raised again
            self.give_up()
            raise
        if self._connection is not None:
            return self._connection
        if self._error is None:
            raise psycopg.OperationalError(GIVEN_UP)
        try:
            raise self._error
        finally:
            self._error = None  # or the error and its traceback keep each other alive

    def give_up(self) -> None:
        """Let `result` raise immediately, if the attempt is not over."""
        with self._lock:
            if not self._over.is_set():
                self._given_up = True
                self._over.set()

    def _run(self) -> None:
        connection: psycopg.Connection[tuple[Any, ...]] | None = None
        failure: BaseException | None = None
        try:
            connection = self._connect()
        except BaseException as error:  # noqa: ASYNC103, BLE001 - raised in the thread of the caller
            failure = error
        with self._lock:
            if not self._given_up:
                self._connection, self._error = connection, failure
                self._over.set()
                return
        if connection is not None:
            connection.close()
