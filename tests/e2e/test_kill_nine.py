"""kill -9 at random moments, twenty times, and what the next process makes of it."""

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.envelope import decode_event

from ..chaos.stage import broken_calls, broken_log

MOMENTS = (
    "",
    "",
    "open",
    "started",
    "asked",
    "asked",
    "answer",
    "answer",
    "answer",
    "pay",
    "pay",
    "post",
    "post",
    "post",
)
MOMENTS += ("scan", "scan", "crunch", "outcome", "outcome", "outcome")
"""What the killer waits for, each once, in an order by lot; nothing means that he strikes while the process starts."""
KILLS = len(MOMENTS)
UNSAFE, SAFE, GATED = {"pay", "post"}, {"scan", "crunch"}, {"pay"}
WORKER = Path(__file__).with_name("kill_processes.py")
ROUNDS = 5
"""Times the kills are repeated, at most, until all that is to be seen of them has been seen."""
PATIENCE = 30.0
"""Seconds after which a life is killed that does not say its word: no machine is so slow."""
KINDS = {
    "unsafe body was running",
    "safe body was running and ran again",
    "a ticket was open",
    "an acknowledged decision acted only in a later life",
    "outcome_unknown: run again",
    "outcome_unknown: told",
    "outcome_unknown: ended",
    "outcome acknowledged before a kill",
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.no_cover]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    """Where the runs are: a file, or the URL of a schema."""
    return tmp_path / "runs.db" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


def test_twenty_kills_lose_nothing_that_was_acknowledged_and_repeat_no_effect_unasked(
    tmp_path: Path, place: Path | str, rng
):
    command = [sys.executable, str(WORKER), str(tmp_path), *([place] if isinstance(place, str) else [])]
    with (
        (tmp_path / "errors").open("w+") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, bufsize=1
        ) as nest,
    ):
        life = itertools.count()
        for _ in range(ROUNDS):
            for moment in rng.sample(MOMENTS, KILLS):
                ended = live_and_die(nest, next(life), moment, rng)
                assert ended == -signal.SIGKILL, (tmp_path / "errors").read_text()
            ended = live(nest, next(life), "finish", lambda _: False)
            assert ended == 0, (tmp_path / "errors").read_text()
            kinds = judged(tmp_path, place)
            if set(kinds) >= KINDS:  # which moments the kills meet is chance
                break
    assert set(kinds) >= KINDS, f"never happened: {sorted(KINDS - set(kinds))}"


def judged(folder: Path, place: Path | str) -> Counter[str]:
    """No promise was broken; returns how often what has happened."""
    log = {name: ReadLog(folder, name) for name in trio.run(all_runs, place)}
    trio.run(read, place, log)
    wrong = [f"{name}: {text}" for name, read_log in log.items() for text in read_log.broken()]
    kinds = sum((read_log.kinds for read_log in log.values()), Counter())
    frames = sum(len(read_log.seen) for read_log in log.values())
    seen = ", ".join(f"{name}: {times}" for name, times in sorted(kinds.items()))
    print(f"\n{len(log)} runs, {frames} events seen, {len(wrong)} violations\n{seen}")  # noqa: T201
    assert not wrong, "\n".join(wrong[:20])
    assert len(log) >= KILLS
    return kinds


def live_and_die(nest: "subprocess.Popen[str]", life: int, word: str, rng: random.Random) -> int:
    """One process: wait until it has said the word a few times, and kill it."""
    number = rng.randint(1, 3)
    pause = rng.uniform(0.0, 0.1) if not word else rng.choice([0.0, rng.uniform(0.0, 0.03)])

    def now(said: str) -> bool:
        nonlocal number
        number -= said == word or not word
        if number > 0 and word:
            return False
        threading.Event().wait(pause)
        return True

    return live(nest, life, "work", now)


def kill(pid: int) -> None:
    """Kill -9, unless it is over."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def live(nest: "subprocess.Popen[str]", life: int, order: str, now: Callable[[str], bool]) -> int:
    """One process; it is killed when `now` says so of what it says, or when nothing happens any more."""
    assert nest.stdin is not None
    assert nest.stdout is not None
    nest.stdin.write(f"{life} {order}\n")
    pid = int(nest.stdout.readline().removeprefix("pid "))
    patience = threading.Timer(PATIENCE if order == "work" else 240.0, kill, (pid,))
    patience.start()
    armed = True
    for line in nest.stdout:
        said = line.strip()
        if said.startswith("dead "):
            patience.cancel()
            return int(said.removeprefix("dead "))
        if armed and now(said):
            armed = False
            kill(pid)
    raise AssertionError("the nest is gone")


async def all_runs(place: Path | str) -> list[str]:
    """Every run that the storage has; more than were acknowledged, perhaps."""
    async with gr.open_runtime(place) as runtime:
        return [summary.info.run_id for summary in (await runtime.runs(limit=1000)).runs]


async def read(place: Path | str, log: dict[str, "ReadLog"]) -> None:
    """What the storage has in the end."""
    async with gr.open_runtime(place) as runtime:
        for name, read_log in log.items():
            read_log.frames = list(await runtime.store.events(name))
            read_log.record = await runtime.store.load(name, calls="all")
            read_log.history = await runtime.store.messages(read_log.record.info.thread_id)


def lines(path: Path, run: str) -> list[dict[str, Any]]:
    """The lines about one run."""
    return [line for line in map(json.loads, path.read_bytes().splitlines()) if line["run"] == run]


class ReadLog:
    """What the world received about one run, against what the file has."""

    frames: list[bytes]
    record: Any
    history: Any

    def __init__(self, folder: Path, run: str) -> None:
        witness = lines(folder / "witness.log", run)
        self.kinds: Counter[str] = Counter()
        self.seen = {line["sequence"]: line["frame"].encode() for line in witness if line["kind"] == "event"}
        self.first_seen: dict[int, int] = {}
        for line in witness:
            if line["kind"] == "event":
                self.first_seen.setdefault(line["sequence"], line["life"])
        self.twice = sum(line["kind"] == "event" for line in witness) - len(self.seen)
        self.answers = [line for line in witness if line["kind"] == "answer"]
        self.outcomes = [line for line in witness if line["kind"] == "outcome"]
        self.effects = lines(folder / "effects.log", run)

    def broken(self) -> list[str]:
        """One sentence per broken promise."""
        events = [decode_event(frame) for frame in self.frames]
        out = [*broken_log(events, self.frames, self.seen), *broken_calls(events, self.record, self.history)]
        if self.twice:
            out.append(f"{self.twice} events were shown twice, though the cursor was known")
        return [*out, *self._decisions(events), *self._outcomes(events), *self._bodies(events)]

    def _decisions(self, events: list[gr.Event]) -> list[str]:
        out = []
        resolved = {}
        for event in events:
            if event.type == "run.approval.requested":
                self.kinds["a ticket was open"] += self._open_at_a_kill(event, events)
            if event.type == "run.approval.resolved":
                if event.payload["ticketId"] in resolved:
                    out.append(f"{event.payload['ticketId']} was resolved twice")
                resolved[event.payload["ticketId"]] = event
        for answer in self.answers:
            event = resolved.get(answer["ticket"])
            if answer["status"] in ("accepted", "duplicate"):
                wanted = "denied" if answer["action"] == "cancel" else "approved"
                if event is None or event.payload["resolution"] != wanted:
                    out.append(f"{answer} was acknowledged, and then came {event}")
                elif answer["status"] == "accepted" and self.first_seen[event.sequence] > answer["life"]:
                    self.kinds["an acknowledged decision acted only in a later life"] += 1
            elif answer["code"] != "already_decided":
                out.append(f"{answer}")
        return out

    def _open_at_a_kill(self, asked: gr.Event, events: list[gr.Event]) -> bool:
        ticket_id = asked.payload["ticketId"]
        end = next(
            event
            for event in events
            if event.type == "run.approval.resolved" and event.payload["ticketId"] == ticket_id
        )
        return self.first_seen[asked.sequence] < self.first_seen[end.sequence]

    def _outcomes(self, events: list[gr.Event]) -> list[str]:
        kinds = {line["outcome"] for line in self.outcomes}
        self.kinds["outcome acknowledged before a kill"] += any(line["life"] < KILLS for line in self.outcomes)
        if kinds != {"Completed"} or events[-1].type != "run.completed":
            return [f"outcomes {kinds}, and the last event is {events[-1].type}"]
        return []

    def _bodies(self, events: list[gr.Event]) -> list[str]:
        """No body that is not safe ran without consent, and whatever was interrupted became a question."""
        out = []
        started = Counter(line["call"] for line in self.effects if line["what"] == "begin")
        ended = {(line["call"], line["attempt"]) for line in self.effects if line["what"] == "end"}
        tools = {line["call"]: line["tool"] for line in self.effects}
        approvals = Counter(
            event.payload["callId"]
            for event in events
            if event.type == "run.approval.resolved" and event.payload["resolution"] == "approved"
        )
        unknown = [
            event.payload
            for event in events
            if event.type == "run.approval.requested" and event.payload["reason"] == "outcome_unknown"
        ]
        asked = Counter(payload["callId"] for payload in unknown)
        for call_id, times in started.items():
            allowed = approvals[call_id] + (tools[call_id] not in GATED)
            if tools[call_id] in UNSAFE and times > allowed:
                out.append(f"{call_id} began {times} times with consent for {allowed}")
            if tools[call_id] in SAFE and asked[call_id]:
                out.append(f"{call_id} is safe, and somebody was asked")
        for line in self.effects:
            if line["what"] == "begin" and (line["call"], line["attempt"]) not in ended:
                self._interrupted(line, started, asked, out)
        last = {payload["callId"]: payload["ticketId"] for payload in unknown}
        for payload in unknown:
            answer = next((answer for answer in self.answers if answer["ticket"] == payload["ticketId"]), None)
            if answer is not None:  # else it acted, and the process was killed before it could say so
                how = "ended" if answer["action"] == "cancel" else "told" if answer["result"] else "run again"
                self.kinds[f"outcome_unknown: {how}"] += 1
                settled = last[payload["callId"]] == payload["ticketId"]  # else a kill came before the body, again
                if how == "run again" and settled and not started[payload["callId"]]:
                    out.append(f"{payload['callId']} was to be run again and never began")
        return out

    def _interrupted(self, line: dict[str, Any], begun: Counter[str], asked: Counter[str], out: list[str]) -> None:
        call_id = line["call"]
        if line["tool"] in UNSAFE:
            self.kinds["unsafe body was running"] += 1
            if not asked[call_id]:
                out.append(f"{call_id} was running at a kill, and nobody was asked what became of it")
        elif begun[call_id] > 1:
            self.kinds["safe body was running and ran again"] += 1
        else:
            out.append(f"{call_id} is safe and was running at a kill, and was not run again")
