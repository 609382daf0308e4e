"""The calls of one step as a value: the rows by id, and sets of calls, so that no input has to look at every call.

Theory of operation. A model may ask for thousands of calls in one answer, and each call takes several inputs. A rule
such as "which calls may start" is therefore not a loop over the calls, but set algebra: a set of calls is an int whose
n-th bit stands for the n-th call of the model's order. Intersection is `&`, the first call of a set is its lowest bit,
the calls before the n-th are `(1 << n) - 1`. Thousands of calls are a few hundred bytes, which the processor combines
in less time than Python takes for one line. `put` keeps the sets; the rows are an `immutables.Map`, so a changed call
copies neither the other calls nor the map.

    calls 0 to 4: settled, settled, body, allowed, allowed
    marked(SETTLED.mark)                     0b00011
    marked(ALLOWED.mark)                     0b11000, of which the lowest bit is call 3
    everyone & ~marked(SETTLED.mark) & below(3)   0b00100: call 2 is open, and before call 3

A `StepCalls` does not change, except a copy that a builder works on for one input (`opened`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import Final

from immutables import Map

from ..contract.calls import CallPosition
from ..contract.decisions import Ticket, supplies_result
from ..contract.lifecycle import APPLYING_EFFECTS
from ..contract.rows import CallRow
from ..contract.spec import HANDOFF, AgentSpec, OfferedTool, ToolSpec

_POSITIONS: Final = len(CallPosition)
BEGUN: Final = 1 << _POSITIONS
"""Mark of a call whose body has begun at least once."""
RESUMED: Final = BEGUN << 1
"""Mark of a call that a decision has resumed."""
PROVISIONAL: Final = BEGUN << 2
"""Mark of a call whose gate has given a verdict that was not final."""
ALONE: Final = BEGUN << 3
"""Mark of a call that runs again, alone, after a conflict."""
BATCH: Final = BEGUN << 4
"""Mark of a call with state writes that are not merged."""
ENDED: Final = BEGUN << 5
"""Mark of a decided call that ends by its decision alone: no body runs."""
ASKED: Final = BEGUN << 6
"""Mark of a call with an open mirror of a ticket of its child run."""
_SETS: Final = _POSITIONS + 7
_SETTLED: Final = CallPosition.SETTLED.mark.bit_length() - 1


def marks_of(call: CallRow) -> int:
    """Return the marks of a call: one bit for each set that the call is in."""
    marks = call.at.mark
    if call.attempts:
        marks |= BEGUN
    if call.resumed_at is not None:
        marks |= RESUMED
    if call.provisional:
        marks |= PROVISIONAL
    if call.alone:
        marks |= ALONE
    if call.batch is not None:
        marks |= BATCH
    if call.mirrors and any(mirror.decision is None for mirror in call.mirrors):
        marks |= ASKED
    if call.at is CallPosition.DECIDED and (decision := call.decision) is not None:
        marks |= ENDED if decision.action == "cancel" or supplies_result(call.ticket, decision) else 0
    return marks


@cache
def places(marks: int) -> tuple[int, ...]:
    """Return the numbers of the sets of these marks. Few combinations of marks ever occur."""
    return tuple(place for place in range(_SETS) if marks >> place & 1)


_NO_ROWS: Final[Map[str, CallRow]] = Map()
_NO_TICKETS: Final[Map[str, str]] = Map()
_NO_TOOLS: Final[Map[str, OfferedTool]] = Map()


class StepCalls(Mapping[str, CallRow]):
    """Call id -> row, in the model's order, and the sets of calls.

    Attributes:
        handoffs, applying: the sets of calls with these effects.
        nested: the set of the nested calls.
        rows: call id -> row, in no order.
        all: the set of all calls; 0 if the step has none.
        open: the set of the calls that have not settled.
        present: the marks that any call has: most questions about a small step end here.
    """

    __slots__ = (
        "_concurrency",
        "_ids",
        "_joined",
        "_newest",
        "_numbers",
        "_offered",
        "_sets",
        "_shared",
        "_tickets",
        "_timers",
        "all",
        "applying",
        "handoffs",
        "nested",
        "open",
        "present",
        "rows",
    )  # fmt: skip

    def __init__(self, calls: Iterable[CallRow] = ()) -> None:
        """Make the calls of a step, given in the model's order."""
        self.rows, self._tickets = _NO_ROWS, _NO_TICKETS
        self._ids: list[str] = []
        self._numbers: dict[str, int] = {}
        self._sets = [0] * _SETS
        self._timers: list[tuple[datetime, int]] = []
        self._concurrency: tuple[Mapping[str, ToolSpec], int, int] | None = None
        self._offered: Map[str, OfferedTool] = _NO_TOOLS
        self._joined: tuple[AgentSpec, AgentSpec] | None = None
        self._shared = False
        self.all = self.open = self.handoffs = self.applying = self.nested = self.present = 0
        self._newest: tuple[CallRow | None, int] = (None, 0)
        for call in calls:
            self.put(call, self.rows.get(call.call_id))

    def __repr__(self) -> str:
        return f"<StepCalls {len(self._ids)}, open {self.open.bit_count()}>"

    def opened(self) -> StepCalls:
        """Return a copy for the changes of one input."""
        copy = StepCalls.__new__(StepCalls)
        copy.rows, copy._tickets, copy._sets, copy._timers = self.rows, self._tickets, self._sets[:], self._timers[:]
        copy._ids, copy._numbers, copy._shared = self._ids, self._numbers, True
        copy.handoffs, copy.applying, copy.nested = self.handoffs, self.applying, self.nested
        copy.all, copy.open, copy.present, copy._newest = self.all, self.open, self.present, self._newest
        copy._concurrency, copy._offered, copy._joined = self._concurrency, self._offered, self._joined
        return copy

    # --- the mapping -------------------------------------------------------------------------------------------------

    def __getitem__(self, call_id: str) -> CallRow:
        return self.rows[call_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, call_id: object) -> bool:
        return call_id in self._numbers

    def get(self, call_id: str) -> CallRow | None:  # type: ignore[override]  # no caller gives a default
        """Return the row of a call, or None."""
        return self.rows.get(call_id)

    def values(self) -> list[CallRow]:  # type: ignore[override]  # a view looks up each key in Python
        """Return the rows in the model's order."""
        return [*map(self.rows.__getitem__, self._ids)]

    def of_model(self) -> list[CallRow]:
        """Return the rows of the calls of the model, in its order."""
        calls = self.values()
        return [call for call in calls if call.parent is None] if self.nested else calls

    def put(self, call: CallRow, old: CallRow | None) -> None:
        """Write the row of a call in place of `old`; a call without one is the last. Only for an opened copy."""
        call_id = call.call_id
        marks = marks_of(call)
        if old is None:
            changed_marks = marks
            self.add(call)
        else:
            changed_marks = marks ^ (self._newest[1] if old is self._newest[0] else marks_of(old))
        self._newest = call, marks  # the call that is put next is this one most of the time
        self.rows = self.rows.set(call_id, call)
        bit, sets = 1 << self._numbers[call_id], self._sets
        for place in places(changed_marks):
            sets[place] ^= bit
        if self.all == bit:
            self.present = marks
        else:
            self.present |= marks
            for place in places(changed_marks & ~marks):
                if not sets[place]:
                    self.present ^= 1 << place
        self.open = self.all & ~sets[_SETTLED]
        if call.ticket is not None or call.mirrors or call.offered is not None:
            self._note_parts(call, old)
        while self._timers and self._timed(self._timers[0]) is None:
            self._timers.pop(0)

    def add(self, call: CallRow) -> None:
        """Append the first row of a call. Only for an opened copy, by `put`."""
        if self._shared:
            self._ids, self._numbers, self._shared = self._ids[:], self._numbers.copy(), False
        bit = 1 << len(self._ids)
        self._numbers[call.call_id] = len(self._ids)
        self._ids.append(call.call_id)
        self.all |= bit
        if call.effect == HANDOFF:
            self.handoffs |= bit
        if call.effect in APPLYING_EFFECTS:
            self.applying |= bit
        if call.parent is not None:
            self.nested |= bit
        else:
            self._concurrency = None

    def joined(self, spec: AgentSpec) -> AgentSpec:
        """Return the spec of the agent with the offered tools of these calls; made once for a step."""
        if not self._offered:
            return spec
        if self._joined is None or self._joined[0] is not spec:
            self._joined = spec, spec.offering({name: tool.spec for name, tool in self._offered.items()})
        return self._joined[1]

    # --- tickets -----------------------------------------------------------------------------------------------------

    def _note_parts(self, call: CallRow, old: CallRow | None) -> None:
        """Note a new ticket, new mirrors, and the tool of a toolset."""
        ticket = call.ticket
        if ticket is not None and (old is None or ticket is not old.ticket):
            if self._tickets.get(ticket.ticket_id) is None:
                self._tickets = self._tickets.set(ticket.ticket_id, call.call_id)
                if ticket.replaces is not None:
                    self._tickets = self._tickets.set(ticket.replaces, call.call_id)
            if ticket.expires_at is not None and ticket.status == "open":
                timer = ticket.expires_at, self._numbers[call.call_id]
                place = bisect_left(self._timers, timer)
                if self._timers[place : place + 1] != [timer]:  # an earlier ticket of the call may have left it
                    self._timers.insert(place, timer)
        if call.mirrors and (old is None or call.mirrors is not old.mirrors):
            for mirror in call.mirrors:
                self._tickets = self._tickets.set(mirror.ticket.ticket_id, call.call_id)
        if call.offered is not None and (old is None or call.offered is not old.offered):
            self._offered, self._joined = self._offered.set(call.tool, call.offered), None

    def _timed(self, timer: tuple[datetime, int]) -> Ticket | None:
        """Return the ticket of a timer; None if it was closed, or is another one now."""
        ticket = self.rows[self._ids[timer[1]]].ticket
        if ticket is None or ticket.status != "open" or ticket.expires_at != timer[0]:
            return None
        return ticket

    def of_ticket(self, ticket_id: str) -> CallRow | None:
        """Return the call whose newest ticket has this id, or replaces the ticket with this id."""
        call = self.rows.get(self._tickets.get(ticket_id, ""))
        newest = None if call is None else call.ticket
        return call if newest is not None and ticket_id in (newest.ticket_id, newest.replaces) else None

    def of_mirror(self, target: str) -> CallRow | None:
        """Return the call with this id, or the call that has or had a mirror with this ticket id."""
        return self.rows.get(target) or self.rows.get(self._tickets.get(target, ""))

    def open_mirrors(self) -> Iterator[Ticket]:
        """Yield the undecided tickets of child runs, as this run shows them, in the order of their calls."""
        for call in self.each(self.marked(ASKED)):
            yield from (mirror.ticket for mirror in call.mirrors if mirror.decision is None)

    @property
    def earliest(self) -> datetime | None:
        """When the first open ticket expires; None if none does."""
        return self._timers[0][0] if self._timers else None

    def timed(self) -> Iterator[tuple[datetime, str]]:
        """Yield expiry and id of the open tickets that expire, the earliest first."""
        for timer in self._timers:
            ticket = self._timed(timer)
            if ticket is not None:
                yield timer[0], ticket.ticket_id

    # --- sets --------------------------------------------------------------------------------------------------------

    def marked(self, marks: int) -> int:
        """Return the set of the calls with one of these marks."""
        numbers = 0
        for place in places(marks & self.present):
            numbers |= self._sets[place]
        return numbers

    def parents(self, numbers: int) -> int:
        """Return the set of the parent calls of a set of nested calls."""
        parents = 0
        for call in self.each(numbers):
            parents |= 1 << self._numbers[call.parent or ""]
        return parents

    def before(self, call: CallRow) -> int:
        """Return the set of the calls that the model named before this one."""
        return (1 << self._numbers[call.call_id]) - 1

    def first(self, numbers: int) -> CallRow:
        """Return the first call of a set that is not empty."""
        return self.rows[self._ids[(numbers & -numbers).bit_length() - 1]]

    def each(self, numbers: int) -> Iterator[CallRow]:
        """Yield the calls of a set in the model's order, each as it is when its turn comes."""
        while numbers:
            lowest = numbers & -numbers
            yield self.rows[self._ids[lowest.bit_length() - 1]]
            numbers ^= lowest

    def concurrency(self, tools: Mapping[str, ToolSpec]) -> tuple[int, int]:
        """Return the sets of the exclusive and of the ordered calls; looked up once for a step and its tools."""
        cache_entry = self._concurrency
        if cache_entry is None or cache_entry[0] is not tools:
            exclusive = ordered_calls = 0
            for number, call in enumerate(self.values()):
                tool = tools.get(call.tool)
                if call.parent is not None:
                    continue
                if tool is not None and tool.concurrency == "exclusive":
                    exclusive |= 1 << number
                elif tool is not None and tool.concurrency == "ordered":
                    ordered_calls |= 1 << number
            cache_entry = self._concurrency = (tools, exclusive, ordered_calls)
        return cache_entry[1:]


NO_CALLS: Final = StepCalls()
"""The calls of a step whose model has not answered."""
