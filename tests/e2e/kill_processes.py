"""The processes that `test_kill_nine.py` kills: a runtime on a file or on PostgreSQL, its decider and its witness.

    python kill_processes.py FOLDER [URL]   # stdin: "LIFE work" or "LIFE finish", one process each, forked after import

In PostgreSQL each process buries the one before it, as a parent does that saw its child die; without that the runs
would be free once the lease has run out.

`effects.log` is the world outside: bodies write there when they begin and end. `witness.log` is what somebody has been
told: every event, every answer, every outcome, written and synced before anything else happens. What happens is also
said on stdout, one word a line, so that the killer can choose his moment.
"""

import json
import sys
import threading
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio
from killed_process import Log, live, say, tools

import greenroom as gr
from greenroom.actors.store_events import Report, RunCommitted, StoreEvent
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.supervision import open_collapsing_nursery
from greenroom.testing import ScriptedModel, call, delay, text

RUNS_PER_LIFE = 3
SECONDS = {"pay": 0.03, "post": 0.03, "scan": 0.05}
SCRIPT = (
    [
        text("Let me see."),
        call("pay", cents=500, id="pay"),
        call("post", to="him", id="post"),
        call("scan", where="here", id="scan"),
    ],
    [delay(0.02), call("post", to="her", id="post2"), call("crunch", what="it", id="crunch")],
    "done",
)


FOLDER = Path(sys.argv[1])
URL = sys.argv[2] if len(sys.argv) > 2 else None
EFFECTS, WITNESS = Log(FOLDER / "effects.log"), Log(FOLDER / "witness.log")


life = 0
"""The number of this process."""


def witnessed(folder: Path) -> list[dict[str, Any]]:
    """What earlier lives received."""
    path = folder / "witness.log"
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


class Witnessing(gr.Store):
    """Whatever it shows to a reader, now or when it becomes durable, is written down first."""

    def __init__(self, place: Any, **options: Any) -> None:
        super().__init__(place, **options)  # type: ignore[call-arg]  # of the store beside this class
        self.cursors: dict[str, int] = {}
        self.ahead: dict[tuple[str, int], bytes] = {}

    def witness(self, run_id: str, first: int, frames: Any) -> None:
        """Write down what has not been written down, in order: what came live before an older page was read waits."""
        for sequence, frame in enumerate(frames, first):
            if sequence > self.cursors.get(run_id, 0):
                self.ahead[run_id, sequence] = frame
        while (frame := self.ahead.pop((run_id, self.cursors.get(run_id, 0) + 1), None)) is not None:
            sequence = self.cursors.get(run_id, 0) + 1
            WITNESS.write(life=life, kind="event", run=run_id, sequence=sequence, frame=frame.decode())
            self.cursors[run_id] = sequence

    async def run(self, report: Report, **options: Any) -> None:
        """As the store's own."""
        await super().run(witnessing(report, self), **options)

    async def events(self, run_id: str, **page: Any) -> Any:
        """As the store's own."""
        frames = await super().events(run_id, **page)
        self.witness(run_id, page.get("after", 0) + 1, frames)
        return frames


class WitnessedSQLite(Witnessing, gr.SQLiteStore):
    """In a file."""


class WitnessedPostgres(Witnessing, PostgresStore):
    """In a database."""


def witnessing(report: Report, store: Witnessing) -> Report:
    """Write down what the runtime is told, before it is told."""

    def receive(event: StoreEvent) -> None:
        if isinstance(event, RunCommitted):
            store.witness(event.run_id, event.last - len(event.frames) + 1, event.frames)
        report(event)

    return receive


# --- tools -----------------------------------------------------------------------------------------------------------


def begins(ctx: Any, tool: str) -> dict[str, Any]:
    """A body begins."""
    line = {"life": life, "run": ctx.run_id, "call": ctx.call_id, "attempt": ctx.attempt, "tool": tool}
    EFFECTS.write(**line, what="begin")
    say(tool)
    return line


async def works(ctx: gr.ToolContext[Any], tool: str) -> str:
    """A body in the event loop."""
    line = begins(ctx, tool)
    await trio.sleep(SECONDS[tool])
    EFFECTS.write(**line, what="end")
    return f"{tool} {ctx.attempt}"


@gr.tool(replay="safe")
def crunch(ctx: gr.SyncToolContext[None], what: str) -> str:
    """May be repeated; works in a thread."""
    line = begins(ctx, "crunch")
    threading.Event().wait(0.03)
    EFFECTS.write(**line, what="end")
    return f"crunched {ctx.attempt}"


AGENT = gr.Agent(
    "worker", tools=[*tools(works), crunch], model=ScriptedModel(SCRIPT, chunk=4), execution="parallel_streaming"
)

# --- the decider -----------------------------------------------------------------------------------------------------


async def decide(run: gr.Run[Any], ticket_id: str, reason: str) -> None:
    """Think a little, then answer; of what nobody knows one third each is run again, told, or ended."""
    lot = zlib.crc32(ticket_id.encode())
    await trio.sleep(lot % 50 / 1000)
    unknown = reason == "outcome_unknown"
    action: Any = "cancel" if unknown and lot % 3 == 0 else "resume"
    result = "told" if unknown and lot % 3 == 1 else None
    answer = await run.decide(ticket_id, action, result=result, decision_id=f"d:{ticket_id}", by="decider")
    said = {"ticket": ticket_id, "action": action, "result": result, "status": answer.status, "code": answer.code}
    WITNESS.write(life=life, kind="answer", run=run.id, **said)
    say("answer")


async def follow(run: gr.Run[Any], after: int) -> None:
    """Follow one run to its end and decide what it asks."""
    async with open_collapsing_nursery() as nursery:
        asked = set()
        for ticket in (await run.view()).tickets:
            asked.add(ticket.ticket_id)
            nursery.start_soon(decide, run, ticket.ticket_id, ticket.reason)
        async with run.events(after=after) as events:
            async for event in events:
                ticket_id = event.payload.get("ticketId")
                if event.type == "run.approval.requested" and ticket_id not in asked:
                    say("asked")
                    nursery.start_soon(decide, run, ticket_id, event.payload["reason"])
        outcome = await run.result()
        WITNESS.write(life=life, kind="outcome", run=run.id, outcome=type(outcome).__name__)
        say("outcome")


async def main(order: str) -> None:
    """One life."""
    store: Witnessing = WitnessedSQLite(FOLDER / "runs.db")
    if URL is not None:
        store = WitnessedPostgres(URL, name=f"life-{life}")
    finished: set[str] = set()
    lives = range(life + 1 if order == "work" else life)
    for line in witnessed(FOLDER):
        if line["kind"] == "event":
            store.cursors[line["run"]] = line["sequence"]
        elif line["kind"] == "outcome":
            finished.add(line["run"])
    with trio.fail_after(200):
        async with gr.open_runtime(store, agents=[AGENT]) as runtime, open_collapsing_nursery() as nursery:
            say("open")
            if URL is not None:
                await store.bury(f"life-{life - 1}")
            for name in (f"run-{one}-{number}" for one in lives for number in range(RUNS_PER_LIFE)):
                if name not in finished:
                    if URL is not None:
                        with suppress(gr.UnknownRun):
                            await store.revive_run(name)  # five kills in one step make a dead letter
                    run = await runtime.start(AGENT, "work", run_id=name)
                    nursery.start_soon(follow, run, store.cursors.get(name, 0))
                    say("started")
            if order == "work":
                await trio.sleep_forever()


def begin(order: str) -> None:
    """One life, of the given number."""
    global life  # noqa: PLW0603 - set once per process
    number, what = order.split()
    life = int(number)
    trio.run(main, what)


if __name__ == "__main__":
    live(begin)
