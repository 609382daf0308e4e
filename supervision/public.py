"""`publish`: what a package exports says that it is from there, not from the module that holds its code.

Tracebacks, `help`, the `repr` of a class and pickles name `__module__`. Users import from the package, and its inner
modules may move. Trio does the same to what it exports.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterable, Mapping
from types import FunctionType


def publish(package: str, namespace: Mapping[str, object], names: Iterable[str]) -> None:
    """Set `__module__` of the classes and functions that `package` exports under `names`.

    Call it at the end of the package's `__init__`. What has another name there than its own (an alias), and what is
    neither class nor function, stays as it is.
    """
    for name in names:
        value = namespace[name]
        if isinstance(value, type | FunctionType) and value.__name__ == name:
            if isinstance(value, type):
                _resolve_annotations(value)
            value.__module__ = package


def _resolve_annotations(cls: type) -> None:
    """Replace annotations that are text by what they mean.

    `typing.get_type_hints`, attrs and msgspec look the names of such a text up in the module that `__module__` names,
    and the package does not have them all. A text that names what is imported for type checkers only stays as it is.
    """
    annotations: dict[str, object] = vars(cls).get("__annotations__", {})
    names = {**vars(cls), **vars(sys.modules[cls.__module__])}
    for field, annotation in annotations.items():
        holder = type(cls.__name__, (), {"__annotations__": {field: annotation}})
        try:
            annotations.update(typing.get_type_hints(holder, names, include_extras=True))
        except NameError:
            continue


def restored(cls: type[BaseException], args: tuple[object, ...], attributes: Mapping[str, object]) -> BaseException:
    """An exception out of a pickle, without calling its `__init__`, whose arguments are not those that `args` keeps."""
    error = cls.__new__(cls, *args)
    vars(error).update(attributes)
    return error
