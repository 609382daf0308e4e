"""A program that reads a prompt and writes text: it asks nothing, and does not show its calls."""

from __future__ import annotations

import codecs
from typing import ClassVar, Final

from ..dialect import AskAnswer, Dialect, Launch, ProgramExit, ProgramVerdict, Prompt, verdict_of
from ..items import Item, PromptDone, SaidText

TEXT_LIMIT: Final = 256 * 1024
"""Most characters that are kept as the result: the end of a longer text."""


class PlainDialect(Dialect):
    """One execution of a program with text output.

    Args:
        command: The words that start the program.
    """

    name: ClassVar[str] = "plain"

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text: list[str] = []
        self._size = 0

    def __repr__(self) -> str:
        return f"<PlainDialect {self._command[0]!r}: {self._size} characters>"

    def begin(self, prompt: Prompt) -> Launch:
        """Return how the program is started: its standard input is the prompt, behind the instructions."""
        text = "\n\n".join(part for part in (prompt.instructions, prompt.text) if part)
        return Launch(argv=self._command, data=text.encode("utf-8", "replace") + b"\n", closes_stdin=True)

    def feed(self, data: bytes) -> list[Item]:
        """Return the text of the next bytes."""
        return self._said(self._decoder.decode(data))

    def end(self) -> list[Item]:
        """Return the end of the text."""
        return self._said(self._decoder.decode(b"", final=True))

    def answer(self, ask_id: str, answer: AskAnswer) -> bytes:
        """Return b"": the program asks nothing."""
        return b""

    def interrupt(self) -> bytes:
        """Return b"": only a signal stops the program."""
        return b""

    def ended(self, ended: ProgramExit) -> ProgramVerdict:
        """Return the verdict: exit 0 is success, and the text is the result."""
        text = "".join(self._text)[-TEXT_LIMIT:].strip()
        return verdict_of(self._command[0], ended, PromptDone(text=text) if ended.status == 0 else None)

    def _said(self, text: str) -> list[Item]:
        if not text:
            return []
        self._text.append(text)
        self._size += len(text)
        while self._size - len(self._text[0]) > TEXT_LIMIT:
            self._size -= len(self._text.pop(0))
        return [SaidText(text=text)]
