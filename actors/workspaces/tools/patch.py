"""Read a patch in either of two formats, and apply it to texts. Pure.

The formats are the one of `*** Begin Patch`, which models of OpenAI write, and unified differences. A hunk is found by
its lines; a line number, or a line after `@@`, only chooses among several places. A hunk that fits nowhere, or in
several places, is refused: a guess would change the wrong lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import attrs

MOST_TEXT: Final = 1024 * 1024
"""Characters of a patch."""
MOST_WORK: Final = 20_000_000
"""Lines of a file times hunks for it: about ten seconds of a thread."""
_SHOWN: Final = 5
"""Places that an error names."""

_OPERATION: Final = re.compile(r"\*\*\* (Add|Update|Delete) File: (.+)")
_RANGE: Final = re.compile(r"@@ -(\d{1,9})(?:,\d{1,9})? \+\d{1,9}(?:,\d{1,9})? @@")
_NO_NEWLINE: Final = "\\ No newline at end of file"


class PatchError(ValueError):
    """A patch cannot be read, or does not fit; the text names the file, the line and what to do."""


@attrs.define
class Hunk:
    """Lines that are replaced by others.

    Attributes:
        number: The line of the patch at which the hunk begins, from 1.
        line: The line of the file that a unified difference names, from 1; None in the other format.
        anchor: A line of the file after which the hunk is; None for none.
        old, new: The lines.
        open_old, open_new: No newline follows the last one of these lines, which ends the file.
    """

    number: int
    line: int | None = None
    anchor: str | None = None
    old: list[str] = attrs.field(factory=list)
    new: list[str] = attrs.field(factory=list)
    open_old: bool = False
    open_new: bool = False


@attrs.define
class FilePatch:
    """What a patch does to one file.

    Attributes:
        kind: add, update or delete.
        path: The file.
        target: The path that an updated file gets; None: the one that it has.
        hunks: The replacements; of a new file, one whose `new` is the content.
    """

    kind: Literal["add", "update", "delete"]
    path: str
    target: str | None = None
    hunks: list[Hunk] = attrs.field(factory=list)


def parse_patch(text: str) -> list[FilePatch]:
    """Read a patch.

    Raises:
        PatchError: it has neither format, a line is not of its format, or it is longer than 1,048,576 characters.
    """
    if len(text) > MOST_TEXT:
        raise PatchError(f"the patch has {len(text):,} characters; the limit is {MOST_TEXT:,}: split it by files")
    lines = text.removesuffix("\n").split("\n")
    begin = next((number for number, line in enumerate(lines) if line.strip()), 0)
    files = _parse_begin(lines, begin) if lines[begin].strip() == "*** Begin Patch" else _parse_unified(lines)
    if not files:
        raise PatchError(
            "the patch names no file; write '*** Begin Patch' with '*** Update File: PATH', or '--- a/PATH'"
        )
    return files


def apply_hunks(path: str, text: str, hunks: Sequence[Hunk]) -> str:
    """Return the text of a file after its hunks. Line ends of the file stay: CRLF where it has CRLF only.

    Raises:
        PatchError: a hunk fits nowhere, or in several places.
    """
    crlf = "\r\n" in text and text.count("\n") == text.count("\r\n")
    lines = (text.replace("\r\n", "\n") if crlf else text).split("\n")
    if len(lines) * len(hunks) > MOST_WORK:
        raise PatchError(f"{path}: {len(hunks)} hunks for {len(lines):,} lines are too many; split the patch")
    start = shift = 0
    for hunk in hunks:
        place = _place(path, lines, hunk, start, shift)
        lines[place : place + len(hunk.old)] = hunk.new
        start, shift = place + len(hunk.new), shift + len(hunk.new) - len(hunk.old)
        if hunk.open_new and lines[start:] == [""]:
            del lines[start:]
        elif hunk.open_old and not hunk.open_new and start == len(lines):
            lines.append("")
    return ("\r\n" if crlf else "\n").join(lines)


def new_text(patch: FilePatch) -> str:
    """Return the content of a file that a patch adds."""
    lines = [line for hunk in patch.hunks for line in hunk.new]
    is_open = bool(patch.hunks) and patch.hunks[-1].open_new
    return "\n".join(lines) + ("" if is_open or not lines else "\n")


def _parse_begin(lines: Sequence[str], begin: int) -> list[FilePatch]:
    files = list[FilePatch]()
    for number, line in enumerate(lines[begin + 1 :], begin + 2):
        operation = _OPERATION.fullmatch(line.rstrip())
        if operation:
            kind: Literal["add", "update", "delete"] = _KINDS[operation[1]]
            files.append(FilePatch(kind, operation[2], hunks=[Hunk(number)] if kind == "add" else []))
        elif line.strip() == "*** End Patch":
            break
        elif line.startswith("*** Move to: ") and files and files[-1].kind == "update":
            files[-1].target = line.removeprefix("*** Move to: ").rstrip()
        elif line.startswith("@@") and files and files[-1].kind == "update":
            files[-1].hunks.append(Hunk(number, anchor=line[2:].strip() or None))
        elif line.strip() != "*** End of File" and not (files and _take(files[-1], number, line)):
            raise PatchError(f"line {number} of the patch: {line!r:.100} is not expected there")
    return files


_KINDS: Final[dict[str, Literal["add", "update", "delete"]]] = {"Add": "add", "Update": "update", "Delete": "delete"}


def _take(file: FilePatch, number: int, line: str) -> bool:
    """Add a line with its sign to the newest hunk; False if it has none, or no hunk may be there."""
    if file.kind == "delete" or (file.kind == "add" and line[:1] != "+"):
        return False
    if not file.hunks:
        file.hunks.append(Hunk(number))
    return _add_line(file.hunks[-1], line)


def _add_line(hunk: Hunk, line: str) -> bool:
    sign, text = line[:1] or " ", line[1:]
    if sign in " -":
        hunk.old.append(text)
    if sign in " +":
        hunk.new.append(text)
    return sign in " -+"


def _parse_unified(lines: Sequence[str]) -> list[FilePatch]:
    files = list[FilePatch]()
    numbered = iter(enumerate(lines, 1))
    for number, line in numbered:
        if line.startswith("--- "):
            _, after = next(numbered, (0, ""))
            if not after.startswith("+++ "):
                raise PatchError(f"line {number + 1} of the patch: '+++ PATH' follows '--- PATH', not {after!r:.100}")
            files.append(_unified_file(_unified_path(line), _unified_path(after), number))
        elif line == _NO_NEWLINE and files and files[-1].hunks:
            _leave_open(files[-1].hunks[-1], lines[number - 2])
        elif found := _RANGE.match(line):
            if not files:
                raise PatchError(f"line {number} of the patch: a hunk before the first '--- PATH'")
            files[-1].hunks.append(_unified_hunk(Hunk(number, line=int(found[1])), line, numbered))
    return files


def _unified_file(old: str | None, new: str | None, number: int) -> FilePatch:
    if old is None and new is None:
        raise PatchError(f"line {number} of the patch: both files are /dev/null")
    if old is None or new is None:
        return FilePatch("add" if old is None else "delete", old or new or "")
    return FilePatch("update", old, None if old == new else new)


def _unified_path(line: str) -> str | None:
    path = line[4:].split("\t", maxsplit=1)[0].strip()
    return None if path == "/dev/null" else path.removeprefix("a/" if line.startswith("-") else "b/")


def _unified_hunk(hunk: Hunk, head: str, numbered: Iterator[tuple[int, str]]) -> Hunk:
    """Read as many lines as the head counts: a removed line may look like `--- PATH`."""
    counts = re.findall(r"[-+]\d+(?:,(\d+))?", head.split("@@", 2)[1])
    old, new = (int(count or 1) for count in counts)
    number, line = 0, ""
    while len(hunk.old) < old or len(hunk.new) < new:
        before = line if number else ""
        number, line = next(numbered, (0, "?"))
        if line == _NO_NEWLINE:
            _leave_open(hunk, before)
        elif not _add_line(hunk, line):
            raise PatchError(f"line {number or 'last'} of the patch: the hunk of line {hunk.number} ends too early")
    return hunk


def _leave_open(hunk: Hunk, line: str) -> None:
    """Note that no newline follows a line of a hunk."""
    hunk.open_old |= line[:1] in " -"
    hunk.open_new |= line[:1] in " +"


def _place(path: str, lines: Sequence[str], hunk: Hunk, start: int, shift: int) -> int:
    """Return the index at which a hunk fits."""
    if hunk.anchor is not None:
        start = 1 + _the_only(path, hunk, [n for n in range(start, len(lines)) if lines[n].strip() == hunk.anchor])
    expected = None if hunk.line is None else hunk.line - (1 if hunk.old else 0) + shift
    if not hunk.old:
        end = len(lines) - (lines[-1] == "")
        return min(expected, end) if expected is not None else start if hunk.anchor is not None else end
    places = list(find_block(lines, hunk.old, start))
    if expected is not None and expected in places:
        return expected
    if hunk.anchor is not None and places:
        return places[0]
    return _the_only(path, hunk, places, [n for n, line in enumerate(lines) if line.strip() == hunk.old[0].strip()])


def _the_only(path: str, hunk: Hunk, places: Sequence[int], near: Sequence[int] = ()) -> int:
    if len(places) == 1:
        return places[0]
    first = hunk.anchor or (hunk.old[0] if hunk.old else "")
    where = f"{path}: the hunk at line {hunk.number} of the patch, which begins with {first!r:.100},"
    if places:
        shown = ", ".join(str(place + 1) for place in places[:_SHOWN])
        raise PatchError(f"{where} fits at the lines {shown}{' and more' * (len(places) > _SHOWN)}; add context")
    shown = ", ".join(str(place + 1) for place in near[:_SHOWN])
    hint = f"a line like its first one is at {shown}" if near else "no line is like its first one"
    raise PatchError(f"{where} fits nowhere; {hint}: read the file again")


def find_block(lines: Sequence[str], block: Sequence[str], start: int = 0) -> Iterator[int]:
    """Yield the indexes at which consecutive lines are found (Knuth, Morris, Pratt, 1977): linear in the lines."""
    fallback, length = [0], 0
    for line in block[1:]:
        while length and block[length] != line:
            length = fallback[length - 1]
        length += block[length] == line
        fallback.append(length)
    length = 0
    for number in range(start, len(lines)):
        while length and (length == len(block) or block[length] != lines[number]):
            length = fallback[length - 1]
        length += block[length] == lines[number]
        if length == len(block):
            yield number + 1 - length
