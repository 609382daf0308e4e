"""A pytest plugin that notes which functions each test calls, and runs the tests that a list names, in its order.

    GREENROOM_TOUCHED=FILE python -m pytest -p scripts.touched ...     note: {"functions": {...}, "tests": {...}}
    python -m pytest -p scripts.touched --only-tests FILE ...          run the tests whose ids are the lines of the file

The modules of `FOLDERS` are compiled with one more statement in each function, which is much cheaper than a tracer.
Functions are named "actors/engine/steps.py:17", by their first line. What an import calls counts for no test.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pytest

FOLDERS: Final = ("actors/engine", "actors/run")
PACKAGES: Final = tuple(f"greenroom.{folder.replace('/', '.')}." for folder in FOLDERS)
CALLED: Final = set[str]()
"""The functions that were called since the last test."""


class Noting(ast.NodeTransformer):
    """Puts a statement into each function that adds the name of the function to `CALLED`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Change a function."""
        return self._noting(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        """Change an async function."""
        return self._noting(node)

    def _noting(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        note = ast.parse(f"_called_.add({f'{self._path}:{node.lineno}'!r})").body
        node.body[ast.get_docstring(node) is not None : 0] = note
        return node


class Loader(SourceFileLoader):
    """Compiles a module with notes, and caches nothing."""

    def get_code(self, fullname: str) -> CodeType:
        """The code of the module."""
        path = self.get_filename(fullname)
        name = "/".join(Path(path).parts[-3:])
        tree = Noting(name).visit(ast.parse(self.get_data(path), path))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


class Finder(MetaPathFinder):
    """Finds the modules of the folders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As Python does, with another loader."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname.startswith(PACKAGES) else None
        if spec is not None and spec.origin is not None and spec.submodule_search_locations is None:
            spec.loader = Loader(fullname, spec.origin)
        return spec


class Notes:
    """Gathers the functions and the seconds of each test."""

    def __init__(self, into: Path) -> None:
        self._into = into
        self._functions: dict[str, set[str]] = defaultdict(set)
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_collection_finish(self) -> None:
        """Forget what imports have called."""
        CALLED.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test has called so far."""
        self._seconds[report.nodeid] += report.duration
        for name in CALLED:
            self._functions[name].add(report.nodeid)
        CALLED.clear()

    def pytest_sessionfinish(self) -> None:
        """Write the notes."""
        functions = {name: sorted(tests) for name, tests in self._functions.items()}
        self._into.write_text(json.dumps({"functions": functions, "tests": self._seconds}), "utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    """One option; the other is in the environment, because conftest.py imports modules before options are read."""
    parser.addoption("--only-tests", type=Path, help="a file with the ids of the tests to run, in order")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to note."""
    if INTO is not None:
        config.pluginmanager.register(Notes(Path(INTO)), "touched-notes")


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Keep the tests of the list; `tests/conftest.py` has left out variants before."""
    only = config.getoption("--only-tests")
    if only is None:
        return
    turn = {name: number for number, name in enumerate(only.read_text("utf-8").splitlines())}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in turn])
    items[:] = sorted((item for item in items if item.nodeid in turn), key=lambda item: turn[item.nodeid])


INTO: Final = os.environ.pop("GREENROOM_TOUCHED", None)
"""The file; processes that tests start note nothing."""

if INTO is not None:
    if any(name.startswith(PACKAGES) for name in sys.modules):
        raise RuntimeError("the modules were imported before they could be changed")
    builtins._called_ = CALLED  # type: ignore[attr-defined]
    sys.meta_path.insert(0, Finder())
