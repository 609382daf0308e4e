"""Each codec fed at splits and cuts of its bytes, in `make chaos` at all: the same answer, or interrupted."""

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import pytest
from tests.support.providers import CODECS

import greenroom as gr
from greenroom.actors.models.codecs.masking import KeyMask
from greenroom.actors.models.codecs.port import PartialCall, calls_of
from greenroom.actors.models.codecs.reader import StreamReader
from greenroom.actors.models.codecs.sse import EVENT_LIMIT, EventParser, EventTooLong
from greenroom.actors.testing.wire_formats import FORMATS, USED, Answer, event
from greenroom.testing import call, think

ANSWERS = {
    "text": Answer(parts=("Grüße, Wörld! 🎭",), pieces=6),
    "calls": Answer(
        parts=(think("Let me see."), "I add.", call("add", a=1, b=[2], id="c1"), call("note", text="ü\n", id="c2")),
        pieces=12,
    ),
    "nothing": Answer(),
    "cut short": Answer(parts=("Once upon a",), finish="length"),
}


def with_noise(events: Iterable[bytes]) -> bytes:
    """The stream with comments, unknown fields of the framing and of the JSON, and an unknown event."""
    out = [b": a comment\n\nretry: 10\nid: 7\nlater: x\n", event({"type": "later.thing", "x": [1]}, "later.thing")]
    for one in events:
        lines = one.decode().split("\n")
        for number, line in enumerate(lines):
            if line.startswith("data: {"):
                data = json.loads(line.removeprefix("data: "))
                lines[number] = f"data:{json.dumps({**data, 'later': {'x': None}})}"
        out += [b": keep-alive\n", "\n".join(lines).encode()]
    return b"".join(out)


FORMS = {
    "LF": b"".join,
    "CRLF": lambda events: b"".join(events).replace(b"\n", b"\r\n"),
    "CR": lambda events: b"".join(events).replace(b"\n", b"\r"),
    "noise": with_noise,
    "noise, CRLF": lambda events: b"\xef\xbb\xbf" + with_noise(events).replace(b"\n", b"\r\n"),
}

Found = tuple[str, str, gr.ModelResponse]


def read(name: str, *pieces: bytes, mask: KeyMask | None = None) -> Found:
    """Text and reasoning as they were shown, and the answer."""
    reader = StreamReader("small", CODECS[name](), mask or KeyMask())
    deltas = [delta for piece in pieces for delta in reader.feed(piece)]
    last, answer = reader.end()
    shown = [*deltas, *last]
    return (
        "".join(delta.text for delta in shown if isinstance(delta, gr.TextDelta)),
        "".join(delta.text for delta in shown if isinstance(delta, gr.ReasoningDelta)),
        answer,
    )


def said(found: Found) -> object:
    """What an answer says, without what it has cost, which may come after its mark."""
    text, reasoning, answer = found
    return text, reasoning, answer.text, answer.calls, answer.finish, answer.refusal


def places(form: str, answer: str, stream: bytes, sampled: Any) -> Sequence[int]:
    """A sample, larger where the stream has everything in it, and every byte near its end."""
    everything = form in ("LF", "noise, CRLF") and answer == "calls"
    near = max(0, len(stream) - 40)
    return [*sampled(range(near), 160 if everything else 20), *range(near, len(stream))]


each_format = pytest.mark.parametrize("name", FORMATS)
each_form = pytest.mark.parametrize("form", FORMS)
each_answer = pytest.mark.parametrize("answer", ANSWERS)


@each_format
@each_answer
def test_an_answer_comes_through_whole(name, answer):
    given = ANSWERS[answer]
    text, reasoning, found = read(name, b"".join(FORMATS[name].stream(given)))
    assert text == "".join(found.text) == given.text
    assert reasoning == ("Let me see." if answer == "calls" else "")
    assert [(one.call_id, one.tool, one.arguments, one.fault) for one in found.calls] == [
        (one.id, one.tool, one.arguments, None) for one in given.calls
    ]
    assert found.finish == (given.finish or ("tool_calls" if given.calls else "stop"))
    assert found.usage == USED
    assert found.model == "small-1"


@pytest.mark.no_cover
@pytest.mark.slow
@each_format
@each_form
@each_answer
def test_a_stream_that_is_split_anywhere_gives_the_same_answer(name, form, answer, sampled):
    events = FORMATS[name].stream(ANSWERS[answer])
    stream, whole = FORMS[form](events), read(name, b"".join(events))
    for at in places(form, answer, stream, sampled):
        assert read(name, stream[:at], stream[at:]) == whole, at
    assert read(name, *(stream[at : at + 1] for at in range(len(stream)))) == whole


@pytest.mark.rule("M-7")
@pytest.mark.no_cover
@pytest.mark.slow
@each_format
@each_form
@each_answer
def test_a_stream_that_is_cut_anywhere_gives_the_same_answer_or_is_interrupted(name, form, answer, sampled):
    """There is no third outcome: no part of a text, and no call of a stream that did not come to its end."""
    events = FORMATS[name].stream(ANSWERS[answer])
    stream, whole, ends = FORMS[form](events), read(name, b"".join(events)), set()
    for at in places(form, answer, stream, sampled):
        try:
            found = read(name, stream[:at])
        except gr.ModelError as error:
            assert error.kind == "interrupted", (at, error)  # noqa: PT017 - most cuts end here, the last ones do not
            ends.add("interrupted")
        else:
            assert said(found) == said(whole), at
            ends.add("whole")
    assert "interrupted" in ends


# --- the framing alone -----------------------------------------------------------------------------------------------


def frames(*pieces: bytes) -> list[tuple[str, bytes]]:
    parser = EventParser()
    found = [one for piece in pieces for one in parser.feed(piece)]
    last = parser.end()
    return [(one.name, one.data) for one in (*found, *([last] if last else []))]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\ndata:b\ndata:  c\n\n", [("", b"a\nb\n c")]),
        (b"event: x\ndata: a\n\ndata: b\n\n", [("x", b"a"), ("", b"b")]),
        (b"event: x\n\ndata: b\n\n", [("", b"b")]),
        (b"data\n\n", [("", b"")]),
        (b"\n\n\n:c\n\n", []),
        (b"data: a", [("", b"a")]),
        (b"data: a\r\rdata: b\r\n\r\ndata: c\n\n", [("", b"a"), ("", b"b"), ("", b"c")]),
    ],
)
def test_events_are_framed_as_the_standard_says_at_every_split(stream, events):
    for at in range(len(stream) + 1):
        assert frames(stream[:at], stream[at:]) == events, at


def test_the_last_id_is_that_of_a_complete_event_also_of_one_without_data():
    parser, ids = EventParser(), []
    for piece in (
        b"data: a\n\n",
        b"id: 1\n\n",
        b"id: 2\ndata: b\n",
        b"\n",
        b"data: c\n\nid: 3\ndata: d",
        b"id: 4\0\n\n",
    ):
        list(parser.feed(piece))
        ids.append(parser.last_id)
    assert ids == ["", "1", "1", "2", "2", "3"]


@pytest.mark.parametrize("lines", [1, 1000])
def test_an_event_that_is_too_long_is_refused_before_it_ends(lines):
    parser = EventParser()
    piece = b"data: " + b"x" * (EVENT_LIMIT // lines) + b"\n"
    with pytest.raises(EventTooLong):
        list(chain.from_iterable(map(parser.feed, [piece] * (lines + 1))))


def test_long_streams_of_short_events_have_no_limit():
    parser = EventParser()
    assert sum(len(list(parser.feed(b"data: " + b"x" * 65_536 + b"\n\n"))) for _ in range(200)) == 200


# --- faults in the stream --------------------------------------------------------------------------------------------


@pytest.mark.rule("M-8")
@each_format
@pytest.mark.parametrize("data", ["{nonsense", "[1]", "7", '"x"', '{"a": "\\ud83d'])
def test_an_event_that_is_no_json_object_is_the_provider_s_fault(name, data):
    with pytest.raises(gr.ModelError, match="not a JSON object") as raised:
        read(name, event(data))
    assert raised.value.kind == "provider"


@pytest.mark.rule("M-9")
@each_format
def test_an_error_in_the_stream_is_classified_as_its_status_would_be(name):
    started = FORMATS[name].stream(ANSWERS["calls"])[:3]
    with pytest.raises(gr.ModelError, match="come again") as raised:
        read(name, *started, FORMATS[name].stream_error("", "come again"))
    assert raised.value.kind == "overloaded"


@each_format
def test_fields_of_unexpected_types_are_as_if_they_were_not_there(name):
    for one in FORMATS[name].stream(ANSWERS["calls"]):
        if b"data: {" in one:
            data = json.loads(one.partition(b"data: ")[2])
            for value in (None, 7, "x", [], [7], {}):
                spoilt = {key: item if key == "type" else value for key, item in data.items() if key != "error"}
                try:
                    read(name, event(spoilt))
                except gr.ModelError as error:
                    assert error.kind in ("interrupted", "provider")  # noqa: PT017


@pytest.mark.rule("M-3")
@each_format
def test_a_key_that_the_service_echoes_in_its_answer_is_masked_at_every_split(name, sampled):
    key = "sk-canary-0123456789abcdef"
    given = Answer(parts=(think(f"I see {key}."), f"Your key is {key}!", call("note", text=key, id=key)), pieces=5)
    stream = b"".join(FORMATS[name].stream(given))
    for at in sampled(range(len(stream)), 60):
        text, reasoning, answer = read(name, stream[:at], stream[at:], mask=KeyMask([key]))
        assert text == "".join(answer.text) == "Your key is [redacted]!"
        assert reasoning == "I see [redacted]."
        assert key not in repr(answer)


@pytest.mark.rule("M-7")
@pytest.mark.parametrize("arguments", [[], ['{"cents": 5'], ["   "]])
@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_call_that_a_limit_cuts_in_its_middle_has_a_fault(arguments, finish):
    """An empty text means no arguments otherwise, and a tool would run with defaults that the model never chose."""
    whole, cut = PartialCall("a", "pay", ['{"cents": 5}']), PartialCall("b", "pay", arguments)
    calls = calls_of([whole, cut], finish)
    assert [(call.arguments, bool(call.fault)) for call in calls] == [({"cents": 5}, False), ({}, True)]
    assert not calls_of([whole], finish)[0].fault
