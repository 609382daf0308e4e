"""The machine of a process among others: each standing with each signal, and random orders of both."""

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.contract.lifecycle import IllegalTransition
from greenroom.actors.stores.common._leases import LeaseTimes
from greenroom.actors.stores.common._process import STANDINGS, LeaseAction, LeaseSignal, ProcessMachine, Standing

TIMES = LeaseTimes(lease=30.0, turn=3.0, margin=8.0)
GOOD = TIMES.lease - TIMES.margin

# standing: what follows a turn, a confirmed beat, a denied one, a new row, a lapse, an outage, the end (None: no move)
MOVES = {
    "new": ("new", None, None, "good", "new", "new", "ended"),
    "good": ("good", "good", "dead", None, "void", "good", "ended"),
    "void": ("returning", "void", "dead", None, "void", "void", "ended"),
    "returning": ("returning", "good", "dead", None, "returning", "void", "ended"),
    "dead": ("dead", None, None, "good", "dead", "dead", "ended"),
    "ended": (None, "ended", "ended", "ended", "ended", "ended", "ended"),
}
ACTIONS = {
    ("new", LeaseSignal.TURN): [LeaseAction.JOIN, LeaseAction.BEAT],
    ("good", LeaseSignal.TURN): [LeaseAction.BEAT],
    ("good", LeaseSignal.DENIAL): [LeaseAction.VOID, LeaseAction.JOIN, LeaseAction.BEAT],
    ("good", LeaseSignal.LAPSE): [LeaseAction.VOID],
    ("void", LeaseSignal.TURN): [LeaseAction.RETURN_ALL, LeaseAction.BEAT],
    ("void", LeaseSignal.BEAT): [LeaseAction.TURN],
    ("void", LeaseSignal.DENIAL): [LeaseAction.JOIN, LeaseAction.BEAT],
    ("returning", LeaseSignal.TURN): [LeaseAction.RETURN_ALL, LeaseAction.BEAT],
    ("returning", LeaseSignal.DENIAL): [LeaseAction.JOIN, LeaseAction.BEAT],
    ("dead", LeaseSignal.TURN): [LeaseAction.JOIN, LeaseAction.BEAT],
}


@pytest.mark.parametrize("signal", LeaseSignal)
@pytest.mark.parametrize("standing", Standing)
def test_each_signal_in_each_standing(standing: Standing, signal: LeaseSignal) -> None:
    machine = ProcessMachine[str](TIMES)
    machine.standing = standing
    name = standing.name.lower()
    following = MOVES[name][list(LeaseSignal).index(signal)]
    if following is None:
        with pytest.raises(IllegalTransition, match=f"process: {standing.name} -> {signal.name}"):
            machine._take(signal)
        assert machine.standing is standing
        return
    assert list(machine._take(signal)) == ACTIONS.get((name, signal), [])
    assert machine.standing.name.lower() == following


def test_every_standing_can_become_good_again_or_has_ended() -> None:
    follow = {standing: {to for to, _ in row.values()} for standing, row in STANDINGS.items()}
    reached = {Standing.GOOD}
    while more := {standing for standing, to in follow.items() if to & reached} - reached:
        reached |= more
    assert set(Standing) - reached == {Standing.ENDED}


@attrs.define
class Storage:
    """The storage and the adapter of one process, as little of both as shows what claims are worth.

    Attributes:
        owned: claims with which the storage lets the process write.
        usable: claims that the process may use, as it was told.
    """

    machine: ProcessMachine[str] = attrs.field(factory=lambda: ProcessMachine(TIMES))
    now: float = 0.0
    row: bool = False
    claims: int = 0
    owned: set[int] = attrs.field(factory=set)
    usable: set[int] = attrs.field(factory=set)
    pending: list[LeaseAction] = attrs.field(factory=list)
    sent: float | None = None

    def claim(self) -> None:
        """Claim a run, if the process may."""
        if self.machine.good(self.now):
            self.claims += 1
            self.owned.add(self.claims)
            self.usable.add(self.claims)

    def act(self) -> None:
        """Perform the oldest action; a beat is sent here and answered by the next step."""
        if self.sent is not None:
            sent, self.sent = self.sent, None
            self.perform(self.machine.beat(sent, alive=self.row))
        elif self.pending:
            match self.pending.pop(0):
                case LeaseAction.BEAT:
                    self.sent = self.now
                case LeaseAction.JOIN:
                    self.row = True
                    self.machine.joined(self.now)
                case LeaseAction.RETURN_ALL:
                    self.owned.clear()
                case LeaseAction.VOID | LeaseAction.TURN as action:
                    self.perform([action])

    def perform(self, actions: Sequence[LeaseAction]) -> None:
        """Report void claims in the step that voids them; all other actions take time."""
        if LeaseAction.VOID in actions:
            assert actions[0] is LeaseAction.VOID, "nothing is awaited before the report"
            self.usable.clear()
        self.pending += [action for action in actions if action not in (LeaseAction.VOID, LeaseAction.TURN)]

    def turn(self) -> None:
        """Begin a turn, if none is on its way."""
        if self.sent is None and not self.pending:
            self.perform(self.machine.turn(self.now))

    def fail(self) -> None:
        """Cut the turn off."""
        self.pending, self.sent = [], None
        self.machine.outage()

    def bury(self) -> None:
        """Another process declares this one dead, and frees its runs."""
        self.row = False
        self.owned.clear()

    def wait(self, seconds: float) -> None:
        """Let time pass; the watch over the clock is never late."""
        until = self.now + seconds
        if self.machine.standing is Standing.GOOD:
            self.now = min(until, max(self.now, self.machine.good_until))
            self.perform(self.machine.clock(self.now))
        self.now = until
        self.perform(self.machine.clock(self.now))


Step = tuple[str, tuple[float, ...]]
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(
        st.sampled_from(
            [(name, ()) for name in ("claim", "claim", "act", "act", "act", "turn", "turn", "fail", "bury")]
        ),
        st.one_of(st.floats(0.0, 4.0), st.floats(15.0, 40.0)).map(lambda seconds: ("wait", (seconds,))),
    ),
    min_size=20,
    max_size=60,
)


@given(STEPS)
def test_in_every_order_a_claim_is_used_only_while_the_storage_has_it(steps: list[Step]) -> None:
    """Except by a process that was buried before its lease has run out, until it notices."""
    process = Storage()
    for name, arguments in [("turn", ()), *[("act", ())] * 3, *steps]:
        getattr(process, name)(*arguments)
        if not process.machine.good(process.now):
            assert not process.usable
        elif process.row:
            assert process.usable <= process.owned, "good claims are the storage's"
    for _ in range(20):
        process.turn()
        process.act()
    assert process.machine.good(process.now), "a process that reaches its storage works again"
    assert process.usable == process.owned, "no claim is left in the storage that the process does not know"


def test_a_lease_is_good_from_before_the_beat_was_sent() -> None:
    machine = ProcessMachine[str](TIMES)
    machine.turn(0.0)
    machine.joined(1.0)
    assert machine.good(1.0 + GOOD - 0.1)
    assert not machine.good(1.0 + GOOD)
    assert machine.clock(1.0 + GOOD - 0.1) == ()
    assert machine.clock(1.0 + GOOD) == (LeaseAction.VOID,)
    assert machine.clock(2.0 + GOOD) == (), "claims are voided once"


def test_a_process_is_unready_after_two_turns_without_a_beat_and_while_its_claims_are_void() -> None:
    machine = ProcessMachine[str](TIMES)
    machine.joined(0.0)
    assert machine.unready(6.0) is None
    assert "confirmed 7 seconds ago" in (machine.unready(7.0) or "")
    machine.lapse()
    assert "has run out" in (machine.unready(0.0) or "")


def test_held_runs_are_forgotten_with_the_claims() -> None:
    machine = ProcessMachine[str](TIMES)
    machine.joined(0.0)
    machine.held.add("r")
    machine.turn(GOOD)
    assert (machine.standing, machine.held) == (Standing.RETURNING, set())


# --- the duties of a turn --------------------------------------------------------------------------------------------


def test_a_silent_process_is_declared_dead_and_its_runs_are_freed() -> None:
    machine = ProcessMachine[str](TIMES, every=3, strays_every=100)
    found = [machine.look(turn * TIMES.turn, {"a": 7, "b": turn}, ()) for turn in range(12)]
    assert [dict(duties.silent) for duties in found] == [{}] * 11 + [{"a": 7}]
    assert [duties.free for duties in found] == [False] * 11 + [True]
    assert [turn for turn, duties in enumerate(found, 1) if duties.repair] == [3, 6, 9, 12]


def test_after_an_outage_or_over_another_connection_no_process_is_declared_dead() -> None:
    for reconnected in (True, False):
        machine = ProcessMachine[str](TIMES)
        machine.joined(0.0)
        for turn in range(11):
            machine.look(turn * TIMES.turn, {"a": 7}, ())
        if not reconnected:
            machine.outage()
        duties = machine.look(33.0, {"a": 7}, (), reconnected=reconnected)
        assert (duties.silent, duties.strays, duties.repair) == ({}, reconnected, True)


def test_the_row_of_a_dead_process_is_kept_for_a_while() -> None:
    machine = ProcessMachine[str](TIMES, remember=10.0)
    looks = [machine.look(float(now), {}, ["a"]) for now in (0, 3, 6, 9, 12)]
    assert [list(duties.forget) for duties in looks] == [[], [], [], [], ["a"]]
    assert all(duties.free for duties in looks)
    assert not machine.look(15.0, {}, ()).free


def test_a_stray_is_given_back_after_two_looks_and_a_lost_claim_is_forgotten_at_the_first() -> None:
    machine = ProcessMachine[str](TIMES)
    first = machine.repair({"mine": 2, "stray": 3, "newer": 5}, {"mine": 2, "gone": 1, "newer": 4})
    assert (first.strays, first.lost) == ({}, {"gone": 1, "newer": 4})
    second = machine.repair({"mine": 2, "stray": 3, "newer": 5, "late": 1}, {"mine": 2, "newer": 5})
    assert (second.strays, second.lost) == ({"stray": 3}, {})


def test_strays_of_a_former_row_are_not_those_of_the_new_one() -> None:
    machine = ProcessMachine[str](TIMES)
    machine.repair({"stray": 3}, {})
    machine.joined(0.0)
    assert machine.repair({"stray": 3}, {}).strays == {}
