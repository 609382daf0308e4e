"""The sets of a step's calls give the same answers as a look at every call, for steps drawn by lot."""

import random
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from greenroom.actors.contract.calls import POSITIONS, SUSPENDED, CallPosition, CallStatus
from greenroom.actors.contract.decisions import Decision, Ticket
from greenroom.actors.contract.lifecycle import APPLYING_EFFECTS, NEEDS_APPROVAL, Stage
from greenroom.actors.contract.messages import CallRequest
from greenroom.actors.contract.phases import RunPosition
from greenroom.actors.contract.rows import CallRow, Mirror, RunInfo, RunRecord, RunRow
from greenroom.actors.contract.spec import HANDOFF, MODES, AgentSpec, ExecutionMode, ToolSpec
from greenroom.actors.contract.state import Batch
from greenroom.actors.engine.calls import derive_stage
from greenroom.actors.engine.handoffs import come_before
from greenroom.actors.engine.inputs import Activate
from greenroom.actors.engine.machine import step
from greenroom.actors.engine.state import RunState
from greenroom.actors.engine.step_calls import StepCalls
from greenroom.actors.engine.tool_bodies import in_turn, startable

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = ("shared", "ordered", "exclusive")
TOOLS: Mapping[str, ToolSpec] = {
    **{kind: ToolSpec(name=kind, concurrency=kind) for kind in KINDS},  # type: ignore[arg-type]
    "transfer": ToolSpec(name="transfer", handoff="b", effect=HANDOFF),
    "write": ToolSpec(name="write", effect="write"),
}
SHARES = [
    {},
    {"transfer": 0.3},
    {"ordered": 0.5},
    {"exclusive": 0.2},
    {"ordered": 0.3, "exclusive": 0.2, "transfer": 0.2, "write": 0.2},
]


def a_ticket(dice: random.Random, call_id: str, number: int) -> Ticket:
    return Ticket(
        ticket_id=f"t{number}", run_id="r", call_id=call_id, tool="", arguments={}, fingerprint="",
        reason="tool_permission", requested_at=NOW, replaces=dice.choice((None, f"old{number}")),
        expires_at=dice.choice((None, NOW + timedelta(seconds=dice.randrange(5)))),
        status=dice.choice(("open", "open", "approved")),
    )  # fmt: skip


def a_call(dice: random.Random, index: int, at: CallPosition, share: Mapping[str, float]) -> CallRow:
    """A call in any condition that a step can have."""
    tool = next((name for name, part in share.items() if dice.random() < part), "shared")
    rule, name = POSITIONS[at], f"c{index}"
    attempts = dice.choice((0, 0, 1)) + (rule.status is CallStatus.RUNNING)
    asked = rule.status is CallStatus.SUSPENDED or dice.random() < 0.2
    decision = Decision(target=name, action=dice.choice(("resume", "cancel")), decision_id="d")
    return CallRow(
        call_id=name, index=index, step=1, tool=tool, arguments={}, fingerprint="", at=at, attempts=attempts,
        requested=CallRequest(call_id=name, tool=tool, arguments={}), effect=TOOLS[tool].effect,
        outcome=min(rule.outcomes) if rule.ended else None,
        resumed_at=dice.choice((None, None, attempts)),
        provisional=at is CallPosition.PROVISIONAL or (at is CallPosition.GATING and dice.random() < 0.3),
        alone=dice.random() < 0.1, ticket=a_ticket(dice, name, index) if asked else None,
        decision=decision if at is CallPosition.DECIDED else None,
        batch=Batch(base=0, writes=()) if at is CallPosition.MERGING or dice.random() < 0.1 else None,
    )  # fmt: skip


def a_step(dice: random.Random) -> list[CallRow]:
    share = dice.choice(SHARES)
    few = dice.sample([*CallPosition], dice.choice((2, 3, 12)))
    return [a_call(dice, index, dice.choice(few), share) for index in range(dice.choice((0, 1, 2, 4, 9, 40)))]


# --- the rules, as one would write them down -------------------------------------------------------------------------


def kind_of(call: CallRow) -> str:
    return TOOLS[call.tool].concurrency


def comes_before(other: CallRow, call: CallRow) -> bool:
    return (other.effect == HANDOFF, other.index) < (call.effect == HANDOFF, call.index)


def is_open(call: CallRow) -> bool:
    return call.at is not CallPosition.SETTLED


def out_of_turn(call: CallRow, others: Iterable[CallRow]) -> bool:
    if call.effect == HANDOFF:
        return any(is_open(other) and comes_before(other, call) for other in others)
    before = [o for o in others if o.index < call.index and is_open(o) and o.effect != HANDOFF]
    mine = kind_of(call)
    return any("exclusive" in (mine, kind_of(o)) or mine == kind_of(o) == "ordered" for o in before)


def may_start(calls: list[CallRow], mode: ExecutionMode, cap: int) -> tuple[CallRow, ...]:
    handoffs = [call for call in calls if call.effect == HANDOFF and is_open(call)]
    turn = handoffs[:1] if all(call.effect == HANDOFF or not is_open(call) for call in calls) else []
    rows = [call for call in calls if call.effect != HANDOFF or call in turn]
    limit = cap if mode.bodies is None else min(cap, mode.bodies)
    bodies = sum(call.position.body for call in rows)
    alone = any(POSITIONS[call.at].executing and (call.alone or kind_of(call) == "exclusive") for call in rows)
    judged = max((call.index for call in rows if call.provisional and call.at is CallPosition.GATING), default=-1)
    out: list[CallRow] = []
    for place, call in enumerate(rows):
        earlier = rows[:place]
        if bodies + len(out) >= limit or alone or (limit == 1 and call.at is CallPosition.GATING):
            break
        blocked = mode.suspended_blocks and any(other.attempts and other.at in SUSPENDED for other in earlier)
        blocked = blocked and call.status is CallStatus.NEW
        if call.index < judged or call.at is not CallPosition.ALLOWED or blocked or out_of_turn(call, earlier):
            continue
        exclusive = call.alone or kind_of(call) == "exclusive"
        if not exclusive or (bodies == 0 and not out):
            out.append(call)
            alone = exclusive
    return tuple(out)


def stage_of(calls: list[CallRow]) -> Stage:
    if any(call.at is CallPosition.BODY and call.effect in APPLYING_EFFECTS for call in calls):
        return Stage.APPLYING
    rest = [call for call in calls if is_open(call)]
    if any(POSITIONS[c.at].executing or c.status in (CallStatus.RUNNING, CallStatus.RESUMING) for c in rest):
        return Stage.RUNNING
    return NEEDS_APPROVAL if any(call.status is CallStatus.SUSPENDED for call in rest) else Stage.RUNNING


# --- the comparison --------------------------------------------------------------------------------------------------


def compare(rows: list[CallRow], calls: StepCalls) -> None:
    """The sets say of these rows what a look at each says."""
    assert dict(calls) == {row.call_id: row for row in rows}
    assert list(calls) == [row.call_id for row in rows]
    assert derive_stage(calls) is stage_of(rows)
    for mode in (*MODES.values(), ExecutionMode(bodies=2, suspended_blocks=True, batch=False, merges="together")):
        for cap in (1, 3, 100):
            assert startable(calls, mode, TOOLS, cap) == may_start(rows, mode, cap)
    turn = [row for row in rows if is_open(row) and not out_of_turn(row, [other for other in rows if other is not row])]
    assert list(calls.each(in_turn(calls, TOOLS))) == turn
    for row in rows[:5]:
        assert list(calls.each(come_before(calls, row))) == [other for other in rows if comes_before(other, row)]
        if row.ticket is not None:
            assert calls.of_ticket(row.ticket.ticket_id) is row
            assert row.ticket.replaces is None or calls.of_ticket(row.ticket.replaces) is row
    waits = [r.ticket for r in rows if r.ticket is not None and r.ticket.status == "open" and r.ticket.expires_at]
    assert sorted(calls.timed()) == sorted((t.expires_at, t.ticket_id) for t in waits)
    assert calls.earliest == min((ticket.expires_at for ticket in waits), default=None)
    assert calls.of_ticket("none") is None


@pytest.mark.parametrize("part", range(20))
def test_the_sets_of_calls_agree_with_a_scan_of_all_calls(part: int) -> None:
    dice = random.Random(f"step {part}")
    for _ in range(40):
        rows = a_step(dice)
        compare(rows, StepCalls(rows))


@pytest.mark.parametrize("part", range(10))
def test_the_sets_of_calls_agree_after_every_change_and_older_values_stay(part: int) -> None:
    dice = random.Random(f"change {part}")
    for _ in range(10):
        rows = a_step(dice)
        calls = StepCalls(rows)
        for number in range(12):
            before, opened = calls, calls.opened()
            for index in dice.sample(range(len(rows)), min(len(rows), dice.choice((1, 3)))):
                row = a_call(dice, index, dice.choice([*CallPosition]), {rows[index].tool: 1.0})
                ticket: Any = row.ticket and replace(row.ticket, ticket_id=f"t{index}.{number}", replaces=None)
                rows = [*rows[:index], replace(row, ticket=ticket), *rows[index + 1 :]]
                opened.put(rows[index], opened.get(rows[index].call_id))
            was = dict(before)
            compare(rows, opened)
            compare(list(was.values()), before)
            calls = opened


def test_recovery_of_a_run_of_version_3_moves_the_mirrors_into_the_calls() -> None:
    info = RunInfo(run_id="r", thread_id="t", agent="a", agent_digest="", created_at=NOW, execution="sequential")
    requested = CallRequest(call_id="K", tool="expert", arguments={})
    call = CallRow(
        call_id="K", index=0, step=1, tool="expert", arguments={}, fingerprint="", requested=requested, attempts=1,
        at=CallPosition.CHILD, child_run="r/K", child_started=True,
    )  # fmt: skip
    mirror = Mirror(ticket=replace(a_ticket(random.Random(1), "K", 1), child_ticket_id="x", status="open"))
    row = RunRow(
        stage=Stage.NEEDS_APPROVAL, position=RunPosition.TOOLS, step=1, last_sequence=9, inbox=0, mirrors=(mirror,)
    )
    state = RunState.from_record(RunRecord(info=info, row=row, calls=(call,), call_ids=frozenset({"K"})))
    taken = step(AgentSpec(key="a", tools=TOOLS), state, Activate(agent_digest=""), NOW)
    assert taken.commit is not None
    assert taken.commit.row.mirrors == ()
    assert taken.commit.row.mirrored == 1
    assert [written.mirrors for written in taken.commit.calls] == [(mirror,)]
    assert list(taken.state.calls.open_mirrors()) == [mirror.ticket]
