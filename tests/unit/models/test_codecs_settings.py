"""Settings whose form depends on the model: thinking, caches of prompts, tools and files of the provider."""

import json

import pytest
from tests.support.providers import CODECS

import greenroom as gr
from greenroom.actors.models.codecs.anthropic import AnthropicCodec
from greenroom.actors.models.codecs.gemini import GeminiCodec
from greenroom.actors.models.codecs.masking import KeyMask
from greenroom.actors.models.codecs.openai_chat import OpenAIChatCodec
from greenroom.actors.models.codecs.openai_responses import OpenAIResponsesCodec
from greenroom.actors.models.codecs.port import Codec
from greenroom.actors.models.codecs.reader import StreamReader
from greenroom.actors.testing.wire_formats import event

ADD = gr.ToolInfo(name="add", description="Add.", schema={"type": "object", "properties": {}})
each_format = pytest.mark.parametrize("name", CODECS)


def message(role: str, content: str = "", **more) -> gr.Message:
    return gr.Message(id=f"{role}.{content}", role=role, content=content, **more)


def body(codec: Codec, *messages: gr.Message, **more):
    return codec.encode(gr.ModelRequest(agent="a", messages=messages or (message("user", "Hi"),), **more)).body


# --- thinking --------------------------------------------------------------------------------------------------------

BUDGETED = (
    *("claude-3-7-sonnet-20250219", "claude-3-7-sonnet-latest", "claude-sonnet-4-20250514", "claude-opus-4-1-20250805"),
    *("claude-opus-4-0", "claude-sonnet-4-5", "claude-haiku-4-5-20251001", "claude-opus-4-5-20251101"),
    *("claude-sonnet-4@20250514", "anthropic.claude-sonnet-4-5-20250929-v1:0"),
)
ADAPTIVE = ("claude-opus-4-6", "claude-sonnet-4-6", "claude-opus-4-7-20260401", "claude-opus-5", "small")


@pytest.mark.rule("M-19")
@pytest.mark.parametrize("model", BUDGETED)
def test_an_older_model_of_anthropic_thinks_with_a_budget(model):
    codec = AnthropicCodec(model)
    sent = body(codec, settings={"thinking": "high"})
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 16_384}
    assert sent["max_tokens"] == 8_192 + 16_384
    assert "output_config" not in sent
    assert body(codec, settings={"thinking": True})["thinking"]["budget_tokens"] == 8_192
    assert body(codec, settings={"thinking": "max"})["max_tokens"] < 32_000
    assert body(codec, settings={"thinking": 2_000})["thinking"]["budget_tokens"] == 2_000
    assert body(codec, settings={"thinking": 5})["thinking"]["budget_tokens"] == 1_024
    assert body(codec, settings={"thinking": False})["thinking"] == {"type": "disabled"}


@pytest.mark.rule("M-19")
@pytest.mark.parametrize("model", ADAPTIVE)
def test_a_newer_model_of_anthropic_decides_how_long_it_thinks(model):
    codec = AnthropicCodec(model)
    sent = body(codec, settings={"thinking": "high"})
    assert sent["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert (sent["output_config"], sent["max_tokens"]) == ({"effort": "high"}, 8_192)
    assert "takes no number of tokens" in codec.check({"thinking": 2_000})


@pytest.mark.rule("M-19")
def test_a_budget_stays_within_max_tokens():
    codec = AnthropicCodec("claude-sonnet-4-5")
    sent = body(codec, settings={"thinking": "high", "max_tokens": 4_000})
    assert (sent["max_tokens"], sent["thinking"]["budget_tokens"]) == (4_000, 3_999)
    assert codec.check({"thinking": True, "max_tokens": 1_024}) == (
        "max_tokens=1024: this model thinks within them; give more than 1,024"
    )
    assert codec.check({"thinking": True, "max_tokens": 1_025}) is None
    assert codec.check({"thinking": False, "max_tokens": 9}) is None


@pytest.mark.rule("M-19")
@pytest.mark.parametrize("model", ["claude-3-5-sonnet-20241022", "claude-3-haiku-20240307", "claude-2.1"])
def test_a_model_that_does_not_think_is_not_asked_to(model):
    codec = AnthropicCodec(model)
    assert codec.check({"thinking": "low"}) == "thinking='low': this model does not think; leave the setting out"
    assert codec.check({"thinking": False}) is None
    assert "thinking" not in body(codec, settings={"thinking": False})


@pytest.mark.rule("M-19")
@pytest.mark.parametrize("model", ["claude-fable-5", "claude-mythos-5-1", "anthropic.claude-mythos-preview"])
def test_a_model_that_always_thinks_is_asked_for_as_little_as_it_can(model):
    sent = body(AnthropicCodec(model), settings={"thinking": False})
    assert (sent["thinking"]["type"], sent["output_config"]) == ("adaptive", {"effort": "low"})


@pytest.mark.rule("M-19")
def test_a_budget_stands_in_no_request_that_demands_a_call():
    codec, settings = AnthropicCodec("claude-sonnet-4-5"), {"thinking": "low"}
    assert "thinking" not in body(codec, tools=(ADD,), tool_choice="required", settings=settings)
    assert "thinking" in body(codec, tools=(ADD,), tool_choice="none", settings=settings)
    assert "thinking" in body(codec, tools=(ADD,), settings=settings)
    later = body(AnthropicCodec("claude-opus-5"), tools=(ADD,), tool_choice="required", settings=settings)
    assert later["thinking"]["type"] == "adaptive"


LEAST = {"gpt-5.1": "none", "gpt-6": "none", "gpt-5-mini": "minimal", "gpt-5-2025-08-07": "minimal", "o4-mini": "low"}


@pytest.mark.rule("M-19")
@pytest.mark.parametrize("model", LEAST)
def test_no_thinking_is_the_least_that_a_model_of_openai_knows(model):
    assert body(OpenAIChatCodec(model), settings={"thinking": False})["reasoning_effort"] == LEAST[model]
    assert body(OpenAIResponsesCodec(model), settings={"thinking": False})["reasoning"]["effort"] == LEAST[model]
    assert body(OpenAIChatCodec(model), settings={"thinking": True})["reasoning_effort"] == "medium"


def test_a_model_of_openai_without_reasoning_is_not_told_to_leave_it_out():
    assert "reasoning_effort" not in body(OpenAIChatCodec("gpt-4o"), settings={"thinking": False})
    assert "reasoning" not in body(OpenAIResponsesCodec("gpt-4o"), settings={"thinking": False})


GEMINI = {
    ("gemini-2.5-flash", False): {"thinkingBudget": 0},
    ("gemini-2.5-pro", False): {"thinkingBudget": 128},
    ("gemini-2.5-flash", "low"): {"includeThoughts": True, "thinkingBudget": 1_024},
    ("gemini-2.5-pro", 300): {"includeThoughts": True, "thinkingBudget": 300},
    ("gemini-2.5-pro", True): {"includeThoughts": True},
    ("gemini-3-pro", False): {"thinkingLevel": "low"},
    ("gemini-3-flash", False): {"thinkingLevel": "minimal"},
    ("gemini-3-pro", "high"): {"includeThoughts": True, "thinkingLevel": "high"},
}


@pytest.mark.rule("M-19")
@pytest.mark.parametrize(("model", "thinking"), GEMINI)
def test_gemini_thinks_with_a_budget_or_a_level(model, thinking):
    codec = GeminiCodec(model)
    assert codec.check({"thinking": thinking}) is None
    config = body(codec, settings={"thinking": thinking})["generationConfig"]
    assert config == {"thinkingConfig": GEMINI[model, thinking]}


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("prompt_cache_key", "cache_key"), ("builtin_tools", "provider_tools"), ("budget_tokens", "thinking")],
)
def test_a_name_of_a_provider_leads_to_ours(theirs, ours):
    assert f"did you mean '{ours}'?" in CODECS["chat"]().check({theirs: 1})


@each_format
@pytest.mark.parametrize("thinking", ["", 0, -1, 1.5, [], 2_000])
def test_other_values_of_thinking_are_refused(name, thinking):
    assert "give True, False, an effort such as 'low'" in CODECS[name]().check({"thinking": thinking})


# --- caches of prompts -----------------------------------------------------------------------------------------------

MARK = {"type": "ephemeral"}
LONG = (
    *(message("system", "Be kind."), message("user", "First."), message("assistant", "So.")),
    *(message("user", "Second."), message("assistant", "And so."), message("user", "Third.")),
)


def marks(value: object) -> int:
    return json.dumps(value).count("cache_control")


@pytest.mark.rule("M-20")
def test_anthropic_keeps_tools_system_text_and_the_newest_inputs():
    sent = body(AnthropicCodec("small"), *LONG, tools=(ADD, ADD), settings={"cache_retention": "5m"})
    assert "cache_control" not in sent["tools"][0]
    assert sent["tools"][1]["cache_control"] == MARK
    assert sent["system"] == [{"type": "text", "text": "Be kind.", "cache_control": MARK}]
    ends = [one["content"][-1].get("cache_control") for one in sent["messages"]]
    assert ends == [None, None, MARK, None, MARK]
    assert marks(sent) == 4, "the most that the provider takes"
    hour = body(AnthropicCodec("small"), *LONG, settings={"cache_retention": "1h"})
    assert hour["messages"][-1]["content"][-1]["cache_control"] == {**MARK, "ttl": "1h"}
    assert marks(body(AnthropicCodec("small"), *LONG, tools=(ADD,))) == 0
    assert AnthropicCodec("small").check({"cache_retention": "24h"}) == "cache_retention='24h': give one of 5m, 1h"


def test_marks_are_on_results_and_on_tools_of_the_provider():
    call = gr.CallRequest(call_id="c", tool="add", arguments={})
    thread = (message("user", "Hi"), message("assistant", calls=(call,)), message("tool", "42", call_id="c"))
    search = {"type": "web_search_20250305", "name": "web_search"}
    sent = body(AnthropicCodec("small"), *thread, settings={"cache_retention": "5m", "provider_tools": [search]})
    assert sent["messages"][-1]["content"][-1]["type"] == "tool_result"
    assert sent["messages"][-1]["content"][-1]["cache_control"] == MARK
    assert sent["tools"] == [{**search, "cache_control": MARK}]
    assert search == {"type": "web_search_20250305", "name": "web_search"}, "the setting itself is not changed"


@pytest.mark.rule("M-20")
@pytest.mark.parametrize("codec", [OpenAIChatCodec("small"), OpenAIResponsesCodec("small")])
def test_openai_keeps_prompts_under_a_key(codec):
    sent = body(codec, settings={"cache_key": "shop", "cache_retention": "24h"})
    assert (sent["prompt_cache_key"], sent["prompt_cache_retention"]) == ("shop", "24h")
    assert codec.check({"cache_key": 7}) == "cache_key=7: give a text"


USED = {
    "chat": {
        "usage": {
            "prompt_tokens": 100,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
        },
        "choices": [{"delta": {}, "finish_reason": "stop"}],
    },
    "responses": {
        "type": "response.completed",
        "response": {
            "usage": {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
            }
        },
    },
    "anthropic": {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30},
    },
    "gemini": {
        "candidates": [{"finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 100, "cachedContentTokenCount": 60},
    },
}


def read(codec: Codec, *events: object) -> gr.ModelResponse:
    reader = StreamReader("small", codec, KeyMask())
    for one in events:
        list(reader.feed(event(one)))
    return reader.end()[1]


@pytest.mark.rule("M-5", "M-20")
@each_format
def test_usage_tells_what_was_read_from_the_cache_and_put_into_it(name):
    usage = read(CODECS[name](), USED[name]).usage
    stored = {} if name == "gemini" else {"stored": 30}  # Gemini reports nothing of what it stores
    assert usage == gr.Usage(requests=1, input=100, cached=60, **stored)


def test_deepseek_has_another_name_for_what_was_cached():
    usage = {"prompt_tokens": 9, "prompt_cache_hit_tokens": 5, "prompt_cache_miss_tokens": 4}
    chunk = {"usage": usage, "choices": [{"delta": {}, "finish_reason": "stop"}]}
    assert read(CODECS["chat"](), chunk).usage == gr.Usage(requests=1, input=9, cached=5)


# --- tools and files that the provider has ---------------------------------------------------------------------------

OWN_TOOLS = {
    "chat": {"type": "browser_search"},
    "responses": {"type": "file_search", "vector_store_ids": ["vs_1"]},
    "anthropic": {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    "gemini": {"googleSearch": {}},
}
FILES = {
    "chat": {"type": "file", "file": {"file_id": "file-1"}},
    "responses": {"type": "input_file", "file_id": "file-1"},
    "anthropic": {"type": "document", "source": {"type": "file", "file_id": "file-1"}},
    "gemini": {"fileData": {"fileUri": "file-1"}},
}


@pytest.mark.rule("M-21")
@each_format
def test_tools_of_the_provider_stand_behind_those_of_the_agent(name):
    settings = {"provider_tools": [OWN_TOOLS[name]], "parallel_tool_calls": False}
    both = body(CODECS[name](), tools=(ADD,), settings=settings)["tools"]
    assert (len(both), both[-1]) == (2, OWN_TOOLS[name])
    alone = body(CODECS[name](), settings=settings)
    assert alone["tools"] == [OWN_TOOLS[name]]
    assert not {"tool_choice", "parallel_tool_calls", "toolConfig"} & alone.keys()


@pytest.mark.rule("M-21")
@each_format
def test_files_of_the_provider_stand_in_front_of_the_first_input(name):
    own = {"mine": 1}
    sent = body(CODECS[name](), *LONG, settings={"provider_files": ["file-1", own]})
    inputs = [one for one in sent.get("messages") or sent.get("input") or sent["contents"] if one["role"] == "user"]
    first, *later = ((one.get("content") or one["parts"]) for one in inputs)
    assert first[:2] == [FILES[name], own]
    assert "First." in repr(first[2])
    assert "file-1" not in repr(later)


def test_files_of_the_older_version_of_anthropic_need_a_beta():
    request = gr.ModelRequest(agent="a", messages=LONG, settings={"provider_files": ["file-1"]})
    assert (
        AnthropicCodec("small", api_version="2023-06-01").encode(request).headers["anthropic-beta"].startswith("files")
    )
    assert "anthropic-beta" not in AnthropicCodec("small").encode(request).headers


@pytest.mark.rule("M-21")
@each_format
@pytest.mark.parametrize("setting", ["provider_tools", "provider_files"])
@pytest.mark.parametrize("value", ["web_search", [7], [{}], [{"a": 1}] * 129, {"a": 1}])
def test_a_list_of_another_kind_is_refused(name, setting, value):
    assert "give a list of at most 128 " in CODECS[name]().check({setting: value})


SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "x"}}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So.", "annotations": []}]}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srv_1",
    "content": [{"type": "web_search_result", "url": "https://example.org", "encrypted_content": "x"}],
}
CITED = {"type": "web_search_result_location", "url": "https://example.org", "encrypted_index": "y", "cited_text": "S"}
WORK = {
    "responses": [
        {"type": "response.output_item.added", "output_index": 0, "item": {**SEARCH, "status": "in_progress"}},
        {"type": "response.web_search_call.searching", "output_index": 0},
        {"type": "response.output_item.done", "output_index": 0, "item": SEARCH},
        {"type": "response.code_interpreter_call_code.delta", "output_index": 0, "delta": "1+1"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "So."},
        {"type": "response.output_item.done", "output_index": 1, "item": SAID},
        {"type": "response.completed", "response": {"status": "completed"}},
    ],
    "anthropic": [
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"qu'}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": 'ery": "x"}'},
        },
        {"type": "content_block_start", "index": 1, "content_block": FOUND},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": "", "citations": []}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "So."}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "citations_delta", "citation": CITED}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ],
    "gemini": [
        {"candidates": [{"content": {"parts": [{"executableCode": {"language": "PYTHON", "code": "1+1"}}]}}]},
        {"candidates": [{"content": {"parts": [{"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}}]}}]},
        {"candidates": [{"content": {"parts": [{"text": "So."}]}, "finishReason": "STOP"}]},
    ],
}
KEPT = {
    "responses": (SEARCH, SAID),
    "anthropic": (
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}},
        FOUND,
        {"type": "text", "text": "So.", "citations": [CITED]},
    ),
    "gemini": (
        {"executableCode": {"language": "PYTHON", "code": "1+1"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2"}},
        {"text": "So."},
    ),
}


@pytest.mark.rule("M-15", "M-21")
@pytest.mark.parametrize("name", WORK)
def test_the_work_of_the_providers_tools_goes_back_unchanged(name):
    codec = CODECS[name]()
    answer = read(codec, *WORK[name])
    assert (answer.text, answer.calls, answer.finish) == (("So.",), (), "stop")
    assert answer.items == KEPT[name]
    said = message("assistant", "So.", provider=answer.provider, items=answer.items)
    sent = body(codec, message("user", "Hi"), said, message("user", "And?"))
    for item in KEPT[name]:
        assert item in (
            sent.get("input")
            or [part for one in sent.get("messages") or sent["contents"] for part in one.get("content") or one["parts"]]
        )
    changed = body(
        codec, message("user", "Hi"), message("assistant", "No.", provider=answer.provider, items=answer.items)
    )
    assert KEPT[name][0] not in (changed.get("input") or [])
    assert "So." not in repr(changed)


def test_a_turn_that_anthropic_pauses_is_an_answer_that_was_cut():
    pausing = {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}}
    assert read(CODECS["anthropic"](), *WORK["anthropic"][:-2], pausing, WORK["anthropic"][-1]).finish == "length"
