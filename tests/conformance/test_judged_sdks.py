"""The official SDKs read the streams of our fault server, and raise their own classes for its faults.

What the providers of this release are tested against is as real as these SDKs find it.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from greenroom.actors.testing.wire_formats import FORMATS, USED
from greenroom.testing import FaultReply, call, open_fault_server, reply, think

pytestmark = pytest.mark.judge
openai = pytest.importorskip("openai", reason="the SDK of openai is not installed (the dev extra)")
anthropic = pytest.importorskip("anthropic", reason="the SDK of anthropic is not installed (the dev extra)")
genai = pytest.importorskip("google.genai", reason="the SDK of google-genai is not installed (the dev extra)")

Read = tuple[str, list[tuple[str, Any]], str, tuple[int, int]]
"""Text, calls (tool, arguments), why it ended, tokens in and out."""


def chat(base_url: str) -> Read:
    client = openai.OpenAI(api_key="k", base_url=base_url, max_retries=0, timeout=5.0)
    with (
        client,
        client.chat.completions.stream(
            model="small", messages=[{"role": "user", "content": "hi"}], stream_options={"include_usage": True}
        ) as stream,
    ):
        whole = stream.get_final_completion()
    choice = whole.choices[0]
    calls = [(one.function.name, json.loads(one.function.arguments)) for one in choice.message.tool_calls or ()]
    used = (whole.usage.prompt_tokens, whole.usage.completion_tokens)
    return choice.message.content or "", calls, choice.finish_reason, used


def responses(base_url: str) -> Read:
    client = openai.OpenAI(api_key="k", base_url=base_url, max_retries=0, timeout=5.0)
    with client, client.responses.stream(model="small", input="hi") as stream:
        whole = stream.get_final_response()
    calls = [(one.name, json.loads(one.arguments)) for one in whole.output if one.type == "function_call"]
    return whole.output_text, calls, whole.status, (whole.usage.input_tokens, whole.usage.output_tokens)


def messages(base_url: str) -> Read:
    client = anthropic.Anthropic(api_key="k", base_url=base_url, max_retries=0, timeout=5.0)
    with (
        client,
        client.messages.stream(model="small", max_tokens=100, messages=[{"role": "user", "content": "hi"}]) as stream,
    ):
        whole = stream.get_final_message()
    text = "".join(block.text for block in whole.content if block.type == "text")
    calls = [(block.name, block.input) for block in whole.content if block.type == "tool_use"]
    used = whole.usage
    spent = used.input_tokens + used.cache_creation_input_tokens + used.cache_read_input_tokens
    return text, calls, whole.stop_reason, (spent, used.output_tokens)


def gemini(base_url: str) -> Read:
    options = {"base_url": base_url, "api_version": "v1beta", "timeout": 5000}
    text, calls, reason, used = "", [], "", (0, 0)
    with genai.Client(api_key="k", http_options=options) as client:
        for chunk in client.models.generate_content_stream(model="small", contents="hi"):
            for part in chunk.candidates[0].content.parts or ():
                if part.text and not part.thought:
                    text += part.text
                if part.function_call:
                    calls.append((part.function_call.name, part.function_call.args))
            if chunk.candidates[0].finish_reason:
                reason = chunk.candidates[0].finish_reason.name
            counts = chunk.usage_metadata
            used = (
                counts.prompt_token_count,
                (counts.candidates_token_count or 0) + (counts.thoughts_token_count or 0),
            )
    return text, calls, reason, used


SDKS: dict[str, Callable[[str], Read]] = {
    "chat": chat,
    "responses": responses,
    "anthropic": messages,
    "gemini": gemini,
}
each_sdk = pytest.mark.parametrize("name", SDKS)


async def read(name: str, given: FaultReply) -> Read:
    """What the SDK makes of a reply. Its errors pass."""
    async with open_fault_server(given) as server:
        return await trio.to_thread.run_sync(partial(SDKS[name], server.base_url(name)))


async def error_of(name: str, given: FaultReply) -> BaseException:
    """What the SDK raises for a reply."""
    try:
        found = await read(name, given)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            (error,) = error.exceptions
        return error
    pytest.fail(f"no error, but {found}")


def test_each_format_has_a_judge():
    assert SDKS.keys() == FORMATS.keys()


ENDS = {
    "chat": ("stop", "tool_calls"),
    "responses": ("completed", "completed"),
    "anthropic": ("end_turn", "tool_use"),
    "gemini": ("STOP", "STOP"),
}


@each_sdk
async def test_the_sdk_reads_a_text(name):
    given = reply(think("Let me see."), "Grüße, Wörld!")
    assert await read(name, given) == ("Grüße, Wörld!", [], ENDS[name][0], (USED.input, USED.output))


@each_sdk
async def test_the_sdk_reads_parallel_calls_beside_a_text(name):
    given = reply(think("Hm."), "I add.", call("add", a=1, b=2, id="c1"), call("note", text="ü", id="c2"))
    calls = [("add", {"a": 1, "b": 2}), ("note", {"text": "ü"})]
    assert await read(name, given) == ("I add.", calls, ENDS[name][1], (USED.input, USED.output))


FAULTS = {
    "chat": {
        400: "BadRequestError",
        401: "AuthenticationError",
        403: "PermissionDeniedError",
        404: "NotFoundError",
        429: "RateLimitError",
        500: "InternalServerError",
    },
    "anthropic": {
        400: "BadRequestError",
        401: "AuthenticationError",
        403: "PermissionDeniedError",
        404: "NotFoundError",
        429: "RateLimitError",
        500: "InternalServerError",
        503: "ServiceUnavailableError",
        529: "OverloadedError",
    },
    "gemini": {400: "ClientError", 401: "ClientError", 429: "ClientError", 500: "ServerError", 503: "ServerError"},
}
FAULTS["responses"] = FAULTS["chat"]


@pytest.mark.parametrize(("name", "status"), [(name, status) for name in FAULTS for status in FAULTS[name]])
async def test_the_sdk_raises_its_own_class_for_a_refusal_and_reads_its_sentence(name, status):
    error = await error_of(name, FaultReply(status=status, message="that is that", headers={"retry-after": "3"}))
    assert type(error).__name__ == FAULTS[name][status]
    assert "that is that" in str(error)


IN_STREAM = {"chat": "APIError", "anthropic": "APIStatusError", "gemini": "ServerError"}


@pytest.mark.parametrize("name", IN_STREAM)
async def test_the_sdk_raises_its_own_class_for_an_error_in_the_stream(name):
    error = await error_of(name, reply("On", begun=True, error="come again"))
    assert type(error).__name__ == IN_STREAM[name]
    assert "come again" in str(error)


async def test_the_sdk_reads_the_event_by_which_a_response_fails():
    """The SDK raises nothing for it, and hands it to the program as an event of a class of its own."""

    def events(base_url: str) -> list[Any]:
        client = openai.OpenAI(api_key="k", base_url=base_url, max_retries=0, timeout=5.0)
        with client, client.responses.create(model="small", input="hi", stream=True) as stream:
            return list(stream)

    async with open_fault_server(reply("On", begun=True, error="come again")) as server:
        last = (await trio.to_thread.run_sync(events, server.base_url("responses")))[-1]
    assert type(last).__name__ == "ResponseErrorEvent"
    assert (last.code, last.message) == ("server_is_overloaded", "come again")


@each_sdk
async def test_the_sdk_notices_a_connection_that_breaks(name):
    error = await error_of(name, reply("Once upon a time", cut=500))
    assert "rotocol" in type(error).__name__ or "Connection" in type(error).__name__


@each_sdk
async def test_the_sdk_cannot_read_a_malformed_event(name):
    error = await error_of(name, reply(raw=b"event: message_start\ndata: {nonsense\n\n"))
    assert "JSON" in f"{type(error).__name__} {error}" or isinstance(error, ValueError)
