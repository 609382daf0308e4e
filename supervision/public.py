"""`publish`: set the `__module__` of exported names to the package, not to the module that contains the code.

Tracebacks, `help`, the `repr` of a class and pickles show `__module__`. Users import from the package, and its inner
modules may move. Trio does the same for its exports.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Iterable, Mapping
from types import FunctionType


def publish(package: str, namespace: Mapping[str, object], names: Iterable[str]) -> None:
    """Set `__module__` of the classes and functions that `package` exports under `names`.

    Call `publish` at the end of the package's `__init__`. An alias (exported under a name other than its own) and a
    value that is neither class nor function are left unchanged.
    """
    for name in names:
        value = namespace[name]
        if isinstance(value, type | FunctionType) and value.__name__ == name:
            if isinstance(value, type):
                _resolve_annotations(value)
            value.__module__ = package


def _resolve_annotations(cls: type) -> None:
    """Replace string annotations by the types that they name.

    `typing.get_type_hints`, attrs and msgspec resolve the names in a string annotation in the module that `__module__`
    names, and the package does not contain all of them. An annotation that names a type imported for type checkers only
    is left unchanged.
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
    """Rebuild a pickled exception without calling its `__init__`, whose parameters differ from `args`."""
    error = cls.__new__(cls, *args)
    vars(error).update(attributes)
    return error
