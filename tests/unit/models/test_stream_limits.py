"""A provider chooses how much it says, in how many pieces: each count and size has a limit, and costs its share."""

import json
import os
from collections.abc import Callable, Iterable
from time import thread_time
from typing import Any

import pytest
from tests.support.providers import CODECS
from tests.support.wild_streams import CHAT, WILD, Wild, written

import greenroom as gr
from greenroom.actors.models.codecs.faults import provider_error, retry_after
from greenroom.actors.models.codecs.masking import KeyMask
from greenroom.actors.models.codecs.port import Reported
from greenroom.actors.models.codecs.reader import StreamReader
from greenroom.actors.testing.wire_formats import event

pytestmark = pytest.mark.no_cover
each_format = pytest.mark.parametrize("name", WILD)
SIGNED = {"data": "c2ln"}


def answered(name: str, pieces: Iterable[bytes], mask: KeyMask | None = None) -> gr.ModelResponse:
    """The answer of a stream, whose deltas are dropped as they come."""
    reader = StreamReader("small", CODECS[name](), mask or KeyMask())
    for piece in pieces:
        for _ in reader.feed(piece):
            pass
    return reader.end()[1]


def refused(name: str, pieces: Iterable[bytes]) -> str:
    """Why an answer is refused; the sentence is short, whatever the stream has said."""
    with pytest.raises(gr.ModelError) as raised:
        answered(name, pieces)
    assert raised.value.kind == "provider"
    assert len(str(raised.value)) < 1_200
    return str(raised.value)


# --- each limit, with its sentence -----------------------------------------------------------------------------------


def numbers(count: int) -> str:
    return json.dumps([0] * count)


def texts(wild: Wild) -> list[dict[str, Any]]:
    return [wild.text("x" * 6_500_000)] * 2


LIMITS: dict[str, tuple[Callable[[Wild], Iterable[dict[str, Any]]], str]] = {
    "characters": (texts, "more than 12,582,912 characters"),
    "characters of reasoning": (lambda wild: [wild.reasoning("x" * 6_500_000)] * 2, "more than 12,582,912 characters"),
    "characters of arguments": (
        lambda wild: [wild.call(0, "a", "add", ""), *[wild.arguments(0, "x" * 6_500_000)] * 2],
        "more than 12,582,912 characters",
    ),
    "characters that go back": (
        lambda wild: [wild.part(0, {"data": "x" * 6_500_000}), wild.part(1, {"data": "x" * 6_500_000})],
        "more than 12,582,912 characters",
    ),
    "calls": (
        lambda wild: [wild.call(index, f"c{index}", "add", "{}") for index in range(4_097)],
        "more than 4,096 calls",
    ),
    "parts": (lambda wild: [wild.part(index, SIGNED) for index in range(16_385)], "more than 16,384 parts"),
    "a name": (
        lambda wild: [wild.call(0, "a", "x" * 1_025, "{}")],
        "a call of a tool whose name has 1,025 characters, at most 1,024",
    ),
    "an id": (
        lambda wild: [wild.call(0, "x" * 65_537, "add", "{}")],
        "a call whose id has 65,537 characters, at most 65,536",
    ),
    "ids together": (
        lambda wild: [wild.call(index, f"{index}" + "x" * 60_000, "add", "{}") for index in range(220)],
        "more than 12,582,912 characters",
    ),
    "values of arguments": (
        lambda wild: [wild.call(0, "a", "add", ""), wild.arguments(0, numbers(50_001))],
        "more than 50,000 values in its calls and parts",
    ),
    "values that go back": (
        lambda wild: [wild.part(0, {"data": [0] * 50_001})],
        "more than 50,000 values in its calls and parts",
    ),
    "values of an event": (
        lambda wild: [{**wild.text("x"), "more": [0] * 250_001}],
        "values, at most 250,000",
    ),
    "bytes of an event": (
        lambda wild: [wild.text("x" * 8_400_000)],
        "an event of the stream is longer than 8,388,608 bytes",
    ),
}


@pytest.mark.rule("M-8")
@each_format
@pytest.mark.parametrize("limit", LIMITS)
def test_each_limit_is_reached_with_its_sentence(name: str, limit: str) -> None:
    wild, (make, sentence) = WILD[name], LIMITS[limit]
    if name == "gemini" and limit == "values of arguments":  # its arguments are no text
        call = wild.call(0, "a", "add", "")
        call["candidates"][0]["content"]["parts"][0]["functionCall"]["args"] = {"all": [0] * 50_001}
        assert sentence in refused(name, [written(call, *wild.end)])
        return
    if name == "responses" and limit == "characters of reasoning":  # what is shown of it alone is not kept
        make = LIMITS["characters that go back"][0]
    assert sentence in refused(name, [written(*make(wild), *wild.end)])


@pytest.mark.rule("M-8")
@each_format
def test_streams_below_each_limit_are_answered(name: str) -> None:
    wild = WILD[name]
    calls = [wild.call(index, f"{index}" + "i" * 400, "t" * 200, "{}") for index in range(4_096)]
    made = answered(name, [written(*calls, *wild.end)])
    assert len({call.call_id for call in made.calls}) == 4_096
    assert len(answered(name, [written(*[wild.text("x" * 6_000_000)] * 2, *wild.end)]).text[0]) == 12_000_000
    signed = answered(name, [written(*(wild.part(index, SIGNED) for index in range(5_000)), wild.text("x"), *wild.end)])
    assert name == "responses" or len(signed.items) in (1, 5_000, 5_001)  # of responses the text's own item is missing


@pytest.mark.rule("M-8")
def test_a_stream_of_lines_that_say_nothing_ends_at_its_bytes() -> None:
    reader = StreamReader("small", CODECS["chat"](), KeyMask())
    reader._bytes = 536_800_000  # so many take seconds
    with pytest.raises(gr.ModelError, match="the answer has more than 536,870,912 bytes"):
        list(reader.feed(b"\n" * 70_913))


@pytest.mark.rule("M-8")
def test_a_stream_of_events_that_say_nothing_ends_at_their_number() -> None:
    reader = StreamReader("small", CODECS["chat"](), KeyMask())
    reader._count = 1_999_990  # so many take ten seconds
    assert not list(reader.feed(b"data:{}\n\n" * 10))
    with pytest.raises(gr.ModelError, match="the answer has more than 2,000,000 events"):
        list(reader.feed(b"data:{}\n\n"))


@pytest.mark.rule("M-8")
def test_an_event_of_empty_lines_of_data_is_too_long() -> None:
    """Each costs an object, as small as it is."""
    assert "longer than 8,388,608 bytes" in refused("chat", (b"data:\n" * 10_000 for _ in range(200)))


@pytest.mark.rule("M-5", "M-8")
@each_format
@pytest.mark.parametrize(("said", "read"), [(10**12, 10**12), (10**12 + 1, 0), (2**80, 0), (-1, 0)])
def test_a_count_that_no_provider_can_mean_is_no_count(name: str, said: int, read: int) -> None:
    wild = WILD[name]
    end = () if name == "responses" else wild.end
    assert answered(name, [written(wild.used(said), *end)]).usage.input == read


@pytest.mark.rule("M-8")
@each_format
def test_one_event_with_a_hundred_thousand_of_anything_is_refused(name: str) -> None:
    found = refused(name, [written(WILD[name].calls(100_000, "c", "add"))])
    assert any(one in found for one in ("more than 4,096 calls", "more than 50,000 values", "an event of the stream"))


# --- what is read late, or has an odd form ---------------------------------------------------------------------------


@each_format
def test_an_error_of_eight_mebibytes_has_a_short_sentence(name: str) -> None:
    for words in ("x" * 8_000_000, " x" * 4_000_000):
        fault = {"error": {"message": words, "code": words, "type": words}, "type": "error", "message": words}
        with pytest.raises(gr.ModelError) as raised:
            answered(name, [written(fault)])
        assert len(str(raised.value)) < 1_200


def test_a_key_at_the_cut_of_an_error_body_is_not_shown() -> None:
    """Spaces are joined after the cut, so that its place comes into the sentence."""
    mask = KeyMask(["sk-canary-0123456789abcdef"])
    for size in range(16_350, 16_390):
        report = Reported(status=400, message=" " * size + "sk-canary-0123456789abcdef" + " " * 16_384)
        assert "sk-c" not in str(provider_error("small", report, mask))


@pytest.mark.rule("M-14")
@pytest.mark.parametrize("year", ["99999999999999999999", "2024"])
@pytest.mark.parametrize("zone", ["+99999999999999999999", "GMT"])
def test_a_date_of_any_length_is_a_wait_or_none(year: str, zone: str) -> None:
    date = f"Mon, 01 Jan {year} 00:00:00 {zone}"
    assert retry_after({"retry-after": date, "date": date}) == (0.0 if (year, zone) == ("2024", "GMT") else None)


@each_format
def test_half_a_surrogate_pair_is_read_wherever_it_stands(name: str) -> None:
    wild, half = WILD[name], json.loads('"\\ud83d"')
    data = [wild.text(half), wild.part(9, {"data": half}), wild.call(1, half, half, half)]
    stream = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in (*data, *wild.end))
    assert len(answered(name, [stream]).calls) == 1


@each_format
@pytest.mark.parametrize("mask", [KeyMask(), KeyMask(["a-key-of-the-service"])])
def test_deeply_nested_data_is_read_or_raises_a_model_error(name: str, mask: KeyMask) -> None:
    for depth in (60, 450, 700, 980):
        deep = '{"x":' * depth + "1" + "}" * depth
        data = json.dumps(WILD[name].part(0, {"data": "HERE"})).replace('"HERE"', deep).encode()
        try:
            answered(name, [b"data: " + data + b"\n\n" + written(WILD[name].text("x"), *WILD[name].end)], mask)
        except gr.ModelError as error:
            assert error.kind == "provider"  # noqa: PT017


@each_format
def test_a_call_whose_arguments_never_come_has_none(name: str) -> None:
    """One delta, with or without its arguments."""
    wild = WILD[name]
    (call,) = answered(name, [written(wild.call(0, "a", "add", ""), *wild.end)]).calls
    assert (call.tool, call.call_id, call.fault) == ("add", "a", None)
    assert not any(call.arguments.values())


def test_the_details_of_a_reasoning_that_comes_in_pieces_are_joined() -> None:
    """A service sends one detail for each token: they are no parts, and go back as the one text that they are."""

    def detail(index: int, **fields: Any) -> dict[str, Any]:
        return CHAT.part(index, {"type": "reasoning.text", "format": "f", **fields})

    pieces = [detail(0, text=f"{number} ") for number in range(20_000)]
    signed = [detail(0, text="", signature="c2ln"), detail(1, text="then"), detail(1, summary="so"), CHAT.text("x")]
    (item,) = answered("chat", [written(*pieces, *signed, *CHAT.end)]).items
    assert item["reasoning_details"] == [
        {
            "type": "reasoning.text",
            "index": 0,
            "format": "f",
            "text": "".join(f"{number} " for number in range(20_000)),
        },
        {"type": "reasoning.text", "index": 0, "format": "f", "text": "", "signature": "c2ln"},
        {"type": "reasoning.text", "index": 1, "format": "f", "text": "then"},
        {"type": "reasoning.text", "index": 1, "format": "f", "summary": "so"},
    ]


def test_of_an_anthropic_usage_only_the_known_counts_are_kept() -> None:
    reader = StreamReader("small", CODECS["anthropic"](), KeyMask())
    for number in range(100):
        strange = {f"count {number} {at}": 1 for at in range(100)}
        list(reader.feed(written({"type": "message_delta", "usage": {**strange, "output_tokens": number}})))
    list(reader.feed(written(*WILD["anthropic"].end[1:])))
    assert reader.end()[1].usage.output == 99
    assert len(reader._decoder._counts) == 1


# --- growth ----------------------------------------------------------------------------------------------------------

TRIES = 5
FULL = os.environ.get("GREENROOM_CHAOS") == "full"


def spent(name: str, kind: str, first: int) -> float:
    """Seconds of the processor for a thousand deltas of one character behind a first one of a size."""
    wild = WILD[name]
    make = {"text": wild.text, "reasoning": wild.reasoning, "arguments": lambda piece: wild.arguments(0, piece)}[kind]
    reader = StreamReader("small", CODECS[name](), KeyMask())
    list(reader.feed(written(wild.call(0, "a", "add", "")) if kind == "arguments" else b""))
    list(reader.feed(written(make("x" * first))))
    one = written(make("x"))
    began = thread_time()
    for _ in range(4_000 if FULL else 1_000):
        list(reader.feed(one))
    return thread_time() - began


@pytest.mark.rule("M-8")
@each_format
@pytest.mark.parametrize("kind", ["text", "reasoning", "arguments"])
def test_a_delta_costs_the_same_however_much_came_before(name: str, kind: str) -> None:
    small, large = 0.0, 0.0
    for _ in range(TRIES):
        small, large = spent(name, kind, 1_000), spent(name, kind, 6_000_000)
        if large < 3 * small:
            return
    pytest.fail(f"a thousand deltas take {small:.3f} s behind 1,000 characters, {large:.3f} s behind 6,000,000")


@each_format
def test_calls_cost_the_same_however_many_came_before(name: str) -> None:
    wild = WILD[name]
    few, many = 0.0, 0.0
    for _ in range(TRIES):
        times = []
        for count in (250, 4_000):
            stream = written(*(wild.call(index, f"c{index}", "add", "{}") for index in range(count)), *wild.end)
            began = thread_time()
            answered(name, [stream])
            times.append((thread_time() - began) / count)
        few, many = times
        if many < 3 * few:
            return
    pytest.fail(f"a call takes {few * 1e6:.0f} µs of 250, {many * 1e6:.0f} µs of 4,000")


SERVER_TOOL = {
    "type": "content_block_start",
    "index": 0,
    "content_block": {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
}
TEXT = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}


def delta(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": kind, **fields}}


OWN_WORK = {
    "what a search is asked": (
        "anthropic",
        [SERVER_TOOL, *[delta("input_json_delta", partial_json="x" * 6_500_000)] * 2],
        "more than 12,582,912 characters",
    ),
    "values of what a search is asked": (
        "anthropic",
        [SERVER_TOOL, delta("input_json_delta", partial_json="[" * 50_001)],
        "more than 50,000 values",
    ),
    "citations": (
        "anthropic",
        [TEXT, *[delta("citations_delta", citation={"url": "x"})] * 16_385],
        "more than 16,384 parts",
    ),
    "thoughts in a list": (
        "chat",
        [{"choices": [{"delta": {"content": [{"type": "thinking", "thinking": [{"text": "x" * 6_500_000}]}]}}]}] * 2,
        "more than 12,582,912 characters",
    ),
    "texts in a list": (
        "chat",
        [{"choices": [{"delta": {"content": [{"type": "text", "text": "x" * 6_500_000}]}}]}] * 2,
        "more than 12,582,912 characters",
    ),
}


@pytest.mark.rule("M-8", "M-21")
@pytest.mark.parametrize("what", OWN_WORK)
def test_the_work_of_a_providers_tools_has_the_same_limits(what):
    name, events, sentence = OWN_WORK[what]
    assert sentence in refused(name, map(event, events))
