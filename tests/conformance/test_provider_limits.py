"""What a provider's service sends over HTTP: packed, endless, in a million chunks. Other tasks run beside all of it."""

import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.models.http import HTTPModel
from greenroom.testing import FaultReply, call, open_fault_server, reply

from ..support.providers import KEY, MODELS, model_of
from ..support.wild_streams import WILD, endless, head, in_chunks, open_raw_server, written

pytestmark = pytest.mark.no_cover
each_provider = pytest.mark.parametrize("name", MODELS)
REQUEST = gr.ModelRequest(agent="x", messages=(gr.Message(id="1", role="user", content="Hi"),))
NEWLINES = b"\n" * 8_388_608
PACKED = {"gzip": gzip.compress(NEWLINES), "deflate": zlib.compress(NEWLINES), "br": b"\x5b\xff\xff\x7f\x00"}


async def asked(model: HTTPModel) -> list[Any]:
    """The items of one request."""
    async with model.stream(REQUEST) as events:
        return [event async for event in events]


# --- encodings -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-8")
@each_provider
@pytest.mark.parametrize("given", [{}, {"Accept-Encoding": "gzip"}, {"ACCEPT-ENCODING": "br, gzip"}])
async def test_identity_is_asked_for_whatever_headers_are_given(name: str, given: dict[str, str]) -> None:
    async with open_fault_server(reply("Hello.")) as server:
        assert (await asked(model_of(name, server, headers=given)))[-1].text == ("Hello.",)
        assert server.requests[0].headers["accept-encoding"] == "identity"
    extra = {"extra_headers": {"accept-encoding": "gzip"}}
    async with open_fault_server(reply("Hello.")) as server:
        outcome = await gr.run(gr.Agent("a", model=model_of(name, server), settings=extra), "Hi")
        assert outcome.output == "Hello."
        assert server.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.rule("M-8")
@each_provider
@pytest.mark.parametrize("encoding", [*PACKED, "GZIP", "identity, gzip", "x" * 500])
async def test_a_packed_stream_is_refused_and_nothing_of_it_is_unpacked(name: str, encoding: str) -> None:
    body = PACKED.get(encoding.lower(), PACKED["gzip"])
    async with open_fault_server(FaultReply(raw=body, headers={"content-encoding": encoding})) as server:
        with pytest.raises(gr.ModelError) as raised:
            await asked(model_of(name, server))
    assert raised.value.kind == "provider"
    assert f"answered with the content encoding {encoding.lower()[:40]!r}, although none was asked" in str(raised.value)
    assert "switch compression off" in str(raised.value)


@pytest.mark.rule("M-8", "M-9")
@each_provider
@pytest.mark.parametrize(("status", "kind"), [(429, "rate_limited"), (401, "unauthorized"), (503, "overloaded")])
async def test_a_packed_error_has_the_kind_of_its_status(name: str, status: int, kind: str) -> None:
    given = {"content-encoding": "gzip", "retry-after": "7"}
    async with open_fault_server(FaultReply(status=status, body=PACKED["gzip"], headers=given)) as server:
        with pytest.raises(gr.ModelError) as raised:
            await asked(model_of(name, server))
    assert (raised.value.kind, raised.value.retry_after) == (kind, 7.0)
    assert f"answered {status} no reason given" in str(raised.value)


@each_provider
async def test_a_stream_that_names_identity_is_read(name: str) -> None:
    async with open_fault_server(reply("Hello.", headers={"content-encoding": "Identity"})) as server:
        assert (await asked(model_of(name, server)))[-1].text == ("Hello.",)


# --- other tasks run -------------------------------------------------------------------------------------------------


class Turns(trio.abc.Instrument):
    """Counts the steps of one task: after each of them all other tasks that are ready have had theirs."""

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self.task, self.count = task, 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task is self.task


async def stepped(model: HTTPModel) -> tuple[int, Any]:
    """How many steps a request takes, and how it ends."""
    counted = Turns(trio.lowlevel.current_task())
    trio.lowlevel.add_instrument(counted)
    try:
        end = (await asked(model))[-1]
    except gr.ModelError as error:
        end = error
    finally:
        trio.lowlevel.remove_instrument(counted)
    return counted.count, end


def model_at(name: str, url: str) -> HTTPModel:
    return MODELS[name]("small", base_url=url, api_key=KEY)


def ended(name: str, *data: Any) -> bytes:
    return written(*data, WILD[name].text("x"), *WILD[name].end)


def of_a_body(make: Callable[[str], bytes], chunk: int = 0) -> Callable[[str], bytes]:
    return lambda name: head(chunked=chunk > 0) + (in_chunks(make(name), chunk) if chunk else make(name))


STREAMS: dict[str, tuple[Callable[[str], bytes], int]] = {
    "empty lines": (of_a_body(lambda name: b"\n" * 262_144 + ended(name)), 262_144 // 8_192),
    "empty lines, CR": (of_a_body(lambda name: b"\r" * 262_144 + ended(name)), 262_144 // 8_192),
    "comments": (of_a_body(lambda name: b":\n" * 131_072 + ended(name)), 262_144 // 8_192),
    "ignored events": (of_a_body(lambda name: b"data:{}\n\n" * 40_000 + ended(name)), 360_000 // 8_192),
    "chunks of one byte": (of_a_body(lambda name: b"\n" * 20_000 + ended(name), chunk=1), 20_000 // 256),
    "many deltas": (of_a_body(lambda name: written(*[WILD[name].text("x")] * 4_000) + ended(name)), 4_000 // 256),
}
"""A stream, and the steps that reading it takes at least: one for 8 KiB, for 256 chunks and for 256 deltas."""


@pytest.mark.rule("M-8")
@each_provider
@pytest.mark.parametrize("stream", STREAMS)
async def test_other_tasks_run_while_a_stream_is_read(name: str, stream: str) -> None:
    make, least = STREAMS[stream]
    sent = make(name)
    async with open_raw_server(lambda: (sent,)) as server:
        steps, answer = await stepped(model_at(name, server.url))
    assert answer.text[0].endswith("x")
    assert steps >= least


@pytest.mark.rule("M-8")
async def test_other_tasks_run_while_the_deltas_of_one_event_are_handed_on() -> None:
    parts = [{"text": "x"}] * 16_000
    one = {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]}
    sent = head() + ended("gemini", one)
    async with open_raw_server(lambda: (sent,)) as server:
        steps, answer = await stepped(model_at("gemini", server.url))
    assert len(answer.text[0]) == 16_001
    assert steps >= len(sent) // 8_192 + 16_000 // 512


@pytest.mark.rule("M-8")
@each_provider
async def test_other_tasks_run_while_an_error_comes_in_chunks_of_one_byte(name: str) -> None:
    sent = head(status="500 Internal Server Error", chunked=True) + in_chunks(b"\n" * 20_000, 1)
    async with open_raw_server(lambda: (sent,)) as server:
        steps, error = await stepped(model_at(name, server.url))
    assert isinstance(error, gr.ModelError)
    assert "answered 500" in str(error)
    assert steps >= 20_000 // 256


# --- what never ends -------------------------------------------------------------------------------------------------

ENDLESS: dict[str, tuple[Callable[[str], bytes], str]] = {
    "text": (lambda name: written(WILD[name].text("x" * 400_000)), "more than 12,582,912 characters"),
    "one line": (lambda name: b"data: " + b"x" * 400_000, "longer than 8,388,608 bytes"),
    "lines of one event": (lambda name: b"data: " + b"x" * 400_000 + b"\n", "longer than 8,388,608 bytes"),
    "signed parts": (
        lambda name: written(*(WILD[name].part(0, {"data": "x" * 4_000}) for _ in range(100))),
        "more than",
    ),
}


@pytest.mark.rule("M-8")
@each_provider
@pytest.mark.parametrize("stream", ENDLESS)
async def test_a_stream_that_never_ends_is_refused_and_its_connection_closed(name: str, stream: str) -> None:
    make, sentence = ENDLESS[stream]
    if (name, stream) == ("responses", "signed parts"):  # an item that is done again is ignored
        return
    async with open_raw_server(endless(head(), make(name))) as server:
        with trio.fail_after(60), pytest.raises(gr.ModelError, match=sentence) as raised:
            await asked(model_at(name, server.url))
    assert raised.value.kind == "provider"


@pytest.mark.rule("PO-12")
async def test_a_stream_that_says_nothing_for_ever_is_silent_to_a_run() -> None:
    """Bytes that show nothing keep the connection, and not the limit of silence."""

    def trickle() -> Iterator[bytes]:
        yield head()
        yield from iter(lambda: b": still here\n" * 4_000, b"")

    quick = [gr.Retry(attempts=1), gr.Recovery(0), gr.IdleTimeout(0.2, first=0.2)]
    async with open_raw_server(trickle) as server:
        agent = gr.Agent("a", model=model_at("chat", server.url), plugins=quick)
        async with gr.open_runtime(agents=[agent]) as runtime:
            run = await runtime.start(agent, "Hi")
            with trio.fail_after(30):
                outcome = await run.wait()
    assert isinstance(outcome, gr.Failed)
    assert "was silent for 0.2 s" in outcome.message


async def test_answers_of_informational_statuses_without_end_are_silence_to_a_run() -> None:
    quick = [gr.Retry(attempts=1), gr.Recovery(0), gr.IdleTimeout(0.2, first=0.2)]
    async with open_raw_server(endless(b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 100)) as server:
        agent = gr.Agent("a", model=model_at("chat", server.url), plugins=quick)
        async with gr.open_runtime(agents=[agent]) as runtime:
            run = await runtime.start(agent, "Hi")
            with trio.fail_after(30):
                outcome = await run.wait()
    assert isinstance(outcome, gr.Failed)


@pytest.mark.rule("M-14")
async def test_headers_of_any_number_and_size_are_an_error_with_a_kind() -> None:
    for lines in (["a: b"] * 9_000, ["retry-after: 1"] * 3_000, ["x-request-id: " + "x" * 60_000]):
        sent = head(*lines, status="429 Too Many Requests")
        async with open_raw_server(lambda sent=sent: (sent,)) as server:
            with pytest.raises(gr.ModelError) as raised:
                await asked(model_at("chat", server.url))
        assert raised.value.kind == "rate_limited"
        assert len(str(raised.value)) < 1_500


@each_provider
async def test_calls_of_unknown_tools_with_long_names_are_answered_each(name: str) -> None:
    calls = [call("t" * 1_000 + str(number), id=f"{number}" + "i" * 1_000) for number in range(100)]
    async with open_fault_server(reply(*calls), reply("Done.")) as server:
        outcome = await gr.run(gr.Agent("a", model=model_of(name, server)), "Hi")
    assert outcome.output == "Done."


@each_provider
async def test_a_thousand_calls_of_one_id_are_an_error_with_a_name(name: str) -> None:
    calls = [call("add", n=number, id="same") for number in range(1_000)]
    async with open_fault_server(reply(*calls)) as server:
        with pytest.raises(gr.RunFailedError, match="two different calls came under one id 'same'"):
            (await gr.run(gr.Agent("a", model=model_of(name, server)), "Hi")).output  # noqa: B018
