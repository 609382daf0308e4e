"""The children of one run: model streams, hooks, calls. Each has a scope, a slot for what it owes, and an exit.

What a child owes its parent is not a message that could be refused: inputs go into a list, streamed text into one
conflating buffer per message, and the parent is nudged. A child publishes its exit in its last synchronous step.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import attrs
import trio

from greenroom.supervision import Mailbox, cleanup, failure_of, failure_of_call

from ..contract.decisions import Ticket
from ..engine.effects import StartCall
from ..engine.inputs import BodyOverran, CallPrinted, CallProgressed, Input, ModelStreamed, Unfinished
from .sanitize import text_of
from .task_requests import TaskRequests

PIECE: Final = 65_536
"""Characters of streamed text in one event at most: with every one escaped, still within an event's limit."""
BUFFER_LIMIT: Final = 65_536
"""Characters of one message that may wait for the store before its writer has to wait."""

CALL: Final = "call:"
"""Begins the key of a call's actor."""
EXPIRE: Final = "expire:"
"""Begins the command id of an expiry, and the key of the child that posts it."""
FRAMES: Final = 6
"""Frames of a stack that are told, innermost last."""
SLACK: Final = 1.0
"""Seconds beyond the longest grace before what still runs is named stubborn."""


def call_key(call_id: str) -> str:
    """The key of a call's actor."""
    return f"{CALL}{call_id}"


def call_of(key: str) -> str:
    """The call whose actor has this key, or the key itself if it is no call's."""
    return key.removeprefix(CALL)


class ClaimLost(Exception):
    """This owner must stop, and write nothing more: another claim is newer, or the store or the workplace has gone."""


@attrs.frozen
class Release:
    """To a parked call: it has ended without its body."""


Cue = StartCall | Release
"""What a parked call waits for."""


@attrs.frozen
class OverrunBody:
    """A body that has overrun its grace and goes on without its call.

    Attributes:
        item: what the machine is told of it.
        ended: set when it ends after all.
    """

    item: Unfinished
    ended: trio.Event


@attrs.define(eq=False)
class Child:
    """One task of a run.

    Attributes:
        key: unique among the run's live children.
        scope: cancels it and all that it has started.
        grace: seconds that it gets after a cancel.
        tool: of a call.
        mailbox: of a parked call: where its decision arrives.
        ticket: what a parked call waits for.
        attempt: of a call: the newest one that its actor was given to run; 0 for none.
        muted: it was given up, and nothing counts that it still says.
        ours: no code of the user's runs in it, so a cancel ends it, and it is never named stubborn.
        pausing: it waits for a moment that its run's rows name: its owner may go at any time.
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
    _over: bool = attrs.field(init=False, default=False)
    _ended: trio.Event | None = attrs.field(init=False, default=None)

    def __repr__(self) -> str:
        return f"<Child {self.key!r}{' parked' if self.mailbox is not None else ''}>"

    @property
    def ended(self) -> trio.Event:
        """Set in its last synchronous step; made for whoever asks first."""
        if self._ended is None:
            self._ended = trio.Event()
            if self._over:
                self._ended.set()
        return self._ended

    def conclude(self) -> None:
        """Its last synchronous step."""
        self._over = True
        if self._ended is not None:
            self._ended.set()
        if self.mailbox is not None:
            self.mailbox.close()


Hold = Callable[[str], tuple[int, str]]
"""Of a text that is still coming: how many characters may be shown, and what is to be kept of the rest."""


class DeltaBuffer:
    """Text of one message (or one call's output) on its way to the store: merged, never dropped, bounded.

    `put` waits while more than `BUFFER_LIMIT` characters wait for the store. What may be the beginning of a secret
    waits for what follows it, and is shortened if it grows too long: see `StreamRedactor.hold`. `take` gives at most
    `PIECE` characters, so that an event stays small whatever the size of a chunk; the rest waits for the next one.
    """

    def __init__(self, nudge: Callable[[], None], hold: Hold) -> None:
        self._nudge = nudge
        self._hold = hold
        self._parts: list[str] = []
        self._size = 0
        self._ready = 0
        self._room: trio.Event | None = None
        self._hushed = False

    def add(self, text: str) -> None:
        """Add text at once, whatever the size (for threads, which are bounded by their own pace)."""
        text = text_of(text)
        if len(text) <= PIECE:
            self._parts.append(text)
        else:
            self._parts.extend(text[at : at + PIECE] for at in range(0, len(text), PIECE))
        self._size += len(text)
        if self._ready <= 0 or self._size <= PIECE:
            self._ready = -1
        self._nudge()

    def discard_further(self) -> None:
        """The work is being stopped: nobody takes text any more, so nobody waits for room either."""
        self._hushed = True
        if self._room is not None:
            self._room.set()

    async def put(self, text: str) -> None:
        """Add text; waits while too much is on its way (not in a clean-up: nobody would make room)."""
        while self._size > BUFFER_LIMIT and not self._hushed:
            if self._room is None:
                self._room = trio.Event()
            await self._room.wait()
        self.add(text)

    def take(self, *, last: bool = False) -> str:
        """What may be shown of all that waits, `PIECE` characters at most. `last`: nothing will follow what waits.

        After the last text, take until nothing comes.
        """
        self._look()
        text = self._front()
        cut = len(text) if last and not self._parts else min(self._ready, len(text))
        if cut < len(text):
            self._parts.insert(0, text[cut:])
        self._size -= cut
        self._ready = -1 if self._parts else 0
        self._make_room()
        return text[:cut]

    def _front(self) -> str:
        """The first `PIECE` characters that wait, taken out."""
        size = count = 0
        while count < len(self._parts) and size < PIECE:
            size += len(self._parts[count])
            count += 1
        text = "".join(self._parts[:count])
        del self._parts[:count]
        if size > PIECE:
            self._parts.insert(0, text[PIECE:])
        return text[:PIECE]

    @property
    def waiting(self) -> int:
        """Characters that wait, those that may be the beginning of a secret too."""
        return self._size

    def __bool__(self) -> bool:
        """True if something waits that may be shown."""
        self._look()
        return self._ready > 0

    def _look(self) -> None:
        """Find out how much may be shown, a piece at most; drop what need not be kept of a secret that is too long."""
        while self._ready < 0:
            text = self._front()
            more = bool(self._parts)
            cut, kept = self._hold(text)
            if len(kept) >= PIECE:  # nothing is held back for ever
                cut, kept = len(text), ""
            dropped = len(text) - cut - len(kept)
            if dropped:
                text = text[:cut] + kept
                self._size -= dropped
                self._make_room()
            if text:
                self._parts.insert(0, text)
            if cut or not more:  # a piece is longer than what may be held back: the next round has a shorter text
                self._ready = cut

    def _make_room(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None


@attrs.define(eq=False)
class DeltaBuffers:
    """What one child streams: text and reasoning of a message, or output and progress of a call."""

    text: DeltaBuffer
    reasoning: DeltaBuffer
    progress: tuple[float, str] | None = None
    printed: int = 0

    def discard_further(self) -> None:
        """Nobody waits for room any more."""
        self.text.discard_further()
        self.reasoning.discard_further()

    def tell(self, fraction: float, text: str) -> None:
        """How far a call is; the newest report wins."""
        self.progress = (fraction, text_of(text))


def _after(before: OverrunBody, body: Callable[[Child], Awaitable[None]]) -> Callable[[Child], Awaitable[None]]:
    """A body that begins when an older attempt, which hid from its cancel, has ended at last."""

    async def later(child: Child) -> None:
        await before.ended.wait()
        await trio.lowlevel.checkpoint_if_cancelled()  # both came at once: a body that is cancelled must not begin
        await body(child)

    return later


class Children:
    """The live children of one incarnation of a run actor.

    Their tasks live in the runtime's workplace; `end` is called when the incarnation goes. After that nothing counts
    that they do.

    Attributes:
        live: by key. inputs: what they owe.
        left: by key, what has overrun its grace: threads that were given up, and what earlier incarnations left behind.
        crash: a child crashed in a way that is the run actor's own crash.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        nudge: Callable[[], None],
        hold: Hold,
        left: Mapping[str, OverrunBody] | None = None,
    ) -> None:
        self._nursery = nursery
        self.left = dict(left or {})
        self._hushed = False
        self._gone: trio.Event | None = None
        self._ended = False
        self.crash: BaseException | None = None
        self._hold = hold
        self.nudge = nudge
        self.live: dict[str, Child] = {}
        self.inputs: list[Input] = []  # short: an empty deque would be 0.8 KB of every run that waits
        self.messages: dict[str, DeltaBuffers] = {}
        self.calls: dict[tuple[str, int], DeltaBuffers] = {}
        self._questions: TaskRequests | None = None
        self.watched: dict[str, tuple[float, Callable[[], float | None]]] = {}

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
        """Start a child. `broke` makes the input for an exception that leaves its body: a crash is a message, too.

        Without `broke`, or if that raises, the crash is the run actor's own. After `end` the body never begins.
        """
        if key in self.live:
            raise RuntimeError(f"child {key!r} is already there")
        child = Child(key, trio.CancelScope(), grace, tool, ours=ours)
        if self._ended:  # of one that is on its way out itself: nobody would cancel it later
            child.scope.cancel("the run's owner has gone")
        before = self.left.get(key)
        if before is not None and not before.ended.is_set():
            body = _after(before, body)
        self.live[key] = child
        self._nursery.start_soon(self._run, child, body, broke, name=key)
        return child

    async def _run(
        self, child: Child, body: Callable[[Child], Awaitable[None]], broke: Callable[[BaseException], Input] | None
    ) -> None:
        child.task = trio.lowlevel.current_task()
        try:
            with child.scope:
                await trio.lowlevel.checkpoint_if_cancelled()  # cancelled before it began: it must not act
                await body(child)
        except BaseException as error:  # noqa: BLE001, ASYNC103 - what passes the border is raised by `failure_of`
            try:
                failure = failure_of(error)
            except BaseException:
                self._lost()
                raise
            self._broke(child, failure, broke)
        finally:
            self._leave(child)

    def _broke(self, child: Child, error: BaseException, broke: Callable[[BaseException], Input] | None) -> None:
        """A crash becomes an input, or (without a word for it) the run actor's own crash."""
        if self._ended or child.muted:
            return
        if broke is None:
            self.crash = error
            return
        try:
            self.submit_input(broke(error))
        except BaseException as own:  # noqa: BLE001, ASYNC103 - what it means is that the run actor begins again
            self.crash = failure_of_call(own)

    def _lost(self) -> None:
        """The workplace is being ended under a living run (a Ctrl-C that met a tool): its owner goes, too.

        That is nobody's crash: what is durable is the checkpoint.
        """
        if not self._ended:
            self.crash = ClaimLost("the workplace has ended")

    def _leave(self, child: Child) -> None:
        self.live.pop(child.key, None)
        self.watched.pop(child.key, None)
        child.conclude()
        if self._gone is not None and not self.live:
            self._gone.set()
        if not self._ended:
            self.nudge()

    async def end(self, *, wait: bool) -> Mapping[str, OverrunBody]:
        """Cancel all children, drop what they still say, and wait for them within the longest grace among them.

        What does not end in time stays in the workplace until it does. Cancellation: shielded, bounded by the grace.

        Returns:
            Who is left, by key: a later attempt of the same call waits for it.
        """
        self._ended = True
        if self._questions is not None:
            self._questions.close()
        grace = self.cancel_all("the run's owner has gone")
        if self.live and wait:
            self._gone = trio.Event()
            with cleanup(grace + SLACK, what="wait for the run's children"):
                await self._gone.wait()
        return self.still_left()

    @property
    def questions(self) -> TaskRequests:
        """Those of bodies that wait for an answer; made for the first body."""
        if self._questions is None:
            self._questions = TaskRequests(self.submit_input)
            if self._ended:
                self._questions.close()
        return self._questions

    def submit_input(self, message: Input) -> None:
        """A child's outcome; never refused. After the end it is dropped."""
        if not self._ended:
            self.inputs.append(message)
            self.nudge()

    def cancel_all(self, reason: str) -> float:
        """Cancel every child; returns the longest grace among them, in seconds."""
        grace = 0.0
        self._hushed = True
        for streams in (*self.messages.values(), *self.calls.values()):
            streams.discard_further()
        for child in tuple(self.live.values()):
            child.scope.cancel(reason)
            grace = max(grace, child.grace)
        return grace

    # --- streams -----------------------------------------------------------------------------------------------------

    def message_stream(self, message_id: str) -> DeltaBuffers:
        """The buffer of one message; made at its first use."""
        return self.messages.get(message_id) or self.messages.setdefault(message_id, self.streams())

    def call_stream(self, call_id: str, attempt: int) -> DeltaBuffers:
        """The buffer of one attempt of a call; made at its first use."""
        return self.calls.get((call_id, attempt)) or self.calls.setdefault((call_id, attempt), self.streams())

    def streams(self) -> DeltaBuffers:
        """Buffers of nothing yet."""
        streams = DeltaBuffers(DeltaBuffer(self.nudge, self._hold), DeltaBuffer(self.nudge, self._hold))
        if self._hushed:
            streams.discard_further()
        return streams

    def take_streams(self) -> list[Input]:
        """All streamed text that waits, as one input per message or call."""
        out: list[Input] = []
        for message_id, streams in self.messages.items():
            if streams.text or streams.reasoning:
                out.append(
                    ModelStreamed(message_id=message_id, text=streams.text.take(), reasoning=streams.reasoning.take())
                )
        for (call_id, attempt), streams in self.calls.items():
            out.extend(self._call_inputs(call_id, attempt, streams))
        return out

    def close_call_stream(self, call_id: str, attempt: int) -> list[Input]:
        """What an attempt streamed that has not been taken; nothing more will come."""
        streams = self.calls.pop((call_id, attempt), None)
        return [] if streams is None else self._call_inputs(call_id, attempt, streams, last=True)

    def give_up(self, child: Child, stack: Sequence[str], ended: trio.Event) -> None:
        """A child's thread did not end within its grace: the machine is told, and asked about it at the run's end."""
        item = Unfinished(
            call_id=call_of(child.key), tool=child.tool, grace=child.grace, stack=" > ".join(stack[-FRAMES:])
        )
        self.left[child.key] = OverrunBody(item, ended)
        self.submit_input(BodyOverran(item=item))

    def given_up(self, child: Child) -> bool:
        """True if this child has overrun its grace: its call goes on without it."""
        left = self.left.get(child.key)
        return left is not None and left.ended is child.ended

    def next_look(self) -> float:
        """When `look` is to be called, in trio time."""
        return min(at for at, _ in self.watched.values()) if self.watched else math.inf

    def look(self) -> None:
        """Ask those who watch over a child (`watched`) whether it hides from the end of its time, if it is time to."""
        now = trio.current_time()
        for key, (at, watching) in tuple(self.watched.items()):
            if now >= at and (again := watching()) is not None:
                self.watched[key] = again, watching

    def abandon(self, child: Child, who: str) -> None:
        """A child does not obey, because of `who`: from now on nothing counts that it does; its key is free again."""
        self.live.pop(child.key, None)
        self.watched.pop(child.key, None)
        child.key, child.muted = f"{child.key} ({who})", True
        while child.key in self.live:  # an older one of that name still lives
            child.key += "'"
        self.live[child.key] = child
        child.scope.cancel("it did not obey in time")
        self.give_up(child, (self.where(child),), child.ended)

    def live_left(self) -> bool:
        """True if a body that has overrun its grace still lives."""
        return any(not one.ended.is_set() for one in self.left.values())

    def still_left(self) -> dict[str, OverrunBody]:
        """What has overrun its grace and lives, with what runs now: after a cancel and its grace both are the same."""
        left = {key: one for key, one in self.left.items() if not one.ended.is_set()}
        for key, child in self.live.items():
            if not child.ours:
                item = Unfinished(call_id=call_of(key), tool=child.tool, grace=child.grace, stack=self.where(child))
                left[key] = OverrunBody(item, child.ended)
        return left

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
                break  # the rest waits until this is durable: a slow disk makes no long queue
        return out

    def streamed(self) -> bool:
        """True if streamed text waits."""
        if not self.messages and not self.calls:
            return False
        return any(streams.text or streams.reasoning for streams in self.messages.values()) or any(
            streams.text or streams.progress is not None for streams in self.calls.values()
        )

    def where(self, child: Child) -> str:
        """The await site of a child, innermost frame last."""
        if child.task is None:
            return ""
        frames = [
            f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{line} {frame.f_code.co_name}"
            for frame, line in child.task.iter_await_frames()
        ]
        return " > ".join(frames[-FRAMES:])
