"""The A2A task of a call as the other side tells it: what it says, where it stands, what came of it. Pure.

Theory of operation. Two sources tell about a task: a stream of items, and snapshots (GetTask). Text of artifacts is
said as it comes; an artifact is a whole message as soon as another one begins. A snapshot that is taken beside a stream
may be ahead of the stream, so its artifacts count only if the task is at rest. The newest artifact with a text or data
is the result, and all bytes are files. All counts and sizes are limited here: the other side may send what it likes.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs
import msgspec
from msgspec.structs import replace

from ..contract.codec import shortened
from ..contract.ids import content_digest
from ..contract.plain import JSONObject
from ..contract.sizes import measured
from .a2a_codec import TICKET_TYPE
from .a2a_values import (
    A2AArtifact,
    A2AItem,
    A2AMessage,
    A2APart,
    A2AStatus,
    A2ATask,
    ArtifactUpdate,
    StatusUpdate,
    TaskState,
)
from .items import MessageDone, SaidText, Unparsed

RESULT_LIMIT: Final = 256 * 1024
"""Most characters of the text of an artifact; what follows is left out, and the result says so."""
ARTIFACTS_LIMIT: Final = 1_000
"""Most artifacts of a task."""
FILES_LIMIT: Final = 12 * 1024 * 1024
"""Most bytes of all files, in base64, and data of a task: somewhat more than the 8 MiB that one result may hold."""
PARTS_LIMIT: Final = 1_000
"""Most parts of a message, which each look at the task reads again; what follows is left out. An artifact may have a
part for each word."""
PART_WEIGHT: Final = 1_024
"""Bytes for which a part counts beside its content."""
FAULTS_LIMIT: Final = 20
"""Most faults of the other side in one call; more are a protocol that this client does not know."""
QUESTION_LIMIT: Final = 8_000
"""Most characters of a question to people, and of the text of a failure."""

Heard: TypeAlias = SaidText | MessageDone | Unparsed
"""What an item means for the log of the run."""


@attrs.define(eq=False)
class _Artifact:
    """An artifact as far as it has come.

    Attributes:
        pieces: The text in pieces, at most `RESULT_LIMIT` characters.
        size: The characters of these.
        data: Values of parts with data.
        files: Parts with bytes or an address.
        weight: The bytes of data and files.
        cut: The text was longer.
        told: The log of the run has the artifact already.
        done: The pieces that the log has as a whole message.
    """

    pieces: list[str] = attrs.field(factory=list)
    size: int = 0
    data: list[object] = attrs.field(factory=list)
    files: list[A2APart] = attrs.field(factory=list)
    weight: int = 0
    cut: bool = False
    told: bool = False
    done: int = 0

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def speaks(self) -> bool:
        return bool(self.size or self.data)

    def add(self, text: str) -> None:
        self.cut |= len(text) > RESULT_LIMIT - self.size
        text = text[: RESULT_LIMIT - self.size]
        if text:
            self.pieces.append(text)
            self.size += len(text)

    def finish(self) -> str:
        """Return the text that is not yet in the log as a whole message, and note that the log has it."""
        text, self.done = "".join(self.pieces[self.done :]), len(self.pieces)
        return text


@attrs.frozen(kw_only=True)
class RemoteResult:
    """What a task has come to.

    Attributes:
        text: The final text.
        files: Parts with bytes or with an address, in order.
        notes: Sentences about what was left out.
    """

    text: str
    files: tuple[A2APart, ...] = ()
    notes: tuple[str, ...] = ()


class RemoteTask:
    """Follows one task, whichever way the news of it come.

    Args:
        task_id: Its id, if it is known.
        answered: The identity of the question that this side has answered: the task does not rest at that one.
        told: The number of artifacts that the log of the run has already.

    Attributes:
        told: That number now.
        task_id: Its id; "" while the other side has not named it.
        status: Its newest status; None before the first.
        reply: The message by which the other side has answered without a task.
        faults: The number of faults so far.
    """

    def __init__(self, task_id: str = "", *, answered: str = "", told: int = 0) -> None:
        self.task_id, self._answered, self.told = task_id, answered, told
        self.status: A2AStatus | None = None
        self.reply: A2AMessage | None = None
        self.faults = 0
        self._artifacts: dict[str, _Artifact] = {}
        self._newest = ""
        self._weight = 0
        self._notes: dict[str, None] = {}

    def __repr__(self) -> str:
        return f"<RemoteTask {self.task_id!r}: {self.state}, {len(self._artifacts)} artifacts>"

    @property
    def state(self) -> TaskState | None:
        """The newest state; COMPLETED for a message without a task."""
        if self.reply is not None:
            return TaskState.COMPLETED
        return None if self.status is None else self.status.state

    @property
    def at_rest(self) -> bool:
        """True if no news come before this side says something, or at all."""
        return self.state is not None and self.state.at_rest and not self.asks_again

    @property
    def asks_again(self) -> bool:
        """True if the question is the one that was answered: the answer may be on its way."""
        return self.state is TaskState.INPUT_REQUIRED and self._answered == self.question

    # --- news --------------------------------------------------------------------------------------------------------

    def feed(self, item: A2AItem) -> list[Heard]:
        """Take the next item of a stream."""
        fault = self._misplaced(item)
        if fault:
            return [self.fault(fault, repr(item)[:200])]
        match item:
            case A2AMessage():
                self.reply = _limited(item)
                return []
            case A2ATask():
                self._name(item.id)
                self._stand(item.status)
                return self._take_all(item)
            case StatusUpdate():
                self._name(item.task_id)
                self._stand(item.status)
                return []
            case ArtifactUpdate():
                self._name(item.task_id)
                return self._take(item.artifact, append=item.append)

    def look(self, task: A2ATask) -> list[Heard]:
        """Take a snapshot."""
        if self.task_id and task.id != self.task_id:
            return [self.fault("another_task", f"asked was {self.task_id:.80}, the answer is {task.id:.80}")]
        self._name(task.id)
        self._stand(task.status)
        return self._take_all(task) if task.status.state.at_rest else []

    def answer(self, question: str) -> None:
        """Note that this side has answered a question; "": the other side has had the time to take the answer."""
        self._answered = question

    def complete(self) -> list[Heard]:
        """Return the newest artifact as a whole message, before people are asked."""
        newest = self._artifacts.get(self._newest)
        if newest is None or len(self._artifacts) <= self.told or not (text := newest.finish()):
            return []
        self.told = len(self._artifacts)
        return [MessageDone(text=text)]

    def fault(self, rule: str, sample: str) -> Unparsed:
        """Count a fault of the other side."""
        self.faults += 1
        return Unparsed(line=self.faults, rule=rule, sample=sample)

    def _name(self, task_id: str) -> None:
        self.task_id = self.task_id or task_id

    def _stand(self, status: A2AStatus) -> None:
        message = None if status.message is None else _limited(status.message)
        self.status = replace(status, message=message)

    def _misplaced(self, item: A2AItem) -> str:
        """Return why an item cannot stand here; "" if it can."""
        if isinstance(item, A2AMessage):
            return "message_after_task" if self.task_id else "second_message" if self.reply is not None else ""
        task_id = item.id if isinstance(item, A2ATask) else item.task_id
        if self.reply is not None:
            return "task_after_message"
        if self.task_id and task_id != self.task_id:
            return "another_task"
        if self.state is not None and self.state.terminal:
            return "second_end" if not isinstance(item, ArtifactUpdate) and item.status.state.terminal else "after_end"
        return ""

    def _take_all(self, task: A2ATask) -> list[Heard]:
        artifacts = task.artifacts[: ARTIFACTS_LIMIT + 1]  # one more: the result says that there are more
        return [item for artifact in artifacts for item in self._take(artifact, append=False)]

    def _take(self, artifact: A2AArtifact, *, append: bool) -> list[Heard]:
        entry = self._artifacts.get(artifact.artifact_id)
        if entry is None:
            if len(self._artifacts) >= ARTIFACTS_LIMIT:
                self._note(f"There are more than {ARTIFACTS_LIMIT:,} artifacts; the later ones are left out.")
                return []
            entry = self._artifacts[artifact.artifact_id] = _Artifact(told=len(self._artifacts) < self.told)
        former, known_pieces = self._artifacts.get(self._newest), len(entry.pieces)
        is_done = entry.done == known_pieces
        text_before = "" if append else entry.text
        self._put(entry, artifact, append=append)
        text = "".join(entry.pieces[known_pieces:]) if append else entry.text
        if not append:
            entry.done = len(entry.pieces) if is_done and text == text_before else 0
        news = list[Heard]()
        if entry is not former and (text != text_before or entry.data):
            if former is not None and not former.told and (whole := former.finish()):
                news.append(MessageDone(text=whole))
            self._newest = artifact.artifact_id
        if not entry.told and text.startswith(text_before) and len(text) > len(text_before):
            news.append(SaidText(text=text[len(text_before) :]))
        return news

    def _put(self, entry: _Artifact, artifact: A2AArtifact, *, append: bool) -> None:
        if not append:
            self._weight -= entry.weight
            entry.pieces, entry.data, entry.files = [], [], []
            entry.size = entry.weight = 0
            entry.cut = False
        for part in artifact.parts:
            if part.text is not None:
                entry.add(part.text)
                continue
            weight = PART_WEIGHT + len(part.raw or part.url or "") + measured(part.data, FILES_LIMIT)
            if self._weight + weight > FILES_LIMIT:
                self._note(f"There are files and data of more than {FILES_LIMIT // 1_048_576} MiB; some are left out.")
                continue
            self._weight += weight
            entry.weight += weight
            if part.data is msgspec.UNSET:
                entry.files.append(part)
            else:
                entry.data.append(part.data)

    def _note(self, sentence: str) -> None:
        self._notes[sentence] = None

    # --- at rest -----------------------------------------------------------------------------------------------------

    def result(self) -> RemoteResult:
        """Return what a completed task has come to."""
        if self.reply is not None:
            entry, artifacts = _Artifact(), []
            self._put(entry, A2AArtifact(artifact_id="reply", parts=self.reply.parts), append=False)
            artifacts.append(entry)
        else:
            artifacts = list(self._artifacts.values())
            entry = next((one for one in reversed(artifacts) if one.speaks), _Artifact())
        text = entry.text or self._data_text(entry.data) or self.words
        notes = [*self._notes]
        if entry.cut:
            notes.append(f"The text is longer than {RESULT_LIMIT:,} characters and was cut.")
        files = tuple(part for one in artifacts for part in one.files)
        return RemoteResult(text=text, files=files, notes=tuple(notes))

    def _data_text(self, data: list[object]) -> str:
        if not data:
            return ""
        text = msgspec.json.encode(data[0] if len(data) == 1 else data).decode()
        if len(text) <= RESULT_LIMIT:
            return text
        self._note(
            f"There are data of {len(text):,} characters; at most {RESULT_LIMIT:,} are taken, so they are left out."
        )
        return ""

    @property
    def words(self) -> str:
        """What the other side says with the newest status."""
        message = None if self.status is None else self.status.message
        parts = () if message is None else message.parts
        return shortened("\n".join(part.text for part in parts if part.text), QUESTION_LIMIT)

    @property
    def tickets(self) -> tuple[JSONObject, ...]:
        """The open tickets of another Greenroom, the oldest first; () for any other agent."""
        message = None if self.status is None else self.status.message
        parts = () if message is None else message.parts
        return tuple(
            part.data
            for part in parts
            if part.media_type == TICKET_TYPE
            and isinstance(part.data, dict)
            and isinstance(part.data.get("ticketId"), str)
        )

    @property
    def question(self) -> str:
        """The identity of what the other side asks: another one means that it has gone on."""
        if self.tickets:
            return str(self.tickets[0]["ticketId"])
        message = None if self.status is None else self.status.message
        return content_digest([None if message is None else message.message_id, self.words])


def _limited(message: A2AMessage) -> A2AMessage:
    """Return a message with its first parts."""
    return replace(message, parts=message.parts[:PARTS_LIMIT]) if len(message.parts) > PARTS_LIMIT else message
