"""A function's parameters as JSON: the schema for the model, the check of its arguments, and the body's objects.

The signature is read once. Each parameter becomes a field of a msgspec struct, so schema, check and conversion cannot
disagree. Types are strict (an int is accepted for a float, nothing else is guessed). Unknown arguments are refused;
unknown keys inside nested classes are handled by the class (msgspec: ignored, unless it forbids them). A parameter
whose type pydantic has to read is any JSON value for the struct, and pydantic converts that.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, get_origin

import attrs
import msgspec
from typing_extensions import override

from greenroom.supervision.border import Raised, capture

from ..contract.codec import message_of, normalise
from ..contract.json_schema.faults import schema_fault, unusable_schema
from ..contract.json_schema.optional import without_nulls
from ..contract.plain import JSONObject, JSONValue
from ..contract.user_types.choice import chosen_reader
from ..contract.user_types.constraints import TypeFault, without_note
from ..errors import ToolDefinitionError
from ..state.values import copied
from .context import SyncToolContext, ToolContext
from .docstrings import parameter_texts

if TYPE_CHECKING:
    from ..contract.user_types.pydantic_type import PydanticType

_CONTEXTS: Final = (ToolContext, SyncToolContext)
_CONTEXT_TEXT: Final = re.compile(r"(?:\w+\.)*(?P<name>(?:Sync)?ToolContext)(?:\[.*\])?\s*")
_NO_DEFAULT: Final = inspect.Parameter.empty


class ArgumentsError(ValueError):
    """Arguments do not fit the tool; the message has the path and is meant for the model."""


@attrs.frozen(eq=False, kw_only=True)
class Arguments:
    """The JSON side of a function's parameters.

    Null for a parameter, or a property inside of it, that has a default and does not take null is left out.

    Attributes:
        schema: JSON Schema of the arguments object, self-contained. Shared; do not change it.
        context: the context class of the first parameter; None if the function takes no context.
    """

    schema: JSONObject
    context: type[ToolContext | SyncToolContext] | None
    _struct: type[msgspec.Struct]
    _defaults: JSONObject

    def convert(self, arguments: JSONObject) -> dict[str, JSONValue]:
        """Return keyword arguments in the annotated types. Missing arguments are left to the function's own defaults.

        The result shares nothing with `arguments`, which belong to the call's row: a body may change its own copy.

        Raises:
            ArgumentsError: names the path.
        """
        try:
            return self._keywords(arguments)
        except ArgumentsError:
            rest = without_nulls(self.schema, arguments)
            if rest is arguments:
                raise
        return self._keywords(rest)

    def _keywords(self, arguments: JSONObject) -> dict[str, JSONValue]:
        result = capture(msgspec.convert, copied(arguments), self._struct)
        if isinstance(result, Raised):  # validation in user classes may raise anything
            raise ArgumentsError(self._explain(message_of(result.error))) from result.error
        fields = self._struct.__struct_fields__
        return {name: value for name in fields if (value := getattr(result.value, name)) is not msgspec.UNSET}

    def complete(self, arguments: JSONObject) -> dict[str, JSONValue]:
        """Return the result of `convert` with the defaults filled in.

        Raises:
            ArgumentsError: names the path.
        """
        return {**self._defaults, **self.convert(arguments)}

    def check(self, arguments: JSONObject) -> str | None:
        """Return None, or the fault of the arguments with its path. Pure."""
        try:
            self.convert(arguments)
        except ArgumentsError as error:
            return str(error)
        return None

    def _explain(self, what: str) -> str:
        place = "" if "`$" in what else " - at `$`"
        names = ", ".join(self._struct.__struct_fields__) or "none"
        return f"Invalid arguments: {what}{place}. The arguments are: {names}."


@attrs.frozen(eq=False, kw_only=True)
class _MixedArguments(Arguments):
    """Arguments of which pydantic reads some."""

    _readers: Mapping[str, PydanticType]

    @override
    def _keywords(self, arguments: JSONObject) -> dict[str, JSONValue]:
        keywords, faults = super()._keywords(arguments), list[str]()
        for name, reader in self._readers.items():
            if name in keywords:
                result = capture(reader.read, keywords[name], f"$.{name}")
                if isinstance(result, Raised):  # validators of the program may raise anything
                    what = message_of(result.error)
                    faults.append(what if "`$" in what else f"{what} - at `$.{name}`")
                else:
                    keywords[name] = result.value
        if faults:
            raise ArgumentsError(self._explain("; ".join(faults)))
        return keywords


@attrs.frozen(eq=False, kw_only=True)
class GivenArguments:
    """Arguments with a JSON Schema of the program's own: the body gets the whole object, unconverted.

    Attributes:
        schema: the given schema. Shared; do not change it.
        context: the class of the body's context.
    """

    schema: JSONObject
    context: type[ToolContext | SyncToolContext]

    def convert(self, arguments: JSONObject) -> dict[str, JSONValue]:
        """Return a copy of the arguments, which belong to the call's row.

        Raises:
            ArgumentsError: names the path.
        """
        fault = schema_fault(self.schema, arguments)
        if fault is not None:
            rest = without_nulls(self.schema, arguments)
            if rest is arguments or schema_fault(self.schema, rest) is not None:
                raise ArgumentsError(f"Invalid arguments: {fault}.")
            arguments = rest
        return dict(copied(arguments))

    complete = convert

    def check(self, arguments: JSONObject) -> str | None:
        """Return None, or the fault of the arguments with its path. Pure."""
        try:
            self.convert(arguments)
        except ArgumentsError as error:
            return str(error)
        return None


def given_arguments(schema: object, name: str, *, is_async: bool) -> GivenArguments:
    """Return the arguments of a tool that was made from a schema.

    Raises:
        ToolDefinitionError: the schema is invalid, has no form in JSON, or describes no object.
    """
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise ToolDefinitionError(f"tool {name!r}: give a JSON Schema of an object: schema={{'type': 'object', ...}}")
    data, why = normalise(schema)
    why = why or unusable_schema(data)
    if why is not None:
        raise ToolDefinitionError(f"tool {name!r}: the schema is invalid: {why}")
    return GivenArguments(schema=data, context=ToolContext if is_async else SyncToolContext)


def read_arguments(function: Callable[..., Any], name: str, namespace: JSONObject) -> Arguments:
    """Read a function's signature.

    Args:
        function: the tool's body.
        name: The name of the tool, for messages.
        namespace: names that annotations may use in addition to the function's globals (those of the place of
            definition).

    Raises:
        ToolDefinitionError: names the parameter and says what to write.
    """
    reader = _Reader(function, name, namespace)
    parameters = _signature(function, name)
    context = reader.context(parameters[0]) if parameters else None
    for position, parameter in enumerate(parameters[1:] if context else parameters):
        reader.add(parameter, first=position == 0 and context is None)
    return reader.finish(context)


def _signature(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(
            f"tool {name!r}: its signature cannot be read; wrap it in a plain function"
        ) from error


class _Reader:
    """Collects the parameters of one function."""

    def __init__(self, function: Callable[..., Any], name: str, namespace: JSONObject) -> None:
        self.function = function
        self.name = name
        bare = inspect.unwrap(function)
        self.globals = getattr(getattr(bare, "__func__", bare), "__globals__", {})
        self.namespace = dict(namespace)
        self.texts = parameter_texts(function)
        self.notes: dict[str, str] = {}
        self.fields: dict[str, Any] = {}
        self.readers: dict[str, PydanticType] = {}
        self.defaults: dict[str, Any] = {}

    def context(self, parameter: inspect.Parameter) -> type[ToolContext | SyncToolContext] | None:
        """Return the context class if this first parameter takes the context, else None."""
        annotation = parameter.annotation
        if annotation is inspect.Parameter.empty:
            return ToolContext if parameter.name == "ctx" else None
        return self._context_class(parameter)

    def _context_class(self, parameter: inspect.Parameter) -> type[ToolContext | SyncToolContext] | None:
        annotation = parameter.annotation
        if isinstance(annotation, str):
            # Recognised by name, because the context or its type argument may be imported for type checkers only.
            match = _CONTEXT_TEXT.fullmatch(annotation)
            if match is not None:
                return {cls.__name__: cls for cls in _CONTEXTS}[match["name"]]
            with suppress(ToolDefinitionError):  # reported where the parameter is added as an argument
                annotation = self._resolve(parameter.name, annotation)
        origin = get_origin(annotation) or annotation
        return next((cls for cls in _CONTEXTS if origin is cls), None)

    def add(self, parameter: inspect.Parameter, *, first: bool) -> None:
        """Add one parameter as an argument of the tool."""
        name, kind = parameter.name, parameter.kind
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            stars = "*" if kind is inspect.Parameter.VAR_POSITIONAL else "**"
            raise self.fault(
                f"{stars}{name}", "the model must know every argument by name; write them out, or take a list or dict"
            )
        if kind is inspect.Parameter.POSITIONAL_ONLY:
            raise self.fault(
                name, "it is positional-only, but arguments come by name; move the `/` behind ctx or remove it"
            )
        if parameter.annotation is inspect.Parameter.empty:
            if first and name in ("self", "cls"):
                raise self.fault(
                    name, "tools are free functions; decorate a function, or the bound method: tool(obj.method)"
                )
            raise self.fault(name, f"it has no annotation; write `{name}: str` or another type that JSON can carry")
        if self._context_class(parameter) is not None:
            raise self.fault(name, "the context comes first; make it the first parameter")
        annotation, note = without_note(self._resolve(name, parameter.annotation))
        self._check_defaults(parameter, annotation)
        self.fields[name] = self._supported(name, annotation)
        if note:
            self.notes[name] = note
        if parameter.default is not _NO_DEFAULT:
            self.defaults[name] = parameter.default

    def _check_defaults(self, parameter: inspect.Parameter, annotation: object) -> None:
        """Refuse defaults that pydantic alone reads: a call of the function itself would not have them."""
        name = parameter.name
        if _is_field(parameter.default):
            way = f"write `{name}: Annotated[..., Field(...)]`, and the default itself behind it"
            raise self.fault(name, f"pydantic alone reads the default {parameter.default!r:.120}; {way}")
        for extra in getattr(annotation, "__metadata__", ()):
            if _is_field(extra) and not extra.is_required():
                way = f"write it in the signature, `{name}: Annotated[..., Field(...)] = ...`"
                raise self.fault(name, f"the default in {extra!r:.120} is not that of the parameter; {way}")

    def _resolve(self, name: str, annotation: object) -> Any:
        if not isinstance(annotation, str) and not isinstance(annotation, typing.ForwardRef):
            return annotation
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            return typing.get_type_hints(holder, self.globals, self.namespace, include_extras=True)[name]
        except Exception as error:  # an annotation is user code and may raise anything
            raise self.fault(
                name,
                f"its annotation {annotation!r} cannot be resolved ({error}); import or define the name at run time,"
                " above the tool",
            ) from error

    def _supported(self, name: str, annotation: object) -> Any:
        """Return the type of a field of the struct."""
        try:
            reader = chosen_reader(annotation)
        except TypeFault as error:
            raise self.fault(name, str(error)) from error
        if reader is None:
            return annotation
        self.readers[name] = reader
        return Any

    def fault(self, parameter: str, what: str) -> ToolDefinitionError:
        return ToolDefinitionError(f"tool {self.name!r}, parameter {parameter!r}: {what}")

    def finish(self, context: type[ToolContext | SyncToolContext] | None) -> Arguments:
        """Build the struct and its schema."""
        fields = [
            (name, annotation, msgspec.UNSET) if name in self.defaults else (name, annotation)
            for name, annotation in self.fields.items()
        ]
        struct = msgspec.defstruct(
            "Arguments", fields, kw_only=True, forbid_unknown_fields=True, module="greenroom.tool"
        )
        schema = object_schema(struct)
        for name, reader in self.readers.items():
            self._put_schema(schema, name, reader)
        for name, part in schema["properties"].items():
            self._describe(name, part)
        if not self.readers:
            return Arguments(schema=schema, context=context, struct=struct, defaults=self.defaults)
        return _MixedArguments(
            schema=schema, context=context, struct=struct, defaults=self.defaults, readers=self.readers
        )

    def _put_schema(self, schema: dict[str, JSONValue], name: str, reader: PydanticType) -> None:
        """Put the schema of a parameter that pydantic reads into that of the arguments."""
        part = dict(reader.schema)
        for title, definition in part.pop("$defs", {}).items():
            definitions = schema.setdefault("$defs", {})
            if definitions.setdefault(title, definition) != definition:
                raise self.fault(name, f"two classes of the parameters are named {title!r} in the schema; rename one")
        schema["properties"][name] = part

    def _describe(self, name: str, part: dict[str, JSONValue]) -> None:
        text = self.notes.get(name) or self.texts.get(name)
        if text:
            part.setdefault("description", text)
        if name in self.defaults:
            with suppress(TypeError, ValueError):  # a sentinel, or a default outside the schema: just optional
                part["default"] = self._default(name)

    def _default(self, name: str) -> JSONValue:
        """Return the default of a parameter as JSON data.

        Raises:
            TypeError, ValueError: it has none.
        """
        default, reader = self.defaults[name], self.readers.get(name)
        if reader is None:
            plain = msgspec.to_builtins(default, order="deterministic")
            msgspec.convert(plain, self.fields[name])
            return plain
        result = capture(lambda: reader.read(reader.write(default)))
        if isinstance(result, Raised) or result.value != default:
            raise ValueError("the default is not of the type")
        return reader.write(default)


def _is_field(value: object) -> bool:
    """Return True for what `pydantic.Field(...)` returns."""
    return type(value).__module__ == "pydantic.fields"


def object_schema(struct: type[msgspec.Struct]) -> dict[str, JSONValue]:
    """Return the JSON Schema of a struct with the object itself at the root and other classes under `$defs`."""
    (root,), definitions = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    schema = dict(definitions.pop(root["$ref"].removeprefix("#/$defs/")))
    del schema["title"]
    if definitions:
        schema["$defs"] = definitions
    return schema
