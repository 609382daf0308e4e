"""Tools for the files of a worktree: list, read, search, write, edit, patch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

import trio

from ...contract.patterns import WAY_OUT, linear
from ...errors import ToolError
from ...tools.context import ToolContext
from ...tools.definition import Tool, tool
from ..errors import OutsideWorkspace, WorkspaceTooLarge
from ..files import Files
from .context import worktree_of
from .patch import FilePatch, PatchError, apply_hunks, new_text, parse_patch
from .reports import report_read

MOST_NAMES: Final = 1_000
"""Paths that a list shows the model."""
MOST_LINES: Final = 2_000
MOST_SHOWN: Final = 64 * 1024
"""Characters of a file that one call shows the model."""
MOST_HITS: Final = 200
LONGEST_LINE: Final = 400
"""Characters of a line that a search shows."""
MOST_SEARCHED: Final = 1024 * 1024
"""Bytes of a file that a search reads; a larger one is left out."""
MOST_PATCHED: Final = 100
"""Files of one patch."""


def files_of(ctx: ToolContext[Any]) -> Files:
    """Return the files of a call's run."""
    return worktree_of(ctx).files


def reading_tools() -> list[Tool[..., Any]]:
    """Return the tools that change nothing: list_files, read_file, search_files."""

    @tool(replay="safe", effect="read")
    async def list_files(ctx: ToolContext, path: str = ".", pattern: str = "*") -> str:
        """List the files below a folder of the workspace, without ignored ones. `pattern` is a glob such as *.py."""
        names = await files_of(ctx).names(path)
        names = await trio.to_thread.run_sync(
            lambda: [name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name.split("/")[-1], pattern)]
        )
        rest = len(names) - MOST_NAMES
        return (
            "\n".join([*names[:MOST_NAMES], *([f"[{rest:,} more; name a folder]"] if rest > 0 else [])]) or "[no files]"
        )

    @tool(replay="safe", effect="read")
    async def read_file(ctx: ToolContext, path: str, start: int = 1, lines: int = MOST_LINES) -> str:
        """Read a text file of the workspace, from line `start` on. Each line comes with its number."""
        if start < 1 or not 1 <= lines <= MOST_LINES:
            raise ToolError(f"start={start}, lines={lines}: lines count from 1, and one call shows up to {MOST_LINES}")
        content = await files_of(ctx).read(path)
        text, size = await _decoded(path, content), len(content)
        shown, count = await trio.to_thread.run_sync(_numbered, text, start, lines)
        await report_read(ctx, path, size=size, lines=count)
        return shown

    @tool(replay="safe", effect="read")
    async def search_files(ctx: ToolContext, pattern: str, path: str = ".") -> str:
        """Search the text files below a folder of the workspace for lines that match a regular expression (RE2)."""
        try:
            matches = await trio.to_thread.run_sync(linear, pattern)
        except ValueError as error:
            raise ToolError(f"pattern {pattern!r:.200}: {error}; {WAY_OUT}") from error
        files, hits = files_of(ctx), list[str]()
        for name in await files.names(path):
            hits += await _search(files, name, matches)
            if len(hits) > MOST_HITS:
                return "\n".join([*hits[:MOST_HITS], "[more; search for less]"])
        return "\n".join(hits) or "[no line matches]"

    return [list_files, read_file, search_files]


def writing_tools() -> list[Tool[..., Any]]:
    """Return the tools that change files of the worktree: write_file, edit_file, apply_patch."""

    @tool(replay="safe", effect="write")
    async def write_file(ctx: ToolContext, path: str, content: str) -> str:
        """Write a file of the workspace as a whole. Missing folders are made."""
        await files_of(ctx).write(path, _encoded(path, content))
        return f"{path} is written"

    @tool(effect="write", concurrency="ordered")
    async def edit_file(ctx: ToolContext, path: str, old: str, new: str, all: bool = False) -> str:  # noqa: A002
        """Replace a text in a file of the workspace: the only place where it is, or with `all` each place."""
        return await _edit(files_of(ctx), path, (old, new), everywhere=all)

    @tool(effect="patch", concurrency="ordered")
    async def apply_patch(ctx: ToolContext, patch: str) -> str:
        """Change files of the workspace by a patch: the format of `*** Begin Patch`, or a unified difference.

        All files are checked first, then all are written.
        """
        return await _apply(files_of(ctx), patch)

    return [write_file, edit_file, apply_patch]


async def _edit(files: Files, path: str, change: tuple[str, str], *, everywhere: bool) -> str:
    text, (old, new) = await _text(files, path), change
    places = await trio.to_thread.run_sync(_places, text, old)
    if not places:
        raise ToolError(f"{path}: {old!r:.100} is not in the file; read it again")
    if len(places) > 1 and not everywhere:
        lines = ", ".join(map(str, places[:5]))
        raise ToolError(f"{path}: {old!r:.100} is at the lines {lines}; give more of the text, or all=true")
    await files.write(path, _encoded(path, text.replace(old, new)))
    return f"{path} is changed at {len(places)} place{'s' * (len(places) > 1)}"


async def _apply(files: Files, text: str) -> str:
    try:
        contents = await _patched(files, await trio.to_thread.run_sync(parse_patch, text))
    except PatchError as error:
        raise ToolError(f"nothing is changed: {error}") from error
    for path, content in contents.items():
        if content is not None:
            await files.write(path, content)
    for path, content in contents.items():
        if content is None:
            await files.remove(path)
    return "\n".join(f"{path} is {'removed' if content is None else 'written'}" for path, content in contents.items())


async def _patched(files: Files, patches: list[FilePatch]) -> dict[str, bytes | None]:
    """Return the new contents by path, None for a file to remove; nothing is written.

    Raises:
        PatchError: a file does not fit, or there are too many.
    """
    if len(patches) > MOST_PATCHED:
        raise PatchError(f"the patch has {len(patches)} files; the limit is {MOST_PATCHED}: split it")
    contents = dict[str, bytes | None]()
    for patch in patches:
        target = patch.target or patch.path
        if {patch.path, target} & contents.keys():
            raise PatchError(f"{patch.path}: the patch names the file twice; join its hunks")
        if (patch.kind == "add" or target != patch.path) and await files.has(target):
            raise PatchError(f"{target}: the file is there already; update it, or remove it first")
        if patch.kind == "add":
            contents[target] = _encoded(target, new_text(patch))
            continue
        text = await _text(files, patch.path)
        contents[patch.path] = None
        if patch.kind == "update":
            new = await trio.to_thread.run_sync(apply_hunks, patch.path, text, patch.hunks)
            contents[target] = _encoded(target, new)
    return contents


async def _text(files: Files, path: str) -> str:
    return await _decoded(path, await files.read(path))


async def _decoded(path: str, content: bytes) -> str:
    try:
        return await trio.to_thread.run_sync(content.decode)
    except UnicodeDecodeError as error:
        raise ToolError(f"{path!r:.300} is not a text in UTF-8 ({len(content):,} bytes)") from error


def _encoded(path: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolError(f"{path!r:.300}: the text has a lone surrogate; write characters") from error


def _numbered(text: str, start: int, count: int) -> tuple[str, int]:
    """Return lines with their numbers, and how many these are."""
    lines = text.split("\n")
    if text.endswith("\n"):
        lines.pop()
    shown, size = list[str](), 0
    for number, line in enumerate(lines[start - 1 : start - 1 + count], start):
        size += len(line) + 1
        if size > MOST_SHOWN and shown:
            break
        shown.append(f"{number}\t{line[:MOST_SHOWN]}")
    count = len(shown)
    if start - 1 + count < len(lines):
        shown.append(f"[{len(lines):,} lines; go on with start={start + count}]")
    return "\n".join(shown) or f"[no line {start}; the file has {len(lines):,}]", count


def _places(text: str, old: str) -> list[int]:
    """Return the numbers of the lines at which a text begins."""
    if not old:
        return []
    numbers, line, start = list[int](), 1, 0
    place = text.find(old)
    while place >= 0:
        line += text.count("\n", start, place)
        numbers.append(line)
        start, place = place, text.find(old, place + len(old))
    return numbers


async def _search(files: Files, name: str, matches: Callable[[str], bool]) -> list[str]:
    try:
        content = await files.read(name, most=MOST_SEARCHED)
    except (OutsideWorkspace, WorkspaceTooLarge):  # removed meanwhile, or too large to be read for people
        return []
    if b"\0" in content[:8_000]:  # as git tells binary files
        return []

    def hits() -> Iterator[str]:
        for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
            if matches(line):
                yield f"{name}:{number}: {line[:LONGEST_LINE]}"

    return await trio.to_thread.run_sync(lambda: [hit for hit, _ in zip(hits(), range(MOST_HITS + 1), strict=False)])
