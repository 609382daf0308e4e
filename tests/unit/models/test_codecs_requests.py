"""Requests in the form of each provider: messages, tools, settings, the form of an answer, ids of calls."""

from typing import (
    Literal,
    NotRequired,  # pydantic reads those of `typing` from Python 3.12 on
)

import msgspec
import pydantic
import pytest
from tests.support.providers import CODECS
from typing_extensions import TypedDict

import greenroom as gr
from greenroom.actors.models.codecs.anthropic import AnthropicCodec
from greenroom.actors.models.codecs.gemini import GeminiCodec
from greenroom.actors.models.codecs.history import LONGEST_ID, Said, Thread
from greenroom.actors.models.codecs.masking import KeyMask
from greenroom.actors.models.codecs.openai_chat import OpenAIChatCodec
from greenroom.actors.models.codecs.openai_responses import OpenAIResponsesCodec
from greenroom.actors.models.codecs.reader import StreamReader
from greenroom.actors.models.codecs.variant import COMPATIBLE
from greenroom.actors.testing.wire_formats import FORMATS, SIGNATURE, Answer
from greenroom.testing import call, think

NUMBER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
STRICT = {**NUMBER, "additionalProperties": False}
ADD = gr.ToolInfo(name="add", description="Add.", schema=NUMBER)
OBJECT = {"$ref": "#/$defs/Order", "$defs": {"Order": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
LIST = {"type": "array", "items": {"type": "integer"}}


def message(role: str, content: str = "", **more) -> gr.Message:
    return gr.Message(id=f"{role}.{content}", role=role, content=content, **more)


def wants(call_id: str, tool: str = "add", **arguments) -> gr.CallRequest:
    return gr.CallRequest(call_id=call_id, tool=tool, arguments=arguments)


THREAD = (
    message("system", "Be kind."),
    message("user", "1 + 2?"),
    message("assistant", "I add.", calls=(wants("c#1", a=1), wants("c_1", a=2))),
    message("tool", "1", call_id="c#1"),
    message("tool", "2", call_id="c_1"),
    message("assistant", "3"),
    message("user", "Thanks."),
)


def request(*messages: gr.Message, **more) -> gr.ModelRequest:
    return gr.ModelRequest(agent="a", messages=messages or THREAD, **more)


def body(name: str = "chat", *messages: gr.Message, **more):
    return CODECS[name]().encode(request(*messages, **more)).body


def test_openai_chat_takes_the_thread_as_it_is():
    calls = [
        {"id": "c_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}},
        {"id": "c_1_2", "type": "function", "function": {"name": "add", "arguments": '{"a":2}'}},
    ]
    assert body(tools=(ADD,)) == {
        "model": "small",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "1 + 2?"},
            {"role": "assistant", "content": "I add.", "tool_calls": calls},
            {"role": "tool", "content": "1", "tool_call_id": "c_1"},
            {"role": "tool", "content": "2", "tool_call_id": "c_1_2"},
            {"role": "assistant", "content": "3"},
            {"role": "user", "content": "Thanks."},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {"name": "add", "description": "Add.", "parameters": STRICT, "strict": True},
            }
        ],
    }


def test_a_call_without_text_has_an_empty_content_for_openai_chat():
    assert body("chat", message("assistant", calls=(wants("c"),)))["messages"][0]["content"] == ""


class Function(TypedDict):
    name: str
    arguments: str


class ToolCall(TypedDict):
    id: str
    type: Literal["function"]
    function: Function


class Assistant(TypedDict):
    role: Literal["assistant"]
    content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCall]]


class Tool(TypedDict):
    role: Literal["tool"]
    content: str | None
    tool_call_id: str


class User(TypedDict):
    role: Literal["user"]
    content: str | list[object] | None


def test_llama_cpp_python_takes_the_messages_of_a_call_without_text():
    """Its request model (0.3.35, llama_types.py), recorded here: the package builds llama.cpp when it is installed.

    Its older versions require the content (`Assistant.content`), and its templates read it without asking.
    """
    model = pydantic.TypeAdapter(list[User | Assistant | Tool])
    thread = (message("user", "Hi"), message("assistant", calls=(wants("c", a=1),)), message("tool", "1", call_id="c"))
    made = body("chat", *thread, message("assistant", "So.", calls=(wants("d"),)), message("tool", "", call_id="d"))
    model.validate_python(made["messages"], strict=True)
    assert all(isinstance(one["content"], str) for one in made["messages"])
    with pytest.raises(pydantic.ValidationError):
        model.validate_python([{"role": "assistant", "content": None, "tool_calls": []}])


@pytest.mark.rule("M-4")
def test_settings_of_openai_chat_have_their_names_on_the_wire():
    settings = {
        "max_tokens": 9,
        "temperature": 0,
        "top_p": 1,
        "seed": 7,
        "stop_sequences": ["."],
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "service_tier": "flex",
        "parallel_tool_calls": False,
        "thinking": "low",
    }
    sent = body(settings=settings, tools=(ADD,))
    assert {
        key: sent[key] for key in sent if key not in ("model", "messages", "stream", "stream_options", "tools")
    } == {
        "max_completion_tokens": 9,
        "temperature": 0,
        "top_p": 1,
        "seed": 7,
        "stop": ["."],
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "service_tier": "flex",
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
    }
    assert "parallel_tool_calls" not in body(settings=settings)  # refused beside no tools
    assert body(settings={"thinking": True})["reasoning_effort"] == "medium"
    assert body(settings={"thinking": False})["reasoning_effort"] == "none"


@pytest.mark.parametrize("name", CODECS)
def test_the_request_is_not_changed_by_its_encoding(name):
    given = request(tools=(ADD,), output_schema=OBJECT, settings={"extra_body": {"x": 1}, "extra_headers": {"y": "z"}})
    before = msgspec.json.encode(given)
    encoded = CODECS[name]().encode(given)
    assert msgspec.json.encode(given) == before
    assert encoded.headers["y"] == "z"
    assert encoded.body["x"] == 1


def test_openai_chat_asks_for_an_object_natively_and_for_other_forms_in_words():
    form = body(output_schema=OBJECT)["response_format"]
    properties = {"n": {"type": ["integer", "null"]}}
    order = {"type": "object", "properties": properties, "required": ["n"], "additionalProperties": False}
    assert form == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {**order, "$defs": {"Order": order}}, "strict": True},
    }
    loose = OpenAIChatCodec("small", variant=COMPATIBLE).encode(request(output_schema=OBJECT)).body["response_format"]
    assert loose["json_schema"] == {"name": "answer", "schema": {**OBJECT["$defs"]["Order"], "$defs": OBJECT["$defs"]}}
    sent = body(output_schema=LIST)
    assert "response_format" not in sent
    assert sent["messages"][0]["role"] == "system"
    assert '{"type":"array"' in sent["messages"][0]["content"]
    prompted = OpenAIChatCodec("small", native=False).encode(request(output_schema=OBJECT)).body
    assert "response_format" not in prompted
    assert len(prompted["messages"]) == len(THREAD)  # the runtime has put the words into the system text


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"coldness": 1}, "there is no setting 'coldness'; use one of max_tokens"),
        ({"extra_body": [1]}, "extra_body"),
        ({"extra_headers": {"x": "a\nb"}}, "no header"),
        ({"extra_headers": {"x y": "a"}}, "no header"),
        ({"thinking": 3}, "thinking"),
        ({"thinking": ""}, "thinking"),
    ],
)
def test_settings_that_cannot_be_sent_are_named(name, settings, words):
    fault = CODECS[name]().check(settings)
    assert fault is not None
    assert words in fault


@pytest.mark.parametrize("name", CODECS)
def test_every_setting_that_is_listed_is_taken(name):
    codec = CODECS[name]()
    texts = {"cache_key": "mine", "cache_retention": "1h"}
    settings = {**dict.fromkeys(codec.settings, 1), **{name: texts[name] for name in texts if name in codec.settings}}
    assert codec.check({**settings, "thinking": True, "extra_body": {}, "provider_tools": [{"a": 1}]}) is None


@pytest.mark.rule("M-6")
def test_ids_on_the_wire_are_short_and_unique():
    names = ["a#1", "a_1", "a 1", "x" * 50, "x" * 51, "ü", "", "a_1_2"]
    thread = Thread([message("assistant", calls=tuple(map(wants, names)))], "nobody", lambda items: Said("", ()))
    found = thread.entries[0].call_ids
    assert len(set(found)) == len(names)
    assert all(0 < len(one) <= LONGEST_ID and one.isascii() for one in found)


RUNS = (
    *(message("user", "First."), message("assistant", calls=(wants("call", a=1), wants("call#2", a=2)))),
    *(message("tool", "1", call_id="call"), message("tool", "2", call_id="call#2"), message("assistant", "So.")),
    *(message("user", "Second."), message("assistant", calls=(wants("call", "sub", a=3),))),
    *(message("tool", "3", call_id="call"), message("assistant", "Done."), message("user", "Third.")),
)
"""Two runs of a thread whose model gives every call the same id: in each run the ids are unique, in the thread not."""


def ids_of(name: str, made: object) -> tuple[list[object], list[object]]:
    """The ids of the calls of a body, and those of the results, in order."""
    calls, results = list[object](), list[object]()
    parts = [
        part
        for one in made
        for part in (
            one.get("parts") or (one.get("content") if isinstance(one.get("content"), list) else None) or [one]
        )
    ]
    for part in parts:
        match name:
            case "chat":
                calls += [call["id"] for call in part.get("tool_calls", ())]
                results += [part["tool_call_id"]] if "tool_call_id" in part else []
            case "responses":
                calls += [part["call_id"]] if part.get("type") == "function_call" else []
                results += [part["call_id"]] if part.get("type") == "function_call_output" else []
            case "anthropic":
                calls += [part["id"]] if part.get("type") == "tool_use" else []
                results += [part["tool_use_id"]] if part.get("type") == "tool_result" else []
            case _:
                calls += [part["functionCall"]["id"]] if "functionCall" in part else []
                results += [part["functionResponse"]["id"]] if "functionResponse" in part else []
    return calls, results


@pytest.mark.rule("M-6")
@pytest.mark.parametrize("name", CODECS)
def test_ids_on_the_wire_are_unique_per_call_and_results_have_those_of_their_calls(name: str):
    made = body(name, *RUNS)
    calls, results = ids_of(name, made.get("messages") or made.get("input") or made["contents"])
    assert len(calls) == len(set(calls)) == 3
    assert results == calls
    if name == "gemini":
        tools = [
            part["functionResponse"]["name"]
            for one in made["contents"]
            for part in one["parts"]
            if "functionResponse" in part
        ]
        assert tools == ["add", "add", "sub"]


@pytest.mark.rule("M-6")
def test_an_answer_whose_ids_the_provider_has_used_before_is_written_from_its_parts():
    first = message("assistant", calls=(wants("x", a=1),), provider="p", items=({"call": "x"},))
    second = message("assistant", calls=(wants("x", a=2),), provider="p", items=({"call": "x"},))
    found = (message("tool", "1", call_id="x"), message("tool", "2", call_id="x"))

    def read(items):
        return Said("", [("x", "add", {"a": 1 if items is first.items else 2})])

    thread = Thread([first, found[0], second, found[1]], "p", read)
    assert [bool(entry.items) for entry in thread.entries] == [True, False, False, False]
    assert [entry.call_ids or entry.result_id for entry in thread.entries] == [("x",), "x", ("x_2",), "x_2"]


def test_a_thousand_calls_of_one_id_take_a_thousand_times_one():
    thread = Thread(
        [message("assistant", calls=tuple(wants("call") for _ in range(20_000)))], "p", lambda _: Said("", ())
    )
    assert len(set(thread.entries[0].call_ids)) == 20_000


# --- the other formats -----------------------------------------------------------------------------------------------


def test_openai_responses_has_calls_and_results_as_items_of_their_own():
    assert body("responses", tools=(ADD,)) == {
        "model": "small",
        "instructions": "Be kind.",
        "input": [
            {"role": "user", "content": "1 + 2?"},
            {"role": "assistant", "content": "I add."},
            {"type": "function_call", "call_id": "c_1", "name": "add", "arguments": '{"a":1}'},
            {"type": "function_call", "call_id": "c_1_2", "name": "add", "arguments": '{"a":2}'},
            {"type": "function_call_output", "call_id": "c_1", "output": "1"},
            {"type": "function_call_output", "call_id": "c_1_2", "output": "2"},
            {"role": "assistant", "content": "3"},
            {"role": "user", "content": "Thanks."},
        ],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "tools": [{"type": "function", "name": "add", "description": "Add.", "parameters": STRICT, "strict": True}],
    }
    assert "include" not in OpenAIResponsesCodec("gpt-4.1").encode(request()).body


def test_anthropic_has_alternating_roles_and_all_results_in_front():
    thread = (*THREAD[:5], message("user", "Hurry."), *THREAD[5:])
    assert body("anthropic", *thread, tools=(ADD,)) == {
        "model": "small",
        "max_tokens": 8192,
        "system": "Be kind.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "1 + 2?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I add."},
                    {"type": "tool_use", "id": "c_1", "name": "add", "input": {"a": 1}},
                    {"type": "tool_use", "id": "c_1_2", "name": "add", "input": {"a": 2}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c_1", "content": "1"},
                    {"type": "tool_result", "tool_use_id": "c_1_2", "content": "2"},
                    {"type": "text", "text": "Hurry."},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "3"}]},
            {"role": "user", "content": [{"type": "text", "text": "Thanks."}]},
        ],
        "stream": True,
        "tools": [{"name": "add", "description": "Add.", "input_schema": ADD.schema}],
    }


def test_a_user_text_that_came_before_a_result_stands_behind_it_for_anthropic():
    assistant, result = message("assistant", calls=(wants("c"),)), message("tool", "1", call_id="c")
    sent = body("anthropic", message("user", "a"), assistant, message("user", "Hurry."), result)["messages"]
    assert [block["type"] for block in sent[-1]["content"]] == ["tool_result", "text"]


def test_a_blank_text_is_left_out_for_anthropic():
    sent = body("anthropic", message("user", "a"), message("assistant", " \n"), message("user", "b"))["messages"]
    assert sent == [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]


def test_gemini_names_the_tool_of_a_result_and_signs_what_it_has_not_said():
    assert body("gemini", tools=(ADD,)) == {
        "systemInstruction": {"parts": [{"text": "Be kind."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "1 + 2?"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "I add."},
                    {
                        "functionCall": {"name": "add", "args": {"a": 1}, "id": "c_1"},
                        "thoughtSignature": "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=",
                    },
                    {"functionCall": {"name": "add", "args": {"a": 2}, "id": "c_1_2"}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "add", "response": {"output": "1"}, "id": "c_1"}},
                    {"functionResponse": {"name": "add", "response": {"output": "2"}, "id": "c_1_2"}},
                ],
            },
            {"role": "model", "parts": [{"text": "3"}]},
            {"role": "user", "parts": [{"text": "Thanks."}]},
        ],
        "tools": [
            {"functionDeclarations": [{"name": "add", "description": "Add.", "parametersJsonSchema": ADD.schema}]}
        ],
    }
    older = GeminiCodec("gemini-2.5-flash").encode(request())
    assert "thoughtSignature" not in repr(older.body)
    assert older.path == "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"


SETTINGS = {"max_tokens": 9, "temperature": 0, "top_p": 1}


@pytest.mark.rule("M-4")
def test_settings_of_the_other_formats_have_their_names_on_the_wire():
    sent = body("responses", settings={**SETTINGS, "thinking": "high", "parallel_tool_calls": False}, tools=(ADD,))
    assert (sent["max_output_tokens"], sent["temperature"], sent["top_p"]) == (9, 0, 1)
    assert sent["reasoning"] == {"effort": "high", "summary": "auto"}
    assert sent["parallel_tool_calls"] is False
    sent = body("anthropic", settings={"max_tokens": 9, "stop_sequences": ["."], "thinking": "low"})
    assert (sent["max_tokens"], sent["stop_sequences"]) == (9, ["."])
    assert sent["thinking"]["type"] == "adaptive"
    assert sent["output_config"] == {"effort": "low"}
    assert body("anthropic", settings={"thinking": False})["thinking"] == {"type": "disabled"}
    sent = body("anthropic", settings={"parallel_tool_calls": False}, tools=(ADD,))
    assert sent["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    older = AnthropicCodec("small", api_version="2023-06-01").encode(request(settings={**SETTINGS, "top_k": 3}))
    assert (older.body["temperature"], older.body["top_k"]) == (0, 3)
    assert older.headers["anthropic-version"] == "2023-06-01"
    fault = AnthropicCodec("small").check(SETTINGS) or ""
    assert "has no 'temperature'; leave it out, or ask with Anthropic(..., api_version=\"2023-06-01\")" in fault
    config = body("gemini", settings={**SETTINGS, "top_k": 3, "seed": 7, "thinking": "low"})["generationConfig"]
    assert config == {
        "maxOutputTokens": 9,
        "temperature": 0,
        "topP": 1,
        "topK": 3,
        "seed": 7,
        "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "low"},
    }


LIMITED = {
    "$ref": "#/$defs/Order",
    "$defs": {
        "Order": {
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 1}, "pattern": {"type": "string", "maxLength": 9}},
        }
    },
}


CHOICES = {
    "chat": [
        ("required", "required"),
        ("none", "none"),
        ("add", {"type": "function", "function": {"name": "add"}}),
    ],
    "responses": [("required", "required"), ("none", "none"), ("add", {"type": "function", "name": "add"})],
    "anthropic": [("required", {"type": "any"}), ("none", {"type": "none"}), ("add", {"type": "tool", "name": "add"})],
    "gemini": [
        ("required", {"functionCallingConfig": {"mode": "ANY"}}),
        ("none", {"functionCallingConfig": {"mode": "NONE"}}),
        ("add", {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["add"]}}),
    ],
}


@pytest.mark.rule("LO-18")
@pytest.mark.parametrize("name", CHOICES)
def test_the_choice_of_a_tool_is_said_in_each_provider_s_way(name):
    field = "toolConfig" if name == "gemini" else "tool_choice"
    for choice, sent in CHOICES[name]:
        assert body(name, tools=(ADD,), tool_choice=choice)[field] == sent
        assert field not in body(name, tool_choice=choice), "no provider takes a choice without tools"
    assert field not in body(name, tools=(ADD,))
    if name == "anthropic":
        sent = body(name, tools=(ADD,), tool_choice="add", settings={"parallel_tool_calls": False})
        assert sent["tool_choice"] == {"type": "tool", "name": "add", "disable_parallel_tool_use": True}


def test_the_data_in_a_form_stays_as_it_is():
    form = {"type": "object", "properties": {"x": {"enum": [{"type": "object", "pattern": "x"}]}}}
    sent = body("anthropic", output_schema=form)["output_config"]["format"]["schema"]
    assert sent == {**form, "additionalProperties": False}


@pytest.mark.rule("OU-11")
@pytest.mark.parametrize("name", CODECS)
def test_a_model_that_is_asked_in_words_sends_no_form(name):
    given = request(output_schema={"type": "object", "properties": {"secret": {"type": "integer"}}})
    natively, in_words = (CODECS[name](native=native).encode(given).body for native in (True, False))
    assert [b"secret" in msgspec.json.encode(sent) for sent in (natively, in_words)] == [True, False]


@pytest.mark.rule("OU-11")
def test_the_form_of_an_answer_is_asked_for_in_each_provider_s_way():
    order = {"type": "object", "properties": {"n": {"type": "integer"}, "pattern": {"type": "string"}}}
    closed = {**order, "additionalProperties": False}
    assert body("responses", output_schema=OBJECT)["text"]["format"]["schema"]["type"] == "object"
    assert body("anthropic", output_schema=LIMITED)["output_config"]["format"]["schema"] == {
        **closed,
        "$defs": {"Order": closed},
    }
    assert body("gemini", output_schema=LIST)["generationConfig"]["responseJsonSchema"] == LIST


OPEN = {"type": "object", "properties": {"x": {"type": "object", "additionalProperties": {"type": "integer"}}}}


ANY_OBJECT = {"type": "object", "properties": {"x": {"type": ["object", "null"]}}}
EITHER = {"type": "object", "properties": {"x": {"oneOf": [{"type": "integer"}, {"type": "string"}]}}}


@pytest.mark.rule("OU-11")
@pytest.mark.parametrize(
    ("name", "schema", "tools"),
    [
        *(("responses", LIST, ()), ("anthropic", LIST, ()), ("anthropic", OPEN, ()), ("gemini", OBJECT, (ADD,))),
        *(("anthropic", ANY_OBJECT, ()), ("anthropic", {"type": "object"}, ()), ("anthropic", EITHER, ())),
    ],
)
def test_a_form_that_a_provider_does_not_take_is_asked_for_in_words(name, schema, tools):
    sent = body(name, output_schema=schema, tools=tools)
    words = msgspec.json.encode(
        sent.get("instructions") or sent.get("system") or sent.get("systemInstruction")
    ).decode()
    assert "Be kind.\\n\\nYour final answer is one JSON value" in words
    assert not {"text", "output_config", "generationConfig"} & sent.keys()


# --- what goes back unchanged ----------------------------------------------------------------------------------------


def answered(name: str) -> gr.Message:
    """The message of an answer with reasoning."""
    given = Answer(parts=(think("Hm."), "I add.", call("add", a=1, id="c1")), pieces=3)
    reader = StreamReader("small", CODECS[name](), KeyMask())
    list(reader.feed(b"".join(FORMATS[name].stream(given))))
    _, answer = reader.end()
    assert answer.items
    return message("assistant", "I add.", calls=answer.calls, provider=answer.provider, items=answer.items)


def sent_back(name: str, kept: gr.Message) -> str:
    return msgspec.json.encode(body(name, message("user", "1?"), kept, message("tool", "1", call_id="c1"))).decode()


SIGNS = {"chat": "Hm.", "responses": SIGNATURE, "anthropic": SIGNATURE, "gemini": SIGNATURE}


@pytest.mark.rule("M-15")
@pytest.mark.parametrize("name", CODECS)
def test_provider_items_are_sent_back_unchanged_or_not_at_all(name):
    """Whatever has changed since would contradict them: the text, a call, its arguments, the provider."""
    kept = answered(name)
    whole = sent_back(name, kept)
    assert all(msgspec.json.encode(item).decode() in whole for item in kept.items)
    (call,) = kept.calls
    for changed in (
        msgspec.structs.replace(kept, content="I add?"),
        msgspec.structs.replace(kept, calls=(msgspec.structs.replace(call, arguments={"a": 2}),)),
        msgspec.structs.replace(kept, calls=(msgspec.structs.replace(call, tool="pay"),)),
        msgspec.structs.replace(kept, calls=(call, wants("c2"))),
        msgspec.structs.replace(kept, provider="another"),
    ):
        assert SIGNS[name] not in sent_back(name, changed)


@pytest.mark.parametrize("name", CODECS)
def test_a_call_in_items_keeps_its_id_and_its_result_refers_to_it(name):
    """The runtime has renamed the call, because another one had that id before."""
    kept = answered(name)
    renamed = msgspec.structs.replace(kept.calls[0], call_id="c1#2")
    sent = body(
        name,
        message("assistant", calls=(wants("c_9"),)),
        message("tool", "9", call_id="c_9"),
        msgspec.structs.replace(kept, calls=(renamed,)),
        message("tool", "1", call_id="c1#2"),
    )
    text = msgspec.json.encode(sent).decode()
    assert text.count('"c1"') == 2
    assert "#" not in text


def test_blank_texts_beside_thinking_are_kept_but_not_sent():
    kept = answered("anthropic")
    blank = {"type": "text", "text": "\n"}
    given = msgspec.structs.replace(kept, content=f"\n{kept.content}", items=(blank, *kept.items))
    sent = sent_back("anthropic", given)
    assert SIGNATURE in sent
    assert '"\\n"' not in sent


@pytest.mark.parametrize("name", CODECS)
def test_an_answer_without_reasoning_has_no_items(name):
    reader = StreamReader("small", CODECS[name](), KeyMask())
    list(reader.feed(b"".join(FORMATS[name].stream(Answer(parts=("Hi.", call("add", id="c")))))))
    assert reader.end()[1].items == ()
