"""The row and the event with which every run begins, made by a start and made again by a replay.

Theory of operation. A run is created without an input to its machine: `Store.create_run` writes this row and
`run.created` in one transaction. Both are functions of the run's constant facts and its input, so a replay makes the
same bytes from the record's first entry. The input waits in the row (`pending_input`) and joins the thread with the
first step, because another run may work on the thread until then.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import PurePosixPath, PureWindowsPath

from ..contract.commits import EventDraft
from ..contract.envelope import timestamp
from ..contract.events import RunCreated
from ..contract.lifecycle import Stage
from ..contract.messages import Message
from ..contract.parts import Part, facts_on_wire
from ..contract.rows import Counters, RunInfo, RunRow


def initial_row(messages: tuple[Message, ...], deadline: datetime | None = None) -> RunRow:
    """Return the row of a run that begins with these messages, which join its thread at its first step."""
    counters = Counters(messages=len(messages))
    return RunRow(last_sequence=1, pending_input=messages, counters=counters, next_due=deadline)


def shown_workspace(workspace: str | None) -> str | None:
    """Return a directory's name without its path: the location on the host is private."""
    if workspace is None or not (PurePosixPath(workspace).is_absolute() or PureWindowsPath(workspace).is_absolute()):
        return workspace
    return PureWindowsPath(workspace).name or PurePosixPath(workspace).name or "/"


def created(info: RunInfo, text: str, parts: tuple[Part, ...] = ()) -> EventDraft:
    """Return the first event of every run. `text` is its input, `parts` the images and files of the input."""
    payload = RunCreated(
        to=Stage.CREATED,
        agent=info.agent,
        thread_id=info.thread_id,
        input=text,
        by=info.by,
        workspace=shown_workspace(info.workspace),
        deadline=None if info.deadline is None else timestamp(info.deadline),
        parent=info.parent_run,
        forked_from=None if info.forked_from is None else f"{info.forked_from}@{info.forked_step}",
        title=info.title,
        attachments=facts_on_wire(parts) if parts else (),
    )
    return EventDraft("run.created", payload)
