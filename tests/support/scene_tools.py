"""The tools of the lifecycle's scenes, and the world outside that keeps count of what they do to it.

A body takes ten virtual seconds and touches the world in the middle of them. What a call does is in its arguments.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import trio

import greenroom as gr

BODY = 10.0
"""Virtual seconds that a body takes; half of them before it touches the world."""
FAR = 1_000.0
"""Virtual seconds after which no task waits any more."""


@attrs.define(eq=False)
class Outside:
    """What happened outside of the runtime; no crash of ours undoes it.

    Attributes:
        effects: the calls that touched the world, in order; a call that does so twice is in it twice.
        running: the calls whose body is being executed. peak: how many were at once.
        started: (call, attempt, arguments) of every body that began.
        decided: call -> the result that its decision carried, for bodies that continued with one.
        memos: idempotency key -> the memos that the next attempt of the call may find: the kept one, and while another
            is being kept also that.
        lost: the calls whose attempt found another memo.
    """

    effects: list[str] = attrs.field(factory=list)
    running: list[str] = attrs.field(factory=list)
    peak: int = 0
    started: list[tuple[str, int, dict[str, Any]]] = attrs.field(factory=list)
    decided: dict[str, Any] = attrs.field(factory=dict)
    memos: dict[str, list[Any]] = attrs.field(factory=dict)
    lost: list[str] = attrs.field(factory=list)

    async def save(self, ctx: gr.ToolContext["Outside"], memo: Any) -> None:
        """A body keeps a memo: the next attempt finds the new one from the moment at which this returns."""
        memos = self.memos.setdefault(ctx.idempotency_key, [None])
        memos.append(memo)
        await ctx.save(memo)
        memos[:] = [memo]

    def recall(self, ctx: gr.ToolContext["Outside"]) -> Any:
        """A body begins, and finds what an earlier attempt has kept."""
        if ctx.memo not in self.memos.get(ctx.idempotency_key, [None]):
            self.lost.append(f"attempt {ctx.attempt} of {ctx.call_id} has found the memo {ctx.memo!r}")
        self.memos[ctx.idempotency_key] = [ctx.memo]
        return ctx.memo

    @contextmanager
    def body(self, ctx: gr.ToolContext["Outside"], **arguments: Any) -> Iterator[None]:
        """A body is executed."""
        self.started.append((ctx.call_id, ctx.attempt, arguments))
        self.running.append(ctx.call_id)
        self.peak = max(self.peak, len(self.running))
        try:
            yield
        finally:
            self.running.remove(ctx.call_id)

    async def work(self, ctx: gr.ToolContext["Outside"], seconds: float = BODY, **arguments: Any) -> None:
        """A body: half of its time, the effect, the other half."""
        with self.body(ctx, **arguments):
            await trio.sleep(seconds / 2)
            self.effects.append(ctx.call_id)
            await trio.sleep(seconds / 2)

    def attempts(self, call_id: str) -> int:
        """How often a body of the call began."""
        return sum(name == call_id for name, _, _ in self.started)


Context = gr.ToolContext[Outside]


@gr.tool(replay="safe")
async def look(ctx: Context, at: str = "", seconds: float = BODY) -> str:
    """Free; may be repeated."""
    await ctx.deps.work(ctx, seconds, at=at)
    return f"saw {at or ctx.call_id}"


@gr.tool
async def note(ctx: Context, what: str = "", seconds: float = BODY) -> str:
    """Free; must not be repeated without asking."""
    await ctx.deps.work(ctx, seconds, what=what)
    return f"noted {what or ctx.call_id}"


@gr.tool(effect="write")
async def write(ctx: Context, seconds: float = BODY) -> str:
    """Free, and applies something."""
    await ctx.deps.work(ctx, seconds)
    return f"wrote {ctx.call_id}"


@gr.tool(needs_approval=True)
async def sign(ctx: Context, cents: int = 1, seconds: float = BODY) -> str:
    """Needs an approval, applies nothing."""
    await ctx.deps.work(ctx, seconds, cents=cents)
    return f"signed {cents}"


@gr.tool(needs_approval=True, effect="publish")
async def pay(ctx: Context, cents: int = 1) -> str:
    """Needs an approval, and applies something."""
    await ctx.deps.work(ctx, cents=cents)
    return f"paid {cents}"


async def _large(ctx: Context, arguments: Any) -> bool:
    with ctx.deps.body(ctx):
        await trio.sleep(arguments["thinking"])
    return bool(arguments["cents"] > 100)


@gr.tool(needs_approval=_large)
async def spend(ctx: Context, cents: int = 1, thinking: float = 0.0) -> str:
    """Needs an approval above 100 cents; finding that out may take a while."""
    await ctx.deps.work(ctx, cents=cents)
    return f"spent {cents}"


@gr.tool
async def ask(
    ctx: Context,
    times: int = 1,
    mode: str = "replay_tool_call",
    schema: dict[str, Any] | None = None,
    expires: float | None = None,
    on_expiry: str = "deny",
    default: str | None = None,
    reviewers: list[str] | None = None,
    said: str = "",
    seconds: float = 0.0,
) -> str:
    """Suspends itself so many times, in the way that its arguments say; then continues with the decision."""
    await trio.sleep(seconds)
    if ctx.attempt <= times:
        how: Any = on_expiry if default is None else gr.SetResult(default)
        raise gr.Suspend(
            action="ask",
            message=f"question {ctx.attempt}",
            parameters={"of": ctx.call_id},
            response_schema=schema,
            resume_mode=mode,  # type: ignore[arg-type]
            expires_after=expires,
            on_expiry=how,
            reviewers=tuple(reviewers or ()),
        )
    reported = None if ctx.decision is None else ctx.decision.result
    ctx.deps.decided[ctx.call_id] = reported
    await ctx.deps.work(ctx, said=said)
    return f"told {said or reported}"


@gr.tool
async def fails(ctx: Context, seconds: float = BODY) -> str:
    """Always fails; the model reads why."""
    with ctx.deps.body(ctx):
        await trio.sleep(seconds)
    raise gr.ToolError("no luck")


@gr.tool(on_error="raise")
async def breaks(ctx: Context, seconds: float = BODY) -> str:
    """Always fails, and the run with it."""
    with ctx.deps.body(ctx):
        await trio.sleep(seconds)
    raise RuntimeError("beyond repair")


@gr.tool(timeout=30.0)
async def hangs(ctx: Context) -> str:
    """Never ends by itself; its time limit tells the model."""
    with ctx.deps.body(ctx):
        await trio.sleep(FAR)
    return "never"


@gr.tool(timeout=30.0, on_timeout="raise")
async def jams(ctx: Context) -> str:
    """Never ends by itself; its time limit ends the run."""
    with ctx.deps.body(ctx):
        await trio.sleep(FAR)
    return "never"


@gr.tool(concurrency="ordered")
async def turn(ctx: Context, seconds: float = BODY) -> str:
    """One at a time among its kind, in the model's order."""
    await ctx.deps.work(ctx, seconds)
    return f"turn of {ctx.call_id}"


@gr.tool(concurrency="ordered", needs_approval=True)
async def oath(ctx: Context) -> str:
    """Needs an approval, and its turn."""
    await ctx.deps.work(ctx)
    return f"oath of {ctx.call_id}"


@gr.tool(concurrency="exclusive")
async def alone(ctx: Context, seconds: float = BODY) -> str:
    """Beside nothing else."""
    await ctx.deps.work(ctx, seconds)
    return f"{ctx.call_id} alone"


@gr.tool(grace=2.0)
async def tidy(ctx: Context, seconds: float = 1.0) -> str:
    """Never ends by itself, and cleans up when it is cancelled: for longer than its grace, if so configured."""
    with ctx.deps.body(ctx):
        try:
            await trio.sleep(FAR)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(seconds)
    return "never"


async def program(
    ctx: Context,
    asks: list[list[Any]],
    before: float = 1.0,
    seconds: float = BODY,
    editable: bool = True,
    seen: bool = False,
) -> str:
    """Let a program work that asks for each [tool, effect]: all are asked at once, and touch the world if allowed."""
    answers: list[str] = []

    async def one(number: int, tool: str, effect: str) -> None:
        await trio.sleep(number / 100)  # in this order
        given = await ctx.call_nested(tool, {"n": number}, effect=effect, editable=editable, seen=seen)
        if given.arguments is None:
            answers.append(f"{tool}: {given.text}")
            return
        ctx.deps.started.append((given.call_id, 1, dict(given.arguments)))
        await trio.sleep(seconds / 2)
        ctx.deps.effects.append(given.call_id)
        await trio.sleep(seconds / 2)
        ctx.end_nested(given.call_id, {"did": given.arguments["n"]})
        answers.append(f"{tool}: did {given.arguments['n']}")

    with ctx.deps.body(ctx):
        await trio.sleep(before)
        async with trio.open_nursery() as nursery:
            for number, (tool, effect) in enumerate(asks):
                nursery.start_soon(one, number, tool, effect)
    return "; ".join(sorted(answers))


coder = gr.tool(name="coder", effect="delegate")(program)
"""Lets a program work; must not be repeated without asking."""
cheap = gr.tool(name="cheap", replay="safe")(program)
"""The same, and may be repeated."""


async def tale(
    ctx: Context, says: list[str], note: bool = True, used: int = 0, fails: str = "", seconds: float = BODY
) -> str:
    """Let a program work that says these texts, in two pieces each; a text that ends with "..." stays incomplete.

    Before it says anything the body keeps a memo, and another one after each text. `used`: tokens of a model. `fails`:
    the code of a run that the failure ends.
    """
    found = ctx.deps.recall(ctx)
    with ctx.deps.body(ctx):
        await ctx.deps.save(ctx, {"attempt": ctx.attempt, "said": 0})
        for number, said in enumerate(says, 1):
            half = len(said) // 2
            await ctx.reports.say(said[:half], reasoning="hm")
            await trio.sleep(seconds / 4)
            await ctx.reports.say(said[half:])
            if said.endswith("..."):
                await trio.sleep(seconds / 4)
                continue
            await ctx.reports.complete(said)
            if note:
                await ctx.reports.note("run.plan.changed", entries=[{"text": said, "status": "done"}])
            await ctx.deps.save(ctx, {"attempt": ctx.attempt, "said": number})
        if used:
            ctx.spend(gr.Usage(requests=1, input=used), "program:model")
        await trio.sleep(seconds / 2)
        ctx.deps.effects.append(ctx.call_id)
        if fails:
            raise gr.ToolError("the program has failed", run_code=fails)
        return f"found {found}"


narrator = gr.tool(name="narrator", effect="delegate")(tale)
"""Lets a program work that tells of it; must not be repeated without asking."""
herald = gr.tool(name="herald", replay="safe")(tale)
"""The same, and may be repeated."""
envoy = gr.tool(name="envoy", on_error="raise")(tale)
"""The same; its failures end the run."""


@gr.tool
async def inquire(
    ctx: Context,
    question: str = "colour?",
    expires: float | None = None,
    default: str | None = None,
    patience: float = FAR,
) -> str:
    """Asks people in the middle of its work, and waits for them: so long."""
    with ctx.deps.body(ctx):
        how: Any = "deny" if default is None else gr.SetResult(default)
        decision = None
        with trio.move_on_after(patience):
            decision = await ctx.ask(gr.Suspend(message=question, expires_after=expires, on_expiry=how))
        await trio.sleep(BODY)
        return "nobody" if decision is None else f"{decision.action} {decision.result} by {decision.decided_by}"


@gr.tool
def wonder(ctx: gr.SyncToolContext[Outside], question: str = "colour?") -> str:
    """Asks people from a thread."""
    decision = ctx.ask(gr.Suspend(message=question))
    return f"{decision.action} {decision.result} by {decision.decided_by}"


@gr.tool(background=True)
async def petition(ctx: Context) -> str:
    """A background task that asks people, which is refused."""
    await ctx.ask(gr.Suspend(message="may I?"))
    return "never"


TOOLS = (
    coder,
    cheap,
    narrator,
    herald,
    envoy,
    inquire,
    look,
    note,
    write,
    sign,
    pay,
    spend,
    ask,
    fails,
    breaks,
    hangs,
    jams,
    turn,
    oath,
    alone,
    tidy,
)
"""All of them: every scene's agent has the whole cast."""


class Speechless(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise ValueError("nothing to say")
