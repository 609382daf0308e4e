"""The result of a preparation: facts for people, and what is doubtful.

Theory of operation. A run in a workspace, or with a tool that prepares itself, makes sure in the stage `preparing` that
it can work: its surroundings first (`abc.Surroundings`), then each such tool (`tool(prepare=...)`). Each of them
returns a `Preparation`, or raises `PreparationError`, which ends the run from that stage. A preparation is repeated if
the process ends while it runs, so it does nothing twice that must happen once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from ..errors import UsageError
from .plain import JSONObject

MOST_FACTS: Final = 16 * 1024
"""Bytes of the facts of one preparation, as JSON."""
MOST_DOUBTS: Final = 20


@attrs.frozen(kw_only=True)
class Preparation:
    """A run can work.

    Attributes:
        facts: JSON data about what was prepared, up to 16 KiB: a part of `detail` in `run.started`, redacted there.
        doubts: reason -> sentence, at most 20: each becomes a `run.degraded`.

    Raises:
        UsageError: a value is invalid.
    """

    facts: JSONObject = attrs.field(factory=dict)
    doubts: Mapping[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.facts, Mapping):
            raise UsageError(f"Preparation(facts={self.facts!r:.100}): give a dict of names and JSON data")
        if not isinstance(self.doubts, Mapping) or len(self.doubts) > MOST_DOUBTS:
            raise UsageError(f"Preparation(doubts={self.doubts!r:.100}): give a dict of up to {MOST_DOUBTS} sentences")
        for reason, text in self.doubts.items():
            if not (isinstance(reason, str) and reason.isidentifier() and isinstance(text, str)):
                raise UsageError(f"Preparation(doubts={{{reason!r:.100}: ...}}): give an identifier and a sentence")
