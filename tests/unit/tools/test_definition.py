"""Defining a tool: what is taken from the function, and what is refused with a way out."""

import functools
import inspect
from typing import Annotated, Any, Literal

import attrs
import msgspec
import pytest

from greenroom.actors.errors import ToolDefinitionError, UsageError
from greenroom.actors.tools import SyncToolContext, Tool, ToolContext, tool

from ...support.cases import case


@tool
async def add(a: int, b: int = 2) -> int:
    """Add two numbers
    and return the sum.

    Slowly.

    Args:
        a: the first
            of the two
        b (int): the second

    Returns:
        The sum.
    """
    return a + b


def test_a_bare_decorator_takes_name_description_and_defaults_from_the_function():
    assert (add.name, add.description) == ("add", "Add two numbers and return the sum.")
    assert (add.replay, add.effect, add.concurrency, add.timeout) == ("unsafe", "read", "shared", None)
    assert (add.on_error, add.on_timeout, add.grace, add.needs_approval) == ("return", None, 5.0, False)
    assert add.is_async
    assert not add.takes_context


def test_the_schema_is_one_self_contained_object_with_the_texts_of_the_args_section():
    assert add.schema == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "the first of the two"},
            "b": {"type": "integer", "description": "the second", "default": 2},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


async def test_a_tool_is_called_like_its_function():
    assert await add(1, b=3) == 4
    assert str(inspect.signature(add)) == str(inspect.signature(add.function))
    assert repr(add) == "<Tool 'add'>"


def test_options_reach_the_engine_and_the_model():
    @tool(
        name="pay-out",
        description="Pays.",
        needs_approval=True,
        replay="safe",
        effect="publish",
        concurrency="exclusive",
        timeout=3,
        on_error="raise",
        on_timeout="raise",
        grace=0,
    )
    def pay(cents: int) -> None: ...

    spec = pay.spec
    assert (spec.name, spec.effect, spec.replay_safe, spec.gate) == ("pay-out", "publish", True, "always")
    assert (spec.concurrency, spec.fatal, spec.grace) == ("exclusive", True, 0)
    assert spec.check({"cents": "1"}) == pay.check({"cents": "1"}) != None  # noqa: E711
    assert (pay.info.name, pay.info.description, pay.info.schema) == ("pay-out", "Pays.", pay.schema)
    assert (pay.timeout, pay.on_timeout, pay.is_async) == (3, "raise", False)
    assert tool(pay.function, needs_approval=lambda ctx, arguments: True).spec.gate == "ask"
    assert tool(pay.function).spec.gate == "never"


@attrs.frozen
class Deps:
    who: str


def test_the_context_is_recognised_by_its_annotation_or_by_the_name_ctx():
    @tool
    async def bare(ctx: ToolContext, a: int) -> None: ...
    @tool
    async def typed(here: ToolContext[Deps], /, a: int) -> None: ...
    @tool
    async def named(ctx, a: int) -> None: ...
    @tool
    async def quoted(ctx: "gr.ToolContext[Nowhere]", a: int) -> None: ...  # noqa: F821
    @tool
    def sync(ctx: SyncToolContext[Deps], a: int) -> None: ...
    @tool
    async def alias(ctx: "Local", a: int) -> None: ...

    for one in (bare, typed, named, quoted, sync, alias):
        assert one.takes_context, one
        assert list(one.schema["properties"]) == ["a"], one


Local = ToolContext


def test_annotations_may_be_text_and_name_what_is_local_to_the_place_of_definition():
    @attrs.frozen
    class Order:
        number: int

    @tool
    def look(order: "Order", rest: "list[Order] | None" = None) -> None: ...

    assert look.convert({"order": {"number": 7}}) == {"order": Order(7)}
    assert look.schema["$defs"]["Order"]["required"] == ["number"]


def test_partials_bound_methods_and_wrapped_functions_can_be_tools():
    class Shop:
        async def sell(self, item: str) -> str:
            return item

    def logged(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    @tool
    @logged
    async def fetch(url: str) -> str:
        return url

    assert tool(Shop().sell).name == "sell"
    assert tool(functools.partial(add.function, b=1), name="increment").schema["required"] == ["a"]
    assert fetch.is_async


def star(*values: int) -> None: ...
def stars(**values: int) -> None: ...
def positional(a: int, /) -> None: ...
def untyped(a) -> None: ...
def lost(a: "Nowhere") -> None: ...  # noqa: F821
def unsupported(a: ToolDefinitionError) -> None: ...
def late(a: int, ctx: ToolContext) -> None: ...
def generator(a: int):
    yield a


async def stream(a: int):
    yield a


async def wrong_context(ctx: SyncToolContext) -> None: ...


class Method:
    def method(self, a: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (star, ["'*values'", "take a list"]),
        (stars, ["'**values'", "take a list or dict"]),
        (positional, ["'a'", "positional-only", "move the `/`"]),
        (untyped, ["'a'", "no annotation", "a: str"]),
        (lost, ["'a'", "Nowhere", "at run time"]),
        (unsupported, ["'a'", "ToolDefinitionError", "no JSON form", "use str"]),
        (late, ["'ctx'", "first parameter"]),
        (generator, ["generator", "ctx.output"]),
        (stream, ["generator", "ctx.output"]),
        (wrong_context, ["ToolContext"]),
        (Method.method, ["'self'", "bound method"]),
        (lambda a: a, ["lambda", "def"]),
        (add, ["tool already"]),
        (Method, ["not a function"]),
        ("refund", ["@tool(name='refund')"]),
        (functools.partial(star), ["name="]),
    ],
    ids=lambda value: getattr(value, "__name__", None) if callable(value) else "",
)
def test_an_unsuitable_function_is_refused_as_a_tool_by_name_and_with_a_way_out(function, words):
    with pytest.raises(ToolDefinitionError) as caught:
        tool(function)
    for word in words:
        assert word in str(caught.value)
    assert isinstance(caught.value, UsageError)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "two words"}, "two words"),
        ({"name": "x" * 65}, "1 to 64"),
        ({"name": ""}, "1 to 64"),
        ({"timeout": 0}, "greater than 0"),
        ({"timeout": -1}, "greater than 0"),
        ({"timeout": True}, "greater than 0"),
        ({"timeout": float("nan")}, "greater than 0"),
        ({"grace": -1}, "0 or more"),
        ({"grace": None}, "0 or more"),
        ({"replay": "always"}, "'unsafe', 'safe'"),
        ({"concurrency": "alone"}, "'exclusive'"),
        ({"background": "yes"}, "True or False"),
        ({"is_enabled": "yes"}, "function (ctx) -> bool"),
        ({"is_enabled": lambda: True}, "function (ctx) -> bool"),
        ({"background": True, "concurrency": "ordered"}, "beside everything else"),
        ({"background": True, "replay": "safe", "on_conflict": "retry"}, "not run again for what it wrote"),
        ({"on_error": "ignore"}, "'raise'"),
        ({"on_timeout": "never"}, "'raise'"),
        ({"effect": "two words"}, "identifier"),
        ({"effect": None}, "publish"),
        ({"needs_approval": "yes"}, "True, False"),
        ({"needs_approval": lambda arguments: True}, "(ctx, arguments)"),
        ({"description": 3}, "str"),
        ({"needs_aproval": True}, "did you mean 'needs_approval'"),
        ({"colour": "red"}, "the options are name"),
    ],
    ids=case,
)
def test_a_wrong_option_is_refused_with_the_right_ones(options, words):
    with pytest.raises(ToolDefinitionError) as caught:
        tool(**options)(add.function)
    assert words in str(caught.value)


def test_an_effect_of_ones_own_is_accepted():
    assert tool(effect="teleport")(add.function).effect == "teleport"


@attrs.frozen
class Item:
    name: str
    count: int = 1


class Size(msgspec.Struct):
    width: float


MISSING: Any = object()


@tool
async def everything(
    item: Item,
    size: Size | None,
    colour: Literal["red", "blue"] = "red",
    ratio: float = 1.0,
    note: Annotated[str, msgspec.Meta(description="a note", max_length=5)] = "",
    tags: list[str] = [],  # noqa: B006
    extra: Any = None,
    sentinel: int = MISSING,
    implicit: int = None,  # noqa: RUF013
) -> None:
    """Do everything.

    Args:
        note: not used, because Meta says more
        unknown: of no parameter
    """


def test_nested_classes_literals_metadata_and_defaults_are_in_the_schema():
    properties = everything.schema["properties"]
    assert properties["item"] == {"$ref": "#/$defs/Item"}
    assert (
        properties["size"] == {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Size"}]} or "anyOf" in properties["size"]
    )
    assert properties["colour"] == {"enum": ["blue", "red"], "default": "red"}
    assert properties["note"] == {"type": "string", "maxLength": 5, "description": "a note", "default": ""}
    assert properties["tags"]["default"] == []
    assert properties["extra"] == {"default": None}
    assert everything.schema["required"] == ["item", "size"]
    assert set(everything.schema["$defs"]) == {"Item", "Size"}


def test_a_default_that_the_model_could_not_give_is_not_shown_to_it():
    assert "default" not in everything.schema["properties"]["sentinel"]
    assert "default" not in everything.schema["properties"]["implicit"]


def test_arguments_become_objects_and_missing_ones_take_the_functions_defaults():
    given = {"item": {"name": "cup"}, "size": {"width": 2}, "ratio": 3}
    converted = everything.convert(given)
    assert converted == {"item": Item("cup"), "size": Size(2.0), "ratio": 3.0}
    assert isinstance(converted["ratio"], float)
    assert everything.complete(given)["colour"] == "red"
    assert everything.complete(given)["sentinel"] is MISSING


@pytest.mark.parametrize(
    ("arguments", "place", "word"),
    [
        ({}, "`$`", "`item`"),
        ({"item": {"name": "cup"}}, "`$`", "`size`"),
        ({"item": {"name": 3}, "size": None}, "`$.item.name`", "`str`"),
        ({"item": {"name": "cup"}, "size": None, "note": "too long"}, "`$.note`", "length"),
        ({"item": {"name": "cup"}, "size": None, "colour": "green"}, "`$.colour`", "green"),
        ({"item": {"name": "cup"}, "size": None, "ratio": "1"}, "`$.ratio`", "`float`"),
        ({"item": {"name": "cup"}, "size": None, "ratio": True}, "`$.ratio`", "`float`"),
        ({"item": {"name": "cup"}, "size": None, "tags": ["a", 2]}, "`$.tags[1]`", "`str`"),
        ({"item": {"name": "cup"}, "size": None, "more": 1}, "`$`", "`more`"),
        ([1], "`$`", "array"),
    ],
    ids=case,
)
def test_the_check_names_the_path_and_the_known_arguments(arguments, place, word):
    wrong = everything.check(arguments)
    assert wrong is not None
    assert place in wrong
    assert word in wrong
    assert "The arguments are: item, size, colour" in wrong


def test_the_check_never_raises_whatever_the_classes_of_the_arguments_do():
    @attrs.frozen
    class Odd:
        x: int

        def __attrs_post_init__(self) -> None:
            raise KeyError("odd")

    @tool
    def odd(value: Odd) -> None: ...

    assert "odd" in (odd.check({"value": {"x": 1}}) or "")


def test_a_tool_without_parameters_takes_an_empty_object_and_nothing_else():
    @tool
    def now() -> str:
        return "now"

    assert now.schema == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    assert now.check({}) is None
    assert "The arguments are: none." in (now.check({"zone": "UTC"}) or "")


def test_a_class_with_the_name_of_our_own_struct_does_no_harm():
    Arguments = attrs.make_class("Arguments", {"x": attrs.field(type=int)})  # noqa: N806

    def nested(value: int) -> None: ...

    nested.__annotations__["value"] = Arguments
    made = tool(nested)
    assert made.schema["properties"]["value"]["$ref"].removeprefix("#/$defs/") in made.schema["$defs"]
    assert made.check({"value": {"x": 1}}) is None


async def test_call_passes_the_context_only_to_functions_that_take_one():
    @tool
    async def who(ctx: ToolContext[Deps], greeting: str) -> str:
        return f"{greeting} {ctx.deps.who}"

    @tool
    def double(a: int) -> int:
        return 2 * a

    assert await who.call(ToolContext(deps=Deps("Ann")), who.convert({"greeting": "hello"})) == "hello Ann"
    assert double.call(SyncToolContext(), double.convert({"a": 2})) == 4


def test_tools_are_frozen_and_compared_by_identity():
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        add.name = "other"
    assert tool(add.function) != add
    assert isinstance(add, Tool)
    assert len({add, add}) == 1


@pytest.mark.rule("LO-25")
@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array"}, "of an object"),
        ("object", "of an object"),
        ({"type": "object", "properties": 7}, "$.properties"),
        ({"type": "object", "default": object()}, "the schema is invalid"),
    ],
)
def test_an_invalid_schema_is_named(schema, words):
    async def body(ctx, arguments):
        return arguments

    with pytest.raises(ToolDefinitionError) as caught:
        Tool.from_schema(body, name="count", schema=schema)
    assert words in str(caught.value)


def test_the_function_of_a_schema_takes_context_and_arguments():
    async def body(n: int) -> int:
        return n

    with pytest.raises(ToolDefinitionError, match="as \\(ctx, arguments\\)"):
        Tool.from_schema(body, name="count", schema={"type": "object"})


@pytest.mark.rule("LO-25")
def test_a_function_with_a_schema_may_be_sync_and_gets_a_copy():
    def body(ctx, arguments):
        """Count."""
        arguments["n"] += 1
        return arguments["n"]

    tool = Tool.from_schema(body, name="count", schema={"type": "object"})
    given = {"n": 1}
    assert (tool.is_async, tool.takes_context, tool.description) == (False, True, "Count.")
    assert tool.call(SyncToolContext(deps=None), tool.convert(given)) == 2
    assert given == {"n": 1}
