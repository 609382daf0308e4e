"""Containers of a process: found by following references, so that a container that is added later is found, too."""

from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakValueDictionary

import trio

_CONTAINERS = (dict, set, frozenset, list, tuple, deque, OrderedDict, WeakValueDictionary, bytearray)


def kept(root: object, ids: Collection[str], *, not_in: tuple[type, ...] = ()) -> list[str]:
    """The attributes with a container that names one of the runs, as "Class.attribute", sorted.

    Args:
        root: where to begin, for example a runtime. Followed are containers, closures, bound methods, and the
            attributes of Greenroom's objects.
        ids: of the runs.
        not_in: types that are not followed.
    """
    wanted = frozenset(ids)
    named = (
        where for where, parts in _walk(root, not_in) if any(isinstance(part, str) and part in wanted for part in parts)
    )
    return sorted(set(named))


def sizes(root: object, *, not_in: tuple[type, ...] = ()) -> Counter[str]:
    """How many entries the containers of each attribute have, together; the tasks of a nursery are entries, too."""
    counted = Counter[str]()
    for where, parts in _walk(root, not_in):
        counted[where] += len(parts)
    return counted


def _walk(root: object, not_in: tuple[type, ...]) -> Iterator[tuple[str, list[Any]]]:
    """The containers that can be reached: the attribute, and the entries."""
    seen, left = {id(root)}, [("", root)]
    alive: list[object] = [root]  # so that no id is used twice
    while left:
        where, one = left.pop()
        if isinstance(one, (*not_in, type)):
            continue
        if isinstance(one, trio.Nursery):
            inside = []
            yield f"{where} (tasks)", [task.name for task in one.child_tasks]
        elif isinstance(one, _CONTAINERS):
            parts = [*one.keys(), *one.values()] if isinstance(one, Mapping | WeakValueDictionary) else [*one]
            yield where, parts
            inside = [(where, part) for part in parts]
        else:
            inside = [*_attributes(where, one)]
        for place, part in inside:
            if not isinstance(part, str | bytes | int | float | None) and id(part) not in seen:
                seen.add(id(part))
                alive.append(part)
                left.append((place, part))


def _attributes(where: str, one: object) -> Iterator[tuple[str, Any]]:
    if isinstance(one, MethodType):
        yield where, one.__self__
        yield where, one.__func__
    elif isinstance(one, FunctionType):
        yield from ((f"{one.__qualname__} (closure)", cell.cell_contents) for cell in one.__closure__ or ())
    elif isinstance(one, partial):
        yield from ((where, part) for part in (one.func, *one.args, *one.keywords.values()))
    elif type(one).__module__.startswith("greenroom"):
        names = {name for kind in type(one).__mro__ for name in _slots(kind)} | vars_of(one).keys()
        yield from ((f"{type(one).__name__}.{name}", getattr(one, name)) for name in names if hasattr(one, name))


def _slots(kind: type) -> Iterator[str]:
    slots = kind.__dict__.get("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else slots:
        private = name.startswith("__") and not name.endswith("__")
        yield f"_{kind.__name__.lstrip('_')}{name}" if private else name


def vars_of(one: object) -> Mapping[str, Any]:
    """The attributes in an object's dict, if the object has one."""
    return getattr(one, "__dict__", {})
