"""The items that a dialect reads from the output of a program: one closed union for all programs."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ..contract.messages import Usage
from ..contract.plain import JSONObject


class SaidText(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the message that the program is writing."""

    text: str


class Reasoning(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the program's reasoning."""

    text: str


class MessageDone(msgspec.Struct, frozen=True, kw_only=True):
    """A whole message of the program; its pieces came as `SaidText`, or not at all."""

    text: str


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The program asks whether one of its calls may run, and waits for the answer.

    Attributes:
        ask_id: names the question in `Dialect.answer`.
        call_id: the program's id of the call.
        tool, arguments, effect: the call.
        editable: the answer may replace the arguments.
    """

    ask_id: str
    call_id: str
    tool: str
    arguments: JSONObject
    effect: str
    editable: bool


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The program asks a person something, and waits for the answer.

    Attributes:
        ask_id: names the question in `Dialect.answer`.
        message: the text of the question.
        schema: the JSON Schema of the answer, an object.
    """

    ask_id: str
    message: str
    schema: JSONObject


class Withdrawn(msgspec.Struct, frozen=True, kw_only=True):
    """The program no longer waits for the answer to a question."""

    ask_id: str


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The program has run a call, or runs one, without asking."""

    call_id: str
    tool: str
    arguments: JSONObject
    effect: str


class CallEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the program has ended: one that was asked about, or one that was seen."""

    call_id: str
    text: str
    failed: bool


class FileRead(msgspec.Struct, frozen=True, kw_only=True):
    """The program has read a file; the path is as the program says it."""

    call_id: str
    path: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The program's list of what it wants to do: (text, status), in its order."""

    entries: tuple[tuple[str, str], ...]


class UsageSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that the program has used for its prompt so far; each report replaces the one before."""

    usage: Usage


class SessionKnown(msgspec.Struct, frozen=True, kw_only=True):
    """The program's id of its session, with which another process may continue it."""

    session_id: str


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something for the log: a warning of the program, or a kind of line that the dialect does not know (once each).

    Attributes:
        kind: a word: "warning", "unknown", "not_json", "refused".
        text: the sentence, or the unknown kind.
    """

    kind: str
    text: str


class Unparsed(msgspec.Struct, frozen=True, kw_only=True):
    """A line that is not in the form of the dialect.

    Attributes:
        line: its number, from 1.
        rule: what it breaks.
        sample: its beginning.
    """

    line: int
    rule: str
    sample: str


class SendBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that the program must get now: the dialect's own part of the conversation."""

    data: bytes


class PromptDone(msgspec.Struct, frozen=True, kw_only=True):
    """The program has done its work for the prompt, or has given up; stdin may be closed. Comes once.

    Attributes:
        text: the program's final text; "" if it gave none.
        code: the code of the failure; "" for success.
        detail: a sentence about the failure.
    """

    text: str = ""
    code: str = ""
    detail: str = ""


Item: TypeAlias = (
    SaidText
    | Reasoning
    | MessageDone
    | Asked
    | Question
    | Withdrawn
    | Seen
    | CallEnded
    | FileRead
    | Plan
    | UsageSeen
    | SessionKnown
    | Notice
    | Unparsed
    | SendBytes
    | PromptDone
)
