"""Read a docstring for the model: the description of a tool, and of each argument.

Three forms are known: Google's (`Args:`), NumPy's (`Parameters` over a line of dashes) and Sphinx's (`:param name:`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

_SECTION: Final = re.compile(r"(?i)(args|arguments|parameters|params)\s*:\s*")
_ENTRY: Final = re.compile(r"\*{0,2}(?P<name>\w+)(?:\s*\([^)]*\))?\s*:\s*(?P<text>.*)")
_NUMPY_SECTION: Final = re.compile(r"(?i)(other )?parameters")
_NUMPY_NAMES: Final = re.compile(r"\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*")
_DASHES: Final = re.compile(r"-{3,}\s*")
_SPHINX: Final = re.compile(r":(?P<field>\w+)(?:\s+(?P<rest>[^:]*))?:\s*(?P<text>.*)")
_SPHINX_FIELDS: Final = ("param", "parameter", "arg", "argument", "key", "keyword")


def first_paragraph(function: object) -> str:
    """Return the first paragraph of an object's own docstring as one line, without what describes arguments, or ""."""
    words: list[str] = []
    for line in _lines(function):
        if not line.strip() or _SECTION.fullmatch(line) or line.startswith((":param ", ":arg ", ":return", ":raises ")):
            break
        words += line.split()
    return " ".join(words)


def parameter_texts(function: object) -> dict[str, str]:
    """Return parameter name -> its text in the docstring; continued lines are joined into one."""
    lines = _lines(function)
    lines_of: dict[str, list[str]] = {}
    for entries in (_google(lines), _numpy(lines), _sphinx(lines)):
        for names, text in entries:
            for name in names:
                lines_of.setdefault(name, []).append(text)
        if lines_of:
            break
    return {name: " ".join(filter(None, texts)) for name, texts in lines_of.items()}


def _lines(function: object) -> list[str]:
    return inspect.cleandoc(getattr(function, "__doc__", None) or "").splitlines()


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _google(lines: list[str]) -> Iterator[tuple[list[str], str]]:
    """Yield the lines of the first `Args:` section, each with the names of the arguments that it describes."""
    start = next((number for number, line in enumerate(lines) if _SECTION.fullmatch(line)), len(lines))
    margin, current = 0, list[str]()
    for line in lines[start + 1 :]:
        if not line.strip():
            continue
        depth = _depth(line)
        if depth == 0:
            break  # the next section, or text that belongs to none
        margin = margin or depth
        entry = _ENTRY.fullmatch(line.strip()) if depth <= margin else None
        if entry is not None:
            current = [entry["name"]]
        yield current, entry["text"] if entry is not None else line.strip()


def _numpy(lines: list[str]) -> Iterator[tuple[list[str], str]]:
    """Yield the lines of the sections `Parameters`: `name : type`, and below it the text, deeper."""
    inside, current = False, list[str]()
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if _DASHES.fullmatch(following):
            inside, current = _NUMPY_SECTION.fullmatch(line.strip()) is not None, []
        elif inside and line.strip() and not _DASHES.fullmatch(line):
            names = line.partition(":")[0].strip()
            if _depth(line):
                yield current, line.strip()
            elif _NUMPY_NAMES.fullmatch(names):
                current = [name.strip(" *") for name in names.split(",")]


def _sphinx(lines: list[str]) -> Iterator[tuple[list[str], str]]:
    """Yield the lines of the fields `:param type name: text`, which go on in deeper lines."""
    current = list[str]()
    for line in lines:
        field = _SPHINX.fullmatch(line)
        if field is not None:
            words = (field["rest"] or "").split()
            current = [words[-1].lstrip("*")] if words and field["field"] in _SPHINX_FIELDS else []
            yield current, field["text"]
        elif _depth(line):
            yield current, line.strip()
        else:
            current = []
