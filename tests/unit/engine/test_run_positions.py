"""The one place that moves a run refuses what the table does not have, and random lives find who asks for it."""

import ast
import random
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pytest

from greenroom.actors.contract.lifecycle import IllegalTransition
from greenroom.actors.contract.messages import ModelResponse
from greenroom.actors.contract.phases import RUN_POSITIONS, Phase, RunPosition
from greenroom.actors.contract.policies import Policies, TruncationPolicy
from greenroom.actors.contract.spec import MODES, AgentSpec
from greenroom.actors.engine import inputs as inp
from greenroom.actors.engine import judged, steps, termination
from greenroom.actors.engine.state import StepBuilder

from .chaos import TOOLS, Chaos
from .world import OWN, World, call
from .writers import KEYS

AT = RunPosition
Move = tuple[RunPosition, RunPosition]

# position -> may go to | because
MOVES_TABLE = """
admission        -> preparing        | the run has a slot and its thread, and needs a preparation
admission        -> run_start        | the run has a slot and its thread
admission        -> stopping         | a cancel, the deadline, or an owner that gives up
preparing        -> run_start        | the run is prepared
preparing        -> stopping         | it cannot be prepared, a cancel, or the deadline
run_start        -> step_start       | the hooks have answered
run_start        -> paused           | a hook holds the run before its first step
run_start        -> stopping         | a hook failed or ended the run
step_start       -> before_inference | the hooks have answered
step_start       -> guards_first     | blocking guardrails judge the input
step_start       -> stopping         | a hook ended the run, or a person denied its ticket
before_inference -> inference        | the hooks have answered
before_inference -> stopping         | a hook ended the run, or the budget is used up
guards_first     -> before_inference | the blocking guardrails have passed
guards_first     -> stopping         | a guardrail tripped
inference        -> inference        | another request: a retry, a fallback, or a new owner
inference        -> before_inference | a new owner asks for instructions that a release has made a function
inference        -> after_inference  | the model has answered
inference        -> stopping         | the model failed
after_inference  -> inference        | the rest of a truncated answer
after_inference  -> guards_answer    | the answer waits for its guardrails
after_inference  -> tools            | the answer has calls
after_inference  -> guards_output    | an answer without calls is judged
after_inference  -> step_end         | an answer without calls
after_inference  -> stopping         | the answer cannot be used
guards_answer    -> tools            | the guardrails have passed, and the answer has calls
guards_answer    -> guards_output    | the input has passed, and the output is judged
guards_answer    -> step_end         | the guardrails have passed an answer without calls
guards_answer    -> stopping         | a guardrail tripped
tools            -> guards_output    | the output of a tool, or of a stop condition, is judged
tools            -> step_end         | all calls have settled
tools            -> stopping         | a call ended the run
guards_output    -> step_end         | the output has passed
guards_output    -> run_end          | the output of a run that was stopping has passed
guards_output    -> stopping         | a guardrail tripped
tasks            -> step_start       | a message waits for the model
tasks            -> stopping         | a cancel, or a stop condition
step_end         -> step_start       | another step
step_end         -> tasks            | the model has finished, and tasks are alive
step_end         -> paused           | a ticket holds the run
step_end         -> stopping         | the run has its output, or a stop condition is met
paused           -> step_start       | the last ticket is closed
paused           -> stopping         | a person denied the ticket
stopping         -> stopping         | the owner gives up while the work stops
stopping         -> guards_output    | the output that the run ends with is judged
stopping         -> run_end          | all work has stopped
run_end          -> stopping         | the owner gives up while the hooks run
run_end          -> ended            | the hooks have answered
"""

# position | hooks | what holds
COLUMNS_TABLE = """
admission        |                  | between_steps
preparing        |                  | between_steps
run_start        | run_start        |
step_start       | step_start       |
before_inference | before_inference |
guards_first     |                  | guardrails
inference        |                  | guardrails
after_inference  | after_inference  | guardrails
guards_answer    |                  | guardrails
tools            |                  |
guards_output    |                  | guardrails
tasks            |                  | between_steps
step_end         | step_end         |
paused           |                  | between_steps
stopping         |                  | leaving
run_end          | run_end          | leaving
ended            |                  | leaving
"""
FLAGS = ("guardrails", "between_steps", "leaving")


def legal_moves() -> Iterator[tuple[Move, str]]:
    """The moves of the table above, each with its reason."""
    for line in MOVES_TABLE.strip().splitlines():
        pair, reason = line.split("|")
        source, target = pair.split("->")
        yield (AT(source.strip()), AT(target.strip())), reason.strip()


MOVES = dict(legal_moves())


def builder_at(position: RunPosition) -> StepBuilder:
    w = World(AgentSpec(key="a", tools=TOOLS))
    state = msgspec.structs.replace(w.state, row=msgspec.structs.replace(w.row, position=position))
    return StepBuilder(w.spec, state, w.now)


@pytest.mark.parametrize(("source", "target"), [*product(AT, AT)], ids=lambda at: at.value)
def test_a_run_moves_as_the_table_says_and_each_move_has_a_reason(source: RunPosition, target: RunPosition) -> None:
    builder = builder_at(source)
    if (source, target) in MOVES:
        assert MOVES[source, target]
        builder.enter(target)
        assert builder.row.position is target
        return
    with pytest.raises(IllegalTransition) as caught:
        builder.enter(target)
    error, legal = caught.value, sorted(to.value for at, to in MOVES if at is source)
    assert (error.source, error.target, error.legal) == (source.value, target.value, tuple(legal))
    assert str(error) == (
        f"position of run r: {source} -> {target} is not in the table; "
        f"{source} is followed by {', '.join(legal) or 'nothing'}"
    )
    assert builder.row.position is source


def test_every_position_has_its_columns() -> None:
    rows = [[cell.strip() for cell in line.split("|")] for line in COLUMNS_TABLE.strip().splitlines()]
    assert [name for name, *_ in rows] == [at.value for at in RUN_POSITIONS]
    for name, hooks, flag in rows:
        row = RUN_POSITIONS[AT(name)]
        assert AT(name).rule is row
        assert (row.hooks or "", [known for known in FLAGS if getattr(row, known)]) == (hooks, [flag] if flag else [])


def test_each_phase_of_the_run_has_a_continuation() -> None:
    assert set(steps.AFTER_HOOKS) == {at for at, row in RUN_POSITIONS.items() if row.hooks is not None}


def test_a_run_begins_at_admission_reaches_every_position_and_can_end_from_each() -> None:
    def reach(start: RunPosition) -> set[RunPosition]:
        seen, todo = {start}, [start]
        while todo:
            new = RUN_POSITIONS[todo.pop()].to - seen
            seen |= new
            todo += new
        return seen

    assert list(RUN_POSITIONS) == list(AT)
    assert reach(AT.ADMISSION) == set(AT)
    assert all(AT.ENDED in reach(at) for at in AT)
    assert [at for at in AT if not RUN_POSITIONS[at].to] == [AT.ENDED]


def test_a_run_can_stop_wherever_it_has_not_ended() -> None:
    stoppable = {at for at in AT if AT.STOPPING in RUN_POSITIONS[at].to}
    assert stoppable == set(AT) - {AT.ENDED}


def test_no_module_of_the_engine_writes_the_position_but_the_builder(root: Path) -> None:
    """`forced_end.py` makes a row of its own, of a run that its machine cannot end."""
    writers = []
    for path in sorted((root / "actors" / "engine").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = getattr(node, "attr", None) if isinstance(node, ast.Attribute) else getattr(node, "arg", None)
            written = isinstance(node, ast.keyword) or isinstance(getattr(node, "ctx", None), ast.Store)
            if name == "position" and written:
                writers.append(path.name)
    assert writers == ["forced_end.py", "state.py"]


# --- planted ---------------------------------------------------------------------------------------------------------


def _arrived_late(builder: StepBuilder, position: RunPosition) -> None:
    """A step that has ended begins with the request."""
    late = position is AT.STEP_START and builder.row.step > 1
    builder.enter(AT.BEFORE_INFERENCE if late else position)
    steps.run_hooks(builder)


def _settled_at_once(builder: StepBuilder, termination: Any) -> None:
    """A call that ends the run does not stop the work first."""
    if builder.row.position is AT.TOOLS:
        builder.row.termination = termination
        builder.enter(AT.RUN_END)
    else:
        END(builder, termination)


def _hurried(builder: StepBuilder, position: RunPosition) -> None:
    """The answer is asked for before the hooks of the request."""
    builder.enter(AT.INFERENCE if position is AT.BEFORE_INFERENCE else position)
    steps.run_hooks(builder)


def _kept_open(builder: StepBuilder) -> None:
    """A run that has stopped works on."""
    builder.enter(AT.STEP_END)


END = termination.end
PLANTED: dict[str, tuple[list[Any], str, Callable[..., Any]]] = {
    "step_end -> before_inference": ([steps], "arrive", _arrived_late),
    "tools -> run_end": ([steps, termination], "end", _settled_at_once),
    "step_start -> inference": ([steps], "arrive", _hurried),
    "stopping -> step_end": ([termination, judged], "conclude", _kept_open),
}


def illegal_moves(spec: AgentSpec) -> Iterator[str]:
    """The illegal moves of some of the lives that the property test plays."""
    for seed in range(200):
        try:
            Chaos(World(spec, execution="parallel_streaming"), seed).play(60)
        except IllegalTransition as error:
            yield str(error)


@pytest.mark.parametrize("move", PLANTED)
def test_a_planted_illegal_move_is_found_by_random_lives(monkeypatch: pytest.MonkeyPatch, move: str) -> None:
    modules, name, bug = PLANTED[move]
    for module in modules:
        monkeypatch.setattr(module, name, bug)
    spec = AgentSpec(key="a", tools=TOOLS, keys=KEYS, on_unknown_tool="raise", tool_use="stop_on_first_tool")
    assert any(f"position of run r: {move} is not in the table" in text for text in illegal_moves(spec))


# --- every move that the table allows is made ------------------------------------------------------------------------


def guarded(**more: Any) -> World:
    """A run with a text for its guardrails."""
    w = World(AgentSpec(key="a", **more), admitted=False)
    w.send("hi")
    w.feed(inp.Admit())
    return w


def _guards_answer_output() -> None:
    w = guarded(input_guardrails=("i",), output_guardrails=("o",))
    w.says("so")
    w.answer(inp.GuardsDone(kind="input", step=1, names=("i",)))


def _guards_output_run_end() -> None:
    w = World(AgentSpec(key="a", hooked=frozenset({Phase.AFTER_INFERENCE}), output_guardrails=("o",)))
    w.says("so")
    w.phase(Phase.AFTER_INFERENCE, end="enough")
    w.answer(inp.GuardsDone(kind="output", step=1, names=("o",)))
    w.check_end()


def _inference_before() -> None:
    w = World(AgentSpec(key="a"))
    w.spec = attrs.evolve(w.spec, instructed=True, hooked=frozenset({Phase.BEFORE_INFERENCE}))
    w.crash()
    assert ("phase", "before_inference", "1", "") in w.outstanding


def _after_inference() -> None:
    w = World(AgentSpec(key="a", policies=Policies(truncation=TruncationPolicy(times=1))))
    response = ModelResponse(text=("on and",), finish="length")
    w.answer(inp.ModelAnswered(message_id=w.in_flight(), response=response))
    w.says(" on")
    assert w.last().output == "on and on"


def _stopping_again() -> None:
    w = World(AgentSpec(key="a"))
    w.cancel()
    w.lose_owner()
    w.feed(inp.FailUnrecoverable(detail="the owner crashed"))
    w.stopped()
    w.check_end()


def _run_end_stopping() -> None:
    w = World(AgentSpec(key="a", hooked=frozenset({Phase.RUN_END})))
    w.says("done")
    w.lose_owner()
    w.feed(inp.FailUnrecoverable(detail="the owner crashed"))
    w.stopped()
    w.check_end()


def _beside_a_task() -> World:
    """The model has finished, and a task is alive."""
    w = World(AgentSpec(key="a", tools=TOOLS))
    w.says(calls=[call("A", "crawl")])
    w.says("done")
    assert w.row.position is AT.TASKS
    return w


def _tasks_step() -> None:
    w = _beside_a_task()
    w.task_returns("A.task1")
    w.says("done")
    w.check_end()


def _stops(w: World) -> None:
    w.cancel()
    if ("cancel",) in w.outstanding:
        w.stopped()
    w.check_end()


def _tasks_stopping() -> None:
    _stops(_beside_a_task())


def _admission_stopping() -> None:
    _stops(World(AgentSpec(key="a"), admitted=False))


def _prepared() -> None:
    w = World(AgentSpec(key="a"), place="here")
    w.answer(inp.Prepared())
    w.says("done")
    w.check_end()


def _preparing_stopping() -> None:
    _stops(World(AgentSpec(key="a"), place="here"))


def _run_start_stopping() -> None:
    _stops(World(AgentSpec(key="a", hooked=frozenset({Phase.RUN_START}))))


def _step_start_stopping() -> None:
    _stops(World(AgentSpec(key="a", hooked=frozenset({Phase.STEP_START}))))


def _guards_answer_stopping() -> None:
    w = guarded(input_guardrails=("i",))
    w.says("so")
    _stops(w)


RARE: dict[Move, Callable[[], None]] = {
    (AT.GUARDS_ANSWER, AT.GUARDS_OUTPUT): _guards_answer_output,
    (AT.GUARDS_OUTPUT, AT.RUN_END): _guards_output_run_end,
    (AT.STOPPING, AT.GUARDS_OUTPUT): _guards_output_run_end,
    (AT.ADMISSION, AT.STOPPING): _admission_stopping,
    (AT.ADMISSION, AT.PREPARING): _prepared,
    (AT.PREPARING, AT.RUN_START): _prepared,
    (AT.PREPARING, AT.STOPPING): _preparing_stopping,
    (AT.RUN_START, AT.STOPPING): _run_start_stopping,
    (AT.STEP_START, AT.STOPPING): _step_start_stopping,
    (AT.GUARDS_ANSWER, AT.STOPPING): _guards_answer_stopping,
    (AT.INFERENCE, AT.BEFORE_INFERENCE): _inference_before,
    (AT.AFTER_INFERENCE, AT.INFERENCE): _after_inference,
    (AT.STEP_END, AT.TASKS): _tasks_step,
    (AT.TASKS, AT.STEP_START): _tasks_step,
    (AT.TASKS, AT.STOPPING): _tasks_stopping,
    (AT.STOPPING, AT.STOPPING): _stopping_again,
    (AT.RUN_END, AT.STOPPING): _run_end_stopping,
}
"""Moves that the lives below seldom make."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> set[Move]:
    """The moves that were made. Between two of them, and between two inputs, the position stays as it was."""
    moves: set[Move] = set()
    places: dict[int, RunPosition] = {}
    begin, enter, build = StepBuilder.__init__, StepBuilder.enter, StepBuilder.build

    def begun(builder: StepBuilder, *args: Any) -> None:
        begin(builder, *args)
        places[id(builder)] = builder.state.row.position

    def entered(builder: StepBuilder, position: RunPosition) -> None:
        source = places[id(builder)]
        assert builder.row.position is source
        enter(builder, position)
        moves.add((source, position))
        places[id(builder)] = position

    def built(builder: StepBuilder) -> Any:
        taken = build(builder)
        assert taken.state.row.position is places.pop(id(builder))
        return taken

    monkeypatch.setattr(StepBuilder, "__init__", begun)
    monkeypatch.setattr(StepBuilder, "enter", entered)
    monkeypatch.setattr(StepBuilder, "build", built)
    return moves


@pytest.mark.parametrize("move", RARE, ids=" to ".join)
def test_a_rare_move_is_made(made: set[Move], move: Move) -> None:
    RARE[move]()
    assert move in made


@pytest.mark.slow
def test_every_move_of_the_table_is_made_by_some_scene(made: set[Move]) -> None:
    every = {(at, target) for at, row in RUN_POSITIONS.items() for target in row.to} - set(RARE)
    for seed in range(400):
        drawn = random.Random(seed)
        spec = AgentSpec(
            key="a",
            tools=TOOLS,
            hooked=frozenset(phase for phase in Phase if drawn.random() < 0.5),
            keys=KEYS,
            tool_use=drawn.choice(("run_model_again", "stop_on_first_tool")),
            input_guardrails=drawn.choice(((), ("i",))),
            blocking_guardrails=drawn.choice(((), ("b",))),
            output_guardrails=drawn.choice(((), ("o",))),
        )
        mode = (*MODES, OWN)[seed % (len(MODES) + 1)]
        Chaos(World(spec, execution=mode, admitted=drawn.random() < 0.7), seed).play(100)
        if every <= made:
            return
    assert every - made == set()
