"""The children of one run: model streams, hooks, calls. Each has a cancel scope, one final input, and an exit.

Theory of operation. A child returns results to its run loop through lists, not through a bounded mailbox, so a result
is never refused: final inputs go into `inputs`, streamed text into one merging buffer per message, and the loop is
nudged. Back-pressure exists only for streamed text (`DeltaBuffer.put` waits). A child publishes its exit in its last
synchronous step. trio cannot kill a task, so a child that ignores its cancel is named as unresponsive and detached: its
results are dropped, and its task stays in the runtime's nursery until the body ends. Only its own scope cancels a
child: the scope is shielded, because a cancellation of the runtime's block reaches the owners first, in order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

import attrs
import trio

from greenroom.supervision import Mailbox, Raised, capture, cleanup, failure_of

from ..contract.decisions import Ticket
from ..contract.excerpt import is_large
from ..contract.inference import Inference
from ..engine.body_inputs import CallPrinted, CallProgressed
from ..engine.effects import StartCall
from ..engine.inputs import BodyOverran, Input, ModelAnswered, ModelFailed, ModelStreamed, Unfinished
from ..errors import NewerRelease
from .delta_buffers import DeltaBuffer, DeltaBuffers, SplitText
from .spoken_text import SpokenText
from .task_requests import TaskRequests

K = TypeVar("K")
V = TypeVar("V")

CALL: Final = "call:"
"""Prefix of the key of a call's actor."""
CHILD_RUN: Final = "child_run:"
"""Prefix of the key of a child that cancels the child run of a call."""
EXPIRE: Final = "expire:"
"""Prefix of the command id of an expiry, and of the key of the child that posts it."""
FRAMES: Final = 6
"""Reported frames of a stack, innermost last."""
EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})
"""Shared by all runs that have none of a thing: an empty dict is 64 bytes, for every run that waits."""
SLACK: Final = 1.0
"""Seconds beyond the longest grace after which a running child is reported as unresponsive."""


def call_key(call_id: str) -> str:
    """Return the key of a call's actor."""
    return f"{CALL}{call_id}"


def call_of(key: str) -> str:
    """Return the call id of an actor's key, or the key itself if no call has it."""
    return key.removeprefix(CHILD_RUN if key.startswith(CHILD_RUN) else CALL)


class ClaimLost(Exception):
    """This owner must stop and write nothing more: a newer claim exists, or the store or the runtime has ended."""


@attrs.frozen
class Release:
    """Message to a parked call: the call ended without its body."""


Cue = StartCall | Release
"""The messages of a parked call's mailbox."""


@attrs.frozen
class OverrunBody:
    """A body that overran its grace and still runs, detached from its call.

    Attributes:
        item: the report for the machine.
        ended: set when the body ends.
    """

    item: Unfinished
    ended: trio.Event


@attrs.define(eq=False)
class Child:
    """One task of a run.

    Attributes:
        key: unique among the run's live children.
        scope: cancels the child and everything it started.
        grace: seconds to end after a cancel.
        tool: The name of a call's tool.
        mailbox: The mailbox of a parked call, which receives the decision.
        ticket: The ticket that a parked call waits for.
        attempt: The newest attempt of a call that was given to its actor, or 0.
        task: the trio task, once started.
        muted: the child was abandoned; its results are dropped.
        ours: no user code runs in the child, so a cancel ends it and it is never unresponsive.
        pausing: the child waits for a moment that is in the run's rows: the owner may end at any time.
        notice: The notice for which a child that watches a child run waits, or has waited last.
        at_deadline: called when a cancel has ended the child, such as the deadline of its scope; returns the child's
            final input, or None if the child has none.
    """

    key: str
    scope: trio.CancelScope
    grace: float = 5.0
    tool: str | None = None
    mailbox: Mailbox[Cue] | None = None
    ticket: Ticket | None = None
    attempt: int = 0
    task: trio.lowlevel.Task | None = None
    muted: bool = False
    ours: bool = False
    pausing: bool = False
    notice: trio.Event | None = None
    at_deadline: Callable[[], Input | None] | None = None
    _over: bool = attrs.field(init=False, default=False)
    _end_event: trio.Event | None = attrs.field(init=False, default=None)

    def __repr__(self) -> str:
        return f"<Child {self.key!r}{' parked' if self.mailbox is not None else ''}>"

    @property
    def ended(self) -> trio.Event:
        """Set in the child's last synchronous step; created on first access."""
        if self._end_event is None:
            self._end_event = trio.Event()
            if self._over:
                self._end_event.set()
        return self._end_event

    def conclude(self) -> None:
        """Publish the child's exit: its last synchronous step."""
        self._over = True
        if self._end_event is not None:
            self._end_event.set()
        if self.mailbox is not None:
            self.mailbox.close()


class ClaimFence:
    """Lets no effect begin after the time until which the run's claim is good.

    The process may have been stopped since the receipt that allowed the effect, and another one may have the run.
    """

    __slots__ = ("_children", "holds")

    def __init__(self, children: Children, holds: Callable[[], bool]) -> None:
        self._children = children
        self.holds = holds
        """Returns True while the claim is good; may be called in any thread."""

    def __repr__(self) -> str:
        return f"<ClaimFence, {'good' if self.holds() else 'void'}>"

    async def lost(self) -> None:
        """End the run's owner with ClaimLost, and wait for the cancel."""
        self._children.lose("the claim may be void by now")
        await trio.sleep_forever()


def _without(mapping: Mapping[K, V], key: K) -> Mapping[K, V]:
    """Return a mapping without a key."""
    return {other: value for other, value in mapping.items() if other != key} or EMPTY


_NOTHING_KEPT: Final = (0, 0)
"""Shared, because most runs have no results here most of the time."""


class Children:
    """The live children of one incarnation of a run actor.

    Their tasks live in a nursery of the runtime (`Services.tasks`). `end` is called when the incarnation ends; results
    that arrive later are dropped. The mappings are replaced, never changed, because most are `EMPTY` most of the time.

    Attributes:
        live: running children, by key.
        inputs: their submitted inputs, oldest first.
        messages: text buffers by message id.
        calls: output buffers by call id and attempt.
        overrun_bodies: The overrun bodies by key: abandoned threads, and bodies of earlier incarnations.
        checks: A time and a check by key, for each child that may ignore the end of its time.
        nudge: lets the run actor look at the inputs.
        crash: a child crashed in a way that crashes the run actor; else None.
        turn: A callback in the last step of a child, which processes the inputs of the child.
        fence: The check of the claim before an effect begins; None: only a newer claim can void the run's.
        stopped: The run itself has cancelled its children; False also when only this owner of the run ends.
        result_bytes: The number of a step, and the bytes of the results of that step here so far.
    """

    __slots__ = (
        "_all_gone", "_discards_deltas", "_ended", "_nursery", "_questions", "_split", "_spoken", "calls", "checks",
        "crash", "fence", "inputs", "live", "messages", "nudge", "overrun_bodies", "result_bytes", "stopped",
        "turn",
    )  # fmt: skip

    def __init__(
        self,
        nursery: trio.Nursery,
        nudge: Callable[[], None],
        split: SplitText,
        overrun_bodies: Mapping[str, OverrunBody] = EMPTY,
        *,
        claim_is_good: Callable[[], bool] | None = None,
    ) -> None:
        self._nursery = nursery
        self.overrun_bodies = overrun_bodies
        self._discards_deltas = False
        self._all_gone: trio.Event | None = None
        self._ended = self.stopped = False
        self.crash: BaseException | None = None
        self._split = split
        self.nudge = self.turn = nudge
        self.fence = None if claim_is_good is None else ClaimFence(self, claim_is_good)
        self.live: dict[str, Child] = {}
        self.inputs: list[Input] = []  # a list: an empty deque costs 0.8 KB, for every run that waits
        self.result_bytes = _NOTHING_KEPT
        self.messages: Mapping[str, DeltaBuffers] = EMPTY
        self.calls: Mapping[tuple[str, int], DeltaBuffers] = EMPTY
        self._questions: TaskRequests | None = None
        self._spoken: SpokenText | None = None
        self.checks: Mapping[str, tuple[float, Callable[[], float | None]]] = EMPTY

    def start(
        self,
        key: str,
        body: Callable[[Child], Awaitable[None]],
        *,
        broke: Callable[[BaseException], Input] | None,
        grace: float = 5.0,
        tool: str | None = None,
        ours: bool = False,
    ) -> Child:
        """Start a child. `broke` turns an exception that leaves the body into an input.

        Without `broke`, or if `broke` raises, the crash is the run actor's own. After `end` the body never begins.

        Raises:
            RuntimeError: a live child has this key.
        """
        if key in self.live:
            raise RuntimeError(f"child {key!r} is already there")
        child = Child(key, trio.CancelScope(shield=True), grace, tool, ours=ours)
        if self._ended:  # started by a child that is ending itself: `end` does not see it
            child.scope.cancel("the run's owner has gone")
        self.live[key] = child
        self._nursery.start_soon(self._run, child, body, broke, self.overrun_bodies.get(key), name=key)
        return child

    async def _run(
        self,
        child: Child,
        body: Callable[[Child], Awaitable[None]],
        broke: Callable[[BaseException], Input] | None,
        before: OverrunBody | None,
    ) -> None:
        """Run a child in its task, after an older attempt of the same call that ignored its cancel."""
        child.task = trio.lowlevel.current_task()
        try:
            with child.scope:
                if before is not None and not before.ended.is_set():
                    await before.ended.wait()
                # a child cancelled before it began must not act; the cancel may arrive together with the end above
                await trio.lowlevel.checkpoint_if_cancelled()
                if self.fence is not None and not self.fence.holds():
                    await self.fence.lost()
                await body(child)
            if child.at_deadline is not None and child.scope.cancelled_caught and not child.muted:
                last = child.at_deadline()
                if last is not None:
                    self.submit_last(last)
        except BaseException as error:  # noqa: BLE001, ASYNC103 - `failure_of` raises what must pass
            try:
                failure = failure_of(error)
            except BaseException:  # a Ctrl-C: the runtime ends under a live run
                if not self._ended:  # the owner ends as well, without a crash: the durable rows are the checkpoint
                    self.crash = ClaimLost("the runtime ends")
                raise
            self._broke(child, failure, broke)
        finally:
            self.live.pop(child.key, None)
            self.checks = self.checks and _without(self.checks, child.key)
            child.conclude()
            if self._all_gone is not None and not self.live:
                self._all_gone.set()
            if not self._ended:
                self.turn()

    def _broke(self, child: Child, error: BaseException, broke: Callable[[BaseException], Input] | None) -> None:
        """Turn a crash into an input, or without a `broke` into a crash of the run actor."""
        if self._ended or child.muted:
            return
        if broke is None or isinstance(error, NewerRelease):  # not the model's fault, nor the tool's
            self.crash = error
            return
        last = capture(broke, error)
        if isinstance(last, Raised):  # the run actor restarts
            self.crash = last.error
        else:
            self.submit_last(last.value)

    def fail(self, error: BaseException) -> None:
        """Crash the run actor with this exception, which its own task raises."""
        self.crash = error

    def lose(self, why: str) -> None:
        """Crash the run actor with ClaimLost."""
        self.crash = self.crash or ClaimLost(why)
        self.nudge()

    async def end(self, *, wait: bool) -> Mapping[str, OverrunBody]:
        """Cancel all children, drop their later results, and wait for them within the longest grace among them.

        Bodies that do not end in time stay in the task nursery until they do. Cancellation: shielded, bounded by the
        grace.

        Returns:
            The overrun bodies by key; a later attempt of the same call waits for them.
        """
        self._ended = True
        self.turn = self.nudge  # a cycle through the run loop would leave all its objects to the collector of garbage
        if self._questions is not None:
            self._questions.close()
        grace = self.cancel_all("the run's owner has gone")
        if self.live and wait:
            self._all_gone = trio.Event()
            with cleanup(grace + SLACK, what="wait for the run's children"):
                await self._all_gone.wait()
        return self.still_left()

    @property
    def questions(self) -> TaskRequests:
        """The open task requests of bodies; created for the first body."""
        if self._questions is None:
            self._questions = TaskRequests(self.submit_input)
            if self._ended:
                self._questions.close()
        return self._questions

    @property
    def spoken(self) -> SpokenText:
        """The text that bodies are saying; created for the first of it."""
        if self._spoken is None:
            self._spoken = SpokenText(self.streams)
        return self._spoken

    def submit_input(self, message: Input) -> None:
        """Hand a child's outcome to the run loop; never refused. After `end` the input is dropped."""
        if not self._ended:
            self.inputs.append(message)
            self.nudge()

    def submit_last(self, message: Input) -> None:
        """Hand over the outcome of a child that ends without another checkpoint: its last step takes the run's turn."""
        if not self._ended:
            self.inputs.append(message)

    def cancel_all(self, reason: str, *, by_run: bool = False) -> float:
        """Cancel every child; returns the longest grace among them, in seconds.

        `by_run`: the run ends its work, so no other owner goes on with it.
        """
        grace = 0.0
        self.stopped |= by_run
        self._discards_deltas = True
        for streams in (*self.messages.values(), *self.calls.values()):
            streams.discard_further()
        if self._spoken is not None:
            self._spoken.discard_further()
        for child in tuple(self.live.values()):
            child.scope.cancel(reason)
            grace = max(grace, child.grace)
        return grace

    # --- streams -----------------------------------------------------------------------------------------------------

    def message_stream(self, message_id: str) -> DeltaBuffers:
        """Return the buffers of one message; created on first use."""
        streams = self.messages.get(message_id)
        if streams is None:
            streams = self.streams()
            self.messages = {**self.messages, message_id: streams}
        return streams

    def call_stream(self, call_id: str, attempt: int) -> DeltaBuffers:
        """Return the buffers of one attempt of a call; created on first use."""
        streams = self.calls.get((call_id, attempt))
        if streams is None:
            streams = self.streams()
            self.calls = {**self.calls, (call_id, attempt): streams}
        return streams

    def streams(self) -> DeltaBuffers:
        """Return empty buffers."""
        streams = DeltaBuffers(DeltaBuffer(self.nudge, self._split), DeltaBuffer(self.nudge, self._split))
        if self._discards_deltas:
            streams.discard_further()
        return streams

    def take_streams(self) -> list[Input]:
        """Return all showable streamed text, as one input per message or call."""
        out: list[Input] = []
        for message_id, streams in self.messages.items():
            if streams.text or streams.reasoning:
                out.append(
                    ModelStreamed(message_id=message_id, text=streams.text.take(), reasoning=streams.reasoning.take())
                )
        for (call_id, attempt), streams in self.calls.items():
            out.extend(self._call_inputs(call_id, attempt, streams))
        return out if self._spoken is None else out + self._spoken.take()

    def close_message_stream(self, message: ModelAnswered | ModelFailed, inference: Inference | None) -> list[Input]:
        """Close the buffers of a message and return their remaining text as inputs.

        A text of which nothing was shown arrives whole with the answer, without any delta. A text too large for one
        event is returned as deltas, also of a model that does not stream.

        Args:
            message: the end of the model request.
            inference: the request as the machine knows it; None if the run went another way, which drops the text.
        """
        streams = self.messages.get(message.message_id)
        if streams is not None:
            self.messages = _without(self.messages, message.message_id)
        if inference is None:
            return []
        has_text = bool(inference.text_index)
        if not has_text and isinstance(message, ModelAnswered) and is_large(text := "".join(message.response.text)):
            streams, has_text = streams or self.streams(), True
            if not streams.text.waiting:
                streams.text.add(text)
        out: list[Input] = []
        while streams is not None:
            text, reasoning = streams.text.take(last=True) if has_text else "", streams.reasoning.take(last=True)
            if not text and not reasoning:
                break
            out.append(ModelStreamed(message_id=message.message_id, text=text, reasoning=reasoning))
        return out

    def cut_message_stream(self, message_id: str) -> tuple[str, ...]:
        """Close the buffers of a message that ends early, and return its text that no event has shown."""
        streams = self.messages.get(message_id)
        self.messages = _without(self.messages, message_id)
        return () if streams is None else tuple(iter(lambda: streams.text.take(last=True), ""))

    def keep_message_stream(self, message: ModelAnswered | ModelFailed, inference: Inference | None) -> list[Input]:
        """Return the text of an answer that another request will continue, as inputs.

        The text that is held back stays, because it may be the beginning of a secret that the continued text ends.
        """
        streams = self.message_stream(message.message_id)
        has_text = inference is not None and inference.text_index
        if isinstance(message, ModelAnswered) and not has_text and not streams.text.waiting:
            streams.text.add("".join(message.response.text))  # of a model that does not stream
        return self.take_streams()

    def close_call_stream(self, call_id: str, attempt: int) -> list[Input]:
        """Close the buffers of an attempt and return its remaining output as inputs."""
        if self._spoken is not None:
            self._spoken.drop(call_id, attempt)
        streams = self.calls.get((call_id, attempt))
        if streams is None:
            return []
        self.calls = _without(self.calls, (call_id, attempt))
        return self._call_inputs(call_id, attempt, streams, last=True)

    def give_up(self, child: Child, stack: Sequence[str], end: trio.Event) -> None:
        """Report a child whose body did not end within its grace; the run's end waits for the body or names it."""
        item = Unfinished(
            call_id=call_of(child.key), tool=child.tool, grace=child.grace, stack=" > ".join(stack[-FRAMES:])
        )
        self.overrun_bodies = {**self.overrun_bodies, child.key: OverrunBody(item, end)}
        self.submit_input(BodyOverran(item=item))

    def given_up(self, child: Child) -> bool:
        """Return True if this child overran its grace and its call continues without it."""
        overrun = self.overrun_bodies.get(child.key)
        return overrun is not None and overrun.ended is child.ended

    def watch(self, key: str, at: float, check: Callable[[], float | None]) -> None:
        """Check a child at this time (trio's). The check returns when to check it again, or None."""
        self.checks = {**self.checks, key: (at, check)}

    def look(self) -> None:
        """Run the due `checks` that are due: whether a child ignores the end of its time."""
        now = trio.current_time()
        for key, (at, check) in self.checks.items():
            if now >= at and (again := check()) is not None:
                self.watch(key, again, check)

    def abandon(self, child: Child, who: str) -> None:
        """Detach a child that ignored its cancel: its results are dropped, its key can be reused.

        `who` names the plugins at fault, for the report.
        """
        self.live.pop(child.key, None)
        self.checks = _without(self.checks, child.key)
        child.key, child.muted = f"{child.key} ({who})", True
        while child.key in self.live:  # an older child of that name is still alive
            child.key += "'"
        self.live[child.key] = child
        child.scope.cancel("it did not obey in time")
        self.give_up(child, (self.where(child),), child.ended)

    def live_left(self) -> bool:
        """Return True if an overrun body is still alive."""
        return any(not body.ended.is_set() for body in self.overrun_bodies.values())

    def noticed(self) -> bool:
        """Return True if there is news of a child run at which its watcher has not looked yet."""
        return any(child.notice is not None and child.notice.is_set() for child in self.live.values())

    def still_left(self) -> Mapping[str, OverrunBody]:
        """Return the unresponsive work after a cancel and its grace, by key: overrun bodies and running children."""
        running = {key: body for key, body in self.overrun_bodies.items() if not body.ended.is_set()}
        for key, child in self.live.items():
            if not child.ours:
                item = Unfinished(call_id=call_of(key), tool=child.tool, grace=child.grace, stack=self.where(child))
                running[key] = OverrunBody(item, child.ended)
        return running or EMPTY

    @staticmethod
    def _call_inputs(call_id: str, attempt: int, streams: DeltaBuffers, *, last: bool = False) -> list[Input]:
        out: list[Input] = []
        if streams.progress is not None:
            fraction, text = streams.progress
            streams.progress = None
            out.append(CallProgressed(call_id=call_id, attempt=attempt, fraction=fraction, text=text))
        while text := streams.text.take(last=last):
            out.append(CallPrinted(call_id=call_id, attempt=attempt, index=streams.printed, text=text))
            streams.printed += 1
            if not last:
                break  # the rest waits for the receipt: a slow disk makes no long queue
        return out

    def streamed(self) -> bool:
        """Return True if showable streamed text or progress waits."""
        if self._spoken is not None and self._spoken.ready():
            return True
        if not self.messages and not self.calls:
            return False
        return any(streams.text or streams.reasoning for streams in self.messages.values()) or any(
            streams.text or streams.progress is not None for streams in self.calls.values()
        )

    def where(self, child: Child) -> str:
        """Return the await site of a child, innermost frame last."""
        if child.task is None:
            return ""
        frames = [
            f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{line} {frame.f_code.co_name}"
            for frame, line in child.task.iter_await_frames()
        ]
        return " > ".join(frames[-FRAMES:])
