"""The final answer of a model as a value of the agent's output type.

`str` takes the text as it is. Every other type is asked for as JSON, checked with msgspec, and kept as JSON data
(defaults filled in), so that it can be stored, shown and forked; `parse` makes the object again for the program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar, cast

import attrs
import msgspec

from greenroom.actors.contract.codec import SchemaError, message_of
from greenroom.actors.errors import AgentDefinitionError

T = TypeVar("T")

_FENCE: Final = re.compile(r"\s*```(?:json|JSON)?[ \t]*\n(?P<inside>.*?)\n?[ \t]*```\s*", re.DOTALL)


@attrs.frozen(eq=False)
class Output(Generic[T]):
    """How an agent's final answers are read.

    Attributes:
        type: what they become.
        schema: JSON Schema of the answer; None for plain text.
    """

    type: type[T]
    schema: Mapping[str, Any] | None

    def check(self, text: str) -> tuple[Any, str | None]:
        """(JSON value, None), or (None, what is wrong, with the path). Pure; a ```json fence is tolerated."""
        if self.schema is None:
            return text, None
        fenced = _FENCE.fullmatch(text)
        try:
            made = msgspec.json.decode(fenced["inside"] if fenced else text, type=self.type)
            return msgspec.json.decode(msgspec.json.encode(made)), None
        except Exception as error:  # noqa: BLE001 - what classes of the user's check while they are built may raise anything
            return None, f"The answer is not JSON of the expected form: {message_of(error)}"

    def parse(self, value: Any) -> T:
        """The object for a stored JSON value.

        Raises:
            SchemaError: the value does not have the form; it was made by another version of the type.
        """
        if self.schema is None:
            return cast("T", value)  # text, or what a tool that ends the run has returned
        try:
            return msgspec.convert(value, self.type)
        except Exception as error:  # a decoding hook of a foreign type may raise anything: it does not fit
            raise SchemaError(f"the output does not fit {self.type!r}: {message_of(error)}") from error


def read_output_type(agent: str, output_type: type[T]) -> Output[T]:
    """How answers of a type are read.

    Raises:
        AgentDefinitionError: JSON has no form for the type.
    """
    if output_type is str:
        return Output(output_type, None)
    try:
        schema = msgspec.json.schema(output_type)
        msgspec.json.Decoder(output_type)
    except Exception as error:  # msgspec raises what it meets inside the class (TypeError, NameError, RuntimeError)
        what = str(error).strip().splitlines()[-1]
        raise AgentDefinitionError(
            f"agent {agent!r}: output_type={output_type!r} has no JSON form ({what}); use str, int, list[...], or a"
            " class of attrs, dataclasses, msgspec or TypedDict"
        ) from error
    return Output(output_type, schema)
