"""What every measured server does alike: obey, and publish on time. The standard library only.

The orders come as single bytes on standard input: `g` publish, `w` the clients have the window, `q` end.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

END = (b"q", b"")
"""The orders after which a server ends: informed, or no peer is left."""
WINDOW = 32
"""Events that are published at once where a server is to work as fast as it can: until all clients have them."""
SIZE = 40
"""Characters of the text of an event; with the envelope and the rest of the payload it has some 310 bytes."""
RUN = "run_0123456789abcdef"


class Course:
    """Which events are due when: so many per second, or a window at a time.

    A stamp is the instant at which an event was due, not at which it was made: who publishes late shows it.
    """

    def __init__(self, events: int, rate: float) -> None:
        self.events, self.rate, self.taken = events, rate, 0
        self._began = 0

    def begin(self) -> None:
        """The clock starts."""
        self._began = time.monotonic_ns()

    @property
    def left(self) -> bool:
        """Whether there is anything more to publish."""
        return self.taken < self.events

    def take(self) -> list[tuple[int, int]]:
        """The (index from 0, stamp in ns) of all events that are due and have not been taken."""
        now, first = time.monotonic_ns(), self.taken
        if self.rate:
            ready = int((now - self._began) * self.rate / 1e9) + 1
            self.taken = min(self.events, max(first, ready))
            return [(index, self._began + int(index * 1e9 / self.rate)) for index in range(first, self.taken)]
        self.taken = min(self.events, first + WINDOW)
        return [(index, now) for index in range(first, self.taken)]

    def pause(self) -> float:
        """Seconds until the next event is due."""
        return max(0.0, (self._began + self.taken * 1e9 / self.rate - time.monotonic_ns()) / 1e9)


def words(stamp: int) -> str:
    """The text of an event, with its stamp where the client looks for it."""
    return f"at {stamp} ".ljust(SIZE, "x")


def event(sequence: int, stamp: int) -> str:
    """An event as the gateway sends it, for servers that have none of their own."""
    return (
        f'{{"id":"{RUN}-{sequence}","sequence":{sequence},"type":"run.message.delta","version":2,"runId":"{RUN}",'
        '"sessionId":null,"agentId":"bench","timestamp":"2026-03-01T12:00:00.000Z","payload":'
        f'{{"messageId":"{RUN}-m1","index":{sequence},"text":"{words(stamp)}"}}}}'
    )


def arguments() -> dict[str, Any]:
    """What the benchmark asks for: the JSON of the only argument."""
    data: dict[str, Any] = json.loads(sys.argv[1])
    return data


def say(data: Mapping[str, Any]) -> None:
    """One line to the benchmark."""
    print(json.dumps(data), flush=True)
