"""The processes of a swarm: nodes with a runtime on one store, and people who use the gateways of two nodes.

    python -m tests.e2e.postgres.nodes FOLDER      # each line of stdin is the order of a process, in JSON

Each process is a fork of this one, which has imported everything, says `pid NAME PID` and words of its own, and this
one says `dead NAME CODE`. A node has agents, a gateway, a follower of all runs, or any of them. All files are in FOLDER
and are what the world outside of the database knows: `effects.log` has a line for each begin and end of a tool's body,
`seen.log` for each event that a follower or a client received, `answers.log` for each answer to a command, `ears.log`
for each node that has ended in order, whether it heard hints then. Times are of CLOCK_BOOTTIME, the same one in all
processes.
"""

import contextlib
import gc
import json
import os
import random
import select
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import trio

import greenroom as gr
from greenroom.actors.store_events import Report, RunCommitted, StoreEvent
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.supervision import open_collapsing_nursery
from greenroom.testing import ScriptedModel, call, delay, text
from greenroom.transport import Client, connect, serve
from greenroom.transport.client import ConnectionState, ConnectionTiming, LogReset

from .plants import plant

TOKEN = "of-the-swarm" * 4
PACE = ConnectionTiming(first=0.05, slowest=0.3, patience=0.1)
SECONDS = {"pay": 0.03, "post": 0.03, "scan": 0.05, "crunch": 0.03}
TERMINAL = ("run.completed", "run.failed", "run.cancelled")
UNSAFE, GATED = frozenset({"pay", "post", "slow"}), frozenset({"pay"})
ALONE = 2
"""One run of so many has a thread of its own; the others share threads."""
AGAIN = ("store_unavailable", "busy", "unknown_target")
"""Codes of refusals after which people send a command again: the last one means that the model has not called yet."""
REFUSED = 3
"""Exit code of a process that could not open the store."""
HEARING = 10.0
"""Seconds after which a process that is to end must hear hints, however new its connections are."""
EARLY, CANCELLED, DENIED = 4, 15, 10
"""One of so many runs is decided before its ticket, is cancelled; one of so many approvals is a denial."""


def boottime() -> float:
    """Seconds, the same in all processes; the clock advances while processes are stopped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Log:
    """A file to which processes append whole lines. It outlives them; the machine stays up."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, **line: Any) -> None:
        """Append one line."""
        os.write(self._file, json.dumps({**line, "at": boottime()}).encode() + b"\n")


class World:
    """The files of this process; made after the fork."""

    folder: Path
    stop_at = ""
    effects: Log
    seen: Log
    answers: Log
    ears: Log
    name = ""

    @classmethod
    def open(cls, folder: Path, order: dict[str, Any]) -> None:
        """Open the files."""
        cls.folder, cls.name, cls.stop_at = folder, order["name"], order.get("stop_at", "")
        kinds = ("effects", "seen", "answers", "ears")
        cls.effects, cls.seen, cls.answers, cls.ears = (Log(folder / f"{kind}.log") for kind in kinds)

    @classmethod
    def stop(cls, place: str) -> None:
        """SIGSTOP this process, once, if it was ordered to stop here."""
        if cls.stop_at == place:
            cls.stop_at = ""
            say(f"stopping {cls.name}")
            os.kill(os.getpid(), signal.SIGSTOP)


def say(word: str) -> None:
    """Print a word for the driver, unbuffered."""
    os.write(1, word.encode() + b"\n")


def plain(event: gr.Event) -> str:
    """A decoded event as text, the same wherever it was read."""
    names = ("id", "sequence", "type", "version", "run_id", "session_id", "agent_id", "payload")
    data = {name: getattr(event, name) for name in names} | {"timestamp": event.timestamp.isoformat()}
    return json.dumps(data, sort_keys=True)


# --- tools -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def body(ctx: Any, tool: str) -> Any:
    """A body: a line when it begins, which is its effect, and one when it ends, however it does."""
    line = {"run": ctx.run_id, "call": ctx.call_id, "attempt": ctx.attempt, "tool": tool, "pid": os.getpid()}
    World.effects.write(**line, what="begin")
    how = "cancelled"
    try:
        yield
        how = "end"
    finally:
        World.effects.write(**line, what=how)


@gr.tool(needs_approval=True, effect="write")
async def pay(ctx: gr.ToolContext[Any], cents: int) -> str:
    """Needs an approval, and must not be repeated without asking."""
    with body(ctx, "pay"):
        await trio.sleep(SECONDS["pay"])
    return f"paid {ctx.attempt}"


@gr.tool
async def post(ctx: gr.ToolContext[Any], to: str) -> str:
    """Needs no approval, and must not be repeated without asking."""
    with body(ctx, "post"):
        await trio.sleep(SECONDS["post"])
    return f"posted {ctx.attempt}"


@gr.tool(replay="safe")
async def scan(ctx: gr.ToolContext[Any], where: str) -> str:
    """May be repeated."""
    with body(ctx, "scan"):
        await trio.sleep(SECONDS["scan"])
    return f"scanned {ctx.attempt}"


@gr.tool(replay="safe")
def crunch(ctx: gr.SyncToolContext[None], what: str) -> str:
    """May be repeated; works in a thread."""
    with body(ctx, "crunch"):
        threading.Event().wait(SECONDS["crunch"])
    return f"crunched {ctx.attempt}"


@gr.tool
async def slow(ctx: gr.ToolContext[Any], seconds: float) -> str:
    """Must not be repeated without asking, and takes its time."""
    with body(ctx, "slow"):
        World.stop("body")
        await trio.sleep(seconds)
    return f"slow {ctx.attempt}"


@gr.tool(replay="safe")
async def poison(ctx: gr.ToolContext[Any]) -> str:
    """Ends the process."""
    with body(ctx, "poison"):
        os._exit(99)


def one_call(name: str, tool: Any, **arguments: Any) -> gr.Agent[Any]:
    """An agent that calls a tool once."""
    return gr.Agent(name, tools=[tool], model=ScriptedModel([call(tool.name, id=tool.name, **arguments), "done"]))


def worker() -> gr.Agent[Any]:
    """The agent of the swarm: two steps with tools, and an end."""
    script = (
        [
            text("Let me see."),
            call("pay", cents=500, id="pay"),
            call("post", to="him", id="post"),
            call("scan", where="here", id="scan"),
        ],
        [delay(0.05), call("post", to="her", id="post2"), call("crunch", what="it", id="crunch")],
        "done",
    )
    return gr.Agent(
        "worker", tools=[pay, post, scan, crunch], model=ScriptedModel(script, chunk=4), execution="parallel_streaming"
    )


AGENTS: dict[str, Callable[[], gr.Agent[Any]]] = {
    "worker": worker,
    "slow": lambda: one_call("slow", slow, seconds=0.3),
    "slower": lambda: one_call("slower", slow, seconds=3.0),
    "poison": lambda: one_call("poison", poison),
    "asker": lambda: one_call("asker", pay, cents=5),
    "echo": lambda: gr.Agent("echo", model=ScriptedModel(["done"])),
}
"""By key."""


# --- nodes -----------------------------------------------------------------------------------------------------------


class StoppingStore(PostgresStore):
    """A store that can stop its process at a moment of a scene."""

    async def run(self, report: Report, **options: Any) -> None:
        """As the store's own; the process stops when a start is durable and its body has not begun."""

        def stopping(event: StoreEvent) -> None:
            started = b'"run.tool.started"'
            if isinstance(event, RunCommitted) and any(started in frame for frame in event.frames):
                World.stop("start")
            report(event)

        await super().run(stopping if World.stop_at else report, **options)


async def node(order: dict[str, Any]) -> None:
    """A process with a runtime, until SIGTERM; then it leaves the block of the runtime."""
    place: Any = order["store"]
    if "://" in place:
        place = StoppingStore(place, **order.get("options", {}))
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        agents = [AGENTS[key]() for key in order.get("agents", ())]
        async with (
            gr.open_runtime(place, agents=agents, **order.get("runtime", {"passivate_after": 0.2})) as runtime,
            open_collapsing_nursery() as nursery,
        ):
            if order.get("port"):
                await nursery.start(partial(serve, runtime, port=order["port"], token=TOKEN))
            if order.get("follow"):
                nursery.start_soon(follow_all, runtime)
            say(f"open {World.name}")
            async for _ in signals:
                World.ears.write(by=World.name, hears=await hears(runtime))
                nursery.cancel_scope.cancel()
                break


async def hears(runtime: gr.Runtime) -> bool:
    """Whether hints reach this process, or will soon; a process without a store of its own on PostgreSQL needs none."""
    peers = getattr(runtime.store, "_peers", None)
    with trio.move_on_after(HEARING):
        while peers is not None and not peers.keeper.hears:  # noqa: ASYNC110 - its threads change it
            await trio.sleep(0.05)
        return True
    return False


async def follow_all(runtime: gr.Runtime) -> None:
    """Follow every run of the store from its first event to its last one."""
    known: set[str] = set()
    async with open_collapsing_nursery() as nursery:
        while True:
            with contextlib.suppress(gr.StoreUnavailable):
                new = [run_id async for run_id in every_run(runtime, known) if run_id not in known]
                known.update(new)
                for run_id in new:
                    nursery.start_soon(follow_one, runtime, run_id)
            await trio.sleep(0.1)


async def every_run(runtime: gr.Runtime, known: Collection[str] = ()) -> AsyncIterator[str]:
    """All runs of the store, newest first, up to the first page whose runs are all known."""
    cursor = None
    while True:
        page = await runtime.runs(limit=1000 if not known else 100, cursor=cursor)
        run_ids = [line.info.run_id for line in page.runs]
        for run_id in run_ids:
            yield run_id
        if (cursor := page.cursor) is None or all(run_id in known for run_id in run_ids):
            return


async def follow_one(runtime: gr.Runtime, run_id: str) -> None:
    """Follow one run. Whatever ends the iteration too early, it continues after the newest event that was seen.

    After a reset of the log everything is read again, under another name.
    """
    after = resets = 0
    while True:
        try:
            run = await runtime.get(run_id)
            async with run.events(after=after) as events:
                async for event in events:
                    by = f"{World.name}#{resets}"
                    World.seen.write(by=by, run=run_id, sequence=event.sequence, event=plain(event))
                    after = event.sequence
                    if event.type in TERMINAL:
                        say(f"followed {run_id}")
                        return
        except gr.LogReplaced:
            after, resets = 0, resets + 1
            World.answers.write(kind="reset", by=World.name, run=run_id)
        except (gr.StoreUnavailable, gr.RunDegradedError) as error:
            World.answers.write(kind="trouble", by=World.name, run=run_id, error=type(error).__name__)
            if isinstance(error, gr.RunDegradedError):
                await revive(runtime, run_id)
        await trio.sleep(0.05)


async def revive(runtime: gr.Runtime, run_id: str) -> None:
    """Revive a run if it is a dead letter: its owners were killed so often."""
    with contextlib.suppress(gr.StoreUnavailable):
        if await runtime.store.revive_run(run_id):
            World.answers.write(kind="revived", run=run_id)


# --- people ----------------------------------------------------------------------------------------------------------


class Door:
    """A gateway as a client of it sees it.

    Attributes:
        losses: how often the connection was lost.
    """

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port
        self.losses = 0
        self.client: Client

    def changed(self, state: ConnectionState) -> None:
        """Called by the client."""
        self.losses += not state.connected

    async def asked(
        self, about: dict[str, Any], ask: Callable[[Client], Awaitable[Any]], over: Callable[[], bool] = lambda: False
    ) -> Any:
        """Send a command until an answer comes that is one, or all is over; each answer is written down."""
        for number in range(1, 3000):
            before, began = self.losses, boottime()
            try:
                answer = await ask(self.client)
                status = getattr(answer, "status", None) or ("duplicate" if answer.duplicate else "accepted")
                code = getattr(answer, "code", None)
            except gr.GreenroomError as error:
                answer, status, code = None, "raised", repr(error)
            line = {"gateway": self.name, "number": number, "status": status, "code": code}
            World.answers.write(**about, **line, lost=self.losses - before, seconds=boottime() - began)
            if status != "raised" and (code not in AGAIN or over()):
                return answer
            await trio.sleep(0.02)
        raise AssertionError(f"no answer: {about}")


class People:
    """Starts runs, follows and decides them, each command through both gateways."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._order = order
        self._doors = [Door(f"gateway-{index}", port) for index, port in enumerate(order["ports"], 1)]
        self._enough = World.folder / "enough"
        self._ended: set[str] = set()

    async def live(self) -> None:
        """Until all runs have ended, of which there are as many as asked for, and more until the driver has enough."""
        async with contextlib.AsyncExitStack() as stack:
            for door in self._doors:
                url = f"ws://127.0.0.1:{door.port}"
                door.client = await stack.enter_async_context(
                    connect(url, token=TOKEN, patient=True, pace=PACE, on_change=door.changed)
                )
            room = trio.Semaphore(self._order["at_once"])
            async with open_collapsing_nursery() as nursery:
                number = 0
                while number < self._order["runs"] or not self._enough.exists():
                    await room.acquire()
                    nursery.start_soon(self._look_after, number, room)
                    number += 1
                    await trio.sleep(self._order.get("pace", 0.0))
        say(f"finished {World.name} {number}")

    async def _look_after(self, number: int, room: trio.Semaphore) -> None:
        run_id = f"run-{number}"
        lot = random.Random(f"{self._order['seed']} {run_id}")
        thread = f"alone-{number}" if number % ALONE == 0 else f"shared-{number // 6}"
        doors = lot.sample(self._doors, len(self._doors))
        for door in doors:
            about = {"kind": "start", "run": run_id, "command": run_id, "thread": thread}
            await door.asked(
                about, lambda client: client.start("worker", "work", run_id=run_id, thread_id=thread, command_id=run_id)
            )
        early = lot.randrange(EARLY) == 0
        async with open_collapsing_nursery() as nursery:
            if early:
                nursery.start_soon(self._decide, run_id, "pay", "approval", lot.random())
            if lot.randrange(CANCELLED) == 0:
                nursery.start_soon(self._cancel, run_id, lot.uniform(0.0, 2.0))
            await self._follow(run_id, doors[0], nursery, early=early)
            self._ended.add(run_id)
        say(f"ended {run_id}")
        room.release()

    async def _follow(self, run_id: str, door: Door, nursery: trio.Nursery, *, early: bool) -> None:
        after = resets = 0
        epoch = door.client.epoch
        while True:
            try:
                async with door.client.follow(run_id, after=after, epoch=epoch) as events:
                    async for event in events:
                        by = f"{door.name}#{resets}"
                        World.seen.write(by=by, run=run_id, sequence=event.sequence, event=plain(event))
                        after = event.sequence
                        if event.type == "run.approval.requested":
                            ticket, reason = event.payload["ticketId"], event.payload["reason"]
                            if reason == "outcome_unknown" or not early:
                                lot = random.Random(f"{self._order['seed']} {run_id} {ticket}").random()
                                nursery.start_soon(self._decide, run_id, ticket, reason, lot)
                        if event.type in TERMINAL:
                            return
            except LogReset:
                after, resets, epoch = 0, resets + 1, door.client.epoch
                World.answers.write(kind="reset", by=door.name, run=run_id)
            except gr.GreenroomError as error:
                World.answers.write(kind="trouble", by=door.name, run=run_id, error=type(error).__name__)
            await trio.sleep(0.05)

    async def _decide(self, run_id: str, target: str, reason: str, lot: float) -> None:
        """Decide, twice through each gateway: one gateway after the other, or both at once."""
        dice = random.Random(lot)
        await trio.sleep(dice.uniform(0.0, 0.05))
        action: Any = "resume"
        result = None
        if reason == "outcome_unknown":
            action, result = dice.choice([("resume", None), ("resume", "reported"), ("cancel", None)])
        elif target != "pay" and dice.randrange(DENIED) == 0:
            action = "cancel"
        about = {"kind": "decide", "run": run_id, "command": f"{run_id}:{target}", "target": target, "action": action}
        about["result"], about["reason"] = result, reason

        def ask(client: Client) -> Awaitable[Any]:
            return client.decide(run_id, target, action, result=result, decision_id=f"{run_id}:{target}")

        def over() -> bool:
            return run_id in self._ended

        doors = dice.sample(self._doors, len(self._doors))
        at_once = dice.random() < 0.5
        for _ in range(2):
            async with open_collapsing_nursery() as nursery:
                for door in doors:
                    if at_once:
                        nursery.start_soon(door.asked, {**about, "order": "at once"}, ask, over)
                    else:
                        await door.asked({**about, "order": "in turn"}, ask, over)

    async def _cancel(self, run_id: str, after: float) -> None:
        await trio.sleep(after)
        about = {"kind": "cancel", "run": run_id, "command": f"{run_id}:c", "order": "in turn"}
        for door in self._doors:
            await door.asked(about, lambda client: client.cancel(run_id, command_id=f"{run_id}:c"))


# --- forks -----------------------------------------------------------------------------------------------------------


def begin(folder: Path, order: dict[str, Any]) -> int:
    """Become the process that was ordered."""
    World.open(folder, order)
    for name in order.get("plants", ()):
        plant(name)
    if order.get("people"):
        trio.run(People(order).live)
        return 0
    try:
        trio.run(node, order)
    except gr.StoreOpenError as error:  # the server is away: the driver starts another process
        say(f"refused {World.name} {str(error)[:40].replace(' ', '_')}")
        return REFUSED
    return 0


def reap(names: dict[int, str]) -> None:
    """Report the processes that have ended."""
    while names:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        say(f"dead {names.pop(pid)} {os.waitstatus_to_exitcode(status)}")


def main(folder: Path) -> None:
    """Fork for each line of stdin, until it ends."""
    names: dict[int, str] = {}
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    gc.freeze()
    rest = b""
    while True:
        ready = select.select([0, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
        reap(names)
        if 0 not in ready:
            continue
        data = os.read(0, 1 << 16)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(0)
                with (folder / "errors").open("a", buffering=1) as errors:
                    os.dup2(errors.fileno(), 2)
                    random.seed()
                    code = 1
                    try:
                        code = begin(folder, order)
                    finally:
                        if code == 1:
                            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
                        os._exit(code)
            names[pid] = order["name"]
            say(f"pid {order['name']} {pid}")
    for pid in names:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
