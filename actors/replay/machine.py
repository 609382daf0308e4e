"""Re-running a record: `replaying(record, spec)` feeds the machine what is recorded, and compares what it says.

Theory of operation. The machine is pure: the same state, input and time give the same events. A store keeps the events,
and what the inputs brought: the model's answers in the thread, results in the rows of calls, tickets, commands in the
inbox. So a run can be run again without asking anybody: at each place of the log the inputs that may have led to the
next event are derived (`derive.py`), the machine takes each of them at that event's time, and what it says is encoded
and compared with what is stored.

Not everything that happened left an event: a gate that let a call wait its turn, a decision that came before its
ticket, the moment at which a deadline took hold. So several stories may explain one prefix of the log. All of them are
kept, side by side, as long as they say exactly what is recorded: `_at` holds, for each place of the log, the states
that explain everything up to it. Where the log goes from one place to a later one, so do they; what leaves no event
makes another state at the same place. Equal states are one, so there are few: a run without gates and hooks has one
state per commit. The record is explained when a state has reached its end, and the first difference is where the last
story could not go on, told of the likeliest input there.

Calls that run side by side under hooks have many orders of what left no event, and almost any of them explains the
record. So the log is swept with a few stories per place, and those behind them are looked at in a further sweep, if
none of the first has reached the end. That there is a difference is known when no story is left; the work that goes
into it is bounded by the length of the log, and does not depend on the time that it takes.

Where one commit ended and the next one began needs no answer: events of one input have one time, and a state between
two inputs of one time is the same whoever cut there. Nor do effects: nothing is performed.

What was written to state is in the events by its keys only. A batch without values that touches the same keys stands
in for it (`writes.py`): the machine says the same of both. What hooks have changed about a model request leaves no
event and needs none, but for the calls of tools that were not offered.

Nothing here waits. The generator yields what only its owner can know: what hooks and gates say of a phase (a tuple of
answers is sent back: each that may have been given; or None: what the record tells), and None now and then, so that
its owner lets others work.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import count
from typing import Final, NamedTuple

import attrs
import msgspec

from ..contract.envelope import decode_event
from ..contract.spec import AgentSpec
from ..engine.effects import RunPhase
from ..engine.inputs import Activate, PhaseDone
from ..engine.machine import step
from ..engine.state import RunState, Step
from .derive import Offer, offers
from .hooks import open_phases, told
from .record import Record
from .report import Difference, ReplayReport, Unreplayable, compared
from .stories import NOWHERE, Fault, Place, Story, before, explained_by, gap, slack, stopped_by_time, time_unknown
from .writes import reducers_at

BREATH: Final = 32
"""Inputs that are tried before others may work."""
ENOUGH: Final = 2
"""Stories that go on from one place in one sweep; those behind them wait for the next one."""
WIDTH: Final = 16
"""Stories of one place that are tried for that in one sweep."""
EFFORT: Final = 4096
"""Stories that are tried beyond one sweep. What would need more is not replayed but said to be ambiguous."""
HORIZON: Final = 256
"""Places of the log after which stories that wait are forgotten."""


class Asked(NamedTuple):
    """What do the hooks or gates of a phase say?

    Attributes:
        effect: the phase. state: the run's, as it would be given to them.
    """

    effect: RunPhase
    state: RunState


Replaying = Generator[Asked | None, "tuple[PhaseDone, ...] | None", ReplayReport]
"""Yields questions about phases, to be sent the answers, or None: what the record tells; and None, to be sent None."""


def replaying(record: Record, spec: AgentSpec) -> Replaying:
    """Re-run a record with a spec.

    Args:
        record: of the run.
        spec: of the agent to try; its key and digest do not matter.
    """
    return _Replay(record, spec).run()


class _Replay:
    def __init__(self, record: Record, spec: AgentSpec) -> None:
        self._record = record
        marks = {name: call.definition for name, call in record.calls.items()}  # the fingerprints are the recorded ones
        # What stands in for writes has its own keys.
        self._spec = attrs.evolve(spec, key=record.info.agent, keys={}, recorded=marks)
        self._bare = AgentSpec(key=record.info.agent)
        self._at: dict[int, Place] = {}
        self._effort = len(record.events) * WIDTH + EFFORT
        self._tried = self._furthest = self._went_on = 0
        self._crowded = False
        self._worst: Fault | None = None
        self._answers: dict[object, tuple[PhaseDone, ...] | None] = {}

    def run(self) -> Replaying:
        self._begin()
        while not self._explained() and any(place.waiting for place in self._at.values()) and self._effort > 0:
            yield from self._sweep(min(at for at, place in self._at.items() if place.waiting))
        return self._report()

    def _explained(self) -> bool:
        return len(self._record.events) in self._at

    def _sweep(self, first: int) -> Generator[Asked | None, tuple[PhaseDone, ...] | None, None]:
        """Follow some of the stories that wait, from the first place where one does to the last that has any."""
        done = True  # nothing waits before this place: no story will come to it any more
        for position in count(first):
            place, went_on = self._at.get(position, NOWHERE), 0
            for _ in range(WIDTH):
                if went_on < ENOUGH and place.waiting:
                    went_on += yield from self._follow(place.waiting.popleft(), place, position)
            done = done and not place.waiting
            forgotten = self._at.pop(position if done else position - HORIZON, NOWHERE)
            self._crowded = self._crowded or bool(forgotten.waiting)
            if self._explained() or self._effort <= 0 or position >= self._furthest:
                return

    def _follow(
        self, story: Story, place: Place, position: int
    ) -> Generator[Asked | None, tuple[PhaseDone, ...] | None, bool]:
        """Try what may have come next. True if the log goes on so; what has left no event is then less likely."""
        self._effort -= 1
        before, others = self._went_on, list[Story]()
        answers = yield from self._phases(story.state, position)
        for other in self._story_goes_on(story, position, answers):
            if other is None:
                yield None
            else:
                others.append(other)
        place.add(others, first=self._went_on == before)
        return self._went_on > before

    def _begin(self) -> None:
        record = self._record
        if not record.events:
            return
        frame = record.encoder.frames(0, record.info.created_at, (record.created,))
        if self._matches(0, frame, None):
            self._reach(1, Story(record.birth))

    # --- one place ---------------------------------------------------------------------------------------------------

    def _phases(
        self, state: RunState, position: int
    ) -> Generator[Asked | None, tuple[PhaseDone, ...] | None, list[PhaseDone]]:
        """What the open phases may have answered; each question is asked once."""
        found: list[PhaseDone] = []
        for effect in open_phases(state):
            call = state.calls.get(effect.call_id or "")
            ticket = None if call is None or call.ticket is None else call.ticket.ticket_id
            key = (effect.phase, effect.step, effect.call_id, call and (call.attempts, call.status, ticket))
            if key not in self._answers:
                self._answers[key] = yield Asked(effect, state)
            answers = self._answers[key]
            if answers is None:
                found += told(self._record, effect, state, position, plugins=bool(self._spec.hooked))
            else:
                found += answers
        return found

    def _story_goes_on(self, story: Story, position: int, answers: list[PhaseDone]) -> Iterator[Story | None]:
        """Every input that may have come next. Yields the stories that stay at this place; others go to theirs.

        And None now and then, so that others may work.
        """
        event = self._record.events[position]
        said = False
        story = story._replace(slack=story.slack + slack(self._record, story.state, position))
        yield from self._without_owner(story, position)
        for offer in (*offers(self._record, story.state, position), *map(Offer, answers)):
            if isinstance(offer, Unreplayable):
                self._note(Fault(position, True, offer))
                said = True
                continue
            bare = story.bare or offer.bare
            state = before(self._record, story.state, offer.message, position)
            self._tried += 1
            if self._tried % BREATH == 0:
                yield None
            taken = step(self._bare if bare else self._spec, state, offer.message, event.timestamp)
            if taken.commit is not None and taken.commit.events:
                said = True
                self._compare(taken, position, Story(taken.state, bare, story.slack))
            elif isinstance(offer.message, Activate):
                yield from self._taken_up(story, taken.state, position)
            elif taken.state != story.state:
                yield Story(taken.state, bare, story.slack)
        if not said:
            difference = compared(position + 1, event, None)
            if difference is not None:
                self._note(Fault(position, False, difference))

    def _without_owner(self, story: Story, position: int) -> Iterator[Story]:
        """At the run's end: the same with the time without an owner that the row has, where events do not tell it."""
        events, counters = self._record.events, story.state.row.counters
        lost = self._record.row.counters.unowned_ms - counters.unowned_ms
        if lost and "termination" in events[-1].payload and events[position].timestamp == events[-1].timestamp:
            told = attrs.evolve(counters, unowned_ms=counters.unowned_ms + lost, active_ms=counters.active_ms - lost)
            row = attrs.evolve(story.state.row, counters=told)
            yield story._replace(state=msgspec.structs.replace(story.state, row=row))

    def _taken_up(self, story: Story, state: RunState, position: int) -> Iterator[Story]:
        """A new owner of whom no event tells: what it changed, but for the active time: when it came is not known."""
        counters = story.state.row.counters
        state = msgspec.structs.replace(state, row=attrs.evolve(state.row, counters=counters))
        if state != msgspec.structs.replace(story.state, phase_open=state.phase_open):
            yield Story(state, story.bare, story.slack + gap(self._record, position))

    def _compare(self, taken: Step, position: int, story: Story) -> None:
        commit = taken.commit
        if commit is None:
            return
        frames = self._record.encoder.frames(position, commit.at, commit.events)
        if self._matches(position, frames, story):
            end = position + len(frames)
            self._went_on += 1
            self._reach(end, story)

    def _matches(self, position: int, frames: tuple[bytes, ...], story: Story | None) -> bool:
        """Whether the log goes on with these events; notes the first that it does not have."""
        record = self._record
        for number, frame in enumerate(frames, position):
            if number < len(record.frames) and record.frames[number] == frame:
                continue
            recorded = record.events[number] if number < len(record.events) else None
            if recorded is None and record.damaged is not None:
                return False  # what stands there can not be read; that is said at the end
            replayed = decode_event(frame)
            difference = compared(number + 1, recorded, replayed)
            if difference is None:
                continue
            found: Difference | Unreplayable = difference
            if story is not None and story.slack and self._is_of_time(difference, story):
                found = time_unknown(difference)
            right = recorded is not None and recorded.type == replayed.type
            self._note(Fault(number, right, found))
            return False
        return True

    def _is_of_time(self, difference: Difference, story: Story) -> bool:
        by_time = stopped_by_time(self._record, story.state, difference.recorded)
        return by_time or explained_by(difference, story.slack)

    def _reach(self, position: int, story: Story) -> None:
        """A story has come to a place."""
        known = reducers_at(self._record, position)
        if known != story.state.keys:
            story = story._replace(state=msgspec.structs.replace(story.state, keys=known))
        self._furthest = max(self._furthest, position)
        self._at.setdefault(position, Place()).add((story,))

    def _note(self, fault: Fault) -> None:
        worst = self._worst
        if worst is None or fault.rank() > worst.rank():
            self._worst = fault

    # --- the result --------------------------------------------------------------------------------------------------

    def _report(self) -> ReplayReport:
        record, total = self._record, len(self._record.events)
        run_id, worst = record.info.run_id, self._worst
        explained = self._explained()
        if explained and record.damaged is None:
            return ReplayReport(run_id=run_id, equal=True, events=total)
        if explained or worst is None:
            sequence = record.damaged or total + 1
            text = f"event {sequence}: the stored bytes are no event; restore the store from a backup"
            gap = Unreplayable(sequence=sequence, missing="bytes", text=text)
            return ReplayReport(run_id=run_id, equal=False, events=sequence - 1, unreplayable=gap)
        if self._crowded or self._effort <= 0:
            text = f"event {worst.reached + 1}: too many orders of what left no event would explain the record up to it"
            gap = Unreplayable(sequence=worst.reached + 1, missing="ambiguous", text=text)
            return ReplayReport(run_id=run_id, equal=False, events=worst.reached, unreplayable=gap)
        if isinstance(worst.found, Unreplayable):
            return ReplayReport(run_id=run_id, equal=False, events=worst.reached, unreplayable=worst.found)
        return ReplayReport(run_id=run_id, equal=False, events=worst.reached, difference=worst.found)
