"""What servers with the chat format answer otherwise than OpenAI, each as bytes of a stream, and what is made of it."""

from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.models.codecs.masking import KeyMask
from greenroom.actors.models.codecs.openai_chat import OpenAIChatCodec
from greenroom.actors.models.codecs.reader import StreamReader
from greenroom.actors.models.codecs.variant import COMPATIBLE, OPENAI
from greenroom.actors.testing.wire_formats import event

ADD = gr.CallRequest(call_id="", tool="add", arguments={"a": 1})


def read(*events: Any, variant: Any = COMPATIBLE) -> gr.ModelResponse:
    reader = StreamReader("small", OpenAIChatCodec("small", variant=variant), KeyMask())
    for one in events:
        list(reader.feed(one if isinstance(one, bytes) else event(one)))
    return reader.end()[1]


def chunk(finish: object = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def calling(**piece: Any) -> dict[str, Any]:
    return chunk(tool_calls=[piece])


FUNCTION = {"name": "add", "arguments": '{"a": 1}'}
ODDITIES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "usage is null": ([{**chunk(content="Hi"), "usage": None}, {**chunk("stop"), "usage": None}], {"text": ("Hi",)}),
    "usage is missing": ([chunk(content="Hi"), chunk("stop")], {"text": ("Hi",)}),
    "counts are null or texts": (
        [chunk(content="Hi"), {**chunk("stop"), "usage": {"prompt_tokens": None, "completion_tokens": "9"}}],
        {"text": ("Hi",)},
    ),
    "choices are empty, null or missing": (
        [{"choices": []}, {"choices": None}, {}, chunk(content="Hi"), chunk("stop"), {"choices": []}],
        {"text": ("Hi",)},
    ),
    "content is null": ([chunk(role="assistant", content=None), chunk(content="Hi"), chunk("stop")], {"text": ("Hi",)}),
    "the delta is null": (
        [chunk(content="Hi"), {"choices": [{"index": 0, "delta": None, "finish_reason": "stop"}]}],
        {"text": ("Hi",)},
    ),
    "the index of the choice is null or missing": (
        [
            {"choices": [{"index": None, "delta": {"content": "H"}}]},
            {"choices": [{"delta": {"content": "i"}, "finish_reason": "stop"}]},
        ],
        {"text": ("Hi",)},
    ),
    "the whole message comes in one event": (
        [{"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}],
        {"text": ("Hi",)},
    ),
    "there is no reason of the end": ([chunk(content="Hi"), event("[DONE]")], {"text": ("Hi",)}),
    "there is no reason of the end of calls": (
        [calling(index=0, function=FUNCTION), event("[DONE]")],
        {"calls": (ADD,), "finish": "tool_calls"},
    ),
    "calls end with stop": (
        [calling(index=0, function=FUNCTION), chunk("stop")],
        {"calls": (ADD,), "finish": "tool_calls"},
    ),
    "the reason is a new one": ([chunk(content="Hi"), chunk("eos")], {"text": ("Hi",), "finish": "other"}),
    "ids are missing or null": (
        [calling(index=0, id=None, function=FUNCTION), chunk("tool_calls")],
        {"calls": (ADD,), "finish": "tool_calls"},
    ),
    "calls have no index": (
        [
            calling(id="x", function={"name": "add", "arguments": '{"a":'}),
            calling(function={"arguments": " 1}"}),
            calling(id="y", function=FUNCTION),
            chunk("tool_calls"),
        ],
        {
            "calls": tuple(gr.CallRequest(call_id=one, tool="add", arguments={"a": 1}) for one in "xy"),
            "finish": "tool_calls",
        },
    ),
    "arguments are an object": (
        [calling(index=0, function={"name": "add", "arguments": {"a": 1}}), chunk("tool_calls")],
        {"calls": (ADD,), "finish": "tool_calls"},
    ),
    "arguments are null": (
        [calling(index=0, function={"name": "add", "arguments": None}), chunk("tool_calls")],
        {"calls": (gr.CallRequest(call_id="", tool="add", arguments={}),), "finish": "tool_calls"},
    ),
    "the name is repeated in each piece": (
        [
            *(calling(index=0, function={"name": "add", "arguments": piece}) for piece in ('{"a"', ": 1}")),
            chunk("tool_calls", tool_calls=None, content=None),
        ],
        {"calls": (ADD,), "finish": "tool_calls"},
    ),
    "content is a list, with thoughts (Mistral)": (
        [
            chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]),
            chunk(content=[{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]),
            chunk("stop", content=""),
        ],
        {"text": ("Hi",)},
    ),
}


@pytest.mark.rule("M-23")
@pytest.mark.parametrize("name", ODDITIES)
def test_an_answer_with_an_oddity_is_read(name):
    events, parts = ODDITIES[name]
    answer = read(*events)
    assert (answer.text, answer.calls) == (parts.get("text", ()), parts.get("calls", ()))
    assert answer.finish == parts.get("finish", "stop")
    assert answer.usage == gr.Usage(requests=1)


@pytest.mark.rule("M-7", "M-23")
def test_an_answer_without_a_reason_is_whole_by_its_last_event_alone():
    with pytest.raises(gr.ModelError, match="the stream ended in the middle of the answer"):
        read(chunk(content="Hi"))
    with pytest.raises(gr.ModelError, match="in the middle of the answer"):
        read(event("[DONE]"))
    with pytest.raises(gr.ModelError, match="in the middle of the answer"):
        read(chunk(content="Hi"), event("[DONE]"), variant=OPENAI)
    with pytest.raises(gr.ModelError, match="the stream ended before the answer began"):
        read()


@pytest.mark.rule("M-7", "M-23")
@pytest.mark.parametrize("arguments", ["", '{"a": ', None])
def test_a_call_that_was_cut_without_a_reason_does_not_run(arguments):
    (call,) = read(calling(index=0, function={"name": "add", "arguments": arguments}), event("[DONE]")).calls
    assert call.fault is not None


# --- llama-cpp-python -------------------------------------------------------------------------------------------------

HEAD = {"id": "chatcmpl-7", "object": "chat.completion.chunk", "created": 1795882233, "model": "tiny"}
NOTHING = {"role": None, "content": None, "function_call": None, "tool_calls": None}


def piece(arguments: str) -> dict[str, Any]:
    function = {"name": "add", "arguments": arguments}
    called = {"index": 0, "id": "call__0_add_cmpl-7", "type": "function", "function": function}
    return {"role": None, "content": None, "function_call": function, "tool_calls": [called]}


def recorded(*deltas: dict[str, Any], finish: str) -> list[Any]:
    choices = [{"index": 0, "finish_reason": None, "logprobs": None, "delta": delta} for delta in deltas]
    choices[-1]["finish_reason"] = finish
    return [*({**HEAD, "choices": [choice]} for choice in choices), event("[DONE]")]


@pytest.mark.rule("M-23")
def test_the_answers_of_llama_cpp_python_are_read():
    """Recorded from its server (0.3.36, chatml-function-calling) with a model of random weights: no usage at all, the
    call under two names, nulls in every field of the last event."""
    words = [{"role": "assistant"}, *({"content": word} for word in ("r", "D", "\u03fe", "")), {}]
    text = read(*recorded(*words, finish="length"))
    assert (text.text, text.finish, text.usage) == (("rD\u03fe",), "length", gr.Usage(requests=1))
    begun = {"role": "assistant", "content": None, "function_call": None, "tool_calls": None}
    pieces = [piece(one) for one in ("{", " ", '"', "a", '"', ":", " ", "false", "}", "")]
    called = read(*recorded(begun, *pieces, NOTHING, finish="tool_calls"))
    assert called.calls == (gr.CallRequest(call_id="call__0_add_cmpl-7", tool="add", arguments={"a": False}),)
    assert called.finish == "tool_calls"
    cut = read(*recorded(begun, piece("{"), piece(' "'), NOTHING, finish="tool_calls"))
    assert "not JSON" in cut.calls[0].fault


REFUSED = {
    "error": {
        "message": "1 validation error:\n  {'type': 'literal_error', 'loc': ('body', 'response_format', 'type'), 'msg':"
        " \"Input should be 'text' or 'json_object'\", 'input': 'json_schema'}",
        "type": "internal_server_error",
        "param": None,
        "code": None,
    }
}


def test_the_refusals_of_llama_cpp_python_are_quoted():
    """It answers 500 to what its types refuse, such as a form by JSON Schema: `structured="prompt"` asks in words."""
    report = OpenAIChatCodec("small", variant=COMPATIBLE).error(500, REFUSED)
    assert "Input should be 'text' or 'json_object'" in report.message
