"""The two kinds of structs for rows and messages, and how the engine makes the next row of a run.

Rows are msgspec structs, not attrs classes: these are created, copied, compared and encoded in C, and each step of a
run creates dozens. Their creation checks neither types nor ranges: data from outside is checked where it comes in
(`converters.py`, `services/sanitize.py`). A field with its default is left out of the encoded form.

A class of rows that the engine changes has two forms:

    class RunFields(Fields):    the fields, mutable
    class RunRow(RunFields):    the same, frozen; it adds no field

`opened` copies a row into the mutable form, and `sealed` turns that copy into the frozen form: from then on the object
refuses every assignment. Both forms have one memory layout, so sealing changes the class of the object and copies
nothing.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

Open = TypeVar("Open", bound="Fields")
Row = TypeVar("Row", bound="Fields")


class Value(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A stored value, or a value for a model: compared by its fields, immutable.

    `msgspec.structs.replace(value, field=...)` makes another one. A value holds JSON data and other values: it is in no
    reference cycle, so the garbage collector need not track it.
    """


class Fields(msgspec.Struct, omit_defaults=True, gc=False):
    """A mutable value. The frozen subclass is the row."""


def opened(form: type[Open], row: Open) -> Open:
    """Return a mutable copy of a row.

    Args:
        form: the mutable class.
        row: A row of that class, or of the frozen one.
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
