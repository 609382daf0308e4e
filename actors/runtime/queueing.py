"""`Queueing`: the options of `start` about the owner of a new run: an owner here, immediately, or one from a queue."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import attrs

from ..contract.plain import exact
from ..errors import UsageError
from ..services.sanitize import moment_of
from ..stores.common._ranks import check_priority

LONGEST_KEY: Final = 256
"""Most characters of a `dedupe` key."""
_QUEUE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")


@attrs.frozen(kw_only=True)
class Queueing:
    """The checked options of a start that say when and where the run is worked on.

    Attributes:
        background: the run waits in its queue until a process has room; False once checked if it begins here.
        queue, at, priority, dedupe: as in `Runtime.start`.

    Raises:
        UsageError: an option is invalid, or does not fit the others; the message names it and says what to give.
    """

    background: bool | None = None
    queue: str | None = None
    at: datetime | None = None
    priority: int | None = None
    dedupe: str | None = None

    def __attrs_post_init__(self) -> None:
        put = object.__setattr__  # attrs' own way to complete a frozen value
        if self.background is not None and type(self.background) is not bool:
            raise UsageError(f"background={self.background!r:.200}: give True or False")
        if self.queue is not None:
            if not isinstance(self.queue, str) or _QUEUE.fullmatch(self.queue) is None:
                way = "use 1 to 128 letters, digits and _ . : -, a letter or digit first"
                raise UsageError(f"queue={self.queue!r:.200}: {way}")
            put(self, "queue", exact(self.queue))
        if self.at is not None:
            put(self, "at", moment_of(self.at, "at"))
        if self.priority is not None:
            check_priority(self.priority)
        if self.dedupe is not None:
            if not isinstance(self.dedupe, str) or not 1 <= len(self.dedupe) <= LONGEST_KEY:
                raise UsageError(f"dedupe={self.dedupe!r:.200}: give a str of 1 to {LONGEST_KEY} characters")
            if not self.dedupe.isprintable():
                raise UsageError(f"dedupe={self.dedupe!r:.200}: give printable characters only")
            put(self, "dedupe", exact(self.dedupe))
        needs = next((name for name in ("queue", "at", "priority") if getattr(self, name) is not None), None)
        if needs is not None and self.background is False:
            way = "leave background out, or give background=True"
            raise UsageError(f"background=False does not go with {needs}=, which is about the run's queue: {way}")
        put(self, "background", self.background is True or needs is not None)

    def check_deps(self, deps: object, *, here: bool) -> None:
        """Check that a run of a queue, or one that cannot work `here`, has no separate deps.

        Raises:
            UsageError: it has.
        """
        if deps is not None and (self.background or not here):
            run = "a run that waits in a queue" if self.background else "a run that only other processes can work on"
            way = "give open_runtime(deps=provider), a function of a RunInfo that makes them"
            raise UsageError(f"deps= does not go with {run}, for they exist in this process only; {way}")


AT_ONCE: Final = Queueing()
"""The run begins in this process."""
OPTIONS: Final = frozenset(field.name for field in attrs.fields(Queueing))
