"""The small parts of the shell by themselves: clock, board, streams, the border, births."""

from datetime import UTC, datetime, timedelta

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.actors.contract.decisions import Command
from greenroom.actors.contract.excerpt import LARGE, shown_result
from greenroom.actors.contract.messages import Producer
from greenroom.actors.contract.rows import RunRecord, RunRow
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.errors import RuntimeClosed, StoreDown, UsageError
from greenroom.actors.runtime.start_request import StartRequest, fork_of, new_run
from greenroom.actors.services.change_signals import ChangeSignals, RunSignal
from greenroom.actors.services.clock import Clock
from greenroom.actors.services.delta_buffers import BUFFER_LIMIT, DeltaBuffer
from greenroom.actors.services.sanitize import (
    LATEST,
    InvalidDecision,
    InvalidValue,
    command_of,
    response_of,
    suspend_of,
    text_of,
)

NOON = datetime(2031, 5, 1, 12, tzinfo=UTC)


# --- clock -----------------------------------------------------------------------------------------------------------


async def test_the_clock_moves_with_trios_and_keeps_whole_milliseconds(autojump_clock):
    clock = Clock(NOON)
    assert clock.now() == NOON
    await trio.sleep(3600.0004)
    assert clock.now() == NOON + timedelta(hours=1)


async def test_the_runs_clock_has_reached_a_moment_when_trios_clock_has(autojump_clock):
    clock = Clock(NOON)
    for seconds in (0.0001, 0.0015, 1 / 3, 59.9999):
        moment = clock.now() + timedelta(seconds=seconds)
        await trio.sleep_until(clock.trio_time(moment))
        assert clock.now() >= moment.replace(microsecond=moment.microsecond // 1000 * 1000)


# --- board -----------------------------------------------------------------------------------------------------------


NOTICES = pytest.mark.parametrize(
    ("notice", "make"),
    [
        (RunSignal.change, lambda signals: signals.committed("r1", 1, [b"1"])),
        (RunSignal.change, lambda signals: signals.left("r1")),
        (RunSignal.rest, lambda signals: signals.rested("r1")),
        (RunSignal.rest, lambda signals: signals.left("r1")),
    ],
    ids=["commit", "left", "rest", "left for good"],
)


@NOTICES
async def test_a_change_between_looking_and_waiting_is_not_missed(notice, make):
    signals = ChangeSignals()
    signal = signals.signal("r1")
    taken = notice(signal)
    make(signals)
    with trio.fail_after(60):
        await taken.wait()


@NOTICES
async def test_a_change_wakes_all_waiters_of_the_run_only(notice, make):
    signals = ChangeSignals()
    one, two, other = signals.signal("r1"), signals.signal("r1"), signals.signal("r2")
    assert one is two
    first, second, third = notice(one), notice(two), notice(other)
    make(signals)
    assert first.is_set()
    assert second.is_set()
    assert not third.is_set()
    assert not notice(one).is_set()


async def test_a_commit_is_no_rest_and_a_rest_is_no_change():
    signals = ChangeSignals()
    signal = signals.signal("r1")
    change, rest = signal.change(), signal.rest()
    signals.rested("r1")
    assert (change.is_set(), rest.is_set()) == (False, True)
    rest = signal.rest()
    signals.committed("r1", 1, [b"1"])
    assert (change.is_set(), rest.is_set()) == (True, False)


async def test_the_runtime_comes_to_rest_whenever_a_run_does():
    signals = ChangeSignals()
    for make in (signals.rested, signals.left):
        notice = signals.runtime.rest()
        signals.committed("r1", 1, [b"1"])
        assert not notice.is_set()
        make("r1")
        assert notice.is_set()


async def test_a_signal_exists_while_it_is_held():
    signals = ChangeSignals()
    signal = signals.signal("r1")
    assert len(signals) == 1
    del signal
    assert len(signals) == 0


@pytest.mark.parametrize("notice", [RunSignal.change, RunSignal.rest])
async def test_a_closed_board_sets_every_notice_and_says_so(notice):
    signals = ChangeSignals()
    signal, called = signals.signal("r1"), []
    taken, whole = notice(signal), notice(signals.runtime)
    signal.listeners.add(lambda: called.append("closed"))
    signals.close()
    assert taken.is_set()
    assert whole.is_set()
    assert called == ["closed"]
    for look in (lambda: signals.signal("r1"), lambda: notice(signal), lambda: notice(signals.runtime)):
        with pytest.raises(RuntimeClosed):
            look()
    signals.left("r1")


def test_a_store_that_goes_down_because_the_runtime_closes_is_reported_as_that():
    signals = ChangeSignals()
    with pytest.raises(StoreDown), signals.looking():
        raise StoreDown("for good")
    with pytest.raises(RuntimeClosed), signals.looking():  # noqa: PT012 - it closes while a reader looks
        signals.close()
        raise StoreDown("not open")


# --- streams ---------------------------------------------------------------------------------------------------------


def stream(settled=len) -> tuple[DeltaBuffer, list[None]]:
    nudges: list[None] = []
    return DeltaBuffer(lambda: nudges.append(None), lambda text: (settled(text), text[settled(text) :])), nudges


def test_a_stream_merges_and_nudges():
    waits, nudges = stream()
    assert not waits
    waits.add("a")
    waits.add("b")
    assert waits
    assert (waits.take(), len(nudges)) == ("ab", 2)
    assert not waits
    assert waits.take() == ""


def test_a_stream_keeps_back_what_is_not_settled_until_the_last():
    waits, _ = stream(lambda text: text.rfind(" ") + 1)
    waits.add("one tw")
    assert waits
    assert waits.take() == "one "
    assert not waits
    waits.add("o")
    assert not waits
    assert waits.take() == ""
    assert waits.take(last=True) == "two"


async def test_a_writer_waits_while_too_much_is_on_its_way(autojump_clock):
    waits, _ = stream()
    waits.add("x" * (BUFFER_LIMIT + 1))
    with trio.move_on_after(5) as scope:
        await waits.put("y")
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits.put, "y")
        nursery.start_soon(waits.put, "z")
        await trio.testing.wait_all_tasks_blocked()
        assert set(waits.take()) == {"x"}
    assert sorted(waits.take()) == ["x", "y", "z"]  # an event has PIECE characters at most


# --- the border ------------------------------------------------------------------------------------------------------


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_every_text_can_be_encoded_behind_the_border(text):
    cleaned = text_of(text)
    cleaned.encode()
    assert len(cleaned) == len(text)


def test_a_good_suspension_passes_unchanged():
    suspend = gr.Suspend(
        action="a", message="m", parameters={"n": [1]}, response_schema={"type": "string"}, expires_after=5
    )
    assert attrs.asdict(suspend_of(suspend)) == attrs.asdict(suspend)


@pytest.mark.parametrize("seconds", [LATEST * 2, float("inf")])
def test_a_suspension_beyond_all_dates_is_refused(seconds):
    with pytest.raises(InvalidValue, match="hundred years"):
        suspend_of(gr.Suspend(expires_after=seconds))


@pytest.mark.rule("A-22")
@pytest.mark.parametrize("schema", [{"type": "strng"}, {"properties": ["name"]}], ids=repr)
def test_a_schema_that_no_answer_could_fit_is_refused_before_anybody_is_asked(schema):
    with pytest.raises(InvalidValue, match=r"response_schema is no JSON Schema: \$\.(type|properties): "):
        suspend_of(gr.Suspend(response_schema=schema))


@pytest.mark.parametrize("response", [None, "text", gr.ModelResponse(usage=None), gr.ModelResponse(text=(1,))])
def test_an_invalid_response_of_a_model_is_refused(response):
    with pytest.raises(InvalidValue):
        response_of(response)


def test_a_command_with_another_id_than_a_text_is_refused():
    with pytest.raises(UsageError, match="id"):
        command_of(Command(command_id=7, kind="send"), local="local", now=NOON)


@pytest.mark.parametrize("by", [None, "ann"])
def test_a_decision_has_the_id_the_sender_and_the_reason_of_its_command(by):
    decision = gr.Decision(target="t", action="approve", decision_id="other", reason="fine", decided_by=by)
    read = command_of(Command(command_id="c", kind="decide", decision=decision), local="local", now=NOON)
    assert read.decision is not None
    assert (read.command_id, read.by, read.reason, read.posted_at) == ("c", by or "local", "fine", NOON)
    assert (read.decision.decision_id, read.decision.decided_by, read.decision.decided_at) == ("c", by or "local", NOON)


def test_the_sender_of_a_command_signs_its_decision():
    command = Command(command_id="c", kind="decide", by="bob", decision=gr.Decision(target="t", action="deny"))
    read = command_of(command, local="local", now=NOON)
    assert read.decision is not None
    assert (read.by, read.decision.decided_by) == ("bob", "bob")


def test_the_clock_signs_its_own_decisions():
    decision = gr.Decision(target="t", action="deny", decision_id="e", decided_by="clock")
    read = command_of(Command(command_id="e", kind="expire", decision=decision), local="local", now=NOON)
    assert (read.by, read.decision) == (None, decision)


@pytest.mark.parametrize(
    ("values", "code"),
    [({"edited_arguments": [1]}, "invalid_arguments"), ({"result": object()}, "invalid_result")],
)
def test_a_decision_with_values_that_are_no_data_is_refused_with_a_code(values, code):
    decision = gr.Decision(target="t", action="approve", **values)
    with pytest.raises(InvalidDecision) as caught:
        command_of(Command(command_id="c", kind="decide", decision=decision), local="local", now=NOON)
    assert caught.value.code == code


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["a", "é", "字", "\U0001f600"])
def test_a_result_is_cut_exactly_when_its_bytes_are_too_many(unit):
    most = LARGE // len(unit.encode())
    assert not shown_result(unit * most)[1]
    shown, large, size = shown_result(unit * (most + 1))
    assert large
    assert size == len(unit.encode()) * (most + 1) + 2
    assert len(shown) < 10_000


# --- births ----------------------------------------------------------------------------------------------------------


def birth(**options) -> StartRequest:
    return StartRequest(agent=gr.Agent("helper"), text="hi", run_id="r1", **options)


def test_the_content_of_a_start_is_all_that_was_asked_for_and_not_how():
    same = birth(has_deps=True, on_busy="refuse")
    assert birth().content() == same.content()
    for other in ({"by": "ada"}, {"thread_id": "t"}, {"deadline": NOON}, {"execution": "parallel_streaming"}):
        assert birth(**other).content() != birth().content()


def test_one_deadline_in_two_time_zones_is_the_same_content():
    from datetime import timezone

    there = NOON.astimezone(timezone(timedelta(hours=5)))
    assert birth(deadline=there).content() == birth(deadline=NOON).content()
    assert new_run(birth(deadline=there), NOON, Redactor()).info.deadline == NOON


def test_a_new_run_keeps_its_input_until_it_begins():
    new = new_run(birth(), NOON, Redactor())
    assert new.messages == ()
    (message,) = new.row.pending_input
    assert (message.role, message.content, message.producer) == ("user", "hi", Producer(run_id="r1", step=0))


def said(run_id: str, step: int) -> gr.Message:
    return gr.Message(
        id=f"{run_id}.{step}", role="user", content=f"{run_id} {step}", producer=Producer(run_id=run_id, step=step)
    )


def test_a_fork_ends_at_its_step_also_between_other_runs():
    new = new_run(birth(thread_id="t"), NOON, Redactor())
    counters = new.row.counters.__class__(rounds=2)
    record = RunRecord(info=new.info, row=RunRow(counters=counters))
    thread = [said("r0", 0), said("r0", 1), said("r1", 0), said("r1", 1), said("r1", 2), said("r2", 0), said("r2", 1)]
    for step, length in ((0, 3), (1, 4), (2, 5)):
        child = fork_of(record, thread, step, "f", NOON)
        assert child.messages == tuple(thread[:length])
        assert child.thread_parent == ("t", length)
        assert child.created.payload.input == "r1 0"
