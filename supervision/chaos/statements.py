"""Where a program can crash: the statements of its own code, apart from clean-up.

An operation of trio either happens or raises what its documentation names. Only code can raise anything at any
statement. So a crash belongs to a statement, and these are left out: clean-up (`finally`, `except`), because a
failure of a clean-up is another fault; the headers of `try` and `with`, which are also visited on the way out; and
statements that cannot raise, such as `pass` and `return name`.
"""

from __future__ import annotations

import ast
import functools
import linecache
import site
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from trio.lowlevel import Task

from .sites import FOREIGN

_BLOCKS: Final = (ast.Try, ast.TryStar, ast.With, ast.AsyncWith)
"""Statements whose header is visited again on the way out."""
_SILENT: Final = (
    *(*_BLOCKS, ast.Pass, ast.Break, ast.Continue, ast.Nonlocal, ast.Global),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
)
"""Statements that raise nothing themselves."""
_CLEAN_UP: Final = ("finalbody", "handlers")
"""Fields of a `try` with the code that runs after a failure."""
_KERNEL: Final = tuple(f"{folder}/" for here in [Path(__file__).parents[1]] for folder in {here, here.resolve()})
"""The supervision package, as named and as linked: the crash of an actor's wrapper is not a crash of the actor."""
_INSTALLED: Final = tuple(
    f"{folder}/"
    for folder in {
        *site.getsitepackages(),
        site.getusersitepackages(),
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    }
)
"""Folders of code that is not the program's: the standard library and installed packages."""


@functools.cache
def statements(filename: str) -> frozenset[int]:
    """Return the numbers of the lines of a file on which a crash may be raised; empty if the source is not known."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return frozenset()
    headers = {node.lineno for node in ast.walk(tree) if isinstance(node, _BLOCKS)}
    return frozenset(_crashable(tree)) - headers  # `with lock: work()` has both on one line


def _crashable(tree: ast.AST) -> Iterator[int]:
    stack = [(tree, False)]
    while stack:
        node, cleans_up = stack.pop()
        if isinstance(node, ast.stmt) and not cleans_up and _may_raise(node):
            yield node.lineno
        within = cleans_up and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name, value in ast.iter_fields(node):
            inner = within or name in _CLEAN_UP
            stack += [(child, inner) for child in (value if isinstance(value, list) else [value]) if _is_node(child)]


def _is_node(value: object) -> bool:
    return isinstance(value, ast.AST)


def _may_raise(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Return):
        return not isinstance(statement.value, ast.Name | ast.Constant | None)
    return not isinstance(statement, _SILENT)


def program_frames(task: Task, inside: Sequence[str] | None) -> list[FrameType]:
    """Return the frames of a task that are the program's own, innermost first.

    Args:
        task: A task between two steps.
        inside: Modules, each with what is below it; None: everything but installed packages and the standard library.
            If no frame of the task is the program's, its innermost frame that is not trio's counts.
    """
    frames = [frame for frame, _ in task.iter_await_frames()]
    own = [frame for frame in frames if not frame.f_code.co_filename.startswith((*FOREIGN, *_KERNEL))]
    if inside is not None:
        return [frame for frame in reversed(own) if is_inside(frame.f_globals.get("__name__", ""), inside)]
    program = [frame for frame in own if not frame.f_code.co_filename.startswith(_INSTALLED)]
    return list(reversed(program)) or own[-1:]


def is_inside(module: str, modules: Iterable[str]) -> bool:
    """Return True if `module` is one of the modules, or below one."""
    return any(module == one or module.startswith(f"{one}.") for one in modules)
