"""Requests in the form of each provider: messages, tools, settings, the form of an answer, ids of calls."""

import msgspec
import pytest
from tests.support.providers import CODECS

import greenroom as gr
from greenroom.actors.models.codecs.history import LONGEST_ID, wire_ids
from greenroom.actors.models.codecs.openai_chat import OpenAIChatCodec

ADD = gr.ToolInfo(name="add", description="Add.", schema={"type": "object", "properties": {"a": {"type": "integer"}}})
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
        "tools": [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": ADD.schema}}],
    }


def test_a_call_without_text_has_no_content_for_openai_chat():
    assert body("chat", message("assistant", calls=(wants("c"),)))["messages"][0]["content"] is None


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
    assert form == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": {**OBJECT["$defs"]["Order"], "$defs": OBJECT["$defs"]}},
    }
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
    assert codec.check({**dict.fromkeys(codec.settings, 1), "thinking": True, "extra_body": {}}) is None


@pytest.mark.rule("M-6")
def test_ids_on_the_wire_are_short_and_unique():
    names = ["a#1", "a_1", "a 1", "x" * 50, "x" * 51, "ü", "", "a_1_2"]
    found = wire_ids([message("assistant", calls=tuple(map(wants, names)))])
    assert list(found) == names
    assert len(set(found.values())) == len(names)
    assert all(0 < len(one) <= LONGEST_ID and one.isascii() for one in found.values())
