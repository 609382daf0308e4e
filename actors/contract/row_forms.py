"""Rows are frozen; what makes the next one sets fields. A class of rows that the engine changes has both forms.

    class RunFields:            the fields, which may be set
    class RunRow(RunFields):    the same, frozen; it adds no field

`opened` copies a row into the first form, and `sealed` turns that copy into the second: from then on the object refuses
every assignment. Both forms have one layout, so that sealing changes the class of the object and copies nothing;
`attrs.evolve` takes four times as long for a row of thirty fields, and the engine makes a row for each input.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

import attrs

Fields = TypeVar("Fields")
Row = TypeVar("Row")


@cache
def _values(form: Any) -> Callable[[Any], tuple[Any, ...]]:
    """What reads all fields of a form, in the order in which its `__init__` takes them."""
    return attrgetter(*(field.name for field in attrs.fields(form)))


def opened(form: type[Fields], row: Fields) -> Fields:
    """A copy of a row whose fields may be set.

    Args:
        form: the base class with the fields.
        row: of that class, or of the frozen one.
    """
    kind: Any = form
    copy: Fields = kind(*_values(kind)(row))
    return copy


def sealed(form: type[Row], fields: Any) -> Row:
    """The object itself, from now on a frozen row. The caller must hold the only reference to it.

    Args:
        form: the frozen class.
        fields: made by `opened`.
    """
    fields.__class__ = form
    row: Row = fields
    return row


def changed(row: Row, changes: dict[str, Any]) -> Row:
    """A new row with other values in some fields.

    Raises:
        AttributeError: the row has no such field.
    """
    form: Any = type(row)
    copy = opened(form.__base__, row)
    for name, value in changes.items():
        setattr(copy, name, value)
    sealed_row: Row = sealed(form, copy)
    return sealed_row
