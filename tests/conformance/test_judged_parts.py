"""The types of the official SDKs accept the images and files of our requests, and nothing in them is unknown there."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from tests.support.providers import CODECS

import greenroom as gr
from greenroom.actors.models.codecs.gemini import GeminiCodec

pytestmark = pytest.mark.judge
pytest.importorskip("openai", reason="the SDK of openai is not installed (the dev extra)")
pytest.importorskip("anthropic", reason="the SDK of anthropic is not installed (the dev extra)")
genai = pytest.importorskip("google.genai", reason="the SDK of google-genai is not installed (the dev extra)")
pydantic = pytest.importorskip("pydantic", reason="pydantic, which the SDKs bring, is not installed")

CALLS = tuple(gr.CallRequest(call_id=name, tool="look", arguments={}) for name in ("c1", "c2"))
PARTS = [
    gr.Image(b"\x89PNG\r\n\x1a\n").part,
    gr.Image(url="https://example.org/a.png").part,
    gr.File(b"%PDF-", media_type="application/pdf", name="a.pdf").part,
    gr.File(b"a,b", media_type="text/csv").part,
]
SOUND = gr.File(b"RIFF", media_type="audio/wav").part


def body(name: str, *more: gr.Part, codec: Any = None) -> dict[str, Any]:
    parts = (*PARTS, *more)
    messages = (
        gr.Message(id="1", role="user", content="Look.", parts=parts),
        gr.Message(id="2", role="assistant", content="", calls=CALLS),
        gr.Message(id="3", role="tool", content="seen", call_id="c1", parts=parts),
        gr.Message(id="4", role="tool", content="nothing", call_id="c2"),
        gr.Message(id="5", role="user", content="", parts=parts),
    )
    return dict((codec or CODECS[name]()).encode(gr.ModelRequest(agent="a", messages=messages)).body)


def unread(given: Any, read: Any, path: str = "$") -> Iterator[str]:
    """The places of what was given and is not in what was read: a key that the SDK does not know."""
    if isinstance(given, dict):
        for key, value in given.items():
            if not isinstance(read, dict) or key not in read:
                yield f"{path}.{key}"
            else:
                yield from unread(value, read[key], f"{path}.{key}")
    elif isinstance(given, list):
        for index, value in enumerate(given):
            yield from unread(value, read[index], f"{path}[{index}]")


def whole(read: Any) -> Any:
    """What was read, with lists in place of iterators: pydantic checks the items of an Iterable as they are taken."""
    if isinstance(read, dict):
        return {key: whole(value) for key, value in read.items()}
    return read if isinstance(read, str) or not isinstance(read, Iterable) else [whole(item) for item in read]


def accepted(kind: Any, given: list[Any]) -> list[str]:
    """The keys that a class of an SDK does not know. Raises if it does not accept a value."""
    adapter = pydantic.TypeAdapter(kind)  # lives as long as its iterators
    return [place for item in given for place in unread(item, whole(adapter.validate_python(item)))]


def test_openai_chat_accepts_the_parts():
    from openai.types.chat import ChatCompletionMessageParam

    assert accepted(ChatCompletionMessageParam, body("chat", SOUND)["messages"]) == []


def test_openai_responses_accept_the_parts():
    from openai.types.responses import ResponseInputItemParam

    assert accepted(ResponseInputItemParam, body("responses")["input"]) == []


def test_anthropic_accepts_the_parts():
    from anthropic.types import MessageParam

    assert accepted(MessageParam, body("anthropic")["messages"]) == []


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "gemini-3-pro"])
def test_gemini_accepts_the_parts(model):
    contents = body("gemini", SOUND, codec=GeminiCodec(model))["contents"]
    for content in contents:
        read = genai.types.Content.model_validate(content)  # refuses keys that it does not know
        assert len(read.parts) == len(content["parts"])
