"""One run with an approval, followed and decided from outside, on a store that can be opened again; what must hold.

What the world outside knows is in a `Book`: which bodies ran, which bytes a reader was shown, which answers a principal
was given. A book survives what a process does not. `broken` compares it with what the store has in the end.
"""

import copy
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

import greenroom as gr
from greenroom.actors.contract.envelope import decode_event
from greenroom.supervision import chaos, open_collapsing_nursery
from greenroom.testing import ScriptedModel, call, text

RUN = "r"
BUDGET = 90.0
"""Virtual seconds in which a life must have come to its end: longer than the store's patience and all graces."""
TERMINAL = ("run.completed", "run.failed", "run.cancelled")


@attrs.define(eq=False)
class Book:
    """What the world outside of the process knows."""

    bodies: Counter[str] = attrs.field(factory=Counter)
    running: set[str] = attrs.field(factory=set)
    seen: dict[int, bytes] = attrs.field(factory=dict)
    cursor: int = 0
    replies: dict[str, gr.CommandResult] = attrs.field(factory=dict)
    outcomes: list[Any] = attrs.field(factory=list)
    faults: list[str] = attrs.field(factory=list)
    judged: set[str] = attrs.field(factory=set)
    memos: dict[str, list[Any]] = attrs.field(factory=dict)

    def copied(self) -> "Book":
        """As it is now; of the bodies, none is running any more."""
        return attrs.evolve(
            self,
            bodies=Counter(self.bodies),
            running=set(),
            seen=dict(self.seen),
            replies=dict(self.replies),
            outcomes=list(self.outcomes),
            faults=list(self.faults),
            judged=set(self.judged),
            memos={key: list(memos) for key, memos in self.memos.items()},
        )

    def show(self, sequence: int, frame: bytes) -> None:
        """A client reads an event."""
        if self.seen.setdefault(sequence, frame) != frame:
            self.faults.append(f"event {sequence} has changed")

    def take(self, event: gr.Event) -> None:
        """The follower gets an event."""
        if event.sequence != self.cursor + 1:
            self.faults.append(f"the follower got event {event.sequence} after {self.cursor}")
        self.cursor = event.sequence
        if event.type in TERMINAL and self.running:
            self.faults.append(f"{sorted(self.running)} were still running when {event.type} was seen")

    async def keep(self, ctx: gr.ToolContext[Any], memo: Any) -> None:
        """A body keeps a memo: the next attempt finds that one, or one that a body has begun to keep since."""
        memos = self.memos[ctx.idempotency_key]
        memos.append(memo)
        await ctx.save(memo)
        if memo in memos:  # else another process has kept a newer one
            del memos[: memos.index(memo)]

    def recall(self, ctx: gr.ToolContext[Any]) -> None:
        """A body begins, and finds what an earlier attempt has kept."""
        memos = self.memos.setdefault(ctx.idempotency_key, [None])
        if ctx.memo not in memos:
            self.faults.append(f"attempt {ctx.attempt} of {ctx.call_id} found {ctx.memo}, but kept is {memos}")

    @contextmanager
    def body(self, ctx: gr.ToolContext[Any]) -> Iterator[None]:
        """A body runs; its key is what the world recognises it by."""
        self.bodies[ctx.idempotency_key] += 1
        self.running.add(ctx.call_id)
        try:
            yield
        finally:
            self.running.discard(ctx.call_id)


@gr.tool(needs_approval=True, effect="write")
async def refund(ctx: gr.ToolContext[Book], order: str) -> str:
    """Needs an approval, and must never be repeated without one."""
    with ctx.deps.body(ctx):
        await trio.sleep(0.1)
        await ctx.output("half")
        await trio.sleep(0.1)
        return f"refunded {order}"


@gr.tool
async def note(ctx: gr.ToolContext[Book], what: str) -> str:
    """Free, but must never be repeated without asking."""
    with ctx.deps.body(ctx):
        await ctx.progress(0.5, "writing")
        await trio.sleep(0.3)
        return f"noted {what}"


@gr.tool(replay="safe")
async def look(ctx: gr.ToolContext[Book], where: str) -> str:
    """May be repeated."""
    with ctx.deps.body(ctx):
        await trio.sleep(0.2)
        return f"seen {where}"


@gr.tool
async def ask(ctx: gr.ToolContext[Book], question: str) -> str:
    """Suspends itself, and continues with the decision."""
    if ctx.decision is None or ctx.decision.result is None:
        raise gr.Suspend(action="ask", message=question)
    with ctx.deps.body(ctx):
        await trio.sleep(0.1)
        return f"told {ctx.decision.result}"


@gr.tool(effect="delegate", grace=1.0)
async def coder(ctx: gr.ToolContext[Book], task: str) -> str:
    """Lets a program work that asks before each of two calls, and then asks people how to go on."""
    with ctx.deps.body(ctx):
        async with trio.open_nursery() as nursery:
            for tool in ("Write", "Bash"):
                nursery.start_soon(_act, ctx, tool, name=tool)
        decision = await ctx.ask(gr.Suspend(message=f"{task}: and now?"))
        return f"told {decision.result}"


async def _act(ctx: gr.ToolContext[Book], tool: str) -> None:
    answer = await ctx.call_nested(tool, {}, effect="write")
    if answer.arguments is not None:
        ctx.deps.bodies[f"nested/{answer.call_id}"] += 1
        await trio.sleep(0.3)
        ctx.end_nested(answer.call_id, "done")


@gr.tool(grace=1.0)
async def teller(ctx: gr.ToolContext[Book], story: str) -> str:
    """Lets a program work that says, notes and keeps things."""
    with ctx.deps.body(ctx):
        ctx.deps.recall(ctx)
        for number in range(2):
            await ctx.reports.say(f"{story} ", reasoning="hm")
            await trio.sleep(0.1)
            await ctx.reports.complete(f"{story} {number}")
            await ctx.deps.keep(ctx, {"attempt": ctx.attempt, "number": number})
            await ctx.reports.note("run.plan.changed", entries=[{"text": story, "status": str(number)}])
        await ctx.reports.say("and ...")
        await trio.sleep(0.1)
        ctx.spend(gr.Usage(requests=1, input=7))
        return "told"


class AskFirst(gr.Plugin):
    """A person allows what a program does."""

    async def tool_gate(self, ctx: gr.GateContext[Any]) -> Any:
        asks = ctx.call.parent is not None and ctx.decision is None
        return gr.Suspend(message="may it?", reason="tool_permission") if asks else None


SAFE = frozenset({"look"})
GATED = frozenset({"refund"})
ASKING = frozenset({"ask"})
SCRIPT = (
    [
        text("I shall look."),
        call("refund", order="7", id="refund"),
        call("note", what="it", id="note"),
        call("look", where="here", id="look"),
    ],
    call("ask", question="really?", id="ask"),
    "done",
)


def support(execution: Any, plugins: Sequence[gr.Plugin] = ()) -> gr.Agent:
    """The agent of all sweeps."""
    model = ScriptedModel(SCRIPT, chunk=8)
    tools = [refund, note, look, ask]
    return gr.Agent("support", tools=tools, model=model, execution=execution, plugins=list(plugins))


def coding(execution: Any) -> gr.Agent:
    """An agent with nested calls, for sweeps."""
    steps = ([call("coder", task="it", id="coder"), call("look", where="here", id="look")], "done")
    model = ScriptedModel(steps, chunk=8)
    return gr.Agent("support", tools=[coder, look], model=model, execution=execution, plugins=[AskFirst()])


def telling(execution: Any) -> gr.Agent:
    """An agent whose body reports, for sweeps."""
    steps = ([call("teller", story="once", id="teller"), call("look", where="here", id="look")], "done")
    model = ScriptedModel(steps, chunk=8)
    return gr.Agent("support", tools=[teller, look], model=model, execution=execution)


async def warm_up(ctx: gr.PreparationContext[Any]) -> gr.Preparation:
    """A preparation that takes a while."""
    await trio.sleep(2)
    return gr.Preparation(facts={"warm": True})


@gr.tool(name="look", replay="safe", prepare=warm_up)
async def look_warmly(ctx: gr.ToolContext[Book], where: str) -> str:
    """Looks somewhere, once it was prepared."""
    return str(await look(ctx, where))


def preparing(execution: Any) -> gr.Agent:
    """An agent that prepares its only tool, for sweeps."""
    model = ScriptedModel((call("look", where="here", id="look"), "done"), chunk=8)
    return gr.Agent("support", tools=[look_warmly], model=model, execution=execution)


class Shown(gr.Store):
    """Notes what a store shows to readers."""

    book: Book

    async def events(self, run_id: str, **page: Any) -> Any:
        """As the store's own."""
        frames = await super().events(run_id, **page)
        for sequence, frame in enumerate(frames, page.get("after", 0) + 1):
            self.book.show(sequence, frame)
        return frames


class WatchedMemory(Shown, gr.MemoryStore): ...


class WatchedSQLite(Shown, gr.SQLiteStore): ...


Watched = WatchedMemory | WatchedSQLite


@attrs.define(eq=False)
class World:
    """One store and one book, for any number of lives of a process.

    Attributes:
        scope: what a cancel sweep strikes.
        injected: the error that a crash sweep has injected.
        unknown: what the decider says when it is unknown whether a call took effect: cancel, resume or result.
        cancels: `scope` is not around the process: when it is struck, the run is ordered to cancel.
        make_agent: execution mode -> the agent.
        guarded: the agent has guardrails.
        safe, gated: ids of the calls that may be repeated, and of those that need an approval.
        ended: what the store has of the run in the end: frames, record, history.
    """

    folder: Path | None
    execution: str = "parallel_streaming"
    unknown: str = "cancel"
    cancels: bool = False
    faults: Callable[[str], None] | None = None
    patience: float = 30.0
    make_agent: Callable[[Any], gr.Agent] = support
    plugins: Sequence[gr.Plugin] = ()
    guarded: bool = False
    safe: AbstractSet[str] = SAFE
    gated: AbstractSet[str] = GATED
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    injected: BaseException | None = None
    book: Book = attrs.field(factory=Book)
    store: Watched = attrs.field(init=False)
    ended: Any = None
    lives: int = 0
    deaths: list[str] = attrs.field(factory=list)
    _saved: tuple[Any, Book] | None = None

    def __attrs_post_init__(self) -> None:
        if self.folder is None:
            self.store = WatchedMemory(faults=self._fault, patience=self.patience)
            self.store.book = self.book
        else:
            self.folder.mkdir(parents=True)
            self._open_file(self.folder / "0.db")

    def _open_file(self, path: Path) -> None:
        self.store = WatchedSQLite(path, writer="inline", faults=self._fault, patience=self.patience)
        self.store.book = self.book

    def _fault(self, point: str) -> None:
        if self.faults is not None:
            self.faults(point)

    # --- the death of a process --------------------------------------------------------------------------------------

    def die(self) -> trio.CancelScope:
        """Keep what a kill at this very moment would leave; what the dying life still does does not count."""
        if isinstance(self.store, WatchedMemory):
            left: Any = copy.deepcopy(self.store._ledger)
        else:
            left = self.store.path.with_name(f"{self.lives + 1}.db")
            for ending in ("", "-wal"):
                source = Path(f"{self.store.path}{ending}")
                if source.exists():
                    shutil.copyfile(source, f"{left}{ending}")
        self._saved = (left, self.book.copied())
        return self.scope

    def reopen(self) -> None:
        """The next process: a new store object on what the last one left."""
        left, self._saved = self._saved, None
        self.scope = trio.CancelScope()
        if left is not None:
            self.book = left[1]
        if isinstance(self.store, WatchedSQLite):
            self._open_file(self.store.path if left is None else left[0])
            return
        ledger = self.store._ledger if left is None else left[0]
        self.store = WatchedMemory(faults=self._fault, patience=self.patience)
        self.store._ledger = ledger
        self.store.book = self.book

    # --- lives -------------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """One process: open, start or find the run, follow and decide, until it has ended."""
        self.lives += 1
        book = self.book
        agent = support(self.execution, self.plugins) if self.plugins else self.make_agent(self.execution)
        with trio.fail_after(BUDGET):
            async with gr.open_runtime(self.store, agents=[agent], deps=book, store_patience=self.patience) as runtime:
                run = await runtime.start(agent, "please", run_id=RUN)
                async with open_collapsing_nursery() as nursery:
                    if self.cancels:
                        nursery.start_soon(self._cancel, book, run, name="canceller")
                    async with open_collapsing_nursery() as readers:
                        readers.start_soon(self._follow, book, run, name="follower")
                        book.outcomes.append(await run.result())
                    nursery.cancel_scope.cancel()
                frames = await self.store.events(RUN)
                record = await self.store.load(RUN, calls="all")
                self.ended = (frames, record, await self.store.messages(run.thread_id))

    async def _cancel(self, book: Book, run: gr.Run[Any]) -> None:
        with self.scope:
            await trio.sleep_forever()
        book.replies["cancel"] = await run.cancel(by="canceller", command_id="cancel")

    async def _follow(self, book: Book, run: gr.Run[Any]) -> None:
        for ticket in (await run.view()).tickets:
            await self._decide(book, run, ticket.ticket_id, ticket.call_id, ticket.reason)
        async with run.events(after=book.cursor) as events:
            async for event in events:
                book.take(event)
                if event.type == "run.approval.requested":
                    payload = event.payload
                    await self._decide(book, run, payload["ticketId"], payload["callId"], payload["reason"])

    async def _decide(self, book: Book, run: gr.Run[Any], ticket_id: str, call_id: str | None, reason: str) -> None:
        unknown = reason == "outcome_unknown"
        action: Any = "cancel" if unknown and self.unknown == "cancel" else "resume"
        result = "told" if reason == "user_input" or (unknown and self.unknown == "result") else None
        name = f"decide:{ticket_id}"
        answer = await run.decide(ticket_id, action, result=result, decision_id=name, by="decider")
        book.replies.setdefault(name, answer)
        if answer.status == "rejected" and answer.code not in ("already_decided", "run_done", "store_unavailable"):
            book.faults.append(f"{name} was rejected: {answer.code}: {answer.detail}")

    @contextmanager
    def nothing_left(self) -> Iterator[None]:
        """Note the tasks that are there afterwards, but were not before."""
        before = set(chaos.program_tasks())
        yield
        after = [task.name for task in chaos.program_tasks() if task not in before]
        if after:
            self.book.faults.append(f"still alive: {after}")
        if self.book.running:
            self.book.faults.append(f"bodies still running: {sorted(self.book.running)}")


# --- the promises, as data -------------------------------------------------------------------------------------------


def broken(world: World) -> Iterator[str]:
    """One sentence per broken promise."""
    yield from world.book.faults
    if world.ended is None:
        yield "the run never came to its end"
        return
    frames, record, history = world.ended
    events = [decode_event(frame) for frame in frames]
    yield from broken_log(events, frames, world.book.seen)
    yield from broken_calls(events, record, history, guarded=world.guarded)
    yield from broken_decisions(events, world.book.replies)
    yield from broken_effects(world, events)


def broken_log(events: list[gr.Event], frames: Any, seen: dict[int, bytes]) -> Iterator[str]:
    """One terminal event, last; contiguous; nothing that was seen has changed or is gone."""
    types = [event.type for event in events]
    if sum(name in TERMINAL for name in types) != 1 or types[-1] not in TERMINAL:
        yield f"not exactly one terminal event at the end: {types[-4:]}"
    if [event.sequence for event in events] != list(range(1, len(events) + 1)):
        yield "the sequence has a hole"
    if events[-1].payload.get("lastSequence") != len(events):
        yield "the terminal event names another last sequence"
    for sequence, frame in seen.items():
        if sequence > len(frames) or frames[sequence - 1] != frame:
            yield f"event {sequence} was seen and is lost or changed"


def broken_calls(events: list[gr.Event], record: Any, history: Any, *, guarded: bool = False) -> Iterator[str]:
    """Each call settles once and has one tool message; each started attempt is followed by an end or a question.

    `guarded`: an answer that guardrails have not let pass is in no history, and none of its calls has begun.
    """
    results = Counter(event.payload["callId"] for event in events if event.type == "run.tool.result")
    reported = Counter(message.call_id for message in history if message.role == "tool")
    asked = [call.call_id for message in history for call in message.calls]
    for row in record.calls:
        if not row.settled:
            yield f"call {row.call_id} ended as {row.status}"
        if results[row.call_id] != 1:
            yield f"call {row.call_id} has {results[row.call_id]} results"
        left = guarded and row.call_id not in asked and row.status == "cancelled" and not row.attempts
        if reported[row.call_id] != (0 if left or row.parent is not None else 1):
            yield f"call {row.call_id} has {reported[row.call_id]} tool messages"
    if sorted(asked) != sorted(reported.elements()):
        yield f"the history asks for {asked} and answers {sorted(reported)}"


def broken_decisions(events: list[gr.Event], answers: dict[str, gr.CommandResult]) -> Iterator[str]:
    """An accepted decision acts exactly once, or an event says why not."""
    resolved = Counter(
        event.payload["ticketId"]
        for event in events
        if event.type == "run.approval.resolved" and event.payload.get("by") == "decider"
    )
    refused = Counter(event.payload["commandId"] for event in events if event.type == "run.decision.refused")
    for name, answer in answers.items():
        ticket_id = name.removeprefix("decide:")
        acted = resolved[ticket_id] + refused[name]
        if name != "cancel" and answer.status != "rejected" and acted != 1:
            yield f"{name} was {answer.status} and acted {acted} times"
    wanted = [event for event in events if event.type == "run.cancel.requested"]
    reported = answers.get("cancel")
    if reported is not None and reported.status == "accepted" and len(wanted) != 1:
        yield f"one accepted cancel, {len(wanted)} events of it"
    for ticket_id, times in resolved.items():
        if times > 1:
            yield f"{ticket_id} was resolved {times} times"


def broken_effects(world: World, events: list[gr.Event]) -> Iterator[str]:
    """A body that must not be repeated runs at most once per consent; nested calls work only once that is stored."""
    nested = {e.payload["callId"] for e in events if e.type == "run.tool.call" and "parentCallId" in e.payload}
    started = {e.payload["callId"] for e in events if e.type == "run.tool.started"}
    consents = Counter(
        event.payload["callId"]
        for event in events
        if event.type == "run.approval.resolved" and event.payload["resolution"] == "approved"
    )
    for key, times in world.book.bodies.items():
        call_id = key.rsplit("/", 1)[-1]
        allowed = consents[call_id] + (0 if call_id in world.gated | ASKING | nested else 1)
        if call_id not in world.safe and times > allowed:
            yield f"{call_id} ran {times} times, with consent for {allowed}"
        if call_id in nested - started:
            yield f"{call_id} ran, and its start was not stored"
    for event in events:
        if event.type == "run.tool.result" and event.payload["status"] == "succeeded":
            call_id, given = event.payload["callId"], event.payload["result"] == "told"
            if not given and not any(key.endswith(f"/{call_id}") for key in world.book.bodies):
                yield f"{call_id} succeeded without having run"
