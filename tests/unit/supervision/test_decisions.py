"""The restart decision and the restart window, without trio."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.supervision import (
    ActorCancelled,
    Backoff,
    ChildSpec,
    Crashed,
    Escalate,
    GaveUp,
    Intensity,
    InvalidSpec,
    Mailbox,
    Normal,
    Restart,
    Shutdown,
    Stop,
    Unresponsive,
    Window,
    decide,
)


async def body(ctx):
    pass


ERROR = ValueError("boom")
EXITS = {
    "normal": Normal(),
    "crashed": Crashed(error=ERROR),
    "shutdown": Shutdown(),
    "cancelled": ActorCancelled(reason="r", by="b"),
    "gave_up": GaveUp(error=ERROR, restarts=1),
    "stubborn": Unresponsive(stack=()),
}
RESTARTED = {("permanent", "normal"), ("permanent", "crashed"), ("transient", "crashed")}


@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
@pytest.mark.parametrize("exit_", EXITS)
def test_every_restart_kind_with_every_exit_does_what_the_table_says(restart, exit_):
    decision = decide(ChildSpec(id="a", start=body, restart=restart), EXITS[exit_], Window(), 0.0)
    if (restart, exit_) in RESTARTED:
        assert decision == Restart(after=0.0, window=Window(times=(0.0,)))
    else:
        assert decision == Stop(exit=EXITS[exit_])


def test_a_restart_beyond_the_intensity_escalates_with_the_last_error():
    window = Window(intensity=Intensity(max_restarts=1, within=10), times=(5.0,))
    decision = decide(ChildSpec(id="a", start=body), EXITS["crashed"], window, 6.0, restarts=1)
    assert decision == Escalate(exit=GaveUp(error=ERROR, restarts=1))


def test_a_permanent_child_that_keeps_returning_gives_up_without_an_error():
    window = Window(intensity=Intensity(max_restarts=0))
    assert decide(ChildSpec(id="a", start=body), Normal(), window, 0.0) == Escalate(exit=GaveUp(error=None, restarts=0))


@given(
    times=st.lists(st.floats(0, 1_000), max_size=30).map(sorted),
    limit=st.integers(0, 5),
    within=st.floats(0.1, 100),
)
def test_no_window_ever_holds_more_restarts_than_its_intensity_allows(times, limit, within):
    spec = ChildSpec(id="a", start=body)
    window = Window(intensity=Intensity(max_restarts=limit, within=within))
    granted = []
    for now in times:
        match decide(spec, Crashed(error=ERROR), window, now):
            case Restart(window=window):
                granted.append(now)
            case Escalate():
                assert len([time for time in granted if time > now - within]) == limit
        assert len([time for time in granted if time > now - within]) <= limit


@given(nth=st.integers(1, 10_000), chance=st.floats(0, 1, exclude_max=True))
def test_a_backoff_grows_up_to_its_maximum_and_stays_within_its_jitter(nth, chance):
    backoff = Backoff(initial=0.5, factor=2, maximum=8, jitter=0.1)
    middle = min(8, 0.5 * 2 ** min(nth - 1, 64))
    assert 0.9 * middle <= backoff.delay(nth, chance) <= 1.1 * middle


def test_the_backoff_counts_only_restarts_that_are_still_in_the_window():
    spec = ChildSpec(id="a", start=body, backoff=Backoff(initial=1, factor=2, jitter=0))
    window = Window(intensity=Intensity(max_restarts=5, within=10), times=(0.0, 1.0))
    assert decide(spec, EXITS["crashed"], window, 2.0).after == 4
    assert decide(spec, EXITS["crashed"], window, 100.0).after == 1


def test_a_child_takes_from_its_supervisor_what_its_own_intensity_leaves_open():
    default = Intensity(max_restarts=3, within=60)
    assert ChildSpec(id="a", start=body).intensity(default) is default
    assert ChildSpec(id="a", start=body, max_restarts=1).intensity(default) == Intensity(max_restarts=1, within=60)


@pytest.mark.parametrize(
    "wrong",
    [{"restart": "always"}, {"shutdown": -1}, {"shutdown": "soft"}, {"capacity": 0}, {"on_give_up": "panic"}],
)
def test_a_spec_refuses_values_that_mean_nothing(wrong):
    with pytest.raises(InvalidSpec, match=next(iter(wrong))):
        ChildSpec(id="a", start=body, **wrong)


def test_a_refusal_names_the_nearest_word_and_all_valid_words():
    with pytest.raises(InvalidSpec, match=r"^restart='transiant' is not known; did you mean 'transient'\? use 'perm"):
        ChildSpec(id="a", start=body, restart="transiant")
    with pytest.raises(InvalidSpec, match=r"^shutdown='brutel': did you mean 'brutal'\? give seconds"):
        ChildSpec(id="a", start=body, shutdown="brutel")
    with pytest.raises(InvalidSpec, match=r"^within=0: give more than 0$"):
        Intensity(within=0)
    with pytest.raises(InvalidSpec, match=r"^factor='x': give 1 or more$"):
        Backoff(factor="x")
    with pytest.raises(InvalidSpec, match=r"^id=7: give a str$"):
        ChildSpec(id=7, start=body)
    with pytest.raises(ValueError, match="give 1 or more"):
        Mailbox("a", 0)
