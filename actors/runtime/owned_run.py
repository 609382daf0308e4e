"""The place of a run in this process, as a table, and the record of a run: `Place`, `PLACES`, `OwnedRun`.

Theory of operation. `PLACES` has one row per place, with the places that may follow and the facts that hold there.
`RunRegistry._move` is the only place that moves a run, and checks each move. A run is absent until
it gets an owner. Then it is held (another run works on its thread), queued (it waits for a slot), working (it holds a
slot), inside (it works in the slot of its parent run), resting (it waits for people or tasks) or leaving (it gives
itself back, because there is no slot here). A run that cannot be worked on here may stay held without an owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import attrs

from greenroom.supervision import ChildSpec

from ..processes import ReadyRun
from ..run.run_actor import RunActor
from ..run.run_loop import Hint
from ..services.children import EMPTY, OverrunBody


class Place(StrEnum):
    """The place of one run in this process. `PLACES` is the table."""

    ABSENT = "absent"
    HELD = "held"
    QUEUED = "queued"
    WORKING = "working"
    INSIDE = "inside"
    RESTING = "resting"
    LIVE = "live"
    LEAVING = "leaving"

    __hash__ = str.__hash__  # that of Enum is written in Python, and each move looks places up


@attrs.frozen(kw_only=True)
class PlaceRule:
    """A row of the table.

    Attributes:
        to: the places that may follow.
        slot: the run holds a slot of max_running.
        at_work: `Runtime.join` waits for the run.
    """

    to: frozenset[Place]
    slot: bool = False
    at_work: bool = True


_AT = Place


def _to(*places: Place) -> frozenset[Place]:
    return frozenset(places)


PLACES: Final[Mapping[Place, PlaceRule]] = {
    _AT.ABSENT: PlaceRule(to=_to(_AT.HELD, _AT.QUEUED, _AT.WORKING, _AT.INSIDE), at_work=False),
    # a cancel ends a held run, whose last hooks are work
    _AT.HELD: PlaceRule(to=_to(_AT.QUEUED, _AT.WORKING, _AT.INSIDE, _AT.LEAVING, _AT.ABSENT), at_work=False),
    # a run that is taken up in the middle of a step, or at rest, does not wait for a slot
    _AT.QUEUED: PlaceRule(to=_to(_AT.HELD, _AT.WORKING, _AT.INSIDE, _AT.RESTING, _AT.ABSENT)),
    _AT.WORKING: PlaceRule(to=_to(_AT.HELD, _AT.INSIDE, _AT.RESTING, _AT.LIVE, _AT.ABSENT), slot=True),
    _AT.INSIDE: PlaceRule(to=_to(_AT.HELD, _AT.RESTING, _AT.ABSENT)),
    _AT.RESTING: PlaceRule(to=_to(_AT.WORKING, _AT.INSIDE, _AT.ABSENT), at_work=False),
    # the run rests, and a body waits for the decision about a nested call
    _AT.LIVE: PlaceRule(to=_to(_AT.WORKING, _AT.RESTING, _AT.ABSENT), slot=True, at_work=False),
    # a cancel that comes meanwhile ends the run here
    _AT.LEAVING: PlaceRule(to=_to(_AT.WORKING, _AT.INSIDE, _AT.ABSENT)),
}
"""The table: each place, the places that may follow, and the facts that hold there."""


@attrs.define(eq=False)
class OwnedRun:
    """A run that has an owner here, that is being started here, or of which something is noted here.

    Attributes:
        place: a row of `PLACES`.
        actor: the owner; None: the run has none here.
        spec: starts the actor once the supervisor of the owners has begun again; None: the actor was started.
        starting: starts in flight that write the run.
        freed: the run's thread became free, so the run is not held any more.
        next_claim: a claim that came while the run had an owner.
        degraded: why the run is not worked on here (code, sentence).
        logged_code: code of the newest logged reason.
        refusals: how often in a row the run could not be worked on here.
        sequence: the run's newest event when it was refused, or first looked at since.
        overran: bodies of earlier owners that may still run.
    """

    run_id: str
    place: Place = Place.ABSENT
    actor: RunActor | None = None
    spec: ChildSpec[Hint] | None = None
    starting: int = 0
    freed: bool = False
    next_claim: ReadyRun | None = None
    degraded: tuple[str, str] | None = None
    logged_code: str | None = None
    refusals: int = 0
    sequence: int | None = None
    overran: Mapping[str, OverrunBody] = EMPTY

    def __repr__(self) -> str:
        return f"<OwnedRun {self.run_id}, {self.place.value}>"

    @property
    def noted(self) -> bool:
        """True if the record has to be kept although the run has no owner here."""
        return (
            self.degraded is not None
            or self.logged_code is not None
            or self.sequence is not None
            or self.starting > 0
            or self.place is not Place.ABSENT
            or bool(self.overran)
        )

    @property
    def at_work(self) -> bool:
        """False if the run waits for its thread, or rests with every accepted command acted on."""
        if self.place in (Place.RESTING, Place.LIVE) and self.actor is not None:
            return self.actor.unread
        return PLACES[self.place].at_work

    def forget_refusals(self) -> None:
        """Forget that the run could not be worked on here."""
        self.degraded = self.logged_code = self.sequence = None
        self.refusals = 0
