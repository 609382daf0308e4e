"""The final answer of a model as a value of the agent's output type.

`str` takes the text as it is. For every other type the model is asked for JSON, which is checked with msgspec and kept
as JSON data (defaults filled in), so that it can be stored, shown and forked; `parse` makes the object for the program.
For a JSON Schema the model is asked in the same way; the answer is checked against the schema, and stays JSON data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import attrs
import msgspec
from typing_extensions import override

from greenroom.supervision.border import Raised, Returned, capture

from ..contract.codec import SchemaError, message_of, normalise
from ..contract.json_schema.faults import schema_faults, unusable_schema
from ..contract.json_schema.optional import without_nulls
from ..contract.plain import JSONObject
from ..contract.user_types.choice import chosen_reader
from ..contract.user_types.constraints import TypeFault, without_note
from ..errors import AgentDefinitionError

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from ..contract.user_types.pydantic_type import PydanticType

T = TypeVar("T")

WORDS: Final = (
    "Your final answer is one JSON value that is valid against this JSON Schema, and nothing else: no words before or"
    " after it, no code fence. Call tools as usual before you give it.\n\n{schema}"
)
"""The system text about the form of the final answer."""
_FENCE: Final = "```"
_MOST_FAULTS: Final = 5
"""Faults of one answer that the model reads together: with one fault at a time it would need as many answers."""


@attrs.frozen(eq=False)
class Output(Generic[T]):
    """Reads an agent's final answers.

    Attributes:
        type: the output type.
        schema: JSON Schema of the answer; None for plain text.
        words: asks a model for an answer of that schema; empty for plain text.
    """

    type: TypeForm[T]
    schema: JSONObject | None
    words: str = attrs.field(init=False)

    @words.default
    def _in_words(self) -> str:
        if self.schema is None:
            return ""
        return WORDS.format(schema=msgspec.json.encode(self.schema).decode())

    def check(self, text: str) -> tuple[Any, str | None]:
        """Return (JSON value, None), or (None, the fault with its path). Pure; a ```json fence is tolerated."""
        if self.schema is None:
            return text, None
        result = capture(self._checked, text)  # what classes of the user's check while they are built
        value, why = (None, message_of(result.error)) if isinstance(result, Raised) else result.value
        if why is None:
            return value, None
        where = "" if "`$" in why else " - at `$`"
        return None, f"The answer is not JSON of the expected form: {why}{where}"

    def _checked(self, text: str) -> tuple[Any, str | None]:
        output = msgspec.json.decode(msgspec.json.encode(self._fitting(_unfenced(text))))
        value, why = normalise(output)
        if why is None and value != output:  # rows hold such a number as a text
            why = "an integer has more than 64 bits"
        return value, why

    def _fitting(self, text: str) -> object:
        """Read an answer; nulls for properties that may be missing are left out if it does not fit with them."""
        result = capture(self._read, text)
        if not isinstance(result, Raised):
            return result.value
        value = msgspec.json.decode(text)
        rest = without_nulls(self.schema or {}, value)
        if rest is value:
            raise result.error
        return self._read(msgspec.json.encode(rest).decode())

    def _read(self, text: str) -> object:
        return msgspec.json.decode(text, type=self.type)

    def parse(self, value: object) -> T:
        """Return the object for a stored JSON value.

        Raises:
            SchemaError: the value does not have the form, because another version of the type made it.
        """
        if self.schema is None:
            return cast("T", value)  # text, or the result of a tool that ends the run
        result = capture(msgspec.convert, value, self.type)
        if isinstance(result, Raised):  # also a decoding hook of a foreign type: the value does not fit
            raise SchemaError(f"the output does not fit {self.type!r}: {message_of(result.error)}") from result.error
        output: T = result.value
        return output


@attrs.frozen(eq=False)
class PydanticOutput(Output[Any]):
    """Reads final answers of a type that pydantic reads.

    The JSON data that pydantic writes of the object is kept, defaults filled in, if it is read as an equal object;
    otherwise the model's own JSON value, of which nothing is masked, left out or converted twice.
    """

    _reader: PydanticType

    @override
    def parse(self, value: object) -> Any:
        result = capture(self._reader.read, value)
        if isinstance(result, Raised):
            raise SchemaError(f"the output does not fit {self.type!r}: {message_of(result.error)}") from result.error
        return result.value

    @override
    def _read(self, text: str) -> object:
        value = msgspec.json.decode(text)
        result = self._reader.read(value)
        data = capture(self._written, result)
        return data.value if isinstance(data, Returned) else value

    def _written(self, value: object) -> object:
        data = self._reader.write(value)
        if self._reader.read(data) != value:
            raise ValueError("it is read as another object")
        return data


@attrs.frozen(eq=False)
class SchemaOutput(Output[Any]):
    """Reads final answers whose form is a JSON Schema of the program's own: the value stays plain JSON data."""

    def parse(self, value: object) -> Any:
        """Return the stored value unchanged.

        Raises:
            SchemaError: the value does not satisfy the schema, because another version of the agent made it.
        """
        faults = self._faults(value)
        if faults:
            raise SchemaError(f"the output does not satisfy the schema: {faults}")
        return value

    def _read(self, text: str) -> object:
        value = msgspec.json.decode(text)
        faults = self._faults(value)
        if faults:
            raise SchemaError(faults)
        return value

    def _faults(self, value: object) -> str:
        return "; ".join(schema_faults(self.schema or {}, value, most=_MOST_FAULTS))


def _unfenced(text: str) -> str:
    """Return the content of a code fence around the whole text, plain or json; the text itself without a fence.

    Written by hand, because a regular expression would search the closing fence after each blank, in quadratic time.
    """
    whole = text.strip()
    head, line, rest = whole.removeprefix(_FENCE).partition("\n")
    if (
        not whole.startswith(_FENCE)
        or not line
        or not rest.endswith(_FENCE)
        or head.strip(" \t") not in {"", "json", "JSON"}
    ):
        return text
    return rest.removesuffix(_FENCE).rstrip(" \t").removesuffix("\n")


def read_output_type(agent: str, output_type: TypeForm[T] | JSONObject) -> Output[T]:
    """Return the reader of answers for a type, or for a JSON Schema.

    Raises:
        AgentDefinitionError: the type has no form in JSON; the schema is invalid, and the message names the place.
    """
    if isinstance(output_type, Mapping):
        data, why = normalise(output_type)
        why = why or unusable_schema(data)
        if why is not None:
            raise AgentDefinitionError(f"agent {agent!r}: output_type: the JSON Schema is invalid: {why}")
        return SchemaOutput(cast("Any", object), data)
    kind, note = without_note(output_type)
    if kind is str and not note:
        return Output(output_type, None)
    try:
        reader = chosen_reader(kind)
    except TypeFault as error:
        raise AgentDefinitionError(f"agent {agent!r}: output_type={output_type!r}: {error}") from error
    schema = msgspec.json.schema(kind) if reader is None else reader.schema
    if note:
        schema = {"description": note, **schema}
    return Output(kind, schema) if reader is None else PydanticOutput(kind, schema, reader)
