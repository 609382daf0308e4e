"""The port of a program's dialect: bytes to items, answers to bytes, and the verdict about a program that has ended.

Theory of operation. A dialect is pure. The owner of the process starts it as `begin` says, feeds each piece of its
standard output to `feed`, writes the bytes of `SendBytes` items and of `answer`, closes standard input after
`PromptDone`, and calls `end` and `ended` when the output and the process have ended. Each question is answered once; an
answer to a question that is closed is b"". Bytes of any kind raise nothing.
"""

from __future__ import annotations

import abc
import re
from typing import ClassVar, Final, Literal, TypeAlias

import attrs

from ..contract.parts import Part
from ..contract.plain import JSONObject, JSONValue
from .items import Item, PromptDone

UNPARSED_LIMIT: Final = 20
"""Most unparsed lines of a program that has worked; more are a format that the dialect does not know."""
UNPARSED_ROW: Final = 5
"""Unparsed lines one after the other from which on the output counts as another format."""
_UNAVAILABLE: Final = (41, 126, 127)
"""Exit statuses: not logged in (Gemini), not executable, not found."""
_NO_ACCESS: Final = re.compile(
    r"\b401\b|not logged in|log ?in required|please (?:log|sign) ?in|authentication|unauthori[sz]ed|invalid api key",
    re.IGNORECASE,
)
_TAIL: Final = 2_000
"""Most characters of standard error in a verdict."""


SESSION_GONE: Final = "session_gone"
"""Code of a prompt for which nothing was done: the program does not know its session. To be repeated without."""


@attrs.frozen(kw_only=True)
class Prompt:
    """What a program is to do.

    Attributes:
        text: The prompt.
        folder: The absolute path of the folder to work in.
        instructions: Text for the program's system prompt, if it takes one; else the text begins the prompt.
        session: The session to continue, as `SessionKnown` named it; None for a new one.
        recap: What begins the text if that session cannot be continued, and a new one begins.
        model: The program's name of its model; None for its default.
        parts: Images and files with their bytes, each of which `Dialect.takes`.
    """

    text: str
    folder: str
    instructions: str = ""
    session: str | None = None
    recap: str = ""
    model: str | None = None
    parts: tuple[Part, ...] = ()


@attrs.frozen(kw_only=True)
class Launch:
    """How a program is started.

    Attributes:
        argv: The words; no prompt and no secret is among them.
        data: The first bytes for standard input.
        closes_stdin: Standard input ends after these bytes: the program asks nothing.
    """

    argv: tuple[str, ...]
    data: bytes
    closes_stdin: bool = False


@attrs.frozen(kw_only=True)
class Granted:
    """The call may run, with other arguments if the question was editable."""

    arguments: JSONObject | None = None


@attrs.frozen(kw_only=True)
class Declined:
    """The call may not run, or nobody answers the question; the program reads the text if its protocol has a place."""

    text: str = ""


@attrs.frozen(kw_only=True)
class Supplied:
    """The answer to a question, an object that fits its schema."""

    value: JSONValue


AskAnswer: TypeAlias = Granted | Declined | Supplied


@attrs.frozen(kw_only=True)
class ProgramExit:
    """How a program ended.

    Attributes:
        status: The exit status, the negative number of the signal that ended it, or None if it was never started.
        stderr: The end of its standard error.
        stopped: Why its owner ended it, if it did: "finished" (it had done its work and did not end by itself),
            "cancelled" or "run_timeout".
        error: Why it was never started, such as "ENOENT".
    """

    status: int | None
    stderr: str = ""
    stopped: Literal["", "finished", "cancelled", "run_timeout"] = ""
    error: str = ""


@attrs.frozen(kw_only=True)
class ProgramVerdict:
    """The end of a program's work.

    Attributes:
        outcome: "completed", "failed" or "cancelled".
        text: The final text of a completed one.
        code: The failure code of a failed one.
        detail: A sentence about the failure.
    """

    outcome: Literal["completed", "failed", "cancelled"]
    text: str = ""
    code: str = ""
    detail: str = ""


class Dialect(abc.ABC):
    """One conversation with one program. Pure; see the theory of operation above.

    Attributes:
        name: The name of the program, for messages.
    """

    name: ClassVar[str]

    def takes(self, part: Part) -> bool:
        """Return True if a prompt can bring the program this image or file; by default only texts can be brought."""
        return False

    @abc.abstractmethod
    def begin(self, prompt: Prompt) -> Launch:
        """Return how the program is started. Called once, first."""

    @abc.abstractmethod
    def feed(self, data: bytes) -> list[Item]:
        """Return the items of the next bytes of standard output."""

    @abc.abstractmethod
    def end(self) -> list[Item]:
        """Return the items of a last line without an end. Called once, at the end of standard output."""

    @abc.abstractmethod
    def answer(self, ask_id: str, answer: AskAnswer) -> bytes:
        """Return the bytes that answer a question; b"" if no such question is open."""

    @abc.abstractmethod
    def interrupt(self) -> bytes:
        """Return the bytes that ask the program to stop; b"" if its protocol has none, or not yet."""

    @abc.abstractmethod
    def ended(self, ended: ProgramExit) -> ProgramVerdict:
        """Return the verdict. Called once, after `end`."""


def verdict_of(name: str, ended: ProgramExit, done: PromptDone | None, *, garbled: str = "") -> ProgramVerdict:
    """Return the verdict about a program from its last item, its exit and the state of its output.

    Args:
        name: The program.
        ended: Its exit.
        done: Its `PromptDone`, if it came.
        garbled: Why the output counts as another format; "" if it does not.
    """
    if ended.stopped == "cancelled" or (done is not None and done.code == "cancelled" and not ended.stopped):
        return ProgramVerdict(outcome="cancelled")
    tail = ended.stderr[-_TAIL:].strip()
    exit_text = f"exit {ended.status}" + (f": {tail}" if tail else "")
    code, detail = _failure(ended, done, garbled, exit_text)
    if code:
        return ProgramVerdict(outcome="failed", code=code, detail=f"{name}: {detail}")
    return ProgramVerdict(outcome="completed", text=done.text if done is not None else "")


def _failure(ended: ProgramExit, done: PromptDone | None, garbled: str, exit_text: str) -> tuple[str, str]:
    """Return the code and the detail of a failure; "" and "" if there is none."""
    if ended.stopped == "run_timeout":
        return "run_timeout", "it was stopped at its time limit"
    if ended.error or ended.status in _UNAVAILABLE:
        return "runtime_unavailable", ended.error or exit_text
    if garbled:
        return "schema_validation_failed", garbled
    if done is None and ended.status == 0:
        return "schema_validation_failed", "it ended with exit 0 and without the line that ends its work"
    if done is None:
        return _access_code("runtime_failed", ended.stderr), exit_text
    if done.code:
        return _access_code(done.code, done.detail), done.detail or exit_text
    if ended.status != 0 and ended.stopped != "finished":
        return "schema_validation_failed", f"its last line says success, and it ended with {exit_text}"
    return "", ""


def _access_code(code: str, detail: str) -> str:
    """Return runtime_unavailable for a failure whose text says that the program is not logged in, else the code."""
    return "runtime_unavailable" if code == "runtime_failed" and _NO_ACCESS.search(detail) else code
