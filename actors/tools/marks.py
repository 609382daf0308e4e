"""The digest of a tool's definition: the part of an approved action beside the arguments.

The digest covers what the model and people read of the tool (name, description, parameters), how the runtime treats it
(effect, replay, needs_approval, background) and its code: the source text of the function from its `def` on, without
indentation. So the digest is equal in every process and under every release of Python as long as that text is equal,
and changes when a release changes the text. Called functions are not covered. A function without available source
(typed into an interpreter, compiled away) is digested by its bytecode, which other releases of Python compile
differently: after such an upgrade people may be asked again, never too seldom.
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
"""Hex digits of a digest: enough to distinguish releases of one tool; the fingerprint over it has full length."""
_codes: Final[WeakKeyDictionary[Callable[..., Any], object]] = WeakKeyDictionary()


def definition_mark(tool: Tool[..., object]) -> str:
    """Return the digest of a tool's definition (16 hex digits)."""
    parts = [tool.name, tool.description, tool.schema, tool.effect, tool.replay, tool.gate, tool.background]
    return content_digest([*parts, _code_of(tool.function)])[:_DIGITS]


def _code_of(function: Callable[..., Any]) -> Any:
    """Return the code as plain data; cached per function, because the source is read from a file."""
    code = _codes.get(function)
    if code is None:
        body = inspect.unwrap(function)
        code = _codes[function] = _text_of(body) or _bytecode_of(getattr(body, "__code__", None))
    return code


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
        lines = lines[node.lineno - 1 :]  # the decorators' options are digested separately
    return "\n".join(lines)


def _bytecode_of(code: CodeType | None) -> Any:
    if code is None:
        return None
    constants = [
        _bytecode_of(constant) if isinstance(constant, CodeType) else _shown(constant) for constant in code.co_consts
    ]
    return [code.co_code.hex(), constants, list(code.co_names), list(code.co_varnames)]


def _shown(constant: object) -> str:
    """Return text that is equal in every process, also for a set, whose order varies."""
    return repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)
