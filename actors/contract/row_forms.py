"""The two kinds of structs that rows and messages are, and how the engine makes the next row of a run.

Structs of msgspec, not attrs: they are made, copied, compared and encoded in C, and each step of a run makes dozens.
Making one checks neither types nor ranges: values are checked where data comes in from outside (`converters.py`,
`run/sanitize.py`). A field that has its default is left out of the encoded form.

A class of rows that the engine changes has two forms:

    class RunFields(Fields):    the fields, which may be set
    class RunRow(RunFields):    the same, frozen; it adds no field

`opened` copies a row into the first form, and `sealed` turns that copy into the second: from then on the object refuses
every assignment. Both forms have one layout, so that sealing changes the class of the object and copies nothing.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

Open = TypeVar("Open", bound="Fields")
Row = TypeVar("Row", bound="Fields")


class Value(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A value that is stored, or given to a model: equal by its fields, never changed.

    `msgspec.structs.replace(value, field=...)` makes another one. A value holds JSON data and other values: it is
    part of no reference cycle, and the garbage collector need not look at it.
    """


class Fields(msgspec.Struct, omit_defaults=True, gc=False):
    """A value whose fields may be set. The subclass that is frozen is the row."""


def opened(form: type[Open], row: Open) -> Open:
    """Return a mutable copy of a row.

    Args:
        form: the mutable class.
        row: of that class, or of the frozen one.
    """
    source: Any = row
    copy: Open = source.__copy__()
    msgspec.structs.force_setattr(copy, "__class__", form)  # the copy is as frozen as the row: an assignment is refused
    return copy


def sealed(form: type[Row], fields: Any) -> Row:
    """Freeze a row in place and return it. The caller must hold the only reference.

    Args:
        form: the frozen class.
        fields: made by `opened`.
    """
    fields.__class__ = form
    row: Row = fields
    return row
