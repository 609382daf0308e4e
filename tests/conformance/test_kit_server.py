"""open_fault_server: each fault, in each of the four formats, as a run meets it."""

import math

import httpx
import pytest
import trio

import greenroom as gr
from greenroom.testing import call, malformed, open_fault_server, reply, think

from ..support.providers import MODELS, model_of

each_format = pytest.mark.parametrize("name", MODELS)
ONCE = [gr.Retry(attempts=1), gr.Recovery(times=0)]


@gr.tool
async def add(a: int, b: int) -> int:
    return a + b


async def outcome_of(name, *replies, plugins=(), **options):
    async with open_fault_server(*replies) as server:
        agent = gr.Agent("a", tools=[add], model=model_of(name, server, **options), plugins=list(plugins))
        return await gr.run(agent, "Go."), server


@pytest.mark.rule("TK-14")
@each_format
async def test_texts_thoughts_and_calls_reach_the_run_and_the_requests_are_kept(name):
    first = reply(think("Hm."), "Let me see. ", call("add", a=1, b=2, id="c1"))
    outcome, server = await outcome_of(name, first, reply("It is 3.", pause=0.01))
    assert outcome.output == "It is 3."
    assert [request.format.name for request in server.requests] == [name, name]
    assert "Go." in str(server.requests[0].body)
    assert "3" in str(server.requests[1].body)
    assert server.requests[0].headers["host"].startswith("127.0.0.1:")


@pytest.mark.rule("TK-14")
@each_format
async def test_malformed_arguments_reach_the_model_as_a_failed_call(name):
    broken = malformed("add", '{"a": 1', id="c1")
    outcome, server = await outcome_of(name, reply(broken), reply("Sorry."))
    assert outcome.output == "Sorry."
    assert "the arguments are" in str(server.requests[1].body)


@pytest.mark.rule("TK-14")
@each_format
@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (reply(status=503), "overloaded"),
        (reply("Hello", cut=300), "interrupted"),
        (reply("Hello", begun=True, hang=True), "timeout"),
        (reply(raw=b"data: {nonsense\n\n"), "provider"),
        (reply(raw=b"<html>", media="text/html"), "provider"),
        (reply("Hello", begun=True, error="come again"), "overloaded"),
    ],
    ids=["status", "cut", "hang", "malformed", "wrong type", "error"],
)
async def test_a_fault_ends_the_run_as_its_kind(name, given, kind):
    silence = {"idle_timeout": 0.3} if kind == "timeout" else {}  # of a busy machine, the others could be as silent
    outcome, _ = await outcome_of(name, given, plugins=ONCE, **silence)
    assert isinstance(outcome, gr.Failed)
    assert outcome.message.startswith(f"{kind}: "), outcome.message


@pytest.mark.rule("TK-14")
@each_format
async def test_an_endless_answer_is_closed_by_a_cancel(name):
    async with open_fault_server(reply("and ", endless=True, pause=0.001)) as server:
        async with gr.open_runtime() as runtime:
            run = await runtime.start(gr.Agent("a", model=model_of(name, server)), "Go.")
            async with run.events() as events:
                async for event in events:
                    if event.type == "run.message.delta":
                        break
            await run.cancel()
            assert isinstance(await run.wait(), gr.Cancelled)
            assert server.requests[0].closed_by_peer()
        with trio.fail_after(60):
            await server.left.wait()


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"status": "x"}, "reply(status='x'): give a number from 100 to 599"),
        ({"status": 99}, "reply(status=99)"),
        ({"cut": -1}, "reply(cut=-1): give a number of bytes"),
        ({"pause": math.nan}, "reply(pause=nan): give seconds, 0 or more"),
        ({"headers": {"a": "b\r\nc: d"}}, "give a dict of printable ASCII texts"),
        ({"raw": "text"}, "reply(raw='text'): give bytes"),
        ({"hangs": True}, "did you mean 'hang'? the faults are"),
    ],
)
def test_a_reply_that_no_service_can_send_is_refused(faults, words):
    with pytest.raises(gr.UsageError) as caught:
        reply("x", **faults)
    assert words in str(caught.value)


async def test_what_is_no_reply_is_refused():
    with pytest.raises(gr.UsageError, match=r"open_fault_server\('x'\): give replies"):
        async with open_fault_server("x"):  # type: ignore[arg-type]
            pass


@pytest.mark.rule("TK-14")
@each_format
async def test_a_function_gives_each_request_its_reply(name):
    async with open_fault_server(answer=lambda request: reply(request.format.name)) as server:
        for text in ("one", "two"):
            outcome = await gr.run(gr.Agent("a", model=model_of(name, server)), text)
            assert outcome.output == name
    assert len(server.requests) == 2


@pytest.mark.rule("TK-14")
async def test_a_function_serves_paths_of_no_format_with_a_body_or_a_status():
    def answer(request):
        assert request.format is None
        return reply(body=b'{"tokens": 7}', media="application/json") if "count" in request.path else reply(status=404)

    async with open_fault_server(answer=answer) as server, httpx.AsyncClient() as client:
        found = await client.post(f"http://127.0.0.1:{server.port}/count", json={})
        assert (found.status_code, found.json()) == (200, {"tokens": 7})
        assert (await client.get(f"http://127.0.0.1:{server.port}/more")).status_code == 404


async def test_a_function_that_returns_no_reply_ends_the_block():
    with pytest.RaisesGroup(
        pytest.RaisesExc(gr.UsageError, match="has returned 'x': give replies"), flatten_subgroups=True
    ):
        async with open_fault_server(answer=lambda _: "x") as server:  # type: ignore[arg-type, return-value]
            await gr.run(gr.Agent("a", model=model_of("chat", server), plugins=ONCE), "Go.")
            await trio.sleep_forever()


async def test_replies_and_a_function_are_not_both_given():
    for faults, answer in (([reply("x")], lambda _: reply("y")), ([], "x")):
        with pytest.raises(gr.UsageError, match="give replies, or answer="):
            async with open_fault_server(*faults, answer=answer):
                pass
