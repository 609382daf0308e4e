"""Models of providers in real runs, against a service on loopback that fails as services do."""

import json
import logging
import subprocess
import sys
import traceback
from pathlib import Path

import msgspec
import pytest
import trio
import trio.testing

import greenroom as gr
from greenroom.actors.models import resolve_model
from greenroom.actors.models.http import HTTPModel
from greenroom.actors.testing.wire_formats import SIGNATURE
from greenroom.models import OpenAIChat
from greenroom.testing import FaultReply, FaultServer, ScriptedModel, call, open_fault_server, reply, text, think

from ..support.providers import KEY, MODELS, model_of

QUICK = gr.Retry(first=0.01, longest=0.05)
each_provider = pytest.mark.parametrize("name", MODELS)


@gr.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def helper(model: gr.Model | str, **options) -> gr.Agent:
    return gr.Agent("helper", **{"tools": [add], "model": model, "plugins": [QUICK], **options})


async def outcome_of(name: str, *replies: FaultReply, **options):
    """How a run ends, and what the service was asked."""
    async with open_fault_server(*replies) as server:
        outcome = await gr.run(helper(model_of(name, server), **options), "What is 40 + 2?")
        assert not server.replies, "not all replies were asked for"
        return outcome, server.requests


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-5")
@each_provider
async def test_a_run_calls_its_tool_and_reads_the_result(name):
    calling = reply(think("Hm."), "I add. ", call("add", a=40, b=2, id="c1"))
    outcome, asked = await outcome_of(name, calling, reply("It is 42."), instructions="Be brief.")
    assert outcome.output == "It is 42."
    assert outcome.finish == "stop"
    assert outcome.usage == gr.Usage(requests=2, input=62, output=18, cached=14, reasoning=8)
    assert "Be brief." in repr(asked[0].body)
    assert "'42'" in repr(asked[1].body)


@each_provider
async def test_text_and_reasoning_are_streamed_as_they_come(name):
    async with open_fault_server(reply(think("Let me think."), "One ", "two ", "three.", pause=0.01)) as server:
        agent = helper(model_of(name, server))
        async with gr.open_runtime(agents=[agent]) as runtime:
            run = await runtime.start(agent, "Count.")
            async with run.events() as events:
                seen = [(event.type, event.payload.get("text")) async for event in events]
    for kind, whole in (("run.message.delta", "One two three."), ("run.reasoning.delta", "Let me think.")):
        pieces = [text for one, text in seen if one == kind]
        assert "".join(pieces) == whole
        assert len(pieces) > 1


@pytest.mark.rule("M-11")
@each_provider
async def test_requests_of_one_base_url_share_a_connection_that_closes_with_the_runtime(name):
    async with open_fault_server(*[reply(f"{number}.") for number in range(5)]) as server:
        agents = [gr.Agent(key, model=model_of(name, server)) for key in ("a", "b")]
        async with gr.open_runtime(agents=agents) as runtime:
            for number in range(5):
                run = await runtime.start(agents[number % 2], "Go on.")
                assert (await run.result()).output == f"{number}."
            assert server.connections == 1
        with trio.fail_after(5):
            await server.left.wait()


@each_provider
async def test_a_model_can_be_asked_outside_of_a_runtime(name):
    async with open_fault_server(reply("Hello.")) as server:
        request = gr.ModelRequest(agent="x", messages=(gr.Message(id="1", role="user", content="Hi"),))
        async with model_of(name, server).stream(request) as events:
            answer = [event async for event in events][-1]
        assert answer.text == ("Hello.",)


# --- faults ----------------------------------------------------------------------------------------------------------

REFUSED = {400: "invalid_request", 401: "unauthorized", 403: "unauthorized", 404: "model_not_found"}
MAY_PASS = {
    "429": (FaultReply(status=429), "rate_limited"),
    "500": (FaultReply(status=500), "provider"),
    "503": (FaultReply(status=503), "overloaded"),
    "529": (FaultReply(status=529), "overloaded"),
    "a page of a proxy": (FaultReply(status=502, body=b"<html>bad gateway</html>"), "provider"),
    "an error in the stream": (reply("On", begun=True, error="come again"), "overloaded"),
    "a cut stream": (reply("Once upon", call("add", a=1, b=1, id="c"), cut=600), "interrupted"),
    "a stream that ends early": (reply("Once upon", call("add", a=1, b=1, id="c"), cut=600, clean=True), "interrupted"),
    "nothing": (reply(cut=0), "interrupted"),
    "malformed": (reply(raw=b"data: {nonsense\n\n"), "provider"),
    "a page": (reply(raw=b"<html>", media="text/html"), "provider"),
}


@pytest.mark.rule("M-7", "M-8", "M-9")
@each_provider
@pytest.mark.parametrize("fault", MAY_PASS)
async def test_a_failure_that_may_pass_is_asked_again_and_leaves_no_trace_in_the_thread(name, fault):
    given, kind = MAY_PASS[fault]
    async with open_fault_server(given, reply("Done.")) as server:
        agent = helper(model_of(name, server), plugins=[QUICK, gr.Recovery(0)])
        async with gr.open_runtime(agents=[agent]) as runtime:
            run = await runtime.start(agent, "What is 40 + 2?")
            async with run.events() as events:
                retried = [event.payload["code"] async for event in events if event.type == "run.inference.retried"]
            view = await run.view()
    assert retried == [kind]
    assert [message.content for message in view.messages] == ["What is 40 + 2?", "Done."]
    assert view.calls == {}
    assert view.usage.requests == 2


@pytest.mark.rule("PO-7")
@each_provider
async def test_a_text_whose_stream_broke_is_continued_and_is_never_a_prefill(name):
    given = reply("Once", begun=True, error="come again")
    async with open_fault_server(given, reply(" upon a time.")) as server:
        outcome = await gr.run(helper(model_of(name, server)), "A story, please.")
    assert outcome.output == "Once upon a time."
    first, second = (asked.body for asked in server.requests)
    field = {"gemini": "contents", "responses": "input"}.get(name, "messages")
    *same, assistant, user = second[field]
    assert same == first[field]
    assert "Once" in json.dumps(assistant)
    assert (user["role"], "Continue exactly where" in json.dumps(user)) == ("user", True)


@each_provider
async def test_a_place_without_such_a_service_is_named(name):
    async with open_fault_server(FaultReply(status=404, body=b'{"detail": "Not Found"}')) as server:
        model = model_of(name, server)
        outcome = await gr.run(helper(model), "What is 40 + 2?")
    assert isinstance(outcome, gr.Failed)
    assert f"is base_url {model.base_url} right?" in outcome.message


@each_provider
@pytest.mark.parametrize("status", REFUSED)
async def test_a_refusal_that_will_not_pass_fails_the_run_at_once(name, status):
    outcome, asked = await outcome_of(name, FaultReply(status=status, message="that is that"))
    assert outcome.code == "model_error"
    assert outcome.message.startswith(f"{REFUSED[status]}: ")
    assert "that is that" in outcome.message
    assert len(asked) == 1


@pytest.mark.rule("M-14")
@each_provider
async def test_the_wait_that_a_service_asks_for_is_kept(name):
    began = trio.current_time()
    await outcome_of(name, FaultReply(status=429, headers={"retry-after": "0.4"}), reply("Done."))
    assert trio.current_time() - began >= 0.4


@pytest.mark.rule("M-14")
@each_provider
async def test_a_service_may_forbid_the_retry(name):
    outcome, _ = await outcome_of(name, FaultReply(status=429, headers={"x-should-retry": "false"}))
    assert outcome.message.startswith("rate_limited: ")


@each_provider
async def test_a_stream_that_hangs_is_a_timeout(name):
    async with open_fault_server(reply("On", begun=True, hang=True), reply(" we go.")) as server:
        agent = helper(model_of(name, server, idle_timeout=0.2))
        async with gr.open_runtime(agents=[agent]) as runtime:
            run = await runtime.start(agent, "Go.")
            async with run.events() as events:
                retried = [event.payload["code"] async for event in events if event.type == "run.inference.retried"]
            assert (await run.result()).output == "On we go."
    assert retried == ["timeout"]


@each_provider
async def test_a_service_that_is_not_there_is_named(name):
    async with open_fault_server() as server:
        pass
    outcome = await gr.run(helper(model_of(name, server)), "Hi")
    assert outcome.message.startswith("provider: ")
    assert f"no connection to {server.base_url(name)}" in outcome.message


@each_provider
async def test_a_service_that_has_moved_says_where_to(name):
    outcome, _ = await outcome_of(name, FaultReply(status=308, headers={"location": "https://other.example/v1"}))
    assert "moved to https://other.example/v1; change base_url" in outcome.message


@each_provider
async def test_a_body_after_the_end_mark_that_never_ends_delays_no_answer(name):
    outcome, _ = await outcome_of(name, reply("Done.", hang=True))
    assert outcome.output == "Done."


# --- cancelling ------------------------------------------------------------------------------------------------------


@pytest.mark.rule("M-10")
@each_provider
@pytest.mark.parametrize("began", [True, False], ids=["in the stream", "before its first byte"])
async def test_a_cancel_has_closed_the_connection_before_wait_returns(name, began):
    async with open_fault_server(reply("On", begun=True, hang=True) if began else reply(raw=b"", hang=True)) as server:
        agent = helper(model_of(name, server))
        async with gr.open_runtime(agents=[agent]) as runtime:
            run = await runtime.start(agent, "Go.")
            with trio.fail_after(5):
                await server.asked.wait()
                await server.requests[0].began.wait()
                if began:
                    async with run.events() as events:
                        async for event in events:
                            if event.type == "run.message.delta":
                                break
                assert not server.requests[0].closed_by_peer()
                await run.cancel(reason="enough")
                assert isinstance(await run.wait(), gr.Cancelled)
                assert server.requests[0].closed_by_peer()


@pytest.mark.rule("L-110")
@each_provider
async def test_a_cancelled_request_counts_with_the_tokens_that_the_service_has_reported(name):
    """Anthropic reports the input before its answer, Gemini with each piece; the others report at the end."""
    async with open_fault_server(reply("On", begun=True, hang=True)) as server:
        agent = helper(model_of(name, server))
        async with gr.open_runtime(agents=[agent]) as runtime:
            run = await runtime.start(agent, "Go.")
            async with run.events() as events:
                async for event in events:
                    if event.type == "run.message.delta":
                        await run.cancel()
            view = await run.view()
    assert [message.content for message in view.messages] == ["Go.", "On"]
    assert (view.usage.requests, view.usage.incomplete) == (1, 1)
    assert bool(view.usage.input) is (name in ("anthropic", "gemini"))


@pytest.mark.slow
@pytest.mark.rule("M-10")
async def test_a_thousand_cancels_in_the_middle_of_a_stream_leave_no_connection_and_no_task(sampled):
    """A hundred of them, unless the sweeps run in full."""
    many = len(sampled(range(1_000), 100))
    async with open_fault_server(*[reply("On", begun=True, hang=True)] * many) as server:
        agent = helper(model_of("chat", server))
        async with gr.open_runtime(agents=[agent]) as runtime:
            before = trio.lowlevel.current_statistics().tasks_living
            runs = [await runtime.start(agent, "Go.") for _ in range(many)]
            for _ in runs:
                await server.begun.acquire()
            assert server.connections == many
            for run in runs:
                await run.cancel()
            assert {type(await run.wait()) for run in runs} == {gr.Cancelled}
            assert all(asked.closed_by_peer() for asked in server.requests)
            with trio.fail_after(30):
                await server.left.wait()
            await trio.testing.wait_all_tasks_blocked(0.05)
            living = trio.lowlevel.current_statistics().tasks_living
            assert living <= before + 1, "the open model has a task of its own"


# --- keys ------------------------------------------------------------------------------------------------------------

ECHOES = {
    "401": [FaultReply(status=401, message=f"Incorrect API key provided: {KEY}", headers={"x-request-id": KEY})],
    "429": [FaultReply(status=429, message=f"slow down, {KEY}"), reply("Done.")],
    "a page": [FaultReply(status=502, body=f"<html>{KEY}".encode()), reply("Done.")],
    "an error in the stream": [reply("On", begun=True, error=f"no capacity for {KEY}"), reply("Done.")],
    "a malformed event": [reply(raw=f"data: {KEY}\n\n".encode()), reply("Done.")],
    "a moved service": [FaultReply(status=308, headers={"location": f"http://other/{KEY}"})],
    "an answer": [
        reply(think(f"It is {KEY}."), f"Your key: {KEY}", call("show", text=KEY, id=KEY)),
        reply(f"I say: {KEY}."),
    ],
}


def files_with(text: str, folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if text.encode() in file.read_bytes()]


@gr.tool
async def show(text: str) -> str:
    return text


@pytest.mark.rule("M-3")
@each_provider
@pytest.mark.parametrize("echo", ECHOES)
async def test_a_key_is_nowhere_also_if_the_service_echoes_it(name, echo, tmp_path: Path, monkeypatch, caplog):
    """Not in an event, a view, an outcome, a log, a repr, an error or the database; the service did receive it."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, logger="httpcore")  # on DEBUG it logs the headers of responses
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(variable, KEY)
    found = list[object]()
    async with open_fault_server(*ECHOES[echo]) as server:
        model = model_of(name, server, api_key=None)
        agent = helper(model, tools=[show])
        async with gr.open_runtime(tmp_path / "runs.db", agents=[agent]) as runtime:
            run = await runtime.start(agent, "Hi")
            async with run.events() as events:
                found += [event async for event in events]
            found += [await run.view(), await run.result(), model, vars(model), agent, server.base_url(name)]
        assert KEY in repr(server.requests[0].headers)
    found += [caplog.text, [vars(record) for record in caplog.records]]
    assert KEY not in repr(found)
    assert files_with(KEY, tmp_path) == []
    assert files_with("helper", tmp_path) != []


@each_provider
@pytest.mark.parametrize("key", ["with a\nline", "schlüssel-0123456789"], ids=["a line break", "beyond ASCII"])
async def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(name, key):
    with pytest.raises(gr.AgentDefinitionError, match="api_key cannot be sent") as raised:
        model_of(name, FaultServer([]), api_key=key)
    assert key not in "".join(traceback.format_exception(raised.value))


def test_a_base_url_with_a_password_is_refused_without_showing_it():
    with pytest.raises(gr.AgentDefinitionError, match="holds a password") as raised:
        OpenAIChat("small", base_url=f"https://ann:{KEY}@host/v1")
    assert KEY not in str(raised.value)


@pytest.mark.rule("M-3")
async def test_headers_that_hold_a_secret_are_masked_as_keys_are():
    async with open_fault_server(FaultReply(status=401, message=f"not {KEY}")) as server:
        outcome = await gr.run(helper(model_of("chat", server, api_key=None, headers={"x-api-key": KEY})), "Hi")
        assert server.requests[0].headers["x-api-key"] == KEY
    assert "not [redacted]" in outcome.message


@pytest.mark.rule("M-1", "M-3")
async def test_an_auth_token_is_sent_as_a_bearer_token_if_there_is_no_key(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", KEY)
    async with open_fault_server(FaultReply(status=401, message=f"not {KEY}"), reply("Hello.")) as server:
        model = model_of("anthropic", server, api_key=None)
        outcome = await gr.run(helper(model), "Hi")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "another-key-of-mine")
        assert (await gr.run(helper(model_of("anthropic", server, api_key=None)), "Hi")).output == "Hello."
        first, second = (asked.headers for asked in server.requests)
    assert (first["authorization"], "x-api-key" in first) == (f"Bearer {KEY}", False)
    assert (second["x-api-key"], "authorization" in second) == ("another-key-of-mine", False)
    assert "not [redacted]" in outcome.message
    assert KEY not in repr((outcome, model, vars(model)))


@pytest.mark.rule("M-5", "M-20")
async def test_a_run_adds_up_what_was_put_into_the_cache():
    used = gr.Usage(requests=1, input=31, output=9, cached=7, stored=20)
    model = ScriptedModel([[text("", usage=used), call("add", a=40, b=2)], text("It is 42.", usage=used)])
    outcome = await gr.run(helper(model), "What is 40 + 2?")
    assert outcome.usage == gr.Usage(requests=2, input=62, output=18, cached=14, stored=40)
    faulty = ScriptedModel([text("Hi", usage=gr.Usage(input=1, stored=-1))])
    assert "usage.stored is -1; give a whole number, 0 or more" in (await gr.run(helper(faulty), "Hi")).message


PREFIXES = {"chat": "openai", "responses": "openai-responses", "anthropic": "anthropic", "gemini": "gemini"}
VARIABLES = (
    *("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    *("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "ANTHROPIC_AUTH_TOKEN"),
)


def variable_of(prefix: str) -> str:
    """The environment variable of a provider's key."""
    return f"{prefix.partition('-')[0].upper()}_API_KEY"


# --- what is refused at the start ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base_url",
    ["localhost:80", "ftp://host", "https://", "https://host/v1?x=1", 7, "http://host:99999"],
)
def test_what_is_no_base_url_is_refused(base_url):
    with pytest.raises(gr.AgentDefinitionError, match='give one such as "https://host/v1"'):
        OpenAIChat("small", base_url=base_url)


@pytest.mark.parametrize("prefix", PREFIXES.values())
def test_an_empty_base_url_is_not_the_official_one(prefix):
    """As from a variable of a shell that is not set: the request is not for the official service."""
    with pytest.raises(gr.AgentDefinitionError, match="base_url='': give one such as"):
        resolve_model(f"{prefix}:small", base_url="")


@pytest.mark.rule("M-2")
@pytest.mark.parametrize("prefix", PREFIXES.values())
async def test_the_official_host_needs_a_key_at_the_start(prefix, monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    async with gr.open_runtime() as runtime:
        with pytest.raises(gr.AgentDefinitionError, match=rf"agent 'helper': .*set {variable_of(prefix)}"):
            await runtime.start(helper(f"{prefix}:x-1"), "Hi")


@pytest.mark.rule("M-2")
@each_provider
async def test_another_host_gets_no_key_if_there_is_none(name, monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    async with open_fault_server(reply("Hello.")) as server:
        outcome = await gr.run(helper(model_of(name, server, api_key=None)), "Hi")
        assert outcome.output == "Hello."
        assert not {"authorization", "x-api-key", "x-goog-api-key"} & server.requests[0].headers.keys()


@pytest.mark.rule("M-1")
@each_provider
async def test_base_url_and_key_come_from_the_environment(name, monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    async with open_fault_server(reply("Hello.")) as server:
        prefix = PREFIXES[name]
        base = "GOOGLE_GEMINI_BASE_URL" if name == "gemini" else variable_of(prefix).replace("API_KEY", "BASE_URL")
        monkeypatch.setenv(base, server.base_url(name))
        monkeypatch.setenv(variable_of(prefix), f" {KEY}\n")
        outcome = await gr.run(helper(f"{prefix}:small"), "Hi")
        assert outcome.output == "Hello."
        assert KEY in repr(server.requests[0].headers)


@pytest.mark.rule("M-4")
@each_provider
async def test_a_setting_that_the_provider_lacks_is_refused_at_the_start(name):
    async with open_fault_server() as server, gr.open_runtime() as runtime:
        with pytest.raises(gr.AgentDefinitionError, match=r"no setting 'max_token'; did you mean 'max_tokens'\?"):
            await runtime.start(helper(model_of(name, server), settings={"max_token": 3}), "Hi")


@pytest.mark.rule("M-4")
@each_provider
async def test_a_setting_that_a_hook_gives_is_refused_when_it_is_asked_for(name):
    class Colder(gr.Plugin):
        name = "colder"

        async def before_inference(self, ctx: gr.PhaseContext) -> gr.Mutation:
            return gr.Mutation().override(coldness=3)

    outcome, asked = await outcome_of(name, plugins=[Colder()])
    assert outcome.message.startswith("invalid_request: ")
    assert "no setting 'coldness'" in outcome.message
    assert not asked


@each_provider
async def test_extra_headers_and_fields_reach_the_service(name):
    settings = {"extra_headers": {"x-trace": "7"}, "extra_body": {"later": [1]}}
    _, asked = await outcome_of(name, reply("Done."), settings=settings)
    assert asked[0].headers["x-trace"] == "7"
    assert asked[0].body["later"] == [1]


# --- what it costs to have them --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_importing_greenroom_loads_no_http_client():
    code = "import sys, greenroom, greenroom.transport; print([m for m in sys.modules if m.startswith('http')])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "httpx" not in done.stdout


@pytest.mark.slow
@pytest.mark.no_cover
def test_importing_greenroom_takes_half_a_second_of_processor_time_at_most():
    """Processor time and not a clock, so that other programs of the machine do not count."""
    code = "import time; before = time.process_time(); import greenroom; print(time.process_time() - before)"
    runs = (subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True) for _ in range(3))
    assert min(float(done.stdout) for done in runs) <= 0.5


def test_the_module_of_models_has_the_names_of_the_page():
    assert all(issubclass(model, HTTPModel) for model in MODELS.values())
    assert {model.__module__ for model in MODELS.values()} == {"greenroom.models"}


# --- what goes back unchanged ----------------------------------------------------------------------------------------

KEPT = {
    "chat": '"reasoning_content":"Let me add."',
    "responses": f'"encrypted_content":"{SIGNATURE}"',
    "anthropic": f'"thinking":"Let me add.","signature":"{SIGNATURE}"',
    "gemini": f'"thoughtSignature":"{SIGNATURE}"',
}
THINKING = reply(think("Let me add."), "I add. ", call("add", a=40, b=2, id="c1"))


@pytest.mark.rule("M-15")
@each_provider
async def test_reasoning_and_signatures_go_back_unchanged_also_after_a_restart(name, tmp_path):
    """They are in the thread, so the next process has them; a view does not show them."""

    @gr.tool(needs_approval=True)
    async def add(a: int, b: int) -> int:
        return a + b

    async with open_fault_server(THINKING, reply("42.")) as server:
        agent = helper(model_of(name, server), tools=[add])
        async with gr.open_runtime(tmp_path / "runs.db", agents=[agent]) as runtime:
            run = await runtime.start(agent, "What is 40 + 2?")
            waiting = await run.wait()
            assert SIGNATURE not in repr(await run.view())
        async with gr.open_runtime(tmp_path / "runs.db", agents=[agent]) as runtime:
            run = await runtime.get(run.id)
            await run.decide(waiting.tickets[0].approve())
            assert (await run.result()).output == "42."
        sent = msgspec.json.encode(server.requests[1].body).decode()
    assert KEPT[name] in sent
    assert sent.count("I add. ") == 1
    assert sent.count('"c1"') == 2, "the call and its result"


@pytest.mark.rule("M-15")
@each_provider
async def test_an_answer_goes_to_another_provider_without_what_only_its_own_reads(name):
    other = next(model for model in MODELS if model != name)

    async with open_fault_server(THINKING, reply("42.")) as server:

        class Switch(gr.Plugin):
            name = "switch"

            async def before_inference(self, ctx: gr.PhaseContext) -> gr.Mutation | None:
                return gr.Mutation().override(model="other:x") if ctx.step == 2 else None

        agent = helper(model_of(name, server), plugins=[Switch()])
        async with gr.open_runtime(agents=[agent], providers={"other": lambda _: model_of(other, server)}) as runtime:
            run = await runtime.start(agent, "What is 40 + 2?")
            assert (await run.result()).output == "42."
        sent = msgspec.json.encode(server.requests[1].body).decode()
    assert KEPT[name] not in sent
    assert "I add. " in sent
    assert '"c1"' in sent


# --- providers of one's own ------------------------------------------------------------------------------------------


@pytest.mark.rule("M-16")
async def test_a_provider_of_one_s_own_is_asked_once_for_each_name():
    made = []

    def local(name: str) -> gr.Model:
        made.append(name)
        return ScriptedModel([f"I am {name}."] * 2)

    agents = [gr.Agent(key, model=f"local:{model}") for key, model in (("a", "x:1"), ("b", "x:1"), ("c", "y"))]
    async with gr.open_runtime(agents=agents, providers={"local": local}) as runtime:
        outputs = [(await (await runtime.start(agent, "Hi")).result()).output for agent in agents]
    assert outputs == ["I am x:1.", "I am x:1.", "I am y."]
    assert made == ["x:1", "y"]


@pytest.mark.rule("M-16")
@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (lambda name: "no model", "returned 'no model', which is not a Model"),
        (lambda name: 1 / 0, "could not make model 'local:x': ZeroDivisionError: division by zero"),
    ],
)
async def test_a_provider_that_makes_no_model_is_an_error_of_the_start(factory, words):
    async with gr.open_runtime(providers={"local": factory}) as runtime:
        with pytest.raises(gr.AgentDefinitionError, match=words):
            await runtime.start(gr.Agent("a", model="local:x"), "Hi")


@pytest.mark.parametrize("providers", [7, ["local"], {"local": 7}, {"a:b": ScriptedModel}, {"": ScriptedModel}])
async def test_what_is_no_table_of_providers_is_refused(providers):
    with pytest.raises(gr.UsageError, match="providers"):
        async with gr.open_runtime(providers=providers):
            pass


@pytest.mark.rule("M-16")
async def test_an_installed_package_may_bring_a_provider(tmp_path, monkeypatch):
    """By an entry point, as its metadata declares it."""
    (tmp_path / "their_models.py").write_text(
        "from greenroom.testing import ScriptedModel\ndef make(name): return ScriptedModel([f'their {name}'])\n"
    )
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[greenroom.models]\ntheirs = their_models:make\n")
    monkeypatch.syspath_prepend(tmp_path)
    outcome = await gr.run(gr.Agent("a", model="theirs:x"), "Hi")
    assert outcome.output == "their x"
