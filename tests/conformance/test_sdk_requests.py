"""Our requests beside those that the official SDKs send for the same call; each difference has its reason in a table.

Both ask the same server, which keeps headers and bodies. A difference that no table names is a failure, and so is one
that a table names and that is no more.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pydantic
import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.parts import part_of
from greenroom.models import Anthropic, Gemini, OpenAIChat, OpenAIResponses
from greenroom.testing import open_fault_server, reply

pytestmark = pytest.mark.judge
openai = pytest.importorskip("openai", reason="the SDK of openai is not installed (the dev extra)")
anthropic = pytest.importorskip("anthropic", reason="the SDK of anthropic is not installed (the dev extra)")
genai = pytest.importorskip("google.genai", reason="the SDK of google-genai is not installed (the dev extra)")
types = genai.types


class Add(pydantic.BaseModel):
    """Add two numbers."""

    a: int
    b: int


class Scale(pydantic.BaseModel):
    """Scale a number."""

    n: int
    factor: int = 2


class Total(pydantic.BaseModel):
    total: int


PNG, PDF = b"\x89PNG\r\n\x1a\n", b"%PDF-1.7"
IMAGE, PAPER = b64encode(PNG).decode(), b64encode(PDF).decode()
SOUND = b64encode(b"RIFF").decode()
SCHEMA = Add.model_json_schema()
TOOL = gr.ToolInfo(name="add", description="Add two numbers.", schema=SCHEMA)


def message(role: str, content: str = "", **more: Any) -> gr.Message:
    return gr.Message(id=f"{role}.{content}", role=role, content=content, **more)


CALLED = gr.CallRequest(call_id="call_1", tool="add", arguments={"a": 40, "b": 2})
REQUESTS = {
    "tools": gr.ModelRequest(
        agent="a",
        messages=(
            message("system", "Be brief."),
            message("user", "What is 40 + 2?"),
            message("assistant", calls=(CALLED,)),
            message("tool", "42", call_id="call_1"),
            message("assistant", "It is 42."),
            message("user", "Thanks."),
        ),
        tools=(TOOL,),
        tool_choice="required",
        settings={"max_tokens": 100, "thinking": "low", "parallel_tool_calls": False},
    ),
    "optional": gr.ModelRequest(
        agent="a",
        messages=(message("user", "Scale 7."),),
        tools=(gr.ToolInfo(name="scale", description="Scale a number.", schema=Scale.model_json_schema()),),
    ),
    "form": gr.ModelRequest(
        agent="a",
        messages=(message("user", "What is 40 + 2?"),),
        output_schema=Total.model_json_schema(),
    ),
    "parts": gr.ModelRequest(
        agent="a",
        messages=(
            message(
                "user",
                "What is this?",
                parts=(part_of("image", PNG, "image/png"), part_of("file", PDF, "application/pdf", "a.pdf")),
            ),
        ),
    ),
}
SETTINGS = {
    "chat": {"cache_key": "shop", "cache_retention": "24h", "seed": 7, "stop_sequences": ["."], "temperature": 0.5},
    "responses": {
        "cache_key": "shop",
        "cache_retention": "24h",
        "provider_tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}],
    },
    "anthropic": {
        "cache_retention": "1h",
        "provider_tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3}],
    },
    "gemini": {"provider_tools": [{"googleSearch": {}}], "seed": 7, "top_k": 3},
}
"""The settings of the case "own", which has a file that is uploaded and, where the format takes it, a sound."""


def request_of(name: str, case: str) -> gr.ModelRequest:
    if case != "own":
        request = REQUESTS[case]
        if name == "gemini":  # its format has no such setting
            settings = {key: value for key, value in request.settings.items() if key != "parallel_tool_calls"}
            request = msgspec.structs.replace(request, settings=settings)
        return request
    sound = (part_of("file", b"RIFF", "audio/wav"),) if name in ("chat", "gemini") else ()
    thread = (message("system", "Be brief."), message("user", "What is this?", parts=sound))
    settings = {**SETTINGS[name], "provider_files": ["file-1"]}
    return gr.ModelRequest(agent="a", messages=thread, settings=settings)


# --- the same calls in each SDK --------------------------------------------------------------------------------------


def chat(case: str, url: str) -> None:
    client = openai.OpenAI(api_key="k", base_url=url, max_retries=0)
    function = {"name": "add", "arguments": '{"a":40,"b":2}'}
    cases: dict[str, dict[str, Any]] = {
        "tools": {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "What is 40 + 2?"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
                },
                {"role": "tool", "content": "42", "tool_call_id": "call_1"},
                {"role": "assistant", "content": "It is 42."},
                {"role": "user", "content": "Thanks."},
            ],
            "tools": [openai.pydantic_function_tool(Add, name="add")],
            "tool_choice": "required",
            "max_completion_tokens": 100,
            "reasoning_effort": "low",
            "parallel_tool_calls": False,
        },
        "optional": {
            "messages": [{"role": "user", "content": "Scale 7."}],
            "tools": [openai.pydantic_function_tool(Scale, name="scale")],
        },
        "form": {"messages": [{"role": "user", "content": "What is 40 + 2?"}], "response_format": Total},
        "own": {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [
                        {"type": "file", "file": {"file_id": "file-1"}},
                        {"type": "text", "text": "What is this?"},
                        {"type": "input_audio", "input_audio": {"data": SOUND, "format": "wav"}},
                    ],
                },
            ],
            "prompt_cache_key": "shop",
            "prompt_cache_retention": "24h",
            "seed": 7,
            "stop": ["."],
            "temperature": 0.5,
        },
        "parts": {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}},
                        {
                            "type": "file",
                            "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PAPER}"},
                        },
                    ],
                }
            ]
        },
    }
    options = {"model": "small", "stream_options": {"include_usage": True}, **cases[case]}
    with client, client.chat.completions.stream(**options) as stream:
        for _ in stream:
            pass


def responses(case: str, url: str) -> None:
    client = openai.OpenAI(api_key="k", base_url=url, max_retries=0)
    cases: dict[str, dict[str, Any]] = {
        "tools": {
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": "What is 40 + 2?"},
                {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a":40,"b":2}'},
                {"type": "function_call_output", "call_id": "call_1", "output": "42"},
                {"role": "assistant", "content": "It is 42."},
                {"role": "user", "content": "Thanks."},
            ],
            "tools": [openai.pydantic_function_tool(Add, name="add")],
            "tool_choice": "required",
            "max_output_tokens": 100,
            "reasoning": {"effort": "low", "summary": "auto"},
            "parallel_tool_calls": False,
        },
        "optional": {
            "input": [{"role": "user", "content": "Scale 7."}],
            "tools": [openai.pydantic_function_tool(Scale, name="scale")],
        },
        "form": {"input": [{"role": "user", "content": "What is 40 + 2?"}], "text_format": Total},
        "own": {
            "instructions": "Be brief.",
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_file", "file_id": "file-1"},
                        {"type": "input_text", "text": "What is this?"},
                    ],
                }
            ],
            "tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}],
            "prompt_cache_key": "shop",
            "prompt_cache_retention": "24h",
        },
        "parts": {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "What is this?"},
                        {"type": "input_image", "image_url": f"data:image/png;base64,{IMAGE}", "detail": "auto"},
                        {
                            "type": "input_file",
                            "filename": "a.pdf",
                            "file_data": f"data:application/pdf;base64,{PAPER}",
                        },
                    ],
                }
            ]
        },
    }
    with client, client.responses.stream(model="small", **cases[case]) as stream:
        for _ in stream:
            pass


def messages(case: str, url: str) -> None:
    hour = {"type": "ephemeral", "ttl": "1h"}
    client = anthropic.Anthropic(api_key="k", base_url=url, max_retries=0)
    cases: dict[str, dict[str, Any]] = {
        "tools": {
            "system": "Be brief.",
            "messages": [
                {"role": "user", "content": "What is 40 + 2?"},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 40, "b": 2}}],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "42"}]},
                {"role": "assistant", "content": "It is 42."},
                {"role": "user", "content": "Thanks."},
            ],
            "tools": [{"name": "add", "description": "Add two numbers.", "input_schema": SCHEMA}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
            "max_tokens": 100,
            "thinking": {"type": "adaptive", "display": "summarized"},
            "output_config": {"effort": "low"},
        },
        "optional": {
            "max_tokens": 8192,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Scale 7."}]}],
            "tools": [{"name": "scale", "description": "Scale a number.", "input_schema": Scale.model_json_schema()}],
        },
        "form": {
            "max_tokens": 8192,
            "messages": [{"role": "user", "content": "What is 40 + 2?"}],
            "output_format": Total,
        },
        "own": {
            "max_tokens": 8192,
            "system": [{"type": "text", "text": "Be brief.", "cache_control": hour}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "document", "source": {"type": "file", "file_id": "file-1"}},
                        {"type": "text", "text": "What is this?", "cache_control": hour},
                    ],
                }
            ],
            "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 3, "cache_control": hour}],
        },
        "parts": {
            "max_tokens": 8192,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}},
                        {
                            "type": "document",
                            "source": {"type": "base64", "media_type": "application/pdf", "data": PAPER},
                            "title": "a.pdf",
                        },
                    ],
                }
            ],
        },
    }
    with client, client.messages.stream(model="small", **cases[case]) as stream:
        for _ in stream:
            pass


def gemini(case: str, url: str) -> None:
    options = {"base_url": url, "api_version": "v1beta"}

    def content(role: str, *parts: Any) -> Any:
        return types.Content(role=role, parts=list(parts))

    call = types.FunctionCall(name="add", args={"a": 40, "b": 2}, id="call_1")
    result = types.FunctionResponse(name="add", response={"output": "42"}, id="call_1")
    declaration = types.FunctionDeclaration(name="add", description="Add two numbers.", parameters_json_schema=SCHEMA)
    cases: dict[str, tuple[Any, dict[str, Any]]] = {
        "tools": (
            [
                content("user", types.Part(text="What is 40 + 2?")),
                content("model", types.Part(function_call=call)),
                content("user", types.Part(function_response=result)),
                content("model", types.Part(text="It is 42.")),
                content("user", types.Part(text="Thanks.")),
            ],
            {
                "system_instruction": "Be brief.",
                "max_output_tokens": 100,
                "tools": [types.Tool(function_declarations=[declaration])],
                "tool_config": types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode="ANY")),
                "thinking_config": types.ThinkingConfig(include_thoughts=True, thinking_level="low"),
            },
        ),
        "form": (
            "What is 40 + 2?",
            {"response_mime_type": "application/json", "response_json_schema": Total.model_json_schema()},
        ),
        "parts": (
            [
                content(
                    "user",
                    types.Part(text="What is this?"),
                    types.Part.from_bytes(data=PNG, mime_type="image/png"),
                    types.Part.from_bytes(data=PDF, mime_type="application/pdf"),
                )
            ],
            {},
        ),
    }
    scaling = types.FunctionDeclaration(
        name="scale", description="Scale a number.", parameters_json_schema=Scale.model_json_schema()
    )
    tools = {"tools": [types.Tool(function_declarations=[scaling])]}
    cases["optional"] = ([content("user", types.Part(text="Scale 7."))], tools)
    cases["own"] = (
        [
            content(
                "user",
                types.Part(file_data=types.FileData(file_uri="file-1")),
                types.Part(text="What is this?"),
                types.Part.from_bytes(data=b"RIFF", mime_type="audio/wav"),
            )
        ],
        {
            "system_instruction": "Be brief.",
            "tools": [types.Tool(google_search=types.GoogleSearch())],
            "seed": 7,
            "top_k": 3,
        },
    )
    contents, config = cases[case]
    with genai.Client(api_key="k", http_options=options) as client:
        asking = types.GenerateContentConfig(**config)
        for _ in client.models.generate_content_stream(model="small", contents=contents, config=asking):
            pass


SDKS: dict[str, Callable[[str, str], None]] = {
    "chat": chat,
    "responses": responses,
    "anthropic": messages,
    "gemini": gemini,
}


def official_chat(url: str) -> gr.Model:
    """A model of OpenAI itself, moved to the server of the test: another host would get the fields of any server."""
    model = OpenAIChat("small", base_url="https://api.openai.com/v1", api_key="k")
    model.base_url = url
    return model


MODELS: dict[str, Callable[[str], gr.Model]] = {
    "chat": official_chat,
    "responses": lambda url: OpenAIResponses("small", base_url=url, api_key="k", strict=True),
    "anthropic": lambda url: Anthropic("small", base_url=url, api_key="k"),
    "gemini": lambda url: Gemini("small", base_url=url, api_key="k"),
}


# --- the differences -------------------------------------------------------------------------------------------------

CONTENT = "some servers refuse null (openai_chat.py lists them); all take an empty text"
NAME = "every form has one name; the SDK takes the name of the class"
NOT_STORED = "nothing is stored at the provider; the SDK leaves it to the provider, which stores by default"
ENCRYPTED = "reasoning comes back encrypted, because nothing is stored"
NULLABLE = (
    "null stands for the default, which the guide of strict schemas refuses; the SDK makes the model choose a value"
)
BLOCKS = "one form for a text with and without other blocks; the format takes both"
FACTOR = ("type", "type[0]", "type[1]", "default", "description")
DIFFERENCES: dict[tuple[str, str], dict[str, str]] = {
    ("chat", "tools"): {"$.messages[2].content": CONTENT},
    ("chat", "optional"): {f"$.tools[0].function.parameters.properties.factor.{key}": NULLABLE for key in FACTOR},
    ("responses", "optional"): {
        "$.store": NOT_STORED,
        "$.include[0]": ENCRYPTED,
        **{f"$.tools[0].parameters.properties.factor.{key}": NULLABLE for key in FACTOR},
    },
    ("chat", "form"): {"$.response_format.json_schema.name": NAME},
    ("responses", "tools"): {"$.store": NOT_STORED, "$.include[0]": ENCRYPTED},
    ("responses", "form"): {"$.store": NOT_STORED, "$.include[0]": ENCRYPTED, "$.text.format.name": NAME},
    ("responses", "own"): {"$.store": NOT_STORED, "$.include[0]": ENCRYPTED},
    ("responses", "parts"): {"$.store": NOT_STORED, "$.include[0]": ENCRYPTED},
    ("anthropic", "tools"): {
        f"$.messages[{index}].content{rest}": BLOCKS for index in (0, 3, 4) for rest in ("", "[0].text", "[0].type")
    },
    ("anthropic", "form"): {f"$.messages[0].content{rest}": BLOCKS for rest in ("", "[0].text", "[0].type")},
    ("gemini", "tools"): {
        "$.contents[1].parts[0].thoughtSignature": "newer models refuse a call without a signature: the documented one",
        "$.generationConfig.thinkingConfig.thinkingLevel": "the setting as it is; the SDK writes the name of an enum",
        "$.systemInstruction.role": "the role of a system text is ignored",
    },
    ("gemini", "own"): {"$.systemInstruction.role": "the role of a system text is ignored"},
    ("gemini", "optional"): {"$.generationConfig": "no settings, no object"},
    ("gemini", "parts"): {"$.generationConfig": "no settings, no object"},
}

STAINLESS = {
    f"x-stainless-{name}": "the SDK tells its maker about the machine; nobody needs it"
    for name in (
        *("arch", "async", "lang", "os", "package-version", "read-timeout", "retry-count", "runtime"),
        "runtime-version",
    )
}
USUAL = {
    "accept": "what is asked for is an event stream",
    "accept-encoding": "nothing is unpacked, because a few bytes may unpack to gigabytes",
    "user-agent": "the library that asks",
}
HEADERS: dict[str, dict[str, str]] = {
    "chat": {**USUAL, **STAINLESS, "x-stainless-helper-method": "as those above"},
    "responses": {**USUAL, **STAINLESS, "content-length": "the fields of the table above"},
    "anthropic": {
        **USUAL,
        **STAINLESS,
        **dict.fromkeys(
            ("x-stainless-helper-method", "x-stainless-stream-helper", "x-stainless-timeout"), "as those above"
        ),
        "x-api-key": "the documented header of a key, which older servers know, too",
        "authorization": "the SDK's header of a key since its version 2",
    },
    "gemini": {**USUAL, "x-goog-api-client": "the SDK's name once more", "content-length": "other spellings of names"},
}


async def both(name: str, case: str) -> tuple[Any, Any]:
    """The requests of the model and of the SDK, as the server has got them."""
    said = '{"total":42}' if case == "form" else "So."
    async with open_fault_server(reply(said), reply(said)) as server:
        url = server.base_url(name)
        async with MODELS[name](url).stream(request_of(name, case)) as events:
            async for _ in events:
                pass
        await trio.to_thread.run_sync(partial(SDKS[name], case, url))
        ours, theirs = server.requests
    return ours, theirs


def leaves(value: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    """The paths of the values of JSON data; an empty object or list is a value."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def camel(value: Any) -> Any:
    """Names as Gemini writes them: it reads names with underscores, too, and its SDK sends both kinds."""
    if isinstance(value, dict):
        return {re.sub(r"_(.)", lambda found: found[1].upper(), key): camel(item) for key, item in value.items()}
    return [camel(item) for item in value] if isinstance(value, list) else value


def different(ours: Any, theirs: Any) -> set[str]:
    first, second = dict(leaves(ours)), dict(leaves(theirs))
    missing = object()
    return {path for path in first.keys() | second.keys() if first.get(path, missing) != second.get(path, missing)}


@pytest.mark.parametrize("case", [*REQUESTS, "own"])
@pytest.mark.parametrize("name", SDKS)
async def test_the_body_is_that_of_the_sdk_but_for_the_differences_of_the_table(name, case):
    ours, theirs = await both(name, case)
    assert ours.path == theirs.path
    theirs = camel(theirs.body) if name == "gemini" else theirs.body
    assert different(ours.body, theirs) == DIFFERENCES.get((name, case), {}).keys()


@pytest.mark.parametrize("name", SDKS)
async def test_the_headers_are_those_of_the_sdk_but_for_the_differences_of_the_table(name):
    ours, theirs = await both(name, "parts")
    assert different(ours.headers, theirs.headers) == {f"$.{header}" for header in HEADERS[name]}
