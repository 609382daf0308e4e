"""The mark of a tool's definition: what a person has approved, beside the arguments.

The mark covers what the model and people read of the tool (name, description, parameters), how the runtime treats it
(effect, replay, needs_approval, background) and its code: the text of the function, from its `def` on, without its
indentation. So the mark is the same in every process and under every release of Python for as long as that text is the
same, and another one when a release changes the text. What the function calls is not covered. A function whose text is
not to be had (typed into an interpreter, compiled away) is marked by its bytecode, which other releases of Python
compile differently: people may be asked again after such an upgrade, never too seldom.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import CodeType
from typing import Any, Final
from weakref import WeakKeyDictionary

from ..contract.ids import content_digest
from .definition import Tool

_DIGITS: Final = 16
"""Hex digits of a mark: it tells releases of one tool apart, and the fingerprint over it is whole."""
_known: Final[WeakKeyDictionary[Callable[..., Any], object]] = WeakKeyDictionary()


def definition_mark(tool: Tool[..., object]) -> str:
    """The mark of a tool's definition (16 hex digits)."""
    parts = [tool.name, tool.description, tool.schema, tool.effect, tool.replay, tool.gate, tool.background]
    return content_digest([*parts, _code_of(tool.function)])[:_DIGITS]


def _code_of(function: Callable[..., Any]) -> Any:
    """The code as plain data; read once per function, for the text comes from a file."""
    found = _known.get(function)
    if found is None:
        body = inspect.unwrap(function)
        found = _known[function] = _text_of(body) or _bytecode_of(getattr(body, "__code__", None))
    return found


def _text_of(function: Callable[..., Any]) -> str | None:
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError, SyntaxError):
        return None
    lines = [line.rstrip() for line in text.splitlines()]
    try:
        (node, *_) = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):  # a part of an expression, such as a lambda among arguments
        return "\n".join(lines)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        lines = lines[node.lineno - 1 :]  # the decorators' options are covered by themselves
    return "\n".join(lines)


def _bytecode_of(code: CodeType | None) -> Any:
    if code is None:
        return None
    constants = [_bytecode_of(one) if isinstance(one, CodeType) else _shown(one) for one in code.co_consts]
    return [code.co_code.hex(), constants, list(code.co_names), list(code.co_varnames)]


def _shown(constant: object) -> str:
    """The same text in every process, also of a set, whose order is another one each time."""
    return repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)
