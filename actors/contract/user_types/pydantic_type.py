"""`PydanticType`: schema, reader and writer of a type that pydantic reads. Imports pydantic, which is an extra.

JSON data is validated as JSON, never as Python objects: a datetime is a text there, also for a strict model. Whether
"3" is accepted for 3 is pydantic's decision and the type's (`ConfigDict(strict=True)`). Names are aliases, in the
schema, in what is read and in what is written.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic.warnings import UnsupportedFieldAttributeWarning
from typing_extensions import override

from greenroom.supervision.border import Raised, capture

from ..codec import SchemaError, message_of, normalise
from ..json_schema.faults import unusable_schema
from ..plain import JSONObject
from .constraints import TypeFault

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue, JsonSchemaWarningKind
    from pydantic_core import ErrorDetails
    from pydantic_core.core_schema import DecimalSchema

MOST_FAULTS: Final = 5
"""Faults of one value that a model reads together: with one fault at a time it would need as many answers."""
MOST_ITEMS: Final = 100_000
"""Items of one value in all of its containers: more would stop the event loop for about half a second."""
_DECIMAL: Final = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"
_MARKS: Final = (b",", b"[", b"{")
"""Together they are as many as the items, or more, for texts have some, too; they are counted in no time."""
_MOST_DETAILS: Final = 5_000
"""Faults of one value that are looked at; pydantic makes an object of each, also of those that nobody reads."""


class _Schemas(GenerateJsonSchema):
    """Schemas for models: no titles that only repeat the name of a field, and no part that is left out."""

    ignored_warning_kinds = {"non-serializable-default"}  # noqa: RUF012 - declared by the base; the default is optional

    @override
    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    @override
    def decimal_schema(self, schema: DecimalSchema) -> JsonSchemaValue:
        """Say which texts are numbers: some releases do not, others look ahead, which services and judges refuse."""
        form = super().decimal_schema(schema)
        for choice in form.get("anyOf", ()):
            if choice.get("type") == "string":
                choice["pattern"] = _DECIMAL
        return form

    @override
    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        if kind not in self.ignored_warning_kinds:
            raise TypeFault(detail)


@attrs.frozen(eq=False, repr=False)
class PydanticType:
    """A type that pydantic reads.

    Attributes:
        kind: The type.
        schema: JSON Schema of the values, self-contained. Shared; do not change it.
    """

    kind: Any
    schema: JSONObject
    _adapter: TypeAdapter[Any]

    def __repr__(self) -> str:
        return f"<PydanticType {self.kind!r:.200}>"

    @classmethod
    def of(cls, kind: Any) -> PydanticType:
        """Return the reader of a type.

        Raises:
            TypeFault: the type has no form in JSON, or pydantic drops a part of it.
        """
        with warnings.catch_warnings(record=True) as records:  # never as errors: other threads may warn meanwhile
            warnings.simplefilter("always")
            result = capture(_adapted, kind)
        dropped_part = _sort(records)
        if dropped_part is not None:
            raise TypeFault(f"pydantic drops a part of {kind!r:.200}: {dropped_part}")
        if isinstance(result, Raised):
            error = result.error
            what = str(error) if isinstance(error, TypeFault) else message_of(error).strip().partition("\n")[0]
            raise TypeFault(f"pydantic cannot read {kind!r:.200} from JSON ({what})") from error
        adapter, data = result.value
        schema, why = normalise(data)
        why = why or unusable_schema(schema, judges=False)
        if why is not None:
            raise TypeFault(f"the JSON Schema that pydantic gives {kind!r:.200} cannot be used: {why}")
        return cls(kind, schema, adapter)

    def read(self, data: object, path: str = "$") -> Any:
        """Return the value of JSON data.

        Raises:
            SchemaError: the data does not fit, or has more than `MOST_ITEMS`; the text has up to five faults, each with
                its path.
            BaseException: raised by a validator, other than ValueError and AssertionError.
        """
        text = msgspec.json.encode(data)
        if sum(map(text.count, _MARKS)) > MOST_ITEMS and _exceeds(data, MOST_ITEMS):
            raise SchemaError(f"it has more than {MOST_ITEMS:,} items; give a smaller value - at `{path}`")
        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            raise SchemaError(faults_of(error, data, path)) from error

    def write(self, value: object) -> Any:
        """Return a value as JSON data, as `read` takes it.

        Raises:
            ValueError: the value is not of the type, or has no form in JSON.
            BaseException: raised by a serializer.
        """
        return self._adapter.dump_python(value, mode="json", by_alias=True, round_trip=True, warnings="error")


def _sort(records: Sequence[warnings.WarningMessage]) -> str | None:
    """Return the warning of what pydantic drops, such as an alias of a lone parameter; issue all other warnings."""
    for record in records:
        if issubclass(record.category, UnsupportedFieldAttributeWarning):
            return str(record.message).partition(". ")[0]
        warnings.warn_explicit(record.message, record.category, record.filename, record.lineno)
    return None


def _adapted(kind: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    adapter = TypeAdapter[Any](kind)
    return adapter, adapter.json_schema(schema_generator=_Schemas)


def faults_of(error: ValidationError, data: object, path: str) -> str:
    """Return up to five faults as msgspec words them: "what - at `$.path`", separated by semicolons.

    Args:
        error: pydantic's faults; the place of one also has names of classes, which are not in the data.
        data: What was validated.
        path: The place of the data, such as "$.order".
    """
    count = error.error_count()
    if count > _MOST_DETAILS:
        return f"it has {count:,} faults; give a value of the form that the schema describes - at `{path}`"
    details = error.errors(include_url=False, include_input=False)
    texts = list(dict.fromkeys(f"{_worded(one)} - at `{path}{_place(one, data)}`" for one in details[:MOST_FAULTS]))
    more = count - MOST_FAULTS
    return "; ".join([*texts, *([f"and {more:,} more"] if more > 0 else [])])


def _exceeds(data: object, most: int) -> bool:
    """Return True if the containers in JSON data have more items than these together."""
    waiting, count = deque([data]), 0
    while waiting and count <= most:
        value = waiting.popleft()
        if isinstance(value, dict | list):
            count += len(value)
            items = value.values() if isinstance(value, dict) else value
            waiting.extend(item for item in items if isinstance(item, dict | list))
    return count > most


def _worded(fault: ErrorDetails) -> str:
    cause = fault.get("ctx", {}).get("error")
    return message_of(cause) if isinstance(cause, ValueError | AssertionError) and str(cause) else fault["msg"]


def _place(fault: ErrorDetails, data: object) -> str:
    """Return the path of a fault below the data, without the names of members of unions, which pydantic puts in."""
    path = ""
    *_, last = fault["loc"] or ("",)
    for step in fault["loc"]:
        if isinstance(data, list) and isinstance(step, int) and -1 < step < len(data):
            data, path = data[step], f"{path}[{step}]"
        elif isinstance(data, dict) and step in data:
            data, path = data[step], f"{path}.{step}"
        elif fault["type"] == "missing" and step is last:
            path = f"{path}.{step}"
    return path
