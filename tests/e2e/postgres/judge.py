"""What a swarm leaves behind, judged from outside: the database against what the world outside of it has seen.

python -m tests.e2e.postgres.judge FOLDER URL      # prints `wrong` and `counts` as JSON: by another release
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
import trio

import greenroom as gr
from greenroom.actors.contract.envelope import decode_event
from greenroom.actors.contract.lifecycle import RunStatus

from ...chaos.stage import broken_calls, broken_log
from ...support.promises import broken_history
from .nodes import GATED, TERMINAL, UNSAFE, every_run, plain

AFTERMATH = 0.5
"""Seconds that a process has, once it continues after a SIGSTOP, to end the work that was taken over meanwhile."""
OVERLAP = 0.25
"""Seconds by which the clocks of two processes may differ."""
ORDERS = ("accepted", "duplicate")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file of the swarm, oldest first."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def briefly(answers: list[dict[str, Any]]) -> str:
    """The answers to one command."""
    shown = [
        f"{line['gateway']} {line['number']} {line['status']} {line['code']} lost {line['lost']}" for line in answers
    ]
    return "; ".join(shown[-6:])


@attrs.define
class Stored:
    """What the database has of a run."""

    frames: list[bytes]
    record: Any
    history: Any

    @property
    def events(self) -> list[gr.Event]:
        """Decoded."""
        return [decode_event(frame) for frame in self.frames]


async def read_store(url: str) -> dict[str, Stored]:
    """All runs of a store, by a process that has no agents and does nothing else."""
    out: dict[str, Stored] = {}
    async with gr.open_runtime(url) as runtime:
        async for run_id in every_run(runtime):
            frames: list[bytes] = []
            while page := await runtime.store.events(run_id, after=len(frames)):
                frames += page
            record = await runtime.store.load(run_id, calls="all")
            assert record is not None
            history = await runtime.store.messages(record.info.thread_id)
            out[run_id] = Stored(frames, record, history)
    return out


class Verdict:
    """The judgement on a swarm.

    Attributes:
        wrong: one sentence per broken promise.
        counts: of what happened; printed.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.effects = read_lines(folder / "effects.log")
        self.seen = read_lines(folder / "seen.log")
        self.answers = read_lines(folder / "answers.log")
        self.strikes = read_lines(folder / "strikes.log")
        self.ears = read_lines(folder / "ears.log")
        self.stored = trio.run(read_store, url)
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        for name, broken in (
            ("lost", self._lost),
            ("twice", self._twice),
            ("stranded", self._stranded),
            ("deaf", self._deaf),
            ("log", self._logs),
            ("alive after the end", self._alive),
            ("asked", self._asked),
            ("answers", self._judged_answers),
            ("threads", self._threads),
        ):
            found = list(broken())
            self.counts[name] = len(found)
            self.wrong += [f"{name}: {sentence}" for sentence in found]

    def report(self) -> str:
        """All counts."""
        return ", ".join(f"{name} {times}" for name, times in self.counts.items())

    # --- runs --------------------------------------------------------------------------------------------------------

    def _stranded(self) -> Iterator[str]:
        self.counts["runs"] = len(self.stored)
        self.counts["dead letters revived"] = sum(answer["kind"] == "revived" for answer in self.answers)
        for run_id, stored in self.stored.items():
            if stored.record.row.status is not RunStatus.DONE:
                row = stored.record.row
                yield f"{run_id} is {row.stage} {row.status}, inbox {row.inbox}, last {row.last_sequence}"

    def _deaf(self) -> Iterator[str]:
        for line in self.ears:
            if not line["hears"]:
                yield f"no hint reaches {line['by']}"

    def _lost(self) -> Iterator[str]:
        for answer in self.answers:
            if answer["kind"] == "start" and answer["status"] in ORDERS and answer["run"] not in self.stored:
                yield f"{answer['run']} was started, and is not there"
        for line in self.seen:
            stored = self.stored.get(line["run"])
            if stored is None or line["sequence"] > len(stored.frames):
                yield f"event {line['sequence']} of {line['run']} was seen by {line['by']}, and is not there"

    def _logs(self) -> Iterator[str]:
        seen: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for line in self.seen:
            seen[line["run"], line["by"]].append(line)
        texts = {run_id: [plain(event) for event in stored.events] for run_id, stored in self.stored.items()}
        for (run_id, by), lines in seen.items():
            self.counts["events seen"] += len(lines)
            if [line["sequence"] for line in lines] != list(range(1, len(lines) + 1)):
                yield f"{by} saw events of {run_id} with a hole or twice: {[line['sequence'] for line in lines]}"
            for line in lines:
                if [line["event"]] != texts[run_id][line["sequence"] - 1 : line["sequence"]]:
                    yield f"{by} saw event {line['sequence']} of {run_id} otherwise than it is stored"
        for run_id, stored in self.stored.items():
            self.counts["events"] += len(stored.frames)
            if stored.record.row.status is RunStatus.DONE:
                history = [message for message in stored.history if message.id.startswith(f"{run_id}.")]
                for sentence in broken_log(stored.events, stored.frames, {}):
                    yield f"{run_id}: {sentence}"
                for sentence in broken_calls(stored.events, stored.record, history):
                    yield f"{run_id}: {sentence}"

    def _threads(self) -> Iterator[str]:
        """One run of a thread works at a time, and the thread's history is what every provider demands."""
        threads: dict[str, list[tuple[str, Stored]]] = defaultdict(list)
        for run_id, stored in self.stored.items():
            threads[stored.record.info.thread_id].append((run_id, stored))
        for thread_id, runs in threads.items():
            yield from broken_history(runs[0][1].history, thread_id)
            spans = []
            for run_id, stored in runs:
                times = {event.type: event.timestamp.timestamp() for event in stored.events}
                if "run.accepted" in times and stored.events[-1].type in TERMINAL:
                    spans.append((times["run.accepted"], times[stored.events[-1].type], run_id))
            spans.sort()
            self.counts["runs that waited for their thread"] += max(0, len(spans) - 1)
            for (_, end, one), (begin, _, other) in pairwise(spans):
                if begin < end - OVERLAP:
                    yield f"{other} began {end - begin:.3f} s before the end of {one} in {thread_id}"

    # --- effects -----------------------------------------------------------------------------------------------------

    def _twice(self) -> Iterator[str]:
        """No attempt acts twice, and no body that is not safe acts without consent or without a durable start."""
        begun = Counter(
            (line["run"], line["call"], line["attempt"]) for line in self.effects if line["what"] == "begin"
        )
        self.counts["effects"] = begun.total()
        for (run_id, call, attempt), times in begun.items():
            if times > 1 and call in {line["call"] for line in self.effects if line["tool"] in UNSAFE}:
                yield f"attempt {attempt} of {call} of {run_id} acted {times} times"
        tools = {(line["run"], line["call"]): line["tool"] for line in self.effects}
        acted = Counter((line["run"], line["call"]) for line in self.effects if line["what"] == "begin")
        for (run_id, call), times in acted.items():
            tool, events = tools[run_id, call], self.stored[run_id].events
            if tool not in UNSAFE:
                continue
            approved = sum(
                event.type == "run.approval.resolved"
                and event.payload["callId"] == call
                and event.payload["resolution"] == "approved"
                for event in events
            )
            started = sum(event.type == "run.tool.started" and event.payload["callId"] == call for event in events)
            allowed = approved + (tool not in GATED)
            if times > min(allowed, started):
                yield f"{call} of {run_id} acted {times} times; consents {allowed}, durable starts {started}"
        for run_id, stored in self.stored.items():
            for event in stored.events:
                payload = event.payload
                succeeded = event.type == "run.tool.result" and payload["status"] == "succeeded"
                if succeeded and payload["result"] != "reported" and not acted[run_id, payload["callId"]]:
                    yield f"{payload['callId']} of {run_id} succeeded without having acted"

    def _in_flight(self, run_id: str) -> Iterator[str]:
        """People are asked about exactly the effects that were in flight when their owner was lost."""
        flying: dict[str, str] = {}
        tools: dict[str, str] = {}
        for event in self.stored[run_id].events:
            call = event.payload.get("callId")
            match event.type:
                case "run.tool.call":
                    tools[call] = event.payload["tool"]
                case "run.tool.started":
                    if flying.get(call) == "started" and tools[call] in UNSAFE:
                        yield f"{call} of {run_id} was in flight, and another attempt began unasked"
                    flying[call] = "started"
                    self.counts["attempts of unsafe bodies"] += tools[call] in UNSAFE
                case "run.tool.resumed":
                    flying[call] = "resumed"
                case "run.tool.result":
                    flying.pop(call, None)
                case "run.approval.requested" if event.payload["reason"] == "outcome_unknown":
                    self.counts["people asked about an effect in flight"] += 1
                    if tools[call] not in UNSAFE or flying.get(call) not in ("started", "resumed"):
                        yield f"people were asked about {call} of {run_id}, which was not in flight"
                    flying[call] = "asked"
                case _:
                    pass

    def _asked(self) -> Iterator[str]:
        for run_id in self.stored:
            yield from self._in_flight(run_id)
        ended = {(line["run"], line["call"], line["attempt"]) for line in self.effects if line["what"] != "begin"}
        lost = {
            (line["run"], line["call"], line["attempt"])
            for line in self.effects
            if line["what"] == "begin" and line["tool"] in UNSAFE
        } - ended
        self.counts["unsafe bodies killed"] = len(lost)
        for run_id, call, attempt in lost:
            asked = any(
                event.type == "run.approval.requested"
                and event.payload.get("callId") == call
                and event.payload["reason"] == "outcome_unknown"
                for event in self.stored[run_id].events
            )
            stopped = self.stored[run_id].events[-1].type == "run.cancelled"
            if not asked and not stopped:
                yield f"attempt {attempt} of {call} of {run_id} was killed, and no person was asked"

    def _alive(self) -> Iterator[str]:
        """Once a reader has seen the terminal event, no body of the run works in any process that is not stopped."""
        seen: dict[str, float] = {}
        for line in self.seen:
            if json.loads(line["event"])["type"] in TERMINAL:
                seen[line["run"]] = min(line["at"], seen.get(line["run"], line["at"]))
        death = {line["pid"]: line["at"] for line in self.strikes if line["what"] in ("dead", "SIGKILL")}
        ends = {
            (line["run"], line["call"], line["attempt"], line["pid"]): line["at"]
            for line in self.effects
            if line["what"] != "begin"
        }
        for line in self.effects:
            if line["what"] != "begin" or line["run"] not in seen:
                continue
            over = seen[line["run"]]
            end = ends.get((line["run"], line["call"], line["attempt"], line["pid"]), death.get(line["pid"]))
            if line["at"] > over:
                yield f"{line['call']} of {line['run']} began {line['at'] - over:.3f} s after the terminal event"
            elif (end is None or end > over) and not self._stopped(line["pid"], over):
                late = "never" if end is None else f"{end - over:.3f} s after the terminal event"
                yield f"{line['call']} of {line['run']} in {line['pid']} ended {late}"

    def _stopped(self, pid: int, moment: float) -> bool:
        """Whether a process was stopped at a moment, or had just been resumed."""
        since = None
        for line in self.strikes:
            if line["pid"] != pid:
                continue
            if line["what"] == "SIGSTOP":
                since = line["at"]
            elif line["what"] in ("SIGCONT", "SIGKILL", "dead") and since is not None:
                if since <= moment <= line["at"] + AFTERMATH:
                    return True
                since = None
        return since is not None and since <= moment

    # --- answers -----------------------------------------------------------------------------------------------------

    def _judged_answers(self) -> Iterator[str]:
        commands: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
        for line in self.answers:
            if "status" in line:
                commands[line["kind"], line["run"], line["command"]].append(line)
        for (kind, run_id, command), answers in commands.items():
            statuses = Counter(answer["status"] for answer in answers)
            unclear = any(answer["lost"] or answer["status"] == "raised" for answer in answers)
            refused = any(answer["code"] in ("store_unavailable", "busy") for answer in answers)
            self.counts[f"{kind} accepted"] += statuses["accepted"]
            self.counts[f"{kind} duplicate"] += statuses["duplicate"]
            self.counts["commands whose sender was refused for now"] += refused
            if statuses["accepted"] > 1:
                yield f"{kind} {command} of {run_id} was accepted {statuses['accepted']} times: {briefly(answers)}"
            if statuses["duplicate"] and not statuses["accepted"] and not unclear:
                yield f"{kind} {command} of {run_id} was a duplicate for its first sender: {briefly(answers)}"
            if kind != "start" and (statuses["accepted"] or statuses["duplicate"]):
                yield from self._acted(kind, run_id, answers[0])

    def _acted(self, kind: str, run_id: str, answer: dict[str, Any]) -> Iterator[str]:
        """An accepted command acted once, or an event says why it did not."""
        events = self.stored[run_id].events if run_id in self.stored else []
        if kind == "cancel":
            times = sum(event.type == "run.cancel.requested" for event in events)
            if times != 1:
                yield f"a cancel of {run_id} was accepted, and {times} events are about it"
            return
        target, command = answer["target"], answer["command"]
        wanted = "denied" if answer["action"] == "cancel" else "approved"
        acted = [
            event.payload["resolution"]
            for event in events
            if event.type == "run.approval.resolved"
            and event.payload["resolution"] != "withdrawn"  # by a cancel
            and (event.payload["ticketId"] == target or (event.payload["callId"] == target and target == "pay"))
        ]
        refused = sum(
            event.type == "run.decision.refused" and event.payload["commandId"] == command for event in events
        )
        self.counts["early decisions"] += target == "pay"
        if target == "pay":
            acted = acted[:1]  # later tickets of the call ask about its outcome
        if len(acted) + refused != 1 or (acted and acted != [wanted]):
            yield f"{command} of {run_id} was accepted, and then came {acted} and {refused} refusals"


if __name__ == "__main__":
    verdict = Verdict(Path(sys.argv[1]), sys.argv[2])
    print(json.dumps({"wrong": verdict.wrong, "counts": verdict.counts}))  # noqa: T201 - its result
