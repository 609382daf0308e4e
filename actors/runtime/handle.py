"""`Run`: the address of a run. A `Run` holds ids and its runtime's reader and commands, never a task or a channel.

Theory of operation. An address costs nothing and never becomes invalid: a run may rest, leave memory and move to the
next process between two calls of its methods. Reads go to the store and show durable facts only; writes are journaled
commands, which a run without an owner finds in its inbox. Two addresses with one id are equal.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Final, Generic, Literal, TypedDict, TypeVar, Unpack, overload

import attrs
import trio

from ..agents.attachments import File, Image
from ..contract.artifacts import Artifact
from ..contract.codec import SchemaError
from ..contract.decisions import ActionWord, CommandResult, Decision, decision_of
from ..contract.envelope import Event, decode_event
from ..contract.outcomes import Cancelled, Completed, Failed, Waiting
from ..contract.parts import Part
from ..contract.plain import JSONObject
from ..entry import checks_options
from ..errors import StoreError, UsageError
from ..permission.remembered import Always
from ..run.view import RunView
from ..services.follow import Follower
from ..services.sanitize import check_range
from ..state.values import shown
from .commands import RunCommands
from .reader import RunReader

T_co = TypeVar("T_co", covariant=True)


class DecisionOptions(TypedDict, total=False):
    """What goes with the id of a ticket or call; see `Decision`."""

    result: object
    edited_arguments: JSONObject | None
    reason: str | None
    decision_id: str | None
    by: str | None


_DECIDE: Final = tuple(DecisionOptions.__annotations__)


@attrs.frozen(repr=False)
class Run(Generic[T_co]):
    """A run's address.

    Two addresses of one run are equal; keep them, copy them, or get them again with `runtime.get(run_id)`.

    Attributes:
        id: the run's id.
        thread_id: the thread of the run.
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

        Delivery: each event exactly once per iteration, in order from sequence `after + 1`, and only when durable. The
        reader owns a cursor, not a queue: a slow reader delays no run and misses no event.

        Args:
            after: sequence of the last known event.
            until: "end" stops after the terminal event; "rest" also stops when the run waits for people.

        Raises:
            UsageError: `after` is negative, or `until` is unknown.
            UnknownRun: no run has this id (from the iteration).
            RunDegradedError: the run is not worked on here (from the iteration, after all stored events).
            StoreError: an event is damaged (from the iteration).
            RuntimeClosed: the runtime closes before the end (from the iteration, after all events in memory).
        """
        check_range("events", after, until)
        return followed(self._reader, self.id, after, until)

    async def wait(self) -> Completed[T_co] | Waiting | Failed | Cancelled:
        """Wait until the run is at rest: done, or waiting with every accepted command acted on.

        Reads durable rows only.

        For a run that does not come to rest, `view().waiting_for` and the log `greenroom.run` say what it waits for.

        Raises:
            UnknownRun: no run has this id.
            RunDegradedError: the run is not worked on here.
            RuntimeClosed: the runtime closes first.
        """
        outcome: Completed[T_co] | Waiting | Failed | Cancelled = await self._reader.outcome(self.id, final=False)
        return outcome

    async def result(self) -> Completed[T_co] | Failed | Cancelled:
        """Wait until the run is done, through any number of approvals.

        Raises:
            UnknownRun: no run has this id.
            RunDegradedError: the run is not worked on here.
            RuntimeClosed: the runtime closes first.
        """
        outcome: Completed[T_co] | Failed | Cancelled = await self._reader.outcome(self.id, final=True)
        return outcome

    async def view(self) -> RunView:
        """Return one consistent, durable snapshot of the run.

        Raises:
            UnknownRun: no run has this id.
            RuntimeClosed: the runtime is closed.
        """
        return await self._reader.view(self.id)

    async def part(self, part: Part | str) -> bytes:
        """Return the bytes of an image or a file of the run's thread.

        Args:
            part: A part of a message of `view`, or the digest in a result or an event (`sha256`).

        Raises:
            UsageError: the thread has no such part, or the part is an address.
            UnknownRun: no run has this id.
            RuntimeClosed: the runtime is closed.
        """
        if not isinstance(part, Part | str):
            raise UsageError(f"part({shown(part)}): give a Part of a message, or its sha256")
        return await self._reader.part(self.id, part.sha256 if isinstance(part, Part) else part)

    async def artifact(self, artifact: Artifact | str) -> bytes:
        """Return the bytes of an artifact that the run has published, or that a fork has copied.

        Args:
            artifact: An artifact of `view`, or its id in an event (`artifactId`).

        Raises:
            UnknownArtifact: the run has no such artifact, or the store has no bytes of it: a preview of an address, or
                a screenshot that its privacy review has blocked.
            UnknownRun: no run has this id.
            RuntimeClosed: the runtime is closed.
        """
        if not isinstance(artifact, Artifact | str):
            raise UsageError(f"artifact({shown(artifact)}): give an Artifact of a view, or its id")
        name = artifact.artifact_id if isinstance(artifact, Artifact) else artifact
        return (await self._reader.artifact(self.id, name)).data or b""

    # --- commands ----------------------------------------------------------------------------------------------------

    @overload
    async def decide(self, target: Decision, /, *, remember: Always | None = None) -> CommandResult: ...
    @overload
    async def decide(
        self,
        target: str,
        action: ActionWord,
        /,
        *,
        remember: Always | None = None,
        **options: Unpack[DecisionOptions],
    ) -> CommandResult: ...
    async def decide(
        self, target: object, action: object = None, /, *, remember: Always | None = None, **options: object
    ) -> CommandResult:
        """Decide a ticket or a call.

        The result says whether the decision was accepted. A decision that is late or does not fit is rejected in the
        result; it never raises and never harms the run.

        Accepted means journaled: the decision acts exactly once, also after a crash. The call is shielded between
        submit and receipt. After Cancelled the decision may be journaled: repeat it with its `decision_id`, and the
        result is "duplicate".

        Args:
            target: a ticket id, a call id, or a whole Decision (`ticket.approve()`, `ticket.deny()`).
            action: "approve" or "deny"; "resume" and "cancel" mean the same.
            remember: also keep the rule that "always" beside the approval makes, once the decision is accepted. An
                answer that may not be remembered is rejected (not_allowed), and decides nothing.
            options: result, edited_arguments, reason, decision_id, by: as in `Decision`; `by` is "local" if not given.

        Raises:
            UsageError: the action or an option is unknown, or options are given beside a whole Decision; or `remember`
                goes with a denial, or with a store that keeps no values.
            UnknownRun: no run has this id.
        """
        decision = decision_of(target, action, options, _DECIDE)
        return await self._commands.decide(self.id, decision, remember=remember)

    async def decide_all(self, decisions: Sequence[Decision]) -> list[CommandResult]:
        """Decide several tickets or calls, in order.

        Each decision gets its own result; a rejection does not stop the others.

        Raises:
            UsageError: the argument is one decision and not a list, or an item is not a Decision; no decision was sent.
            UnknownRun: no run has this id.
        """
        if isinstance(decisions, Decision):
            raise UsageError(f"decide_all({decisions.target!r} ...): give a list of decisions, or use decide(...)")
        if not isinstance(decisions, Sequence):
            raise UsageError(f"decide_all({decisions!r:.200}): give a list of decisions")
        checked_decisions = [decision_of(decision, None, {}, _DECIDE) for decision in decisions]
        return [await self.decide(decision) for decision in checked_decisions]

    @checks_options
    async def cancel(
        self,
        *,
        mode: Literal["now", "after_step"] = "now",
        reason: str | None = None,
        by: str | None = None,
        command_id: str | None = None,
    ) -> CommandResult:
        """Ask the run to end. Accepted means journaled: the run ends as cancelled unless it ends by itself first.

        Args:
            mode: "now" cancels everything that the run has started; "after_step" lets the current step finish (a
                waiting run ends immediately).
            reason: The reason in the audit and the terminal event.
            by: a principal; "local" if not given.
            command_id: repeats a cancel whose result was lost.

        Raises:
            UsageError: the mode is unknown.
            UnknownRun: no run has this id.
        """
        return await self._commands.cancel(self.id, mode=mode, reason=reason, by=by, command_id=command_id)

    @checks_options
    async def pause(
        self, *, reason: str | None = None, by: str | None = None, command_id: str | None = None
    ) -> CommandResult:
        """Hold the run before its next step, or where it already waits for people. Accepted means journaled.

        The current step finishes; then the run waits with a separate ticket (call_id None, reason manual_pause).
        Resume continues the run, and a result joins the thread as a message; cancel ends the run. A run that ends first
        records the pause as refused. A second pause joins the first.

        Args:
            reason: The reason that the deciding person and the audit see.
            by: a principal; "local" if not given.
            command_id: repeats a pause whose result was lost.

        Raises:
            UnknownRun: no run has this id.
        """
        return await self._commands.pause(self.id, reason=reason, by=by, command_id=command_id)

    @checks_options
    async def send(
        self,
        text: str,
        *,
        attachments: Sequence[Image | File] = (),
        by: str | None = None,
        command_id: str | None = None,
    ) -> CommandResult:
        """Give the run more input, which joins the thread at the next step. Accepted means journaled.

        Args:
            text: must not be blank without attachments.
            attachments: images and files, at most 100 and 8 MiB together.
            by: a principal; "local" if not given.
            command_id: repeats a send whose result was lost.

        Raises:
            UsageError: the text is not a str, or blank without attachments.
            InvalidAttachment: an attachment is not an Image or File, or they are too many or too large together.
            UnknownRun: no run has this id.
        """
        return await self._commands.send(self.id, text, attachments=attachments, by=by, command_id=command_id)


@asynccontextmanager
async def followed(
    reader: RunReader, run_id: str, after: int, until: Literal["end", "rest"] = "end"
) -> AsyncIterator[AsyncIterator[Event]]:
    """Follow a run's events; see `Run.events`."""
    with reader.follow(run_id, after=after, until=until) as follower:
        async with aclosing(_decoded(follower)) as events:
            yield events


async def _decoded(follower: Follower) -> AsyncGenerator[Event, None]:
    async for events in follower:
        for frame in events.frames:
            # a slice may hold 1,024 events; the follower has a checkpoint only between slices
            await trio.lowlevel.checkpoint_if_cancelled()
            try:
                event = decode_event(frame)
            except SchemaError as error:
                raise StoreError(f"an event of run {follower.run_id} cannot be read: {error}") from error
            yield event


def decided(by: str, target: object, action: object, options: Mapping[str, object]) -> Decision:
    """Return the decision for `decide(target, action, **options)`; `by` decides, unless the decision names somebody.

    Raises:
        UsageError: the arguments are no decision.
    """
    decision = decision_of(target, action, options, _DECIDE)
    return attrs.evolve(decision, decided_by=by) if decision.decided_by is None else decision
