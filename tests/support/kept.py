"""Which containers of a process still name a run: found by following references, so that a new one is found, too."""

from collections import OrderedDict, deque
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from types import MethodType
from typing import Any
from weakref import WeakValueDictionary

_CONTAINERS = (dict, set, frozenset, list, tuple, deque, OrderedDict, WeakValueDictionary)


def kept(root: object, ids: Collection[str], *, not_in: tuple[type, ...]) -> list[str]:
    """The attributes that hold a container which names one of the runs, as "Class.attribute", sorted.

    Args:
        root: where to begin, for example a runtime. Followed are containers, bound methods, and the attributes of
            Greenroom's objects.
        ids: of the runs.
        not_in: what is left out, for example the tables of a store, which are not the process's memory.
    """
    wanted, found = frozenset(ids), set[str]()
    seen, left = {id(root)}, [("", root)]
    alive = [root]  # so that no id is used twice
    while left:
        where, one = left.pop()
        if isinstance(one, (*not_in, type)):
            continue
        if isinstance(one, _CONTAINERS):
            parts = [*one.keys(), *one.values()] if isinstance(one, Mapping | WeakValueDictionary) else [*one]
            if any(isinstance(part, str) and part in wanted for part in parts):
                found.add(where)
            inside = [(where, part) for part in parts]
        else:
            inside = [*_attributes(one)]
        for place, part in inside:
            if not isinstance(part, str | bytes | int | float | None) and id(part) not in seen:
                seen.add(id(part))
                alive.append(part)
                left.append((place, part))
    return sorted(found)


def _attributes(one: object) -> Iterator[tuple[str, Any]]:
    if isinstance(one, MethodType):
        yield "", one.__self__
    elif isinstance(one, partial):
        yield from (("partial", part) for part in (one.func, *one.args, *one.keywords.values()))
    elif type(one).__module__.startswith("greenroom"):
        names = {name for kind in type(one).__mro__ for name in _slots(kind)} | vars_of(one).keys()
        yield from ((f"{type(one).__name__}.{name}", getattr(one, name)) for name in names if hasattr(one, name))


def _slots(kind: type) -> Iterator[str]:
    slots = kind.__dict__.get("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else slots:
        private = name.startswith("__") and not name.endswith("__")
        yield f"_{kind.__name__.lstrip('_')}{name}" if private else name


def vars_of(one: object) -> Mapping[str, Any]:
    """The attributes in an object's dict, if it has one."""
    return getattr(one, "__dict__", {})
