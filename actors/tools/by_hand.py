"""A context that was made by hand: the calls of a body for which no runtime is there.

Reports are dropped; a request that needs an answer is refused, with the argument that would answer it.
"""

from __future__ import annotations

from typing import Protocol

from ..contract.artifacts import Artifact, without_bytes
from ..contract.decisions import Decision, Suspend
from ..contract.facts import NestedAnswer
from ..contract.messages import Message, Usage
from ..contract.plain import JSONObject
from ..contract.tasks import TaskView
from ..errors import UsageError


class CallNested(Protocol):
    """Makes a nested call; see `ToolContext.call_nested`."""

    async def __call__(
        self, tool: str, arguments: JSONObject, *, effect: str = "read", editable: bool = False, seen: bool = False
    ) -> NestedAnswer:
        """Return when the start of the call is durable, or when the call has ended without work."""


class EndNested(Protocol):
    """Reports the end of a nested call; see `ToolContext.end_nested`."""

    def __call__(
        self, call_id: str, result: object = None, *, text: str | None = None, code: str | None = None
    ) -> None:
        """Report the result, or the code of a failure."""


class Reports(Protocol):
    """Reports what a program says and does that works for the call; see `ToolContext.reports`."""

    async def say(self, text: str = "", *, reasoning: str = "") -> None:
        """Stream more of the message that the program is saying."""

    async def complete(self, text: str) -> None:
        """Complete that message: `text` is all of it."""

    async def note(self, kind: str, /, **fields: object) -> None:
        """Note an event, such as "run.plan.changed" with its `entries`."""


class NoReports:
    """The reports of a context that was made by hand."""

    def __repr__(self) -> str:
        return "<NoReports>"

    async def say(self, text: str = "", *, reasoning: str = "") -> None:
        """Drop a text."""

    async def complete(self, text: str) -> None:
        """Drop a message."""

    async def note(self, kind: str, /, **fields: object) -> None:
        """Drop a note."""


async def nobody_hears_progress(fraction: float, text: str) -> None:
    """Drop a report."""


async def nobody_hears_output(text: str) -> None:
    """Drop output."""


def deaf_progress(fraction: float, text: str) -> None:
    """Drop a report."""


def deaf_output(text: str) -> None:
    """Drop output."""


async def keep_no_memo(memo: object) -> None:
    """Drop a memo."""


def forget_memo(memo: object) -> None:
    """Drop a memo."""


def count_nothing(usage: Usage, model: str) -> None:
    """Drop a usage."""


def carry_on() -> None:
    """Return: nothing cancels the body."""


async def no_thread() -> tuple[Message, ...]:
    """Return no messages."""
    return ()


def alone(what: str) -> UsageError:
    """Return the error of a request about a task."""
    return UsageError(
        f"{what}: a context that was made by hand runs no tasks; give it start_task=, stop_task=, see_tasks="
    )


def nobody() -> UsageError:
    """Return the error of a question to people."""
    return UsageError("a context that was made by hand asks nobody; give it ask_people=")


async def ask_nobody(suspend: Suspend) -> Decision:
    """Refuse a question."""
    raise nobody()


def ask_none(suspend: Suspend) -> Decision:
    """Refuse a question."""
    raise nobody()


async def call_nothing(
    tool: str, arguments: JSONObject, *, effect: str = "read", editable: bool = False, seen: bool = False
) -> NestedAnswer:
    """Refuse a nested call."""
    raise UsageError(f"nested call {tool!r}: a context that was made by hand makes none; give it call_nested=")


def end_nothing(call_id: str, result: object = None, *, text: str | None = None, code: str | None = None) -> None:
    """Drop the end of a nested call."""


async def publish_nowhere(artifact: Artifact) -> Artifact:
    """Return the facts of an artifact whose bytes go nowhere."""
    return without_bytes(artifact)


def publish_nothing(artifact: Artifact) -> Artifact:
    """Return the facts of an artifact whose bytes go nowhere."""
    return without_bytes(artifact)


async def start_nothing(tool: str, arguments: JSONObject) -> str:
    """Refuse a task."""
    raise alone(f"spawn({tool!r})")


async def stop_nothing(task_id: str) -> bool:
    """Refuse to cancel a task."""
    raise alone(f"cancel_task({task_id!r})")


async def see_nothing() -> tuple[TaskView, ...]:
    """Refuse to list tasks."""
    raise alone("tasks()")


def start_none(tool: str, arguments: JSONObject) -> str:
    """Refuse a task."""
    raise alone(f"spawn({tool!r})")


def stop_none(task_id: str) -> bool:
    """Refuse to cancel a task."""
    raise alone(f"cancel_task({task_id!r})")


def see_none() -> tuple[TaskView, ...]:
    """Refuse to list tasks."""
    raise alone("tasks()")
