"""The subjects of hints, from their arrival until the keeper looks: bounded, whatever a payload contains.

Theory of operation. The name of a channel is drawn (`_pg_hints.channel_prefix`), yet a payload is foreign text: another
release, or another program with the rights of a process, may send any. A hint only says where to look, so a payload
that cannot be read is dropped and counted, and where there are more hints than are kept, one look at everything that
this process owns replaces them. Where there are more than processes send, the connection is given up. `ArrivedPayloads`
takes payloads in any thread that uses the connection, `HeardHints` reads them in the trio thread.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MOST_BYTES: Final = 1 << 20
"""Bytes of payloads that are kept until they are read: a process reads them many times in a second."""
MOST_NUMBERS: Final = 1_000
"""Runs of one kind that hints may name until the next look; of more, all runs of this process are looked at."""
MOST_AGENTS: Final = 100
"""Agents that hints about work may name until they are passed on."""
LOUD: Final = 100_000
"""Hints between two turns beyond which a process stops listening: processes send each other thousands."""
READ_BATCH: Final = 1_000
"""Payloads that are read before other tasks of the process run: 2 ms."""
WEIGHED: Final = 512
"""Bytes of a payload that take as long to read as a payload takes by itself."""

_GREATEST: Final = (1 << 63) - 1
"""Of a bigint, which the number of a run and of an event is."""


class TooLoud(OSError):
    """More hints come over a connection than processes send: it is closed, as after an error of the connection."""


class ArrivedPayloads:
    """The payloads that have arrived over one connection and are not read yet. Used by one thread at a time.

    Attributes:
        weight: what has arrived since the owner set this to 0: payloads, and `WEIGHED` bytes of them.
        lost: payloads that were not kept, since the owner set this to 0.
    """

    def __init__(self) -> None:
        self._kept: deque[bytes] = deque()
        self._size = 0
        self.weight = self.lost = 0

    def __repr__(self) -> str:
        """Return how many there are."""
        return f"<ArrivedPayloads: {len(self._kept)}>"

    def add(self, payload: bytes) -> None:
        """Keep a payload, if `MOST_BYTES` are not reached.

        Raises:
            TooLoud: the weight exceeds `LOUD`.
        """
        self.weight += 1 + len(payload) // WEIGHED
        if self.weight > LOUD:
            raise TooLoud("too many hints")
        if self._size >= MOST_BYTES:
            self.lost += 1
            return
        self._size += len(payload) + 1
        self._kept.append(payload)

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._kept)

    def take(self) -> list[bytes]:
        """Return the oldest ones, at most `READ_BATCH`, and keep them no longer."""
        payloads = [self._kept.popleft() for _ in range(min(len(self._kept), READ_BATCH))]
        self._size -= sum(map(len, payloads)) + len(payloads)
        return payloads

    def clear(self) -> None:
        """Forget what is kept."""
        self._kept.clear()
        self._size = 0


class HeardHints:
    """The subjects of the hints that were read. Used in the trio thread.

    Attributes:
        nonce: The nonce of the hint to this process itself that the process waits for.
        received: hints that were read, without those to oneself.
        dropped: payloads that could not be read, or were not kept.
        commands, freed: numbers of own runs to look at.
        all_commands, all_freed: look at all own runs.
        moves: number of a run -> sequence of its newest event.
        work: agent -> how often the hint about its work was passed on.
        joined: another process has joined.
        tested: the hint to oneself has come.
    """

    def __init__(self) -> None:
        self.nonce = ""
        self.received = self.dropped = 0
        self.commands: set[int] = set()
        self.freed: set[int] = set()
        self.all_commands = self.all_freed = False
        self.moves: dict[int, int] = {}
        self.work: dict[str, int] = {}
        self.joined = self.tested = False

    def __repr__(self) -> str:
        """Return the counts."""
        return f"<HeardHints: received {self.received}, dropped {self.dropped}>"

    def read(self, payload: bytes) -> None:
        """Read a payload; one that this release cannot read is dropped."""
        try:
            own = self._read(payload.decode())
        except ValueError:
            self.dropped += 1
        else:
            self.received += not own

    def miss(self, lost: int) -> None:
        """Note that hints were not kept, or may have come before this process listened: everything is looked at."""
        self.dropped += lost
        self.all_commands = self.all_freed = True

    def _read(self, payload: str) -> bool:
        """Read a payload; returns whether it is a hint to oneself.

        Raises:
            ValueError: it cannot be read.
        """
        kind, _, text = payload.partition(":")
        match kind:
            case "c":
                self.all_commands = _add(self.commands, text, self.all_commands)
            case "h":
                self.all_freed = _add(self.freed, text, self.all_freed)
            case "m":
                self._read_moves(text)
            case "w":
                hops, _, agent = text.partition(":")
                if agent in self.work or len(self.work) < MOST_AGENTS:
                    self.work[agent] = _number(hops)
            case "p":
                self.joined = True
            case "s":
                if text != self.nonce:
                    raise ValueError("not the awaited test")
                self.tested = True
                return True
            case _:
                raise ValueError("of a newer release, or of another program")
        return False

    def _read_moves(self, text: str) -> None:
        for part in text.split():
            number, _, last = part.partition(":")
            run, newest = _number(number), _number(last)
            if run in self.moves or len(self.moves) < MOST_NUMBERS:  # a poll makes up for the others
                self.moves[run] = max(newest, self.moves.get(run, 0))


def _add(numbers: set[int], text: str, every: bool) -> bool:
    """Add the numbers of a text; if there are too many, or `every` is set, none is left, and True is returned."""
    numbers.update([_number(word) for word in text.split()])
    if every or len(numbers) > MOST_NUMBERS:
        numbers.clear()
        return True
    return False


def _number(text: str) -> int:
    """Return a number that the server takes.

    Raises:
        ValueError: it is not one.
    """
    number = int(text)
    if not 0 <= number <= _GREATEST:
        raise ValueError("no bigint of ours")
    return number
