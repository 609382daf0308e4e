"""The census as a Markdown page, generated from the results of the tools. Pure and deterministic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from greenroom.actors.contract.plain import JSONObject

from .files import MARK


def merged(counts: Sequence[JSONObject], key: str) -> Counter[str]:
    """Merge the tables of several folders."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count[key])
    return total


def summary(counts: Sequence[JSONObject]) -> str:
    """Return the census in one sentence."""
    lines, files = merged(counts, "lines"), merged(counts, "files")
    if not files:
        return "There are no text files."
    language, most = max(lines.items(), key=lambda item: (item[1], item[0]))
    share = most / (lines.total() or 1)
    sizes = f"{_counted(files.total(), 'text file')} with {_counted(lines.total(), 'line')}"
    return f"{sizes}; most of it is {language} ({share:.0%})."


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def report(folder: str, counts: Sequence[JSONObject], notes: Sequence[str], faults: Sequence[str]) -> str:
    """Return the page.

    Args:
        folder: Name of the folder.
        counts: Results of count_lines, one per folder.
        notes: First lines of the notable files.
        faults: Folders that could not be counted.
    """
    lines, files = merged(counts, "lines"), merged(counts, "files")
    largest = sorted(
        ((n, name) for count in counts for name, n in count["largest"]), key=lambda item: (-item[0], item[1])
    )
    binary = sum(count["binary"] for count in counts)
    page = [MARK, "", f"# Census of {folder}", "", summary(counts), ""]
    page += _table("Languages", "language", [(name, files[name], lines[name]) for name in _by_size(lines)])
    page += _table(
        "Folders",
        "folder",
        [(_place(count), sum(count["files"].values()), sum(count["lines"].values())) for count in counts],
    )
    if largest:
        page += [
            "## Largest files",
            "",
            *(f"- `{name}`: {count:,} {'line' if count == 1 else 'lines'}" for count, name in largest[:5]),
            "",
        ]
    if notes:
        page += ["## What it says of itself", "", *(f"- {note}" for note in notes), ""]
    left_out = [f"{binary:,} binary or very large files"] if binary else []
    left_out += [f"unreadable: `{name}`" for count in counts for name in count["unreadable"]] + list(faults)
    if left_out:
        page += ["## Not counted", "", *(f"- {item}" for item in left_out), ""]
    return "\n".join(page)


def _by_size(lines: Counter[str]) -> list[str]:
    return sorted(lines, key=lambda name: (-lines[name], name))


def _place(count: JSONObject) -> str:
    path = str(count["path"])
    if path == ".":
        return "everything" if count["deep"] else "(top)"
    return f"{path}/"


def _table(title: str, first: str, rows: Sequence[tuple[str, int, int]]) -> list[str]:
    if not rows:
        return []
    body = [f"| {name} | {files:,} | {lines:,} |" for name, files, lines in rows]
    return [f"## {title}", "", f"| {first} | files | lines |", "|---|--:|--:|", *body, ""]
