"""The builder of a step: it holds rows, knows none of their fields by name, and hands out what no caller can change."""

import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from greenroom.actors.contract.lifecycle import STAGES, IllegalTransition, Stage
from greenroom.actors.contract.messages import CallRequest
from greenroom.actors.contract.phases import RunPosition
from greenroom.actors.contract.row_forms import opened, sealed
from greenroom.actors.contract.rows import CallFields, CallRow, CounterFields, Counters, RunFields, RunRow
from greenroom.actors.contract.spec import AgentSpec
from greenroom.actors.engine.state import StepBuilder

from .chaos import TOOLS
from .world import World

REQUEST = CallRequest(call_id="c", tool="read", arguments={})
CALL = CallRow(call_id="c", index=0, step=0, tool="read", arguments={}, fingerprint="f", requested=REQUEST)
FORMS: list[tuple[Any, Any, Any]] = [
    (RunFields, RunRow, RunRow(step=3, stubborn=("x",))),
    (CounterFields, Counters, Counters(rounds=2, trail=("a",))),
    (CallFields, CallRow, replace(CALL, attempts=1)),
]

SCRIPT = """
from datetime import UTC, datetime
from greenroom.actors.contract import codec
from greenroom.actors.contract.rows import Counters, RunInfo, RunRow
from greenroom.actors.contract.spec import AgentSpec
from greenroom.actors.engine.inputs import Activate
from greenroom.actors.engine.machine import step
from greenroom.actors.engine.state import RunState, StepBuilder

now = datetime(2025, 1, 2, tzinfo=UTC)
info = RunInfo(run_id="r", thread_id="t", agent="a", agent_digest="d", created_at=now, execution="sequential")
state = RunState(info=info, row=RunRow(last_sequence=1, dummy=7, counters=Counters(dummy=70)))
taken = step(AgentSpec(key="a"), state, Activate(agent_digest="d"), now)
assert (taken.state.row.dummy, taken.state.row.counters.dummy) == (7, 70)
assert taken.commit.row is taken.state.row
again = codec.load(RunRow, codec.dump(taken.commit.row))
assert again == taken.commit.row and again.dummy == 7
builder = StepBuilder(AgentSpec(key="a"), taken.state, now)
builder.row.dummy, builder.counters.dummy, builder.changed = 8, 80, True
row = builder.build().commit.row
assert (row.dummy, row.counters.dummy) == (8, 80)
print("kept")
"""


@pytest.mark.slow
def test_a_field_that_is_added_to_the_run_row_is_kept_by_every_step(root: Path, tmp_path: Path) -> None:
    """One line in the class of the fields is the whole change; the same for the counters."""
    package = tmp_path / "greenroom"
    package.mkdir()
    (package / "__init__.py").touch()
    for folder in ("actors", "supervision"):
        shutil.copytree(root / folder, package / folder, ignore=shutil.ignore_patterns("__pycache__"))
    rows = package / "actors" / "contract" / "rows.py"
    text = rows.read_text()
    for last in ("    finish: FinishReason | None = None\n", "    messages: int = 0\n    tickets: int = 0\n"):
        assert text.count(last) == 1
        text = text.replace(last, f"{last}    dummy: int = 0\n")
    rows.write_text(text)
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("kept\n", "")


def test_the_builder_names_no_field_twice() -> None:
    """It has no attribute of its own for a field of the rows that it holds, but for what it changes by a rule."""
    fields = {*RunFields.__struct_fields__, *CounterFields.__struct_fields__}
    own = {name.lstrip("_") for name in StepBuilder.__slots__}
    assert fields & own == {
        "counters",
        "messages",
        "tickets",
        "tasks",
    }  # open counters, new rows, tasks by id


def test_nothing_writes_past_the_lock_of_a_frozen_row(root: Path) -> None:
    texts = {path: path.read_text() for path in (root / "actors" / "engine").glob("*.py")}
    assert [str(path) for path, text in texts.items() if "object.__setattr__" in text] == []


@pytest.mark.parametrize(("form", "frozen", "row"), FORMS, ids=["run", "counters", "call"])
def test_an_open_copy_may_be_changed_and_a_sealed_one_not(form: Any, frozen: Any, row: Any) -> None:
    assert form.__struct_fields__ == frozen.__struct_fields__
    values = ((name, getattr(row, name)) for name in form.__struct_fields__)
    name, value = next((name, value) for name, value in values if type(value) is int)
    copy = opened(form, row)
    setattr(copy, name, value + 1)
    made = sealed(frozen, copy)
    assert made == replace(row, **{name: value + 1})
    assert (type(made), getattr(row, name)) == (frozen, value)
    for locked in (made, row):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(locked, name, 0)


def test_the_rows_of_a_step_that_is_built_cannot_be_changed_by_its_builder() -> None:
    w = World(AgentSpec(key="a", tools=TOOLS))
    builder = StepBuilder(w.spec, w.state, w.now)
    builder.put(CALL)
    builder.row.position = RunPosition.TOOLS
    made = builder.build()
    assert made.commit is not None
    assert made.state.row is made.commit.row
    for locked, name in ((builder.row, "step"), (builder.counters, "rounds"), (made.state.calls["c"], "attempts")):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(locked, name, 9)
    assert w.state.row.position is not RunPosition.TOOLS


@pytest.mark.parametrize(("source", "target"), [*product(Stage, Stage)], ids=lambda stage: stage.value)
def test_a_run_moves_where_the_table_lets_it_and_says_so_otherwise(source: Stage, target: Stage) -> None:
    w = World(AgentSpec(key="a"))
    builder = StepBuilder(w.spec, w.state, w.now)
    builder.row.stage = source
    if target in STAGES[source]:
        assert (builder.to_stage(target), builder.row.stage) == (source, target)
    else:
        with pytest.raises(IllegalTransition, match=f"run: {source} -> {target} is not in the table") as caught:
            builder.to_stage(target)
        assert (caught.value.machine, caught.value.source, caught.value.target) == ("run", source.value, target.value)
