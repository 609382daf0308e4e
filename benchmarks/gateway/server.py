"""The measured gateway, in a process of its own: a runtime, a store, one run whose events every client follows.

The events are made by the benchmark, in the place of the run machine, and submitted to the store, one commit per event.
From there on it is the real path: store, its hooks, followers, gateway, socket. What is left out is what thinks (a step
of a run takes a millisecond, so one run does not make 1,000 events per second); encoding and redaction are in.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from types import CodeType, FrameType
from typing import Any

import attrs
import trio
from msgspec.structs import replace

import greenroom as gr
from greenroom.actors.contract.claims import Claim
from greenroom.actors.contract.commits import Commit, EventDraft, Receipt
from greenroom.actors.contract.envelope import EventEncoder
from greenroom.actors.contract.events import MessageDelta
from greenroom.actors.contract.lifecycle import Stage
from greenroom.actors.contract.phases import RunPosition
from greenroom.actors.contract.rows import RunRow
from greenroom.actors.runtime.start_request import StartRequest, new_run
from greenroom.transport import serve
from greenroom.transport.gateway import gateway
from greenroom.transport.gateway.fanout import Receiver, RunPumps
from greenroom.transport.gateway.subscription import Subscription

from ..files import database
from ..harness import resident
from ..workload import adding
from .load import TOKEN
from .peers.course import END, RUN, Course, arguments, say, words

BATCH = 1_000
"""Events per commit of what is in the store before anybody comes."""


@attrs.define(eq=False)
class Author:
    """The owner of the run: makes commits that follow each other.

    Attributes:
        bytes: that the log takes in a store in memory.
    """

    runtime: gr.Runtime
    claim: Claim
    row: RunRow
    encoder: EventEncoder
    bytes: int = 0
    _durable: trio.Event = attrs.field(factory=trio.Event)

    @classmethod
    async def create(cls, runtime: gr.Runtime) -> Author:
        """A run in the middle of a model's answer."""
        birth = StartRequest(agent=adding(), text="hi", run_id=RUN)
        new = new_run(birth, datetime.now(UTC), runtime.reader.redactor)
        encoder = EventEncoder(new.info, runtime.reader.redactor)
        (frame,) = encoder.frames(0, new.info.created_at, (new.created,))
        creation = await runtime.store.create_run(new, frame)
        assert creation.claim is not None
        row = replace(new.row, stage=Stage.RUNNING, position=RunPosition.INFERENCE, step=1)
        return cls(runtime, creation.claim, row, encoder)

    def commit(self, stamps: Sequence[int]) -> None:
        """One commit of as many events."""
        before = self.row.last_sequence
        events = tuple(
            EventDraft("run.message.delta", MessageDelta(message_id=f"{RUN}-m1", index=before + i, text=words(stamp)))
            for i, stamp in enumerate(stamps, 1)
        )
        self.row = replace(self.row, last_sequence=before + len(events))
        at = self.runtime.clock.now()
        commit = Commit(run_id=RUN, expected_last=before, at=at, events=events, row=self.row)
        frames = self.encoder.frames(before, at, events)
        self.bytes += sum(map(sys.getsizeof, frames)) + 8 * len(frames)
        self.runtime.store.submit(self.claim, commit, frames, self._deliver)

    def _deliver(self, receipt: Receipt) -> None:
        assert receipt.kind == "committed", receipt
        if receipt.last == self.row.last_sequence:
            self._durable.set()
            self._durable = trio.Event()

    async def fill(self, events: int) -> None:
        """Commit so many events, and wait until they are durable."""
        for first in range(0, events, BATCH):
            durable = self._durable
            self.commit([0] * min(BATCH, events - first))
            if not durable.is_set():
                await durable.wait()


@attrs.define(eq=False)
class Count:
    """Counts calls by who makes them, as `sys.setprofile` tells them: the code itself is as it always is."""

    events: int = 0
    others: int = 0
    frames: int = 0
    _encodes: frozenset[CodeType] = frozenset({EventEncoder.small_frames.__code__, EventEncoder.frame_steps.__code__})

    def __call__(self, frame: FrameType, what: str, function: Any) -> None:
        """One call."""
        if what == "c_call":
            if function.__name__ == "encode" and type(function.__self__).__module__.startswith("msgspec"):
                if frame.f_code in self._encodes:
                    self.events += 1
                else:
                    self.others += frame.f_code.co_name != "_stamp"
        elif what == "call" and frame.f_code.co_name == "text_frame":
            self.frames += 1


class Meter:
    """Memory of this process, and how long the collector stopped it, from `begin` on."""

    def __init__(self) -> None:
        self._memory = self._peak = 0
        self._collecting = self._longest = 0.0

    def begin(self) -> None:
        """Start afresh."""
        gc.callbacks.append(self._collector)
        self._memory = self._peak = resident()

    def _collector(self, phase: str, _: Mapping[str, Any]) -> None:
        if phase == "start":
            self._collecting = time.perf_counter()
        else:
            self._longest = max(self._longest, time.perf_counter() - self._collecting)

    def look(self) -> int:
        """Bytes of memory now; the highest one is kept."""
        memory = resident()
        self._peak = max(self._peak, memory)
        return memory

    def report(self) -> dict[str, float]:
        """What it came to."""
        self.look()
        return {"memory": self._memory, "memory_peak": self._peak, "gc_longest_ms": self._longest * 1e3}


async def order() -> bytes:
    """The next order."""
    await trio.lowlevel.wait_readable(0)
    return os.read(0, 1)


async def publish(author: Author, course: Course, marks: dict[int, Mapping[str, int]], meter: Meter) -> bytes:
    """Everything that is due, when it is due; returns the last order that was read."""
    letter = b"g"
    course.begin()
    while course.left and letter not in END:
        for index, stamp in course.take():
            author.commit([stamp])
            if index + 1 in marks:
                marks[index + 1] = {"memory": meter.look(), "log": author.bytes}
        if course.rate:
            await trio.sleep(course.pause())
        else:
            letter = await order()
    return letter


async def watch(meter: Meter) -> None:
    """Look at the memory every now and then."""
    while True:
        await trio.sleep(0.05)
        meter.look()


async def measure(author: Author, options: Mapping[str, Any]) -> dict[str, Any]:
    """Obey until ordered to report."""
    course, meter, count = Course(options.get("events", 0), options.get("rate", 0)), Meter(), Count()
    marks: dict[int, Mapping[str, int]] = {event: {} for event in options.get("marks", ())}
    async with trio.open_nursery() as nursery:
        letter = await order()
        if options.get("count"):
            sys.setprofile(count)
        meter.begin()
        if options.get("watch"):
            nursery.start_soon(watch, meter)
        if letter == b"g":
            letter = await publish(author, course, marks, meter)
        while letter not in END:
            letter = await order()
        sys.setprofile(None)
        nursery.cancel_scope.cancel()
    report = {**meter.report(), "log": author.bytes, "marks": list(marks.values())}
    return {**report, "encodes": count.events, "other_encodes": count.others, "frames": count.frames}


class Tasks(RunPumps):
    """What the pumps are compared with: each connection's writer is woken and takes its turn."""

    def join(self, conversation: Receiver, subscription: Subscription) -> None:
        """Wake the connection's writer at each change of the run."""
        listeners = subscription.follower.signal.listeners

        def changed() -> None:
            conversation.touch(subscription)

        listeners.add(changed)
        subscription.on_close(lambda: listeners.discard(changed))


async def main(options: Mapping[str, Any]) -> None:
    """Serve, measure, report."""
    with ExitStack() as stack:
        if options["fanout"] == "tasks":
            gateway.RunPumps = Tasks  # type: ignore[misc]  # the product has one way
        store = stack.enter_context(database()) if options.get("store") == "sqlite" else None
        async with gr.open_runtime(store, drain=0) as runtime, trio.open_nursery() as nursery:
            start = partial(serve, runtime, host="127.0.0.1", port=0, token=TOKEN)
            address = await nursery.start(start)
            author = await Author.create(runtime)
            await author.fill(options.get("before", 0))
            gc.collect()
            say({"port": address.port, "run": RUN, "last": author.row.last_sequence})
            say(await measure(author, options))
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, arguments())
