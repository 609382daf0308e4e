"""The rules of commits and of new runs, which every store asks: each fact alone, and what comes first."""

from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from greenroom.actors.contract.claims import Claim
from greenroom.actors.contract.commits import Commit, NewRun
from greenroom.actors.contract.lifecycle import Stage
from greenroom.actors.contract.rows import RunRow
from greenroom.actors.errors import LeaseLost, StoreError, ThreadBusy
from greenroom.actors.stores.common._commit_rules import InvalidCommit, PlaceFacts, RunFacts, admit, place
from greenroom.actors.testing.store_kit.kit import new_run

FITS = RunFacts(token=3, last=7, posted=2, consumed=2, done=False)
CLAIM = Claim(run_id="r", token=3)


def commit(*, ends: bool = False, **fields: Any) -> Commit:
    row = RunRow(stage=Stage.COMPLETED if ends else Stage.RUNNING, last_sequence=7)
    return Commit(**{"run_id": "r", "expected_last": 7, "at": new_run("r", "t").info.created_at, "row": row, **fields})


def kind(found: RunFacts | None, submitted: Commit, fault: Exception | None = None, claim: Claim = CLAIM) -> str:
    receipt = admit(found, claim, submitted, fault)
    return "written" if receipt is None else receipt.kind


@pytest.mark.parametrize("ends", [False, True])
def test_a_commit_that_follows_under_the_newest_claim_is_written(ends: bool) -> None:
    assert kind(FITS, commit(ends=ends)) == "written"


def test_of_several_reasons_the_claim_counts_first_then_the_order_then_the_fault_then_the_inbox() -> None:
    """An owner that has lost its run must not learn that its commit has a fault, nor read commands of its successor."""
    for stale, gap, done, fault, unread in product([False, True], repeat=5):
        found = RunFacts(4 if stale else 3, 8 if gap else 7, 3 if unread else 2, 2, done)
        error = ValueError("no form") if fault else None
        first = (stale, gap, done or fault, unread, True).index(True)
        expected = ("lease_lost", "lease_lost", "failed", "inbox_ahead", "written")[first]
        assert kind(found, commit(ends=True), error) == expected


@pytest.mark.parametrize("found", [None, FITS])
def test_no_run_and_a_claim_of_another_run_are_a_lost_lease(found: RunFacts | None) -> None:
    receipt = admit(found, Claim(run_id="other", token=3), commit())
    assert receipt is not None
    assert isinstance(receipt.error, LeaseLost)
    assert kind(None, commit()) == "lease_lost"


def test_a_gap_tells_the_newest_event() -> None:
    receipt = admit(FITS, CLAIM, commit(expected_last=6))
    assert receipt is not None
    assert (receipt.kind, receipt.last) == ("lease_lost", 7)


@pytest.mark.parametrize(("consumed", "inbox"), [(3, 0), (0, 3)])
def test_only_the_end_of_a_run_waits_for_its_inbox(consumed: int, inbox: int) -> None:
    found = replace(FITS, posted=3)
    assert kind(found, commit()) == "written"
    assert kind(found, commit(ends=True)) == "inbox_ahead"
    ending = commit(ends=True, consumed=consumed)
    assert kind(found, replace(ending, row=replace(ending.row, inbox=inbox))) == "written"


def test_a_fault_is_an_error_of_the_store_with_its_cause() -> None:
    cause = ValueError("no form")
    receipt = admit(FITS, CLAIM, commit(), cause)
    assert receipt is not None
    assert isinstance(receipt.error, InvalidCommit)
    assert receipt.error.__cause__ is cause
    own = StoreError("said well enough")
    receipt = admit(FITS, CLAIM, commit(), own)
    assert receipt is not None
    assert receipt.error is own


# --- new runs --------------------------------------------------------------------------------------------------------


def placed(found: PlaceFacts, new: NewRun) -> str:
    """Return in one word what becomes of a new run."""
    try:
        created = place(found, new)
    except (ThreadBusy, InvalidCommit) as error:
        return type(error).__name__
    if created is None:
        return "written"
    assert created.claim is None
    assert not created.unclaimed
    if created.existing is not None:
        return "deduplicated" if created.deduplicated else "existing"
    return "changed" if created.thread_changed else f"pruned {created.pruned}"


def test_of_several_reasons_the_id_counts_first_then_the_fault_then_the_thread() -> None:
    """A repeated start returns the run that it has made, whatever has become of the thread since then."""
    same = new_run("r", "t").info
    for existing, pruned, invalid, changed, busy in product([False, True], repeat=5):
        new = replace(new_run("r", "t"), on_busy="refuse", thread_runs=0)
        if invalid:
            new = replace(new, row=replace(new.row, last_sequence=2))
        found = PlaceFacts(
            existing=same if existing else None,
            pruned="c" if pruned else None,
            runs=int(changed),
            active="a" if busy else None,
        )
        first = (existing, pruned, invalid, changed, busy, True).index(True)
        expected = ("existing", "pruned c", "InvalidCommit", "changed", "ThreadBusy", "written")[first]
        assert placed(found, new) == expected


def test_an_existing_run_with_another_id_has_the_same_key() -> None:
    assert placed(PlaceFacts(existing=new_run("older", "t").info, held=True), new_run("r", "t")) == "deduplicated"


def test_a_busy_thread_holds_a_run_that_does_not_refuse() -> None:
    assert placed(PlaceFacts(runs=4, active="a"), new_run("r", "t")) == "written"
