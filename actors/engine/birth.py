"""The rows and the event with which every run begins: what a start writes, and what a replay makes again."""

from __future__ import annotations

from ..contract.envelope import timestamp
from ..contract.events import RunCreated
from ..contract.lifecycle import Stage
from ..contract.messages import Message
from ..contract.rows import Counters, EventDraft, RunInfo, RunRow


def row_at_birth(messages: tuple[Message, ...]) -> RunRow:
    """The row of a run that begins with these messages: they join its thread at its first step."""
    return RunRow(last_sequence=1, pending_input=messages, counters=Counters(messages=len(messages)))


def created(info: RunInfo, text: str) -> EventDraft:
    """The first event of every run. `text` is its input."""
    payload = RunCreated(
        to=Stage.CREATED,
        agent=info.agent,
        thread_id=info.thread_id,
        input=text,
        by=info.by,
        workspace=info.workspace,
        deadline=None if info.deadline is None else timestamp(info.deadline),
        parent=info.parent_run,
        forked_from=None if info.forked_from is None else f"{info.forked_from}@{info.forked_step}",
    )
    return EventDraft("run.created", payload)
