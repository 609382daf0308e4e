"""A pytest plugin that replaces every sentence in the engine by random words: `-p tests.support.reworded`.

Nothing but people may read what the engine says, so the tests of replay pass all the same.
"""

import ast
import random
import re
import string
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

ENGINE = "greenroom.actors.engine."
_WORD = re.compile(r"(?<!\{)\b[A-Za-z]{2,}\b(?!\})")
"""A word, but no name of a field to be filled in."""
REWORDED: list[str] = []
"""The sentences that were replaced, so that a test can see that there are some."""


class Rewording(ast.NodeTransformer):
    """Replaces the words of every text with a space in it, but for docstrings and patterns."""

    def __init__(self) -> None:
        self._dice = random.Random()

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Leave a docstring."""
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Leave a pattern."""
        return node if ast.unparse(node.func).startswith("re.") else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Reword a sentence."""
        if not isinstance(node.value, str) or " " not in node.value.strip():
            return node
        REWORDED.append(node.value)
        return ast.copy_location(ast.Constant(_WORD.sub(self._word, node.value)), node)

    def _word(self, _: Any) -> str:
        return "".join(self._dice.choices(string.ascii_lowercase, k=9))


class Loader(SourceFileLoader):
    """Compiles a module of the engine with other words, and caches nothing."""

    def get_code(self, fullname: str) -> CodeType:
        """The module's code."""
        path = self.get_filename(fullname)
        tree = Rewording().visit(ast.parse(self.get_data(path), path))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


class Finder(MetaPathFinder):
    """Finds the modules of the engine."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As Python does, with another loader."""
        found = PathFinder.find_spec(fullname, path, target) if fullname.startswith(ENGINE) else None
        if found is not None and found.origin is not None:
            found.loader = Loader(fullname, found.origin)
        return found


assert not any(name.startswith(ENGINE) for name in sys.modules), "the engine was imported before it could be reworded"
sys.meta_path.insert(0, Finder())
