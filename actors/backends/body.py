"""The body of a backend's call: holds the conversation with one program, and lets people decide what it asks.

Theory of operation. One task reads; each open question has a task, in which it is a nested call or a question to
people, so the reader goes on meanwhile. One task writes. The clocks are a task, too. The end is one of three:

- The program ends. The verdict comes of its last item, its exit and the ends of its streams.
- The program has done its work and does not end (`PromptDone`, then `LINGER` seconds), or a clock has run out: it is
  stopped, and the verdict says why.
- The body is cancelled: the program is stopped.

To stop a program, it is asked to stop by its protocol, and its open questions are denied; then come the signals of
`ProgramProcess.stop`. What the program says meanwhile is read, and none of it is reported.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal

import attrs
import trio

from ...supervision.nursery import open_collapsing_nursery
from ..contract.decisions import Suspend
from ..contract.facts import NestedAnswer
from ..errors import ToolError
from ..tools.context import ToolContext
from .clocks import ProgramClocks, ProgramLimits, Which
from .dialect import AskAnswer, Declined, Dialect, Granted, Launch, ProgramExit, ProgramVerdict, Prompt, Supplied
from .items import Asked, CallEnded, Item, Notice, PromptDone, Question, Seen, SendBytes, SessionKnown, Withdrawn
from .narration import Narration
from .process import ProcessExit, ProgramCommand, ProgramEnded, ProgramNotStarted, ProgramProcess, open_program

LINGER: Final = 3.0
"""Seconds for a program to end after it has done its work and its input is closed."""
STOPPED: Final = "The work is stopped."
"""Reads a program whose question is open when it is stopped."""
NOT_AWAITED: Final = "The program does not wait for this answer any more, and did not run the call."
_OUTBOX: Final = 1_024
"""Messages that wait for a program that does not read; a dialect has no more questions open."""
_WORDS: Final[dict[Which, str]] = {
    "start": "it said nothing for {:g} s after its start",
    "idle": "it said nothing for {:g} s",
    "work": "it worked for {:g} s, its limit",
}


@attrs.frozen(kw_only=True)
class Job:
    """What one program is to do.

    Attributes:
        name: The program.
        dialect: The conversation, new.
        prompt: The prompt.
        command: Makes the command from the words of the dialect.
        limits: The time limits.
        mark: The mark of the process (`open_program`).
    """

    name: str
    dialect: Dialect
    prompt: Prompt
    command: Callable[[tuple[str, ...]], ProgramCommand]
    limits: ProgramLimits
    mark: str


async def work(ctx: ToolContext[Any], job: Job) -> tuple[ProgramVerdict, str]:
    """Let a program do a job; return the verdict, and the id of the session if there is one.

    Cancellation: the program is stopped, with all its descendants, in at most `process.STOPPING` seconds.
    """
    launch = job.dialect.begin(job.prompt)
    try:
        async with open_program(job.command(launch.argv), mark=job.mark) as program:
            conversation = Conversation(ctx, job, program)
            return await conversation.outcome(launch), conversation.narration.session
    except ProgramNotStarted as error:
        verdict = job.dialect.ended(ProgramExit(status=None, error=str(error)))
        await Narration(ctx, job.name, job.prompt.folder).unavailable(verdict.detail)
        return verdict, ""


class Conversation:
    """The conversation with one program that runs.

    Attributes:
        narration: The reports about the program.
    """

    def __init__(self, ctx: ToolContext[Any], job: Job, program: ProgramProcess) -> None:
        self._ctx, self._dialect, self._program, self._mark = ctx, job.dialect, program, job.mark
        self.narration = Narration(ctx, job.name, job.prompt.folder)
        self._asks: dict[str, trio.CancelScope] = {}
        self._working: dict[str, list[str]] = {}  # the program's id of a call -> nested calls that are allowed
        self._clocks = ProgramClocks(job.limits, self._heard_at, lambda: bool(self._working))
        self._has_spoken = False
        self._outgoing, self._outbox = trio.open_memory_channel[bytes | None](_OUTBOX)
        self._stopping = trio.CancelScope()
        self._why: Literal["", "finished", "run_timeout"] = ""
        self._overrun = ""
        self._survivors: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"<Conversation with {self._program!r}: {len(self._asks)} questions open>"

    async def outcome(self, launch: Launch) -> ProgramVerdict:
        """Hold the conversation to its end, and return the verdict."""
        end: ProgramExit | None = None
        try:
            end = await self.hold(launch)
        finally:
            if self.narration.usage is not None:
                self._ctx.spend(self.narration.usage)
            if end is None:
                await self.stop()  # noqa: ASYNC102 - bounded inside
        for pid in self._survivors:
            await self.narration.report(Notice(kind="warning", text=f"its process {pid} could not be ended"))
        verdict = self._dialect.ended(end)
        if verdict.code == "runtime_unavailable":
            await self.narration.unavailable(verdict.detail)
        return attrs.evolve(verdict, detail=f"{verdict.detail}: {self._overrun}") if self._overrun else verdict

    async def hold(self, launch: Launch) -> ProgramExit:
        """Hold the conversation to its end, and return how the program ended."""
        self._outgoing.send_nowait(launch.data)
        if launch.closes_stdin:
            self._outgoing.send_nowait(None)
        end: ProcessExit | None = None
        with self._stopping:
            async with open_collapsing_nursery() as nursery:
                nursery.start_soon(self._write)
                nursery.start_soon(self._watch)
                await self._read(nursery)
                end = await self._program.wait()
                nursery.cancel_scope.cancel()
        return self._exit(end or await self.stop())

    async def stop(self) -> ProcessExit:
        """Stop the program. Bounded and shielded."""
        with trio.CancelScope(shield=True):
            async with open_collapsing_nursery() as nursery:
                nursery.start_soon(self._hear_out)
                end = await self._program.stop(b"" if self._why == "finished" else self._last_words())
                nursery.cancel_scope.cancel()
        return end

    def _last_words(self) -> bytes:
        """Return the request to stop, and denials of the open questions: behind it, so that none is acted on."""
        request = self._dialect.interrupt()
        return request + b"".join(self._dialect.answer(ask_id, Declined(text=STOPPED)) for ask_id in self._asks)

    def _exit(self, end: ProcessExit) -> ProgramExit:
        self._survivors = end.survivors
        status = end.code if end.signal is None else -end.signal
        is_ours = end.stopped or self._why == "run_timeout"
        return ProgramExit(status=status, stderr=end.errors, stopped=self._why if is_ours else "")

    # --- tasks -------------------------------------------------------------------------------------------------------

    async def _read(self, nursery: trio.Nursery) -> None:
        while data := await self._program.receive():
            self._has_spoken = True
            with self._clocks.waiting():  # a report may wait for the store, which is no silence of the program
                for item in self._dialect.feed(data):
                    await self._take(item, nursery)
        for item in self._dialect.end():
            await self._take(item, nursery)

    async def _hear_out(self) -> None:
        """Read what a program says that is being stopped: it may not end before it could say all."""
        while data := await self._program.receive():
            for item in self._dialect.feed(data):
                if isinstance(item, PromptDone):
                    await self._program.close_input()

    async def _write(self) -> None:
        with self._outbox, suppress(ProgramEnded):  # the end of the program says why it reads no more
            async for data in self._outbox:
                if data is None:
                    await self._program.close_input()
                    return
                await self._program.send(data)

    async def _watch(self) -> None:
        which, limit = await self._clocks.watch()
        self._overrun = _WORDS[which].format(limit)
        await self.narration.late(which, limit)
        self._why = "run_timeout"
        self._stopping.cancel()

    async def _linger(self) -> None:
        await trio.sleep(LINGER)
        self._why = "finished"
        self._stopping.cancel()

    def _heard_at(self) -> float | None:
        return self._program.heard_at if self._has_spoken else None

    # --- items -------------------------------------------------------------------------------------------------------

    async def _take(self, item: Item, nursery: trio.Nursery) -> None:
        match item:
            case Asked(ask_id=ask_id):
                await self.narration.go_on()
                self._asks[ask_id] = scope = trio.CancelScope()
                await nursery.start(self._ask, item, scope)  # so that the calls are in the order of the program
            case Question(ask_id=ask_id):
                await self.narration.go_on()
                self._asks[ask_id] = scope = trio.CancelScope()
                nursery.start_soon(self._inquire, item, scope)
            case Withdrawn(ask_id=ask_id):
                if ask_id in self._asks:
                    self._asks.pop(ask_id).cancel()
            case Seen():
                await self.narration.go_on()
                await self._note(item)
            case CallEnded():
                self._end_call(item)
            case SendBytes(data=data):
                await self._send(data)
            case PromptDone():
                await self._send(None)
                nursery.start_soon(self._linger)
            case SessionKnown():
                await self.narration.report(item)
                await self._ctx.save({"mark": self._mark, "session": item.session_id})
            case _:
                await self.narration.report(item)

    async def _send(self, data: bytes | None) -> None:
        if data != b"":
            with suppress(trio.BrokenResourceError):  # the program reads no more
                await self._outgoing.send(data)

    # --- questions ---------------------------------------------------------------------------------------------------

    async def _ask(self, item: Asked, scope: trio.CancelScope, task_status: trio.TaskStatus[None]) -> None:
        """Make a nested call of what the program asks, and answer the program."""
        call = partial(self._ctx.call_nested, item.tool, item.arguments, effect=item.effect, editable=item.editable)
        answer = None
        with scope, self._clocks.waiting():
            try:
                task_status.started()
                answer = await call()
            except ToolError as error:
                answer = NestedAnswer(call_id="", text=str(error))
        # a call that was withdrawn because the body is stopped stays open, so that `stop` answers the program
        await trio.lowlevel.checkpoint_if_cancelled()
        if answer is None:
            return  # withdrawn by the program, and so was the nested call
        data = self._dialect.answer(item.ask_id, _reply(item, answer))
        del self._asks[item.ask_id]
        if answer.arguments is not None and data:
            self._working.setdefault(item.call_id, []).append(answer.call_id)
        elif answer.arguments is not None:
            self._ctx.end_nested(answer.call_id, text=NOT_AWAITED, code="cancelled")
        await self._send(data)

    async def _inquire(self, item: Question, scope: trio.CancelScope) -> None:
        """Ask people what the program asks, and answer the program."""
        answer: AskAnswer | None = None
        with scope, self._clocks.waiting():
            answer = await self._decision(item)
        await trio.lowlevel.checkpoint_if_cancelled()  # as in `_ask`
        if answer is not None:
            data = self._dialect.answer(item.ask_id, answer)
            del self._asks[item.ask_id]
            await self._send(data)

    async def _decision(self, item: Question) -> AskAnswer:
        question = Suspend(reason="user_input", message=item.message, response_schema=item.schema)
        try:
            decision = await self._ctx.ask(question)
        except ToolError as error:
            return Declined(text=str(error))
        if decision.action == "resume":
            return Supplied(value=decision.result)
        return Declined(text=decision.result if isinstance(decision.result, str) else decision.reason or "")

    async def _note(self, item: Seen) -> None:
        """Record a call that the program ran unasked."""
        try:
            answer = await self._ctx.call_nested(item.tool, item.arguments, effect=item.effect, seen=True)
        except ToolError:  # too many calls: the verdict does not depend on them
            return
        if answer.arguments is not None:
            self._working.setdefault(item.call_id, []).append(answer.call_id)

    def _end_call(self, item: CallEnded) -> None:
        for call_id in self._working.pop(item.call_id, ()):
            self._ctx.end_nested(call_id, item.text, code="tool_error" if item.failed else None)
        self._clocks.rest()


def _reply(item: Asked, answer: NestedAnswer) -> AskAnswer:
    if answer.arguments is None:
        return Declined(text=answer.text)
    return Granted(arguments=answer.arguments if item.editable and answer.arguments != item.arguments else None)
