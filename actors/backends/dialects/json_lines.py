"""What dialects of one JSON object per line share: lines, limits, unknown kinds, calls, and the end."""

from __future__ import annotations

import abc
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from ...contract.codec import shortened
from ...contract.plain import JSONObject, JSONValue
from ...json_text import values_of
from ...permission.subject import effect_of
from ..dialect import (
    UNPARSED_LIMIT,
    UNPARSED_ROW,
    Dialect,
    ProgramExit,
    ProgramVerdict,
    verdict_of,
)
from ..items import CallEnded, FileRead, Item, Notice, PromptDone, Seen, Unparsed
from ..lines import LINE_LIMIT, LineReader

VALUES_LIMIT: Final = 200_000
"""Most commas and opening brackets of one line: each is a JSON value, of which a millisecond decodes some 20,000."""
TEXT_LIMIT: Final = 256 * 1024
"""Most characters of a text in an item; a longer one is cut."""
_CALLS: Final = 10_000
"""Most calls of one prompt that are followed; what comes of later ones is not reported."""
_KINDS: Final = 100
"""Most unknown kinds of lines that are named."""
_SAMPLE: Final = 300
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


class JSONLinesDialect(Dialect):
    """A dialect whose lines are JSON objects: a subclass takes each object with `take`."""

    def __init__(self) -> None:
        self._lines = LineReader()
        self._number = 0
        self._unparsed = self._row = 0
        self._garbled = ""
        self._begun = False
        self._unknown: set[str] = set()
        self._calls: dict[str, tuple[str, JSONObject, bool]] = {}
        self._closed: set[str] = set()
        self._done: PromptDone | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._number} lines, {'done' if self._done else 'working'}>"

    @abc.abstractmethod
    def take(self, message: JSONObject) -> Iterator[Item]:
        """Yield the items of one object."""

    def feed(self, data: bytes) -> list[Item]:
        """Return the items of the next bytes."""
        items = list[Item]()
        for line in self._lines.feed(data):
            items += self._take_line(line)
        return items

    def end(self) -> list[Item]:
        """Return the items of a last line without an end: a whole object counts, a part of one is unparsed."""
        line = self._lines.end()
        return [] if line == b"" else list(self._take_line(line))

    def ended(self, ended: ProgramExit) -> ProgramVerdict:
        """Return the verdict."""
        return verdict_of(self.name, ended, self._done, garbled=self._garbled)

    # --- for subclasses ---

    def unknown(self, kind: str) -> Iterator[Item]:
        """Yield a notice for a kind that the dialect does not know, once for each kind."""
        kind = shortened(kind, 100)
        if kind not in self._unknown and len(self._unknown) < _KINDS:
            self._unknown.add(kind)
            yield Notice(kind="unknown", text=kind)

    def unparsed(self, rule: str, sample: bytes = b"") -> Iterator[Item]:
        """Yield an unparsed line, and note when the output counts as another format."""
        self._unparsed += 1
        self._row += 1
        if self._unparsed > UNPARSED_LIMIT or self._row >= UNPARSED_ROW:
            self._garbled = self._garbled or f"line {self._number}: {rule}, as {self._unparsed} lines in all"
        text = shortened(sample[: 4 * _SAMPLE].decode("utf-8", "replace"), _SAMPLE)
        yield Unparsed(line=self._number, rule=rule, sample=text)

    def note_call(self, call_id: str, tool: str, arguments: JSONObject, *, asked: bool = False) -> None:
        """Note a call that has begun, or that the program has asked about."""
        known = self._calls.get(call_id)
        if known is not None:
            arguments = {**known[1], **arguments}
            asked = asked or known[2]
        if known is not None or len(self._calls) < _CALLS:
            self._calls[call_id] = (tool, arguments, asked)

    def call(self, call_id: str) -> tuple[str, JSONObject, bool] | None:
        """Return (tool, arguments, whether it was asked about) of a call that has begun."""
        return self._calls.get(call_id)

    def call_ended(self, call_id: str, text: str, *, failed: bool, read: str = "") -> Iterator[Item]:
        """Yield the end of a call, once; before it the call itself, if the program did not ask."""
        known = self._calls.get(call_id)
        if known is None or call_id in self._closed:
            return
        self._closed.add(call_id)
        tool, arguments, asked = known
        if not asked:
            yield Seen(call_id=call_id, tool=tool, arguments=arguments, effect=effect_of(tool, arguments))
        if read and not failed:
            yield FileRead(call_id=call_id, path=read)
        yield CallEnded(call_id=call_id, text=cut(text), failed=failed)

    def done(self, done: PromptDone) -> Iterator[Item]:
        """Yield the end of the prompt, once."""
        if self._done is None:
            self._done = done
            yield done

    # --- lines ---

    def _take_line(self, line: bytes | None) -> Iterator[Item]:
        self._number += 1
        if line is None:
            yield from self.unparsed(f"the line is longer than {LINE_LIMIT:,} bytes")
            return
        if not line.strip():
            return
        message, rule = decoded(line)
        if message is None:
            if self._begun:
                yield from self.unparsed(rule, line)
            else:  # what a shell or a program prints before it begins to speak its protocol
                yield Notice(kind="not_json", text=shortened(line[:4_000].decode("utf-8", "replace"), _SAMPLE))
            return
        self._begun = True
        count = self._unparsed
        yield from self.take(message)
        if self._unparsed == count:
            self._row = 0


def decoded(line: bytes) -> tuple[JSONObject | None, str]:
    """Return the object of a line, or None and the rule that the line breaks."""
    if values_of(line) > VALUES_LIMIT:
        return None, f"the line has more than {VALUES_LIMIT:,} values"
    try:
        value = _value(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None, "the line is not JSON"
    return (value, "") if isinstance(value, dict) else (None, "the line is not a JSON object")


def _value(line: bytes) -> JSONValue:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError):
        # half of a surrogate pair, as JavaScript writes a text that was cut in the middle of one
        return msgspec.json.decode(_SURROGATE.sub(rb"\\ufffd", line))


def cut(text: str) -> str:
    """Return a text within the limit of items."""
    return text if len(text) <= TEXT_LIMIT else shortened(text, TEXT_LIMIT)
