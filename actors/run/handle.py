"""`Run`: the address of a run. It holds ids, the reader and the commands of its runtime, never a task or a channel."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Final, Generic, Literal, TypeVar, overload

import attrs
import trio

from ..contract.decisions import ActionWord, CommandResult, Decision, decision_of
from ..contract.envelope import Event, decode_event
from ..contract.outcomes import Cancelled, Completed, Failed, Waiting
from ..contract.plain import JSONObject
from ..entry import checks_options
from ..errors import UsageError
from .commands import RunCommands
from .follow import Follower
from .reader import RunReader
from .view import RunView

T_co = TypeVar("T_co", covariant=True)

_DECIDE: Final = ("result", "edited_arguments", "reason", "decision_id", "by")


@attrs.frozen(repr=False)
class Run(Generic[T_co]):
    """A run's address. Equal addresses are equal runs; keep it, copy it, make it again with `runtime.get(run_id)`.

    Attributes:
        id: the run's id.
        thread_id: the history it belongs to.
    """

    id: str
    thread_id: str
    _reader: RunReader
    _commands: RunCommands

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    # --- following ---------------------------------------------------------------------------------------------------

    @checks_options
    def events(
        self, *, after: int = 0, until: Literal["end", "rest"] = "end"
    ) -> AbstractAsyncContextManager[AsyncIterator[Event]]:
        """Follow the run's events: `async with run.events() as events: async for event in events: ...`.

        Each event comes exactly once, in order, from sequence `after + 1` on, and only when it is durable. The reader
        owns a cursor, not a queue: a slow one holds nobody up and loses nothing.

        Args:
            after: sequence of the last event that is already known.
            until: "end" stops after the terminal event; "rest" also stops when the run waits for people.

        Raises:
            UnknownRun: no such run. UsageError: `after` is negative, or `until` is not known.
            RunDegraded, RuntimeClosed: nobody works on the run here, or the runtime closes, before the end is reached
                (from the iteration, after everything that there is).
        """
        if type(after) is not int or after < 0 or until not in ("end", "rest"):
            raise UsageError(f"events(after={after!r}, until={until!r}): give after >= 0 and until 'end' or 'rest'")
        return self._open_events(after, until)

    @asynccontextmanager
    async def _open_events(self, after: int, until: Literal["end", "rest"]) -> AsyncIterator[AsyncIterator[Event]]:
        with self._reader.follow(self.id, after=after, until=until) as follower:
            async with aclosing(_decoded(follower)) as events:
                yield events

    async def wait(self) -> Completed[T_co] | Waiting | Failed | Cancelled:
        """Wait until the run is at rest: done, or waiting with every command acted on. Durable rows only.

        What a run that does not come to rest waits for is in `view().waiting_for`, and in the log `greenroom.run`.

        Raises:
            UnknownRun: no such run. RunDegraded: nobody works on it here. RuntimeClosed: the runtime closes first.
        """
        outcome: Completed[T_co] | Waiting | Failed | Cancelled = await self._reader.outcome(self.id, final=False)
        return outcome

    async def result(self) -> Completed[T_co] | Failed | Cancelled:
        """Wait until the run is done, through any number of approvals.

        Raises:
            UnknownRun: no such run. RunDegraded: nobody works on it here. RuntimeClosed: the runtime closes first.
        """
        outcome: Completed[T_co] | Failed | Cancelled = await self._reader.outcome(self.id, final=True)
        return outcome

    async def view(self) -> RunView:
        """One consistent, durable snapshot.

        Raises:
            UnknownRun: no such run. RuntimeClosed: the runtime is closed.
        """
        return await self._reader.view(self.id)

    # --- commands ----------------------------------------------------------------------------------------------------

    @overload
    async def decide(self, target: Decision, /) -> CommandResult: ...
    @overload
    async def decide(
        self,
        target: str,
        action: ActionWord,
        /,
        *,
        result: object = None,
        edited_arguments: JSONObject | None = None,
        reason: str | None = None,
        decision_id: str | None = None,
        by: str | None = None,
    ) -> CommandResult: ...
    async def decide(self, target: object, action: object = None, /, **options: object) -> CommandResult:
        """Decide about a ticket or call.

        The answer says what became of it; a decision that comes too late, or does not fit, never raises and never hurts
        the run.

        Accepted means journaled: the decision acts exactly once, also after a crash. It is shielded between submit and
        receipt; after Cancelled it may have happened: repeat it with its `decision_id` (the answer is then
        "duplicate").

        Args:
            target: a ticket id, a call id, or a whole Decision (`ticket.approve()`, `ticket.deny()`).
            action: "approve" or "deny"; "resume" and "cancel" mean the same.
            options: result, edited_arguments, reason, decision_id, by: as in `Decision`; `by` is "local" if not given.

        Raises:
            UsageError: the action or an option is not known, or options stand beside a whole Decision. UnknownRun: no
                such run.
        """
        return await self._commands.decide(self.id, decision_of(target, action, options, _DECIDE))

    async def decide_all(self, decisions: Sequence[Decision]) -> list[CommandResult]:
        """Decide several, in order; each gets its own answer, and one that is rejected does not hold up the others.

        Raises:
            UsageError: it is one decision and no list, or one of them is no Decision; none has been sent.
            UnknownRun: no such run.
        """
        if isinstance(decisions, Decision):
            raise UsageError(f"decide_all({decisions.target!r} ...): give a list of decisions, or use decide(...)")
        meant = [decision_of(decision, None, {}, _DECIDE) for decision in decisions]
        return [await self.decide(decision) for decision in meant]

    @checks_options
    async def cancel(
        self,
        *,
        mode: Literal["now", "after_step"] = "now",
        reason: str | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> CommandResult:
        """Ask the run to end. Accepted means journaled: the run will end as cancelled unless it ends by itself first.

        Args:
            mode: "now" cancels everything that the run has started; "after_step" lets the current step end (a waiting
                run ends now).
            reason: for the audit and the terminal event.
            by: a principal; "local" if not given.
            command_id: to repeat a cancel whose answer was lost.

        Raises:
            UsageError: the mode is not known. UnknownRun: no such run.
        """
        return await self._commands.cancel(self.id, mode=mode, reason=reason, by=by, command_id=command_id)

    @checks_options
    async def pause(
        self, *, reason: str | None = None, by: str | None = None, command_id: str | None = None
    ) -> CommandResult:
        """Hold the run before its next step, or at once if it waits for people already. Accepted means journaled.

        What is at work goes on to the end of its step; then the run waits with a ticket of its own (call_id None,
        reason manual_pause). To resume lets it go on, and a result joins the thread as a message; to cancel ends it. A
        run that comes to its end first ends: the pause is then recorded as refused. A second pause joins the first.

        Args:
            reason: for whoever is to decide, and the audit.
            by: a principal; "local" if not given.
            command_id: to repeat a pause whose answer was lost.

        Raises:
            UnknownRun: no such run.
        """
        return await self._commands.pause(self.id, reason=reason, by=by, command_id=command_id)

    @checks_options
    async def send(self, text: str, *, by: str | None = None, command_id: str | None = None) -> CommandResult:
        """Give the run more input; it joins the thread at the next step. Accepted means journaled.

        Raises:
            UsageError: the text is no str, or blank. UnknownRun: no such run.
        """
        return await self._commands.send(self.id, text, by=by, command_id=command_id)


async def _decoded(follower: Follower) -> AsyncGenerator[Event, None]:
    async for found in follower:
        for frame in found.frames:
            await trio.lowlevel.checkpoint_if_cancelled()  # a slice is long; the follower lets others run between two
            yield decode_event(frame)
