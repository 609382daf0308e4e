"""Whose thread it is, on every road that starts a run: after pruning, beside hidden runs, and in races."""

import json
from datetime import timedelta

import pytest
import trio
from tests.support.gateway import http
from tests.support.gateway_inside import house
from tests.support.raw_ws import said

import greenroom as gr
from greenroom.testing import ScriptedModel
from greenroom.transport import Principal

pytestmark = pytest.mark.slow

SECRET = "the-safe-is-0000"
ANN, BOB = "token-of-ann-0123456789", "token-of-bob-0123456789"


class Echo(ScriptedModel):
    """Answers, and keeps what the model was given."""

    def __init__(self):
        super().__init__(["done"] * 2000)
        self.seen = []

    def stream(self, request):
        self.seen.append(" ".join(str(message.content) for message in request.messages))
        return super().stream(request)


def people():
    return [
        Principal(name="ann", token=ANN, sees=lambda info: info.by == "ann"),
        Principal(name="bob", token=BOB, sees=lambda info: info.by == "bob"),
    ]


async def by_socket(here, token, thread, name, run=None):
    async with here.talking(token) as raw:
        order = {"id": name, "agent": "echo", "text": name, "thread": thread, "run": run}
        await raw.send(said("start", **{key: value for key, value in order.items() if value is not None}))
        found = await raw.tell()
        return found.get("code"), json.dumps(found)


async def by_http(here, token, thread, name, run=None):
    order = {"agent": "echo", "text": name, "thread": thread, "run": run}
    body = json.dumps({key: value for key, value in order.items() if value is not None}).encode()
    found = await http(here.address, "POST", "/v1/runs", token=token, body=body, headers={"Idempotency-Key": name})
    return (found.json().get("error") or {}).get("code"), str(found.body)


async def by_ai_sdk(here, token, thread, name, run=None):
    message = {"id": name, "role": "user", "parts": [{"type": "text", "text": name}]}
    body = json.dumps({"id": thread, "trigger": "submit-message", "messages": [message]}).encode()
    found = await http(here.address, "POST", "/v1/ai-sdk/v6/agents/echo/chat", token=token, body=body)
    return coded(found)


async def by_ag_ui(here, token, thread, name, run=None):
    message = {"id": name, "role": "user", "content": name}
    asked = {"threadId": thread, "runId": f"r-{name}", "messages": [message], "tools": [], "context": []}
    body = json.dumps({**asked, "state": {}, "forwardedProps": {}}).encode()
    found = await http(here.address, "POST", "/v1/ag-ui/agents/echo/run", token=token, body=body)
    return coded(found)


def coded(found):
    """The code of a refusal, of whatever form; None for a stream of events."""
    if found.status == 200:
        return None, str(found.body)
    said_back = found.json().get("error")
    said_back = json.loads(said_back) if isinstance(said_back, str) and said_back.startswith("{") else said_back
    return (said_back.get("code") if isinstance(said_back, dict) else str(found.status)), str(found.body)


ROADS = [by_socket, by_http, by_ai_sdk, by_ag_ui]


async def prune(here):
    return await here.runtime.store.prune(here.runtime.clock.now() + timedelta(days=1))


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("left", ["all", "some", "none"])
async def test_a_thread_stays_its_owners_also_when_its_runs_are_pruned(road, left):
    model = Echo()
    async with house(gr.Agent("echo", model=model), principals=people()) as here:
        first = await here.runtime.start("echo", SECRET, thread_id="t", by="ann")
        await first.result()
        if left != "all":
            await prune(here)
        if left == "some":
            second = await here.runtime.start("echo", "more", thread_id="t", by="ann")
            await second.result()
        refused, text = await road(here, BOB, "t", "what-was-said")
        assert refused in ("not_allowed", "403"), text
        assert SECRET not in text
        assert first.id not in text
        assert len(model.seen) == (2 if left == "some" else 1), "the model was asked for nobody else"
        allowed, text = await road(here, ANN, "t", "and-now")
        assert allowed is None, text


@pytest.mark.parametrize("road", ROADS)
async def test_what_a_pruned_run_of_others_has_left_keeps_a_thread_shut(road):
    """One run that bob may see is left in the thread; the messages before it are ann's."""
    model = Echo()
    async with house(gr.Agent("echo", model=model), principals=people()) as here:
        await (await here.runtime.start("echo", SECRET, thread_id="t", by="ann")).result()
        middle = here.runtime.clock.now()
        await trio.sleep(0.01)
        await (await here.runtime.start("echo", "hello", thread_id="t", by="bob")).result()
        assert (await here.runtime.store.prune(middle + timedelta(milliseconds=5))).runs == 1
        refused, text = await road(here, BOB, "t", "what-was-said")
        assert refused in ("not_allowed", "403"), text
        assert len(model.seen) == 2


@pytest.mark.parametrize("road", [by_socket, by_http])
@pytest.mark.parametrize("pruned", [False, True])
async def test_a_run_id_of_others_is_refused_without_a_word_about_their_run(road, pruned):
    async with house(gr.Agent("echo", model=Echo()), principals=people()) as here:
        theirs = await here.runtime.start("echo", SECRET, run_id="mine", thread_id="t", by="ann")
        await theirs.result()
        if pruned:
            await prune(here)
        for thread in (None, "other"):
            refused, text = await road(here, BOB, thread, f"x-{thread}", run="mine")
            assert refused == "not_allowed", text
            assert not any(word in text for word in ("exist", "prune", "done", "content", "ann")), text


@pytest.mark.parametrize("road", ROADS)
async def test_of_two_starts_in_a_new_thread_by_two_principals_one_gets_the_thread(road):
    model = Echo()
    async with house(gr.Agent("echo", model=model), principals=people()) as here:
        found = []

        async def ask(token, thread, name):
            found.append((thread, (await road(here, token, thread, name))[0]))

        threads = [f"t{number}" for number in range(25)]
        async with trio.open_nursery() as nursery:
            for thread in threads:
                for token, name in ((ANN, "ann"), (BOB, "bob")):
                    nursery.start_soon(ask, token, thread, f"{name}-{thread}")
        for thread in threads:
            codes = sorted(str(code) for name, code in found if name == thread)
            assert codes in (["None", "not_allowed"], ["403", "None"]), (thread, codes)
        assert not [seen for seen in model.seen if "ann-" in seen and "bob-" in seen]


@pytest.mark.parametrize("road", ROADS)
async def test_the_same_start_again_after_pruning_makes_no_second_run(road):
    """Neither one that never ends, nor one that acts twice; the thread is free for the next one."""
    model = Echo()
    async with house(gr.Agent("echo", model=model), principals=people()) as here:
        for thread in ["t", None] if road in (by_socket, by_http) else ["t"]:
            asked = len(model.seen)
            assert (await road(here, ANN, thread, f"once-{thread}"))[0] is None
            await here.runtime.join()
            assert len(model.seen) == asked + 1
            await prune(here)
            refused, text = await road(here, ANN, thread, f"once-{thread}")
            assert refused in ("run_pruned", "410"), text
            assert len(model.seen) == asked + 1
            if thread is not None:
                assert (await road(here, ANN, thread, f"next-{thread}"))[0] is None
                await here.runtime.join()
                assert len(model.seen) == asked + 2
        assert not (await here.runtime.runs(status="running")).runs


async def test_a_busy_thread_does_not_name_a_run_that_may_not_be_seen():
    """The thread is bob's; a run of the house works in it."""
    gate = trio.Event()

    @gr.tool
    async def wait() -> str:
        await gate.wait()
        return "ok"

    from greenroom.testing import call

    agent = gr.Agent("echo", model=ScriptedModel([call("wait"), "done"]), tools=[wait])
    who = [Principal(name="bob", token=BOB, sees=lambda info: info.run_id != "hidden")]
    async with house(agent, principals=who) as here:
        await here.runtime.start("echo", "x", run_id="hidden", thread_id="t", by="bob")
        body = json.dumps({"agent": "echo", "text": "y", "thread": "t", "onBusy": "refuse"}).encode()
        found = await http(here.address, "POST", "/v1/runs", token=BOB, body=body)
        assert found.status in (403, 409)
        assert "hidden" not in str(found.body)
        gate.set()
