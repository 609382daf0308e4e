"""A port for planned failures: tests and chaos runs break a store at named points, without mocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Faults = Callable[[str], None]
"""Called with the name of a point; raises to make the store fail there. A threaded store calls it in its writer."""

POINTS: Final = ("begin", "write", "before_commit", "after_commit")
"""In order: a transaction is to begin; a request of it is to be written; all is written; all is durable, untold."""


class InjectedCrash(Exception):
    """The store's writer is to die at this point, as if its process had been killed."""


class Outage(Exception):
    """The whole store does not answer (disk full, I/O, locked): nothing was written, and it may work later.

    Raised by whoever executes requests; `error` is what the store said.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error
