"""Scenes that are drawn by lot: agents, what their models say, and what people and the machine do meanwhile.

    scene = draw(7)           # the same seed is the same scene
    print(scene.shown())      # what is in it, a line each

A scene is data: names, numbers, and parts of scripts. `random_lives.py` plays it, checks what every life keeps, and
makes a failing scene shorter.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import attrs
import trio

import greenroom as gr
from greenroom.actors.contract.spec import MODES
from greenroom.testing import FunctionModel, call, delay, fail, finish, malformed, refuse, text, think

from .artifact_scenes import PUBLISHED, publish, publishes_late
from .programs import MORE, TOPIC, WORD, put
from .scene_plugins import Scripted, diary, gate, scripted, slow
from .scene_tools import Outside
from .scenes import OWN

EXECUTIONS: Mapping[str, Any] = {
    **{name: name for name in MODES},
    "own": OWN,
    "narrow": gr.ExecutionMode(bodies=2, suspended_blocks=True, batch=True, merges="at_once"),
}
DEEPEST = 3
"""Agents of a scene: the first is that of the runs, each other one may be a tool of those before it."""


# --- the world -------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class World(Outside):
    """The world outside of a scene with many runs.

    Attributes:
        bodies: the idempotency key of every body that began.
        at_work: those of the bodies that are being executed. cut: those that a death of a process has cut off.
        asked: how often the predicate of `moody` was asked.
    """

    bodies: list[str] = attrs.field(factory=list)
    at_work: list[str] = attrs.field(factory=list)
    cut: set[str] = attrs.field(factory=set)
    asked: int = 0

    @contextmanager
    def body(self, ctx: Any, **arguments: Any) -> Iterator[None]:
        """A body is executed."""
        key = ctx.idempotency_key
        self.bodies.append(key)
        self.at_work.append(key)
        try:
            with Outside.body(self, ctx, **arguments):  # no `super`: a class with slots is another one than it names
                yield
        finally:
            self.at_work.remove(key)

    def die(self) -> None:
        """The process dies now."""
        self.cut.update(self.at_work)


async def _judged(ctx: Any, value: Any) -> Any:
    """What a guardrail of a scene says: the first word of what it judges that means something decides."""
    words = str(value)
    if "slow" in words:
        await trio.sleep(3)
    if "hang" in words:
        await trio.sleep_forever()
    if "burst" in words:
        raise ValueError("this guardrail bursts")
    return gr.Trip("evil") if "evil" in words else None


async def _rejecting(ctx: Any, value: Any) -> Any:
    return gr.Reject("not this") if "reject" in str(value) else await _judged(ctx, value)


def _moody(ctx: gr.PhaseContext[World]) -> bool:
    ctx.deps.asked += 1
    return ctx.deps.asked % 4 != 0


GUARDRAILS: Mapping[str, tuple[str, Any]] = {
    "before": ("input_guardrails", gr.input_guardrail(name="before", blocking=True, timeout=5.0)(_judged)),
    "beside": ("input_guardrails", gr.input_guardrail(name="beside", timeout=5.0)(_judged)),
    "after": ("output_guardrails", gr.output_guardrail(name="after", timeout=5.0)(_judged)),
    "last": ("output_guardrails", gr.output_guardrail(name="last", timeout=5.0)(_judged)),
}
_ENTRY = gr.tool_input_guardrail(name="entry", timeout=5.0)(_rejecting)
_DOOR = gr.tool_output_guardrail(name="door", timeout=5.0)(_rejecting)


@gr.tool
async def word(ctx: gr.ToolContext[World], word: str = "", seconds: float = 2.0) -> str:
    """Says a word; must not be repeated without asking."""
    await ctx.deps.work(ctx, seconds)
    return f"{word} of {ctx.call_id}"


@gr.tool(is_enabled=_moody, replay="safe")
async def moody(ctx: gr.ToolContext[World]) -> str:
    """Is offered at times."""
    await ctx.deps.work(ctx, 1.0)
    return "in the mood"


@gr.tool(background=True)
async def errand(ctx: gr.ToolContext[World], seconds: float = 20.0) -> str:
    """A task that must not be repeated."""
    await trio.sleep(seconds)
    return "back"


async def _dear(ctx: Any, arguments: Any) -> bool:
    await trio.sleep(arguments["thinking"])
    return bool(arguments["cents"] > 100)


@gr.tool
async def picture(ctx: gr.ToolContext[World], seconds: float = 1.0) -> Any:
    """Returns a text with a file."""
    await ctx.deps.work(ctx, seconds)
    return ["here", gr.File(b"what was found", media_type="text/plain", name="found.txt")]


TOOLS = (
    *(attrs.evolve(tool, needs_approval=_dear) if tool.name == "spend" else tool for tool in MORE["tools"]),
    moody,
    errand,
    picture,
    attrs.evolve(picture, name="covered_picture", output_guardrails=(_DOOR,)),
    attrs.evolve(picture, name="picture_task", background=True, replay="safe"),
    word,
    attrs.evolve(word, name="judged", input_guardrails=(_ENTRY,)),
    attrs.evolve(word, name="masked", output_guardrails=(_DOOR,)),
    attrs.evolve(word, name="guarded", input_guardrails=(_ENTRY,), output_guardrails=(_DOOR,), needs_approval=True),
    attrs.evolve(put, name="signed_put", needs_approval=True),
    publish,
    publishes_late,
)
SAFE = frozenset(tool.name for tool in TOOLS if tool.replay == "safe")
GATED = frozenset({"sign", "pay", "oath", "guarded", "signed_put"})
"""Tools whose body never runs without an approval."""


# --- plugins ---------------------------------------------------------------------------------------------------------


def _once(phase: str) -> Callable[[], Scripted]:
    """A hook that holds a run, unless the run has state that says that it did."""

    def hold(ctx: Any) -> Any:
        if ctx.state[WORD] == "held":
            return None
        return gr.Mutation().set(WORD, "held").hold(gr.Suspend(message="may it?", expires_after=500.0))

    return lambda: scripted("holds", **{phase: hold})


def _questions(ctx: Any) -> Any:
    return gr.Suspend(message="may it?") if ctx.tool in ("look", "expert1") and not ctx.decision else None


def _first_of(ctx: Any) -> Any:
    return gr.Mutation().drop_call(ctx.calls[0].call_id, "dropped") if len(ctx.calls) > 2 else None


def _enough(ctx: Any) -> Any:
    return gr.Mutation().end("enough") if ctx.step > 2 else None


def _bursts(ctx: Any) -> Any:
    raise ValueError("this hook bursts")


PLUGINS: Mapping[str, Callable[[], gr.Plugin]] = {
    "one try": lambda: gr.Retry(attempts=1),
    "five tries": lambda: gr.Retry(attempts=5, first=0.1),
    "no recovery": lambda: gr.Recovery(times=0),
    "idle": lambda: gr.IdleTimeout(3.0, first=4.0),
    "fallback": lambda: gr.Fallback(FunctionModel(lambda _: "from the other")),
    "breaker": lambda: gr.CircuitBreaker(failures=1, within=60.0, open_for=5.0),
    "budget": lambda: gr.Budget(requests=5),
    "budget of calls": lambda: gr.Budget(tool_calls=3),
    "continue": gr.ContinueTruncated,
    "window": lambda: gr.ContextWindow(messages=3),
    "compaction": lambda: gr.Compaction(3, keep=1, model=FunctionModel(lambda _: "in short"), count=lambda _: 1),
    "no compaction": lambda: gr.Compaction(
        3, keep=1, model=FunctionModel(lambda _: [fail("overloaded")]), count=lambda _: 1
    ),
    "holds the start": _once("run_start"),
    "holds a step": _once("step_start"),
    "holds the end": _once("step_end"),
    "questions": lambda: gate("questions", _questions),
    "allows": lambda: gate("allows", lambda ctx: gr.Allow(note=f"{ctx.tool} is harmless")),
    "asks about nested": lambda: gate(
        "asks_about_nested", lambda ctx: gr.Suspend(message="may it?") if ctx.call.parent and not ctx.decision else None
    ),
    "denies": lambda: gate("denies", lambda ctx: gr.Deny("no notes") if ctx.tool == "note" else None),
    "blocks": lambda: gate("blocks", lambda ctx: gr.Block("no writing") if ctx.tool == "write" else None),
    "answers": lambda: gate("answers", lambda ctx: gr.SetResult("given") if ctx.tool == "turn" else None),
    "slow gate": lambda: gate("slow_gate", slow(2.0)),
    "diary": lambda: diary(name="slowly", every=slow(0.5)),
    "late hook": lambda: scripted("late", timeout=2.0, on_error="ignore", step_start=slow(9.0)),
    "bursts": lambda: scripted("bursts", on_error="ignore", step_end=_bursts, after_inference=_bursts),
    "fails": lambda: scripted("fails", step_end=_bursts),
    "drops": lambda: scripted("drops", after_inference=_first_of),
    "writes": lambda: scripted("writes", before_tool_execute=lambda _: gr.Mutation().set(TOPIC, "a hook's")),
    "ends": lambda: scripted("ends", after_tool_execute=_enough),
    "long end": lambda: scripted("long_end", run_end=slow(5.0)),
}  # fmt: skip
POLICIES = tuple(PLUGINS)[:12]


def _instructs(ctx: Any) -> str:
    return f"This is step {ctx.step}."


async def _instructs_slowly(ctx: Any) -> str:
    await trio.sleep(2)
    return "Be quick."


def _first_facts(calls: Sequence[Any]) -> Any:
    return gr.FinalOutput(calls[0].result) if len(calls) > 1 else None


OPTIONS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "cancels on a denial": lambda: {"on_deny": "cancel_run"},
    "superseded": lambda: {"on_new_input": "supersede"},
    "no unknown tools": lambda: {"on_unknown_tool": "raise"},
    "one body": lambda: {"max_bodies": 1},
    "one task": lambda: {"max_tasks": 1},
    "required": lambda: {"tool_choice": "required"},
    "looks": lambda: {"tool_choice": "look", "reset_tool_choice": False},
    "no calls": lambda: {"tool_choice": "none"},
    "first tool": lambda: {"tool_use": "stop_on_first_tool"},
    "some tools": lambda: {"tool_use": gr.stop_at_tools("look", "turn")},
    "a choice": lambda: {"tool_use": _first_facts},
    "two rounds": lambda: {"stop": [gr.stop.MaxRounds(2)]},
    "errors": lambda: {"stop": [gr.stop.ConsecutiveErrors(2)]},
    "seconds": lambda: {"stop": [gr.stop.Timeout(25.0)]},
    "instructed": lambda: {"instructions": _instructs},
    "instructed slowly": lambda: {"instructions": _instructs_slowly},
    "a number": lambda: {"output_type": int},
    "a form": lambda: {"output_type": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
    "state": lambda: {"state": [WORD, TOPIC]},
}
TOOL_OPTIONS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "approved": lambda: {"needs_approval": True},
    "timed": lambda: {"timeout": 12.0},
    "fatal": lambda: {"on_error": "raise"},
    "moody": lambda: {"is_enabled": _moody},
    "guarded": lambda: {"input_guardrails": [_ENTRY]},
    "ordered": lambda: {"concurrency": "ordered"},
    "short grace": lambda: {"grace": 1.0},
}


async def _greets(ctx: gr.ToolContext[World]) -> None:
    await ctx.deps.work(ctx, 2.0)


async def _trips_over(ctx: gr.ToolContext[World]) -> None:
    await trio.sleep(1)
    raise gr.ToolError("not now")


def _breaks_off(messages: Any) -> Any:
    raise ValueError("this filter bursts")


HANDOFF_OPTIONS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "greets": lambda: {"on_handoff": _greets},
    "trips": lambda: {"on_handoff": _trips_over},
    "nested": lambda: {"input_filter": gr.filters.nested},
    "without tools": lambda: {"input_filter": gr.filters.without_tools},
    "the newest": lambda: {"input_filter": lambda messages: messages[-2:]},
    "no filter": lambda: {"input_filter": _breaks_off},
    "approved": lambda: {"needs_approval": True},
    "moody": lambda: {"is_enabled": _moody},
    "fatal": lambda: {"on_error": "raise"},
}


# --- the data of a scene ---------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Role:
    """An agent of a scene.

    Attributes:
        script: what its model says, an answer each; after the last one it says "done" for ever.
        plugins, guardrails, options: names in the tables of this module.
        tools: (number of another role, names of options): agents as tools.
        handoffs: the same: agents to which the run may be handed over, also those before it.
    """

    script: tuple[tuple[Any, ...], ...]
    plugins: tuple[str, ...] = ()
    guardrails: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    tools: tuple[tuple[int, tuple[str, ...]], ...] = ()
    handoffs: tuple[tuple[int, tuple[str, ...]], ...] = ()


@attrs.frozen
class Act:
    """Something that people or the machine do.

    Attributes:
        kind: the name of a method of `random_lives.Life`.
        wait: virtual seconds after the act before it; None: when the runs rest.
        lots: numbers from 0 to 1, by which the act chooses among what it finds.
    """

    kind: str
    wait: float | None
    lots: tuple[float, ...]


@attrs.frozen(kw_only=True)
class RandomScene:
    """A scene: everything that is drawn.

    Attributes:
        prepared: virtual seconds for which the workspace of each run is prepared; None: the runs have none.
    """

    seed: int
    kind: str
    mode: str
    roles: tuple[Role, ...]
    acts: tuple[Act, ...]
    runtime: tuple[tuple[str, Any], ...] = ()
    ask: str = "hi"
    deadline: float | None = None
    attached: bool = False
    prepared: float | None = None

    def shown(self) -> str:
        """The scene, for people."""
        lines = [
            f"seed {self.seed}: {self.kind}, {self.mode}, {dict(self.runtime)}",
            f"  {self.ask!r}, attached {self.attached}, until {self.deadline}, prepared for {self.prepared}",
        ]
        for number, role in enumerate(self.roles):
            lines.append(
                f"  role {number}: {role.plugins} {role.guardrails} {role.options} {role.tools} {role.handoffs}"
            )
            lines += [f"    {', '.join(map(str, answer))}" for answer in role.script]
        lines += [f"  {act.kind} after {act.wait}: {act.lots}" for act in self.acts]
        return "\n".join(lines)


# --- drawing ---------------------------------------------------------------------------------------------------------


def _asks(dice: Random) -> list[list[str]]:
    """What a program asks for; each is an effect on the outside, under the id of the nested call."""
    effects = ["read", "write", "shell", "publish"]
    return [[dice.choice(["Bash", "look", "Write"]), dice.choice(effects)] for _ in range(dice.randint(1, 3))]


def _tale(dice: Random) -> dict[str, Any]:
    """What a program says of its work; the last text may stay incomplete."""
    says = [dice.choice(["I look.", "I write.", "I think..."]) for _ in range(dice.randint(0, 3))]
    return {"says": says, "note": dice.random() < 0.5, "used": dice.choice([0, 7]), "seconds": dice.choice([0.0, 4.0])}


CALLS: tuple[tuple[int, str, Callable[[Random], dict[str, Any]]], ...] = (
    (6, "look", lambda dice: {"seconds": dice.choice([0.0, 1.0, 10.0])}),
    (5, "note", lambda dice: {"seconds": dice.choice([0.0, 1.0, 10.0])}),
    (3, "write", lambda dice: {"seconds": dice.choice([0.0, 3.0])}),
    (5, "sign", lambda dice: {"seconds": dice.choice([0.0, 3.0])}),
    (4, "pay", lambda dice: {"cents": dice.randint(1, 9)}),
    (2, "spend", lambda dice: {"cents": dice.choice([1, 500]), "thinking": dice.choice([0.0, 2.0])}),
    (3, "ask", lambda dice: {"times": dice.choice([1, 2])}),
    (2, "ask", lambda dice: {"expires": dice.choice([1.0, 15.0]), "default": dice.choice([None, "late"])}),
    (1, "ask", lambda dice: {"mode": "use_decision_as_tool_result"}),
    (1, "ask", lambda dice: {"expires": 15.0, "on_expiry": "cancel_run"}),
    (2, "coder", lambda dice: {"asks": _asks(dice), "seconds": dice.choice([0.0, 3.0])}),
    (2, "narrator", _tale),
    (1, "herald", _tale),
    (1, "envoy", lambda dice: _tale(dice) | {"fails": dice.choice(["", "", "runtime_unavailable"])}),
    (1, "cheap", lambda dice: {"asks": _asks(dice), "seen": dice.random() < 0.3}),
    (2, "inquire", lambda dice: {"expires": dice.choice([None, 15.0]), "patience": dice.choice([5.0, 500.0])}),
    (1, "petition", lambda dice: {}),
    (2, "fails", lambda dice: {"seconds": 1.0}),
    (1, "breaks", lambda dice: {"seconds": dice.choice([0.0, 5.0])}),
    (1, "hangs", lambda dice: {}),
    (1, "jams", lambda dice: {}),
    (2, "turn", lambda dice: {"seconds": dice.choice([0.0, 3.0])}),
    (1, "oath", lambda dice: {}),
    (2, "alone", lambda dice: {"seconds": dice.choice([0.0, 3.0])}),
    (1, "tidy", lambda dice: {"seconds": dice.choice([0.0, 1.0, 5.0])}),
    (1, "hides", lambda dice: {}),
    (2, "put", lambda dice: {"word": "x", "seconds": dice.choice([0.0, 3.0])}),
    (2, "again", lambda dice: {"word": "y", "seconds": dice.choice([0.0, 3.0])}),
    (1, "signed_put", lambda dice: {"word": "z"}),
    (1, "reports", lambda dice: {}),
    (2, "crawl", lambda dice: {"seconds": dice.choice([0.0, 5.0, 50.0])}),
    (1, "errand", lambda dice: {"seconds": dice.choice([0.0, 20.0])}),
    (1, "deaf", lambda dice: {}),
    (1, "boss", lambda dice: {}),
    (3, "moody", lambda dice: {}),
    (2, "judged", lambda dice: {"word": dice.choice(["fine", "reject", "slow", "slow", "evil", "hang", "burst"])}),
    (2, "masked", lambda dice: {"word": dice.choice(["fine", "reject", "slow", "slow", "evil", "hang", "burst"])}),
    (2, "guarded", lambda dice: {"word": dice.choice(["fine", "reject", "slow"])}),
    (2, "picture", lambda dice: {"seconds": dice.choice([0.0, 3.0])}),
    (1, "covered_picture", lambda dice: {"seconds": dice.choice([0.0, 3.0])}),
    (1, "picture_task", lambda dice: {"seconds": dice.choice([0.0, 20.0])}),
    (2, "publish", lambda dice: {"seconds": dice.choice([0.0, 3.0]), "what": dice.choice(PUBLISHED)}),
    (1, "publishes_late", lambda dice: {}),
    (1, "nothing", lambda dice: {}),
    (1, "pay", lambda dice: {"cents": "x"}),
)
FAULTS = ("overloaded", "interrupted", "rate_limited", "timeout", "invalid_request", "context_overflow", "provider")
INPUTS = ("more", "and this", "slow", "evil", "burst", "hang")
ACTS: tuple[tuple[int, str], ...] = (
    (30, "decide"),
    (4, "decide_early"),
    (4, "decide_again"),
    (3, "decide_all"),
    (4, "cancel"),
    (4, "pause"),
    (6, "send"),
    (9, "restart"),
    (9, "kill"),
    (3, "jump"),
    (1, "prune"),
    (2, "fork"),
    (2, "another"),
    (2, "change"),
    (1, "missing_agent"),
    (2, "refuse"),
    (2, "outage"),
    (3, "crash"),
)
WAITS = (None, None, None, 0.0, 0.0, 0.001, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 40.0, 70.0)


def draw(seed: int) -> RandomScene:
    """The scene of a seed."""
    dice = Random(f"scene {seed}")
    count = dice.choice([1, 1, 2, 2, 2, 3])
    roles = tuple(_role(dice, number, count) for number in range(count))
    runtime: dict[str, Any] = {"drain": dice.choice([0, 0, 0, 5])}
    if dice.random() < 0.2:
        runtime["max_running"] = dice.choice([1, 2])
    if dice.random() < 0.1:
        runtime["max_depth"] = 1
    elif any(other < number for number, role in enumerate(roles) for other, _ in role.handoffs):
        runtime["max_depth"] = 2  # else a child run that is handed back begins the same again, eight deep
    if dice.random() < 0.4:
        runtime["passivate_after"] = dice.choice([0.5, 5.0])
    return RandomScene(
        seed=seed,
        kind=dice.choice(["memory", "memory", "memory", "sqlite"]),
        mode=dice.choice(list(EXECUTIONS)),
        roles=roles,
        acts=tuple(_act(dice) for _ in range(dice.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 20]))),
        runtime=tuple(runtime.items()),
        ask=dice.choice(["hi", "hi", "hi", "hi", "slow", "slow", "evil"]),
        deadline=dice.choice([None, None, None, None, None, None, 8.0, 60.0]),
        attached=dice.random() < 0.15,
        prepared=dice.choice([None, None, None, None, 0.5, 5.0]),  # the last one: those before stay as they are
    )


def _act(dice: Random) -> Act:
    kind = dice.choices([name for _, name in ACTS], [weight for weight, _ in ACTS])[0]
    return Act(kind, dice.choice(WAITS), tuple(dice.randrange(1000) / 1000 for _ in range(6)))


def _some(dice: Random, names: Sequence[str], *weights: float) -> tuple[str, ...]:
    """So many of the names: weights of none, one, two..."""
    number = dice.choices(range(len(weights)), weights)[0]
    return tuple(dice.sample(list(names), number))


def _role(dice: Random, number: int, count: int) -> Role:
    later, others = range(number + 1, count), [other for other in range(count) if other != number]
    tools = tuple((other, _some(dice, tuple(TOOL_OPTIONS), 6, 3, 1)) for other in later)
    handing = others if dice.random() < 0.4 else []
    handoffs = tuple((other, _some(dice, tuple(HANDOFF_OPTIONS), 4, 4, 2)) for other in handing)
    made = [f"expert{other}" for other in later] * 2 + [f"transfer_to_role{other}" for other in handing] * 2
    return Role(
        script=tuple(_answer(dice, number, step, made) for step in range(dice.randint(1, 4))),
        plugins=_chosen(_some(dice, tuple(PLUGINS), 5, 3, 2, 1)),
        guardrails=_some(dice, tuple(GUARDRAILS), 5, 1, 2, 1),
        options=_chosen(_some(dice, tuple(OPTIONS), 5, 3, 2, 1)),
        tools=tools,
        handoffs=handoffs,
    )


def _chosen(names: tuple[str, ...]) -> tuple[str, ...]:
    """Without those of which another one says the same thing differently."""
    kept: dict[str, str] = {}
    for name in names:
        made = PLUGINS[name]() if name in PLUGINS else None
        key = next(iter(OPTIONS[name]())) if made is None else made.name
        kept.setdefault(key, name)
    return tuple(kept.values())


def _answer(dice: Random, number: int, step: int, others: Sequence[str]) -> tuple[Any, ...]:
    """One answer of a model: texts, calls, pauses, and how it ends."""
    parts: list[Any] = []
    if dice.random() < 0.15:
        parts.append(think("hm"))
    if dice.random() < 0.4:
        parts.append(text(dice.choice(["so, ", "slow text ", "7", '{"n": 1}', "evil "])))
    if dice.random() < 0.3:
        parts.append(delay(dice.choice([0.1, 2.0, 6.0])))
    for index in range(dice.choices([0, 1, 2, 3, 4], [3, 6, 5, 3, 1])[0]):
        parts += _call(dice, f"{'abc'[number]}{step}{index}", others)
    if dice.random() < 0.03:
        parts.append(malformed("look", '{"a": ', id=f"bad{step}"))
    ending = dice.random()
    if ending < 0.02:
        return (refuse("I will not."),)
    if ending < 0.14:
        return (*parts, fail(dice.choice(FAULTS), retry_after=dice.choice([None, None, 2.0])))
    if ending < 0.17:
        return (*parts, finish("length"))
    return tuple(parts or [text(dice.choice(["fine", "8", '{"n": 2}', "evil answer", "slow answer", "burst"]))])


def _call(dice: Random, name: str, others: Sequence[str]) -> list[Any]:
    """A call, and sometimes a pause of the stream after it. `others`: tools that are agents."""
    if others and dice.random() < 0.45:
        tool = dice.choice(others)
        words = (
            {} if tool.startswith("transfer") else {"input": dice.choice(["go", "go", "go", "slow", "evil", "reject"])}
        )
        made = call(tool, words, id=name)
    else:
        _, tool, arguments = dice.choices(CALLS, [weight for weight, _, _ in CALLS])[0]
        given = {key: value for key, value in arguments(dice).items() if value is not None}
        made = call(tool, given, id=name if dice.random() < 0.9 else None)
    return [made, delay(dice.choice([0.1, 2.0]))] if dice.random() < 0.1 else [made]
