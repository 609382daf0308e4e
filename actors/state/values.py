"""Values of state keys as JSON data and back: exactly, or not at all.

A value that JSON would change (NaN becomes null, a long integer text, the key 1 the key "1") or that would be read back
as another value (the text "abc" of a list of texts) is refused when it is written.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from reprlib import Repr
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

import attrs
import msgspec
from cattrs.errors import CattrsError, StructureHandlerNotFoundError
from msgspec.structs import replace

from greenroom.supervision.border import Raised, capture

from ..contract.codec import MAX_DEPTH, SchemaError, message_of, parse
from ..contract.converters import converter
from ..contract.decisions import Decision, Ticket
from ..contract.messages import Message
from ..contract.sizes import oversized, too_large
from ..contract.user_types.choice import last_resort, pydantic_type
from ..contract.user_types.constraints import TypeFault, dropped_constraint

if TYPE_CHECKING:
    from ..contract.user_types.pydantic_type import PydanticType

_SHOWN: Final = Repr()
_SHOWN.maxstring = _SHOWN.maxother = 120
_DEEP: Final = f"nested more than {MAX_DEPTH} levels deep, or it holds itself"


class NotSerializable(ValueError):
    """A value has no form in JSON, or not its declared type; the message has the path."""


def write(value: object, kind: object, reader: PydanticType | None = None) -> Any:
    """Return a value of a type as new JSON data (dict, list, str, int, float, bool, None).

    Args:
        value: The value.
        kind: Its type.
        reader: As `check_kind` returns it.

    Raises:
        NotSerializable: reading the data would not return the value.
    """
    try:
        plain = converter.unstructure(value) if reader is None else _written(reader, value)
        if size := oversized(plain):
            raise NotSerializable(f"the value is too large: {too_large(size)}")
        data = _json(plain, "$", MAX_DEPTH)
    except RecursionError:
        raise NotSerializable(_DEEP) from None
    except (TypeError, ValueError, AttributeError, CattrsError) as error:
        raise NotSerializable(str(error) or type(error).__name__) from error
    try:
        read_back = read(kind, data, reader)
    except NotSerializable as error:
        if reader is None:
            raise
        raise NotSerializable(f"it is not read as it is written: {error}") from error
    if not _alike(value, read_back):
        reason = ": its type masks a part of it" if shown(value) == shown(read_back) else ""
        raise NotSerializable(f"it would be read as {shown(read_back)}{reason}")
    return data


def _written(reader: PydanticType, value: object) -> Any:
    result = capture(reader.write, value)
    if isinstance(result, Raised):  # by a serializer of the program, which may raise anything
        raise NotSerializable(message_of(result.error)) from result.error
    return result.value


def read(kind: Any, data: Any, reader: PydanticType | None = None) -> Any:
    """Return the value of JSON data: a new object that shares nothing with the data.

    Raises:
        NotSerializable: the data does not have the type, or the type cannot be kept as JSON.
    """
    if reader is not None:
        result = capture(reader.read, data)
        if isinstance(result, Raised):  # by a validator of the program, which may raise anything
            raise NotSerializable(message_of(result.error)) from result.error
        return result.value
    try:
        return parse(kind, copied(data))
    except SchemaError as error:
        raise NotSerializable(str(error).partition(": ")[2]) from error
    except StructureHandlerNotFoundError as error:
        raise NotSerializable(_unknown(error.type_)) from error
    except (CattrsError, AttributeError, LookupError) as error:
        raise NotSerializable(str(error) or type(error).__name__) from error


def check_kind(kind: Any) -> PydanticType | None:
    """Check that values of a type can be kept as JSON. Faults deep inside a type appear when it is used.

    Returns:
        The reader of a type that pydantic reads; None: cattrs reads it.

    Raises:
        NotSerializable: they cannot.
    """
    try:
        reader = pydantic_type(kind)
    except TypeFault as error:
        raise NotSerializable(str(error)) from error
    if reader is not None:
        return reader
    _check_names(kind)
    fault = dropped_constraint(kind, reader="cattrs")
    if fault is not None:
        raise NotSerializable(fault)
    result = capture(converter.structure, None, kind)  # None is invalid for most types: any other complaint is fine
    if isinstance(result, Raised) and isinstance(result.error, StructureHandlerNotFoundError):
        reader = last_resort(kind)
        if reader is None:
            raise NotSerializable(_unknown(result.error.type_)) from result.error
    return reader


def _check_names(kind: object) -> None:
    """Refuse non-text keys, because JSON keys are text: no value of a `dict[int, str]` could ever be written."""
    inner = get_args(kind)
    origin = get_origin(kind)
    if inner and isinstance(origin, type) and issubclass(origin, Mapping):
        key = get_origin(inner[0]) or inner[0]
        if isinstance(key, type) and issubclass(key, int | float | tuple):
            way = "use text keys, dict[str, ...], or a list of pairs"
            raise NotSerializable(f"{kind!r} has keys of {key.__name__}, which JSON does not have; {way}")
    for inner_type in inner:
        _check_names(inner_type)


def _unknown(kind: object) -> str:
    return f"values of {kind!r} cannot be kept as JSON; use plain types, attrs classes, enums, datetimes, ..."


def copied(data: object) -> Any:
    """Return a deep copy of JSON data."""
    if type(data) is dict:
        return {key: copied(item) if type(item) in _CONTAINERS else item for key, item in data.items()}
    if type(data) is list:
        return [copied(item) if type(item) in _CONTAINERS else item for item in data]
    return data


_CONTAINERS: Final = (dict, list)
"""The types of JSON data that `copied` copies; a call for each item would be most of its cost."""


def copied_decision(decision: Decision) -> Decision:
    """Return a decision for user code, with copies of its values."""
    arguments = copied(decision.edited_arguments)
    return attrs.evolve(decision, result=copied(decision.result), edited_arguments=arguments)


def copied_ticket(ticket: Ticket) -> Ticket:
    """Return a ticket for user code, with copies of its values."""
    return replace(
        ticket,
        arguments=copied(ticket.arguments),
        parameters=copied(ticket.parameters),
        response_schema=copied(ticket.response_schema),
        expiry_result=copied(ticket.expiry_result),
    )


def copied_message(message: Message) -> Message:
    """Return a message for user code, with copies of its arguments, and without what only its provider reads."""
    return own_message(public_message(message))


def own_message(message: Message) -> Message:
    """Return a message for a model, with copies of its arguments, and with the items that its provider wants back."""
    if not message.calls:
        return message
    calls = tuple(replace(call, arguments=copied(call.arguments)) for call in message.calls)
    return replace(message, calls=calls)


def public_message(message: Message) -> Message:
    """Return a message without the opaque items of its provider; the same object if it has none."""
    return replace(message, provider="", items=()) if message.items else message


def shown(value: object) -> str:
    """Return a short text of a value for a message, whatever its `__repr__` does."""
    text = capture(_SHOWN.repr, value)
    return f"<a {type(value).__name__} that cannot be shown>" if isinstance(text, Raised) else text.value


def _json(value: object, path: str, depth: int) -> Any:
    if depth == 0:
        raise NotSerializable(_DEEP)
    match value:
        case None | bool():
            return value
        case Enum():
            return _json(value.value, path, depth - 1)
        case str():
            return _text(value, path)
        case int() | float():
            return _number(value, path)
        case Mapping():
            return {_key(key, path): _json(item, f"{path}[{key!r}]", depth - 1) for key, item in value.items()}
        case list() | tuple() | deque():
            return _items(value, path, depth)
        case AbstractSet():
            return sorted(_items(value, path, depth), key=repr)  # the same data for equal sets
        case _:
            return _json(msgspec.to_builtins(value), path, depth - 1)


def _items(values: Iterable[object], path: str, depth: int) -> list[Any]:
    return [_json(item, f"{path}[{index}]", depth - 1) for index, item in enumerate(values)]


def _text(value: str, path: str) -> str:
    try:
        return str.encode(value, "utf-8").decode("utf-8")
    except UnicodeEncodeError:
        raise NotSerializable(f"a text with a lone surrogate has no form as JSON @ {path}") from None


def _number(value: int | float, path: str) -> int | float:  # noqa: PYI041 - two cases
    if isinstance(value, float):
        if math.isfinite(value):
            return float.__float__(value)
        raise NotSerializable(f"{float.__repr__(value)} has no form as JSON @ {path}")
    if -(1 << 63) <= value < 1 << 64:
        return int.__int__(value)
    raise NotSerializable(f"an integer of more than 64 bits has no form as JSON; use text @ {path}")


def _key(key: object, path: str) -> str:
    name = key.value if isinstance(key, Enum) else key
    if not isinstance(name, str):
        raise NotSerializable(f"the key {shown(key)} is no text, as it has to be in JSON @ {path}")
    return _text(name, path)


def _alike(value: object, read_back: object) -> bool:
    """Return True if the value read equals the value written; a tuple may be read as a list."""
    if isinstance(value, list | tuple) and isinstance(read_back, list | tuple):
        return len(value) == len(read_back) and all(map(_alike, value, read_back))
    if isinstance(value, Mapping) and isinstance(read_back, Mapping):
        return value.keys() == read_back.keys() and all(_alike(value[key], read_back[key]) for key in value)
    equality: Any = type(value).__eq__
    if type(value) is type(read_back) and equality is object.__eq__:
        return bool(converter.unstructure(value) == converter.unstructure(read_back))
    return bool(value == read_back)
