"""Principals over threads that they share: no road gives one of them a text of a run that it may not see.

The graph of threads is drawn: starts and forks by anyone, in threads of anyone, with sends, files and prunings between.
Each text that is written has a canary of its own. The model repeats all that it was given when its newest message asks
for it, so an order whose words reach a model is worth what the model has read. Then principals try all roads. After
each try, the canaries in the answer, in the run that the words have reached, in the thread before these words and in
the thread of a new fork must be of runs that the principal sees. What a run has shown belongs to the run afterwards:
who sees the run has it from there.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final

import attrs
import trio
from tests.support.gateway import gateway, http, welcomed

import greenroom as gr
from greenroom.actors.contract.messages import ModelRequest
from greenroom.testing import FunctionModel, call
from greenroom.transport import Address, Principal

from .core import Dice, must, real

NAMES: Final = ("ann", "bob", "carol", "dan")
TOKENS: Final = {name: f"token-of-{name}-0123456789" for name in NAMES}
THREADS: Final = ("t0", "t1", "t2")
AGENTS: Final = ("echo", "other")
CANARY: Final = re.compile(r"zq[0-9a-f]{12}")
PATIENCE: Final = 10.0
"""Seconds for all runs to come to rest after an order."""
STREAM: Final = 1.0
"""Seconds for a stream: that of a run behind one that waits has no end."""
ORDERS: Final = 14
"""Orders of the principals, in each try."""


@gr.tool(needs_approval=True)
async def pay() -> str:
    """Ask a person."""
    return "paid"


def repeats(request: ModelRequest) -> Any:
    """Repeat everything if the newest message wants it; ask if it says so."""
    newest = str(request.messages[-1].content)
    if "repeat" in newest:
        parts = [part.name for message in request.messages for part in message.parts]
        return "; ".join([*(str(message.content) for message in request.messages), *parts])
    return call("pay", id=f"c{len(request.messages)}") if "pay" in newest else "well"


@attrs.define
class Town:
    """The runs of a try, and who may know what.

    Attributes:
        infos: every run that ever was.
        canaries: canary -> the runs that show it.
        senders: the words of an order -> who has sent them.
        present: the runs that are not pruned.
        given: canary -> the principals to whom the program, which asks nobody, has given a fork that shows the canary.
            Once the runs that showed it are pruned, the thread of the fork is open to its owner (`thread_access.py`).
    """

    dice: Dice
    runtime: gr.Runtime
    address: Address
    people: Mapping[str, Principal]
    infos: dict[str, gr.RunInfo] = attrs.field(factory=dict)
    canaries: dict[str, set[str]] = attrs.field(factory=lambda: defaultdict(set))
    senders: dict[str, Principal] = attrs.field(factory=dict)
    present: set[str] = attrs.field(factory=set)
    given: dict[str, set[str]] = attrs.field(factory=lambda: defaultdict(set))

    def canary(self) -> str:
        """Return a new one."""
        return f"zq{self.dice.getrandbits(48):012x}"

    def words(self, who: Principal) -> str:
        """Return words that make a model repeat all it has read."""
        words = f"repeat all {self.dice.getrandbits(48):012x}"
        self.senders[words] = who
        return words

    async def check_words(self) -> None:
        """Check what every model has read before the words of an order."""
        for thread in sorted({info.thread_id for info in self.infos.values()}):
            before: list[str] = []
            for message in await self.runtime.store.messages(thread):
                who = self.senders.get(str(message.content)) if message.role == "user" else None
                if who is not None:
                    self.check(who, " ".join(before), f"{message.content!r} in {thread}")
                before += [str(message.content), *(part.name for part in message.parts)]

    async def rest(self) -> None:
        """Wait until no run works."""
        with trio.fail_after(PATIENCE):
            while True:
                lines = (await self.runtime.runs(limit=1000)).runs
                if not [one for one in lines if one.row.status in ("created", "running") and not one.held]:
                    return
                await trio.sleep(0.002)

    async def look(self) -> None:
        """Note which runs show which canaries by now."""
        lines = (await self.runtime.runs(limit=1000)).runs
        self.present = {line.info.run_id for line in lines}
        for line in lines:
            run_id = self.note(line.info)
            frames = b"".join(await self.runtime.store.events(run_id, limit=10_000)).decode()
            for canary in CANARY.findall(frames + line.title):
                self.canaries[canary].add(run_id)

    def note(self, info: gr.RunInfo) -> str:
        """Keep the facts of a run, which may be pruned later."""
        self.infos[info.run_id] = info
        return info.run_id

    def allowed(self, who: Principal, canary: str) -> bool:
        """Return True if the principal sees a run that shows a canary, or was given all that is left of it."""
        runs = self.canaries[canary]
        return any(who.sees(self.infos[run_id]) for run_id in runs) or (
            who.name in self.given[canary] and not runs & self.present
        )

    def check(self, who: Principal, text: str, how: object) -> None:
        """Check what a principal has read."""
        leaks = sorted({canary for canary in CANARY.findall(text) if not self.allowed(who, canary)})
        must(not leaks, f"{who.name} reads {leaks} of {[self.canaries[one] for one in leaks]} by {how}")


# --- the graph -------------------------------------------------------------------------------------------------------


async def grow(town: Town) -> None:
    """Make one more run, or change one."""
    dice, runtime = town.dice, town.runtime
    runs, kind = sorted(town.infos), dice.choice(("start", "start", "start", "fork", "fork", "send", "prune"))
    if kind == "start" or not runs:
        canary, file_canary = town.canary(), town.canary()
        file = gr.File(data=b"x", media_type="text/plain", name=f"{file_canary}.txt")
        files = [file] if dice.random() < 0.3 else []
        text = canary + dice.choice(("", "", " pay"))
        by, agent = dice.choice(NAMES), dice.choice(AGENTS)
        run = await runtime.start(agent, text, thread_id=dice.choice(THREADS), by=by, attachments=files)
        for one in (canary, file_canary):
            town.canaries[one].add(run.id)
    elif kind == "fork":
        record = await runtime.store.load(dice.choice(runs))
        if record is not None:
            step = dice.randint(0, record.row.counters.rounds)
            by = dice.choice(NAMES)
            fork = await runtime.fork(record.info.run_id, step=step, by=by)
            history = await runtime.store.messages((await fork.view()).thread_id)
            for canary_read in CANARY.findall(" ".join(f"{message.content} {message.parts}" for message in history)):
                town.given[canary_read].add(by)
    elif kind == "send":
        waiting = (await runtime.runs(status="waiting")).runs
        if waiting:
            canary, info = town.canary(), dice.choice(waiting).info
            town.canaries[canary].add(info.run_id)
            await runtime.commands.send(info.run_id, canary, by=dice.choice(NAMES))
    elif dice.random() < 0.4:
        await runtime.store.prune(runtime.clock.now() + timedelta(seconds=1))
    await town.rest()
    await town.look()


# --- the roads -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Order:
    """What a principal sends: frames, or a request."""

    method: str = "POST"
    path: str = ""
    body: Any = None
    frames: tuple[Mapping[str, Any], ...] = ()


def starts(town: Town, who: Principal, run: str, thread: str) -> Order:
    """A start in a thread, over HTTP or a socket, with a file or without."""
    order: dict[str, Any] = {"agent": town.dice.choice(AGENTS), "text": town.words(who), "thread": thread}
    if town.dice.random() < 0.3:
        order["attachments"] = [{"mediaType": "text/plain", "data": "eA==", "name": "x.txt"}]
    if town.dice.random() < 0.3:
        order["dedupe"] = town.dice.choice("xy")
    if town.dice.random() < 0.5:
        return Order(path="/v1/runs", body=order)
    return Order(frames=({"type": "start", "id": f"s{town.dice.getrandbits(40)}", **order},))


def chats(town: Town, who: Principal, run: str, thread: str) -> Order:
    """A message in a chat."""
    name = f"m{town.dice.getrandbits(30)}"
    user = {"id": name, "role": "user", "parts": [{"type": "text", "text": town.words(who)}]}
    body = {"id": thread, "trigger": "submit-message", "messages": [user]}
    return Order(path=f"/v1/ai-sdk/v6/agents/{town.dice.choice(AGENTS)}/chat", body=body)


def ag_uis(town: Town, who: Principal, run: str, thread: str) -> Order:
    """A message over AG-UI; some belong to a resume of a run."""
    body: dict[str, Any] = {"threadId": thread, "runId": f"r{town.dice.getrandbits(30)}", "state": {}, "tools": []}
    body |= {"context": [], "forwardedProps": {}}
    body["messages"] = [{"id": f"m{town.dice.getrandbits(30)}", "role": "user", "content": town.words(who)}]
    if town.dice.random() < 0.4:
        body["resume"] = [{"interruptId": f"{run}.t1", "status": "resolved", "payload": {"approved": True}}]
    return Order(path=f"/v1/ag-ui/agents/{town.dice.choice(AGENTS)}/run", body=body)


def forks(town: Town, who: Principal, run: str, thread: str) -> Order:
    """A fork."""
    step = town.dice.choice((0, 0, 1, 1, 2))
    if town.dice.random() < 0.5:
        return Order(path=f"/v1/runs/{run}/fork", body={"step": step})
    return Order(frames=({"type": "fork", "id": f"f{town.dice.getrandbits(40)}", "run": run, "step": step},))


def commands(town: Town, who: Principal, run: str, thread: str) -> Order:
    """Words to a run: sent, or as the result of a pause."""
    pause = {"type": "pause", "id": f"p{town.dice.getrandbits(40)}", "run": run}
    target = f"{run}.t{town.dice.randint(1, 3)}"
    resume = {"id": f"d{town.dice.getrandbits(40)}", "run": run, "target": target, "action": "resume"}
    send = {"type": "send", "id": f"s{town.dice.getrandbits(40)}", "run": run, "text": town.words(who)}
    result = {"result": town.words(who)} if town.dice.random() < 0.5 else {}
    answer = {"type": "decide", **resume, **result}
    return Order(frames=tuple(town.dice.choice(((send,), (pause, answer), (answer,), (send, answer), (answer, send)))))


def reads(town: Town, who: Principal, run: str, thread: str) -> Order:
    """A read of a run, its events, or the runs of a thread."""
    chat = f"/v1/ai-sdk/v7/agents/{town.dice.choice(AGENTS)}/chat/{thread}/stream?finished=true"
    paths = (f"/v1/runs/{run}", f"/v1/runs/{run}/events", f"/v1/runs?thread={thread}", "/v1/runs?counts=true", chat)
    if town.dice.random() < 0.7:
        return Order("GET", town.dice.choice(paths))
    watch = {"type": "watch", "id": "w", "thread": thread}
    return Order(frames=(town.dice.choice((watch, {"type": "subscribe", "run": run})),))


ROADS: Final[tuple[Callable[[Town, Principal, str, str], Order], ...]] = (
    starts,
    chats,
    ag_uis,
    forks,
    forks,
    commands,
    reads,
)


async def answered(town: Town, who: str, order: Order) -> str:
    """Return all that a principal reads of an order."""
    if not order.frames:
        reply = None
        with trio.move_on_after(STREAM):
            reply = await http(town.address, order.method, order.path, token=TOKENS[who], body=order.body)
        if reply is None:
            return ""
        must(reply.status < 500, f"{who} breaks the gateway: {order}: {reply.status} {reply.body!r}")
        return reply.body.decode()
    messages: list[Any] = []
    async with welcomed(town.address, token=TOKENS[who]) as talk:
        for frame in order.frames:
            await talk.say(frame["type"], **{name: value for name, value in frame.items() if name != "type"})
            await town.rest()
            await talk.say("ping", id="last")
            while not messages or messages[-1].get("id") != "last":
                messages.append(await talk.hear())
            messages[-1] = {}
    return json.dumps(messages)


async def tries(town: Town, who: Principal) -> None:
    """One order of a principal; what it then reads of the runs that its words have reached."""
    run, thread = town.dice.choice(sorted(town.infos)), town.dice.choice(sorted({*THREADS, *_threads(town)}))
    road = town.dice.choice(ROADS)
    order = road(town, who, run, town.infos[run].thread_id if town.dice.random() < 0.5 else thread)
    run_ids_before = set(town.infos)
    text = await answered(town, who.name, order)
    await town.rest()
    town.check(who, text, order)
    for line in (await town.runtime.runs(limit=1000)).runs:
        info, new = town.infos.get(line.info.run_id, line.info), line.info.run_id not in run_ids_before
        if new and road is forks:
            history = await town.runtime.store.messages(info.thread_id)
            town.check(who, " ".join(str(message.content) for message in history), f"{order}, in the fork")
        if (new or info.run_id == run) and who.sees(info):
            frames = b"".join(await town.runtime.store.events(info.run_id, limit=10_000)).decode()
            town.check(who, frames, f"{order}, in run {info.run_id}")
    await town.check_words()
    await town.look()


def _threads(town: Town) -> set[str]:
    return {info.thread_id for info in town.infos.values()}


# --- the play --------------------------------------------------------------------------------------------------------


def a_principal(dice: Dice, name: str) -> Principal:
    """A principal that sees the runs of some others, of some agents; most see their own."""
    others = {other for other in NAMES if dice.random() < (0.9 if other == name else 0.35)}
    agents = set(AGENTS) if dice.random() < 0.7 else {dice.choice(AGENTS)}

    def sees(info: gr.RunInfo) -> bool:
        return info.by in others and info.agent in agents

    return Principal(name=name, token=TOKENS[name], scopes=frozenset({"follow", "decide", "start"}), sees=sees)


async def town(dice: Dice) -> None:
    """A graph, and the orders of its principals."""
    people = {name: a_principal(dice, name) for name in NAMES}
    agents = [gr.Agent(key, model=FunctionModel(repeats), tools=[pay]) for key in AGENTS]
    async with gr.open_runtime(agents=agents) as runtime:
        async with gateway(runtime, principals=list(people.values())) as address:
            here = Town(dice, runtime, address, people)
            for _ in range(dice.randint(3, 10)):
                await grow(here)
            for _ in range(ORDERS):
                await tries(here, people[dice.choice(NAMES)])
                if dice.random() < 0.2:
                    await grow(here)


def principals(dice: Dice) -> None:
    """Principals try every road into threads that they share."""
    real(partial(town, dice))
