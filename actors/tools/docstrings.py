"""Read a Google-style docstring for the model: the description of a tool, and of each argument."""

from __future__ import annotations

import inspect
import re
from typing import Final

_SECTION: Final = re.compile(r"(?i)(args|arguments|parameters|params)\s*:\s*")
_ENTRY: Final = re.compile(r"\*{0,2}(?P<name>\w+)(?:\s*\([^)]*\))?\s*:\s*(?P<text>.*)")


def first_paragraph(function: object) -> str:
    """Return the first paragraph of an object's own docstring as one line, or ""."""
    text = inspect.cleandoc(getattr(function, "__doc__", None) or "")
    return " ".join(text.split("\n\n", 1)[0].split())


def parameter_texts(function: object) -> dict[str, str]:
    """Return parameter name -> its text in the `Args:` section; continued lines are joined into one."""
    lines = inspect.cleandoc(getattr(function, "__doc__", None) or "").splitlines()
    starts = [number for number, line in enumerate(lines) if _SECTION.fullmatch(line)]
    lines_of: dict[str, list[str]] = {}
    if not starts:
        return {}
    margin, current = 0, ""
    for line in lines[starts[0] + 1 :]:
        if not line.strip():
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            break  # the next section, or text that belongs to none
        margin = margin or depth
        entry = _ENTRY.fullmatch(line.strip()) if depth <= margin else None
        if entry is not None:
            current = entry["name"]
            lines_of[current] = [entry["text"]]
        elif current:
            lines_of[current].append(line.strip())
    return {name: " ".join(filter(None, texts)) for name, texts in lines_of.items()}
