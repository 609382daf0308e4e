"""Create a run: the rows and the first event that start() and fork() write.

Theory of operation. Arguments are checked once, here; the rest is pure. The run id is the idempotency key of a start: a
digest of the arguments that define the run (`StartRequest.content`) tells a repeated start, which returns the same run,
from another start with the same id, which is refused. A fork is a new run whose thread begins as a copy of its parent's
up to the end of a step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, cast

import attrs
from msgspec.structs import replace

from ..agents.agent import Agent
from ..agents.attachments import parts_of
from ..contract.commits import NewRun
from ..contract.envelope import timestamp
from ..contract.ids import content_digest
from ..contract.messages import Message, Producer
from ..contract.parts import Part, facts_of, light
from ..contract.plain import exact
from ..contract.rows import OpenGuardrails, RunInfo, RunRecord, RunRow
from ..contract.secrets.redaction import Redactor
from ..contract.spec import MODES, AgentSpec, Execution, ExecutionMode, execution_data
from ..contract.state import INHERITED, KeyId, StateWrite
from ..contract.titles import title_of
from ..engine.initial_row import created, initial_row
from ..engine.tasks import newest_input, note_left_behind
from ..errors import UsageError
from ..options import unknown_value
from ..services.sanitize import given_text, input_of, moment_of, name_of
from .queueing import AT_ONCE, Queueing

LOCAL: Final = "local"
"""The principal of callers that give none."""
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")


@attrs.frozen(kw_only=True)
class StartRequest:
    """The checked arguments of start(), or of the start of a child run.

    Raises:
        UsageError: an argument is invalid; the message names it and says what to give.
    """

    agent: Agent[object] | AgentSpec
    text: str
    run_id: str
    thread_id: str | None = None
    session_id: str | None = None
    by: str | None = None
    workspace: str | None = None
    deadline: datetime | None = None
    execution: Execution | None = None
    on_busy: str = "queue"
    has_deps: bool = False
    title: str | None = None
    parent_run: str | None = None
    parent_call: str | None = None
    depth: int = 0
    queueing: Queueing = AT_ONCE
    parts: tuple[Part, ...] = attrs.field(default=(), alias="attachments", converter=parts_of)

    def __attrs_post_init__(self) -> None:
        put = object.__setattr__  # attrs' own way to complete a frozen value
        put(self, "text", input_of(self.text, "the input", may_be_blank=bool(self.parts)))
        if self.by is not None:
            put(self, "by", name_of(self.by, "by"))
        if self.workspace is not None:
            put(self, "workspace", given_text(self.workspace, "workspace"))
        if self.title is not None:
            put(self, "title", input_of(self.title, "the title"))
        for name, value in (("run_id", self.run_id), ("thread_id", self.thread_id), ("session_id", self.session_id)):
            if value is not None:
                put(self, name, _id_of(name, value))
        # compared by equality, because the value may be unhashable
        if self.execution is not None and not isinstance(self.execution, ExecutionMode):
            if self.execution not in tuple(MODES):
                raise unknown_value("execution", self.execution, MODES)
            put(self, "execution", exact(self.execution))
        if self.on_busy not in ("queue", "refuse"):
            raise unknown_value("on_busy", self.on_busy, ("queue", "refuse"))
        if self.deadline is not None:
            put(self, "deadline", moment_of(self.deadline, "deadline"))

    def content(self) -> str:
        """Return the digest that makes two starts with one run id the same start; the title is only a label."""
        places = (self.thread_id, self.session_id, self.by, self.workspace)
        return _content(self.agent.key, (self.text, self.parts), places, self.deadline, self.execution)


def _content(
    agent: str,
    body: tuple[str, tuple[Part, ...]],
    places: tuple[str | None, ...],
    deadline: datetime | None,
    mode: object,
) -> str:
    text, parts = body
    data = [agent, text, *places, None if deadline is None else timestamp(deadline), execution_data(mode)]
    return content_digest([*data, *facts_of(parts)] if parts else data)


def mode_given(info: RunInfo, text: str, parts: tuple[Part, ...]) -> bool:
    """Return True if `start` was given a run's mode instead of taking the agent's; the digest shows it.

    `text`, `parts`: the input.
    """
    body = text, parts
    return any(
        info.content
        == _content(info.agent, body, (thread_id, info.session_id, by, info.workspace), info.deadline, info.execution)
        for thread_id in (None, info.thread_id)
        for by in (None, info.by)
    )


def _id_of(name: str, value: object) -> str:
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise UsageError(f"{name}={value!r:.200}: use 1 to 128 letters, digits and _ . : -, a letter or digit first")
    return exact(value)


def check_id(name: str, value: object) -> None:
    """Check an id of a run, thread or session; None is valid. `name` is the caller's name of the value.

    Raises:
        UsageError: the value is not an id.
    """
    if value is not None:
        _id_of(name, value)


def new_run(birth: StartRequest, now: datetime, redactor: Redactor, *, place: str | None = None) -> NewRun:
    """Return the rows and the first event of a new run. `place`: where its workspace is.

    The title is stored redacted, because lists show it and searches read it.

    The input waits in the run's row and joins the thread when the run begins to work: otherwise a run that is held by
    its thread would put its question between the question and the answer of the run before it.
    """
    agent, queueing = birth.agent, birth.queueing
    info = RunInfo(
        run_id=birth.run_id,
        thread_id=birth.thread_id or f"{birth.run_id}.thread",
        agent=agent.key,
        agent_digest=(agent if isinstance(agent, AgentSpec) else agent.spec).digest,
        created_at=now,
        execution=birth.execution or agent.execution,
        content=birth.content(),
        session_id=birth.session_id,
        by=birth.by or LOCAL,
        workspace=birth.workspace,
        place=place,
        deadline=birth.deadline,
        has_deps=birth.has_deps,
        title=title_of(birth.title or birth.text, redactor),
        parent_run=birth.parent_run,
        parent_call=birth.parent_call,
        depth=birth.depth,
    )
    message = Message(
        id=f"{info.run_id}.m1",
        role="user",
        content=birth.text,
        producer=Producer(run_id=info.run_id, step=0),
        parts=light(birth.parts) if birth.parts else (),
    )
    on_busy: Literal["queue", "refuse"] = "refuse" if birth.on_busy == "refuse" else "queue"
    new = NewRun(
        info=info,
        row=initial_row((message,), birth.deadline),
        messages=(),
        created=created(info, birth.text, birth.parts),
        parts=tuple(part for part in birth.parts if part.data is not None) if birth.parts else (),
        on_busy=on_busy,
        thread_runs=0 if birth.thread_id is None else None,
    )
    if queueing is AT_ONCE:
        return new
    queue, priority = queueing.queue or "", queueing.priority or 0
    return replace(new, queue=queue, ready_at=queueing.at, priority=priority, dedupe=queueing.dedupe)


def in_thread(new: NewRun, thread_id: str) -> NewRun:
    """Return the same new run in another thread."""
    draft = new.created
    payload = replace(draft.payload, thread_id=thread_id)
    info = replace(new.info, thread_id=thread_id)
    return replace(new, info=info, created=replace(draft, payload=payload))


def fork_of(
    parent: RunRecord, thread: Sequence[Message], step: int, run_id: str, now: datetime, *, by: str | None = None
) -> NewRun:
    """Return a new run that begins with the history of `parent` as of the end of `step`, in a new thread.

    Messages that wait in the parent's row for its next step are history, too: they join the thread before that step.

    Raises:
        UsageError: the parent has no finished step of that number, or the run id or the principal is invalid.
    """
    run_id = _id_of("new_run_id", run_id)
    who = LOCAL if by is None else name_of(by, "by")
    info, last_step = parent.info, parent.row.counters.rounds
    if type(step) is not int or not 0 <= step <= last_step:
        raise UsageError(f"step={step!r}: run {info.run_id} has {last_step} finished steps; give 0 to {last_step}")
    thread_size, thread_ids = len(thread), {message.id for message in thread}
    thread = (*thread, *(message for message in parent.row.pending_input if message.id not in thread_ids))
    history = tuple(thread[: _end_of_step(thread, info.run_id, step)])
    child = replace(
        info,
        run_id=run_id,
        thread_id=f"{run_id}.thread",
        created_at=now,
        by=who,
        content=content_digest(["fork", info.run_id, step, *([] if who == LOCAL else [who])]),
        forked_from=info.run_id,
        forked_step=step,
        deadline=None,
        parent_run=None,  # a fork of a child run works for no call
        parent_call=None,
        depth=0,
    )
    return NewRun(
        info=child,
        row=_begins_again(initial_row(note_left_behind(history, run_id)), history, step),
        created=created(child, *newest_input(history)),
        messages=history,
        parts=tuple(part for message in history for part in message.parts if part.sha256),
        thread_parent=(info.thread_id, min(thread_size, len(history))),
        thread_runs=0,
    )


def _begins_again(row: RunRow, history: Sequence[Message], step: int) -> RunRow:
    """Return the row of a fork; of step 0, input guardrails judge the input, which is in its history already."""
    inputs = [m.id for m in history if m.producer is not None and m.producer.step == 0 and m.kind == "text"]
    if step or not inputs:
        return row
    return replace(row, open_guardrails=OpenGuardrails(kind="input", names=(), messages=(inputs[-1],)))


def inheriting(new: NewRun, state: Sequence[StateWrite]) -> NewRun:
    """Return a fork with its parent's state keys of both scopes, as of step 0 and revision 0.

    A handoff up to that step counts: its agent is active.
    """
    inherited_state = next((write.value for write in state if KeyId(write.scope, write.key) == INHERITED), None)
    if isinstance(inherited_state, Mapping):
        new = replace(new, row=replace(new.row, agent=cast("str", inherited_state["agent"])))
    return replace(new, state=tuple(replace(write, revision=0) for write in state))


def _end_of_step(thread: Sequence[Message], run_id: str, step: int) -> int:
    """Return how many messages a thread had when the run finished the step; runs that came later are not counted."""
    own = [
        (position, message.producer.step)
        for position, message in enumerate(thread)
        if message.producer is not None and message.producer.run_id == run_id
    ]
    if not own:
        return len(thread)  # a fork without an answer yet: all of its history is from another run
    later = (position for position, made_in in own if made_in > step)
    return next(later, own[-1][0] + 1)
