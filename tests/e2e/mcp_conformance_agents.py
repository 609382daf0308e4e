"""The tools that the conformance suite of MCP calls by name, each as an agent of one call; for `greenroom serve`."""

import struct
import zlib
from typing import Any

import trio

import greenroom as gr


def _png() -> bytes:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">2I5B", 1, 1, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")


WAV = (
    b"RIFF"
    + struct.pack("<I", 36)
    + b"WAVEfmt "
    + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8)
    + b"data\0\0\0\0"
)
IMAGE = gr.Image(_png())
LATER = 1.0
"""Seconds after which a call has become a task."""


def wants(message: str, **properties: Any) -> gr.Suspend:
    """A question with a form."""
    schema = {"type": "object", "properties": properties, "required": sorted(properties)}
    return gr.Suspend(message=message, response_schema=schema)


# --- results ---------------------------------------------------------------------------------------------------------


@gr.tool
async def test_simple_text() -> str:
    """Answer with a text."""
    return "This is a simple text response for testing."


@gr.tool
async def test_image_content() -> Any:
    """Answer with an image."""
    return IMAGE


@gr.tool
async def test_audio_content() -> Any:
    """Answer with a sound."""
    return gr.File(WAV, media_type="audio/wav", name="silence.wav")


@gr.tool
async def test_embedded_resource() -> Any:
    """Answer with a file."""
    return gr.File(b"This is an embedded resource content.", media_type="text/plain", name="resource.txt")


@gr.tool
async def test_multiple_content_types() -> Any:
    """Answer with a text, an image and a file."""
    file = gr.File(b'{"test":"data","value":123}', media_type="application/json", name="resource.json")
    return ["Multiple content types test:", IMAGE, file]


@gr.tool
async def test_error_handling() -> str:
    """Fail."""
    raise gr.ToolError("This tool intentionally returns an error for testing")


@gr.tool
async def test_logging_tool() -> str:
    """Log nothing to the client."""
    return "Executed."


@gr.tool
async def test_tool_with_progress(ctx: gr.ToolContext) -> str:
    """Report progress."""
    for fraction in (0.0, 0.5, 1.0):
        await ctx.progress(fraction)
        await trio.sleep(0.05)
    return "Executed."


# --- questions -------------------------------------------------------------------------------------------------------


def answered(ctx: gr.ToolContext) -> Any:
    """What the user has answered; None before."""
    return None if ctx.decision is None else ctx.decision.result


@gr.tool(replay="safe")
async def test_elicitation(ctx: gr.ToolContext, message: str) -> str:
    """Ask for a name and an address."""
    if answered(ctx) is None:
        text = {"type": "string", "description": "User's response"}
        raise wants(message, username=text, email={"type": "string", "description": "User's email address"})
    return f"User response: action: accept, content: {answered(ctx)}"


@gr.tool(replay="safe")
async def test_elicitation_sep1034_defaults(ctx: gr.ToolContext) -> str:
    """Ask with defaults."""
    if answered(ctx) is None:
        raise wants(
            "Please confirm",
            name={"type": "string", "default": "John Doe"},
            age={"type": "integer", "default": 30},
            score={"type": "number", "default": 95.5},
            status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            verified={"type": "boolean", "default": True},
        )
    return f"Elicitation completed: action=accept, content={answered(ctx)}"


@gr.tool(replay="safe")
async def test_elicitation_sep1330_enums(ctx: gr.ToolContext) -> str:
    """Ask for choices."""
    if answered(ctx) is None:
        plain = ["option1", "option2", "option3"]
        titled = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second"), 1)]
        raise wants(
            "Choose",
            untitledSingle={"type": "string", "enum": plain},
            titledSingle={"type": "string", "oneOf": titled},
            legacyEnum={"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
            untitledMulti={"type": "array", "items": {"type": "string", "enum": plain}},
            titledMulti={"type": "array", "items": {"anyOf": titled}},
        )
    return f"Elicitation completed: action=accept, content={answered(ctx)}"


@gr.tool(replay="safe")
async def test_input_required_result_elicitation(ctx: gr.ToolContext) -> str:
    """Ask for a name."""
    if answered(ctx) is None:
        raise wants("What is your name?", name={"type": "string"})
    return f"Hello, {answered(ctx)['name']}!"


@gr.tool(replay="safe")
async def test_input_required_result_request_state(ctx: gr.ToolContext) -> str:
    """Ask for a yes."""
    if answered(ctx) is None:
        raise wants("Please confirm", ok={"type": "boolean"})
    return "state-ok"


@gr.tool(replay="safe")
async def test_input_required_result_tampered_state(ctx: gr.ToolContext) -> str:
    """Ask for a yes."""
    if answered(ctx) is None:
        raise wants("Please confirm", ok={"type": "boolean"})
    return "state-ok"


@gr.tool(replay="safe")
async def test_input_required_result_capabilities(ctx: gr.ToolContext) -> str:
    """Ask for a name."""
    if answered(ctx) is None:
        raise wants("What is your name?", name={"type": "string"})
    return f"Hello, {answered(ctx)['name']}!"


@gr.tool(replay="safe")
async def test_streaming_elicitation(ctx: gr.ToolContext) -> str:
    """Ask for a yes."""
    if answered(ctx) is None:
        raise wants("Please confirm", ok={"type": "boolean"})
    return "confirmed"


@gr.tool(replay="safe")
async def test_input_required_result_multi_round(ctx: gr.ToolContext) -> str:
    """Ask for a name, then for a colour."""
    if ctx.memo is None:
        if answered(ctx) is None:
            raise wants("Step 1: What is your name?", name={"type": "string"})
        await ctx.save({"name": answered(ctx)["name"]})
        raise wants("Step 2: What is your favorite color?", color={"type": "string"})
    return f"{ctx.memo['name']} likes {answered(ctx)['color']}"


# --- schemas ---------------------------------------------------------------------------------------------------------

SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


async def _echo(ctx: gr.ToolContext, arguments: dict[str, Any]) -> Any:
    return arguments


json_schema_2020_12_tool = gr.Tool.from_schema(
    _echo, schema=SCHEMA_2020_12, name="json_schema_2020_12_tool", description="Tool with JSON Schema 2020-12 features"
)

REGION: dict[str, Any] = {"type": "string", "x-mcp-header": "Region"}
test_headers = gr.Tool.from_schema(
    _echo,
    schema={"type": "object", "properties": {"region": REGION, "query": {"type": "string"}}},
    name="test_headers",
    description="Takes an argument that a header repeats",
)

# --- the tasks extension ---------------------------------------------------------------------------------------------


@gr.tool
async def greet(name: str = "World") -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@gr.tool
async def slow_compute(seconds: float = 0.0, label: str = "") -> str:
    """Take a while."""
    await trio.sleep(seconds)
    return f"{label} took {seconds} s"


@gr.tool
async def failing_job() -> str:
    """Fail after a second."""
    await trio.sleep(1.0)
    raise gr.ToolError("This job always fails")


@gr.tool
async def protocol_error_job() -> str:
    """Fail after a second; no tool can fail as the protocol."""
    await trio.sleep(1.0)
    raise RuntimeError("panic")


@gr.tool(replay="safe")
async def confirm_delete(ctx: gr.ToolContext, filename: str = "file") -> str:
    """Ask before a deletion, later than a call waits for its end."""
    if answered(ctx) is None:
        await trio.sleep(LATER)
        raise wants(f"Delete {filename}?", confirm={"type": "boolean"})
    return f"deleted {filename}: {answered(ctx)}"


@gr.tool(replay="safe")
async def test_tool_with_task(ctx: gr.ToolContext) -> str:
    """Ask for a name, then take a while."""
    if answered(ctx) is None:
        raise wants("What is your name?", name={"type": "string"})
    await trio.sleep(LATER)
    return f"Hello, {answered(ctx)}!"


@gr.tool
async def multi_input(ctx: gr.ToolContext) -> str:
    """Ask two questions together, later than a call waits for its end."""
    answers: dict[str, Any] = {}
    await trio.sleep(LATER)

    async def ask(name: str, kind: str) -> None:
        answers[name] = (await ctx.ask(wants(f"What is the {name}?", **{name: {"type": kind}}))).result

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "name", "string")
        nursery.start_soon(ask, "confirm", "boolean")
    return f"{answers}"


TOOLS = [value for value in list(vars().values()) if isinstance(value, gr.Tool)]
AGENTS = {f"agent_{tool.name}": gr.tool_agent(tool) for tool in TOOLS}
globals().update(AGENTS)  # `greenroom serve` finds the agents among the names of the module
