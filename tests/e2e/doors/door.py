"""`Door`: a client of one protocol in one run. All protocols have the same five things to do."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import attrs

from .house import Gateway, House

CITY = "Oslo"
"""The answer to the question that wants a value."""
TOO_LATE = ("already_decided", "run_done", "unknown_target")
"""Codes of refusals that say that somebody else was faster."""
INPUT = "Pay order 7 back, and send the parcel."


@attrs.frozen(kw_only=True)
class Ending:
    """What a door has shown when its run was over.

    Attributes:
        status: completed or cancelled.
        texts: What the assistant said, message by message; None if the protocol does not show it.
        results: Results of calls in order, without those of a cancel; None as above.
        output: The output of a completed run; None as above.
        events: The events, if the protocol has them as they are.
    """

    status: str
    texts: list[str] | None = None
    results: list[Any] | None = None
    output: str | None = None
    events: list[dict[str, Any]] | None = None


class Door(ABC):
    """A client at one gateway. Each method survives a kill of that gateway: it asks again, with the same ids.

    Attributes:
        run, thread: Of the run, once it is started or followed.
        asked: The ticket of the newest question.
    """

    name: ClassVar[str]

    def __init__(self, house: House, gateway: Gateway) -> None:
        self.house, self.gateway = house, gateway
        self.run = self.thread = self.asked = ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self.gateway.port} in {self.run}>"

    @abstractmethod
    def start(self, key: str) -> str:
        """Start a run and return its id. `key` is new; the same key again is the same run."""

    def follow(self, run: str, thread: str) -> None:
        """Begin to follow a run, unless this door has started it."""
        self.run, self.thread = run, thread

    @abstractmethod
    def question(self) -> str | None:
        """Read on to the next question, and return its ticket; None if the run has ended before."""

    @property
    def may_decide(self) -> bool:
        """Whether this door can answer the newest question."""
        return True

    @abstractmethod
    def decide(self, *, yes: bool = True) -> None:
        """Approve what was asked, or answer CITY; or deny. Somebody else may have been faster."""

    @abstractmethod
    def cancel(self) -> None:
        """Cancel the run, as this protocol does."""

    @abstractmethod
    def ended(self) -> Ending:
        """Read on to the end, make sure that it is well-formed, and return what was shown."""

    @abstractmethod
    def close(self) -> None:
        """Leave."""
