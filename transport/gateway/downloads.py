"""`Downloads`: how many artifacts the gateway has in memory, because somebody reads them, at the same time."""

from __future__ import annotations

from collections import Counter
from typing import Final

import attrs

from ..protocol.codes import Refused
from .access import Principal

MOST: Final = 32
"""Artifacts that are being sent: 8 MiB each, so 256 MiB at most."""
MOST_EACH: Final = 4
"""Of them to one principal, so that one who reads slowly leaves room for others."""


@attrs.define(eq=False)
class Downloads:
    """The artifacts that are being sent, by principal."""

    _of: Counter[str] = attrs.field(factory=Counter)

    def __repr__(self) -> str:
        return f"<Downloads: {self._of.total()} of {MOST}>"

    def begin(self, who: Principal) -> None:
        """Count one more. Each `begin` that returns needs an `end`.

        Raises:
            Refused: too_many_connections.
        """
        if self._of[who.name] >= MOST_EACH or self._of.total() >= MOST:
            whose = f"{MOST_EACH} to {who.name}" if self._of[who.name] >= MOST_EACH else f"{MOST} of all principals"
            raise Refused("too_many_connections", f"as many artifacts as may be are being sent: {whose}; try again")
        self._of[who.name] += 1

    def end(self, who: Principal) -> None:
        """Count one less."""
        self._of[who.name] -= 1
        if not self._of[who.name]:
            del self._of[who.name]
