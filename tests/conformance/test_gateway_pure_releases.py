"""Decisions about a tool that a release has changed or removed, where the gateway has no agents: every door says so."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call
from greenroom.transport import connect

from ..support.ai_sdk_page import Page
from ..support.gateway import TOKEN, gateway, http, welcomed
from ..support.runs import agent, events_of, home, payloads
from ..support.shared import cluster
from .test_gateway_ag_ui import Front, parsed

pytestmark = pytest.mark.slow

REFUND = {"order": "1", "cents": 5}
SCRIPT = (call("refund", **REFUND, id="c1"), "done")


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    """Pay back."""
    return f"paid {cents} for {order}"


@gr.tool(name="refund", needs_approval=True, effect="write")
async def newer(order: str, cents: int, note: str = "") -> str:
    """Pay back, with a note."""
    return f"paid {cents} for {order}{note}"


RELEASES: Mapping[str, tuple[gr.Tool[..., Any], ...]] = {"changed": (newer,), "gone": ()}
REASONS = {"changed": "the tool refund has changed since c1 was shown", "gone": "the tool refund is not there any more"}


def helper(*tools: gr.Tool[..., Any]) -> gr.Agent[Any]:
    return agent(*copy.deepcopy(SCRIPT), tools=list(tools))


async def released(processes: Any, *agents: gr.Agent[Any], old: gr.Runtime) -> gr.Runtime:
    """A process with the next release takes the place of another one."""
    await processes.close(old)
    runtime: gr.Runtime = await processes.open(*agents)
    return runtime


async def by_rest(address: Any, run: str) -> tuple[str, str]:
    body = {"type": "decide", "target": "c1", "action": "approve"}
    reply = await http(address, "POST", f"/v1/runs/{run}/commands", body=body)
    assert reply.status == 409
    return reply.json()["error"]["code"], reply.json()["error"]["message"]


async def by_ws(address: Any, run: str) -> tuple[str, str]:
    async with welcomed(address) as talk:
        reply = await talk.ask("decide", id="k", run=run, target="c1", action="approve")
    return reply["code"], reply["message"]


async def by_client(address: Any, run: str) -> tuple[str, str]:
    async with connect(address.url, token=TOKEN) as client:
        answer = await client.decide(run, "c1", "approve")
    return answer.code or "", answer.detail or ""


DOORS = {"rest": by_rest, "ws": by_ws, "client": by_client}


async def comes_to(run: gr.Run[Any], what: str) -> None:
    """The question is asked again, and can be answered; or it is withdrawn, and the run continues."""
    with trio.fail_after(60):
        if what == "changed":
            while (await run.view()).tickets[0].replaces is None:  # noqa: ASYNC110 - a view has no event
                await trio.sleep(0.5)
            (ticket,) = (await run.view()).tickets
            assert (await run.decide(ticket.approve())).ok
        outcome = await run.result()
    assert isinstance(outcome, gr.Completed)
    texts = [message.content for message in (await run.view()).messages if message.role == "tool"]
    gone = "This call was withdrawn: the tool refund is not there any more."
    assert texts == (["paid 5 for 1"] if what == "changed" else [gone])
    events = await events_of(run)
    assert [payload["reason"] for payload in payloads(events, "degraded")][-1] == "tool_changed"
    assert payloads(events, "approval.resolved")[0]["resolution"] == "withdrawn"


@pytest.mark.rule("A-11", "A-29")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("what", RELEASES)
async def test_an_approval_that_cannot_act_is_refused_and_the_run_gets_an_owner(what: str, door: str) -> None:
    async with cluster() as processes:
        worker, edge = await processes.open(helper(refund)), await processes.open()
        await (await worker.start("helper", "hi", run_id="a")).wait()
        await released(processes, helper(*RELEASES[what]), old=worker)
        async with gateway(edge) as address:
            code, text = await DOORS[door](address, "a")
        assert (code, text[: len(REASONS[what])]) == ("fingerprint_mismatch", REASONS[what])
        await comes_to(await edge.get("a"), what)


@pytest.mark.rule("A-11", "A-29")
@pytest.mark.parametrize("what", RELEASES)
async def test_the_chat_protocols_refuse_with_the_reason_and_show_what_becomes_of_it(what: str) -> None:
    async with cluster() as processes:
        worker, edge = await processes.open(helper(refund)), await processes.open()
        async with gateway(edge) as address:
            front, page = Front(address), Page(address, "v7")
            await front.ask("r1", "refund")
            await page.ask("u1", "refund")
            runs = [front.run_of_ours, page.run_of_ours]
            await released(processes, helper(*RELEASES[what]), old=worker)
            yes = {"approved": True}
            answers = [front.answers(yes), front.answers(yes | {"editedArgs": {"order": "9", "cents": 1}})]
            for edited in range(2 if what == "changed" else 1):  # a run without the question ends
                error = parsed((await front.post(front.body("r2", answers[edited]))).body)[-1]
                assert (error["type"], error["code"]) == ("RUN_ERROR", "fingerprint_mismatch")
                assert edited or REASONS[what] in error["message"]
            page.approve("c1")
            status, code, text = await page.refused()
            assert (status, code) == (409, "fingerprint_mismatch")
            assert REASONS[what] in text
            for run_id in runs:
                await comes_to(await edge.get(run_id), what)


@pytest.mark.rule("A-13", "A-29")
@pytest.mark.parametrize("what", RELEASES)
async def test_a_denial_acts(what: str) -> None:
    async with cluster() as processes:
        worker, edge = await processes.open(helper(refund)), await processes.open()
        run = await worker.start("helper", "hi", run_id="a")
        await run.wait()
        await released(processes, helper(*RELEASES[what]), old=worker)
        run = await edge.get("a")
        assert (await run.decide("c1", "deny", reason="no")).ok
        with trio.fail_after(60):
            assert isinstance(await run.result(), gr.Completed)
        texts = [message.content for message in (await run.view()).messages if message.role == "tool"]
        assert texts == ["The reviewer denied this call: no"]


@pytest.mark.rule("A-29", "CR-31")
@pytest.mark.parametrize("what", RELEASES)
@pytest.mark.parametrize("target", ["mirror", "child"])
async def test_a_question_of_a_child_run_is_judged_by_the_release_that_is_there(what: str, target: str) -> None:
    def office(*tools: gr.Tool[..., Any]) -> gr.Agent[Any]:
        teller = gr.Agent("teller", model=ScriptedModel([*copy.deepcopy(SCRIPT)]), tools=list(tools))
        return agent(call("teller", input="pay", id="p1"), "all done", tools=[teller.as_tool()])

    async with cluster() as processes:
        worker, edge = await processes.open(office(refund)), await processes.open()
        waiting = await (await worker.start("helper", "hi", run_id="a")).wait()
        assert isinstance(waiting, gr.Waiting)
        (mirror,) = waiting.tickets
        await released(processes, office(*RELEASES[what]), old=worker)
        parent, child = await edge.get("a"), await edge.get(mirror.child_run_id or "")
        decided, ticket = (parent, mirror.ticket_id) if target == "mirror" else (child, mirror.child_ticket_id or "")
        refused = await decided.decide(ticket, "approve")
        assert (refused.status, refused.code) == ("rejected", "fingerprint_mismatch")
        assert (refused.detail or "").startswith(REASONS[what].partition(" since")[0])
        await comes_to(child, what)
        with trio.fail_after(60):
            outcome = await parent.result()
        assert isinstance(outcome, gr.Completed)
        assert outcome.output == "all done"


@pytest.mark.rule("A-11")
async def test_of_several_releases_one_that_the_ticket_shows_is_enough() -> None:
    async with cluster() as processes:
        worker, edge = await processes.open(helper(refund)), await processes.open()
        run = await worker.start("helper", "hi", run_id="a")
        await run.wait()
        await processes.open(helper(newer))
        assert (await (await edge.get("a")).decide("c1", "approve")).ok


@pytest.mark.rule("A-29")
async def test_waiting_for_a_run_withdraws_the_question_without_a_decision(shelf: Any, autojump_clock: Any) -> None:
    """The next process has the agent without the tool: no person can help the run any more."""
    async with home(shelf, agents=[helper(refund)], drain=0) as runtime:
        await (await runtime.start("helper", "hi", run_id="a")).wait()
    async with home(shelf, agents=[helper()], drain=0) as runtime:
        assert isinstance(await (await runtime.get("a")).wait(), gr.Completed)
    async with home(shelf, agents=[helper(refund)], drain=0) as runtime:
        assert (await runtime.replay("a")).equal, "the record names what was withdrawn, whatever the tools are now"


@pytest.mark.rule("A-11", "A-29")
@pytest.mark.parametrize("what", RELEASES)
async def test_what_was_accepted_where_no_process_had_the_agent_is_refused_by_an_event(
    shelf: Any, autojump_clock: Any, what: str
) -> None:
    """Nothing could be known: the next owner refuses the decision, and asks again or withdraws the question."""
    async with home(shelf, agents=[helper(refund)], drain=0) as runtime:
        await (await runtime.start("helper", "hi", run_id="a")).wait()
    async with home(shelf, drain=0) as runtime:
        assert (await (await runtime.get("a")).decide("c1", "approve", by="ada")).status == "accepted"
    async with home(shelf, agents=[helper(*RELEASES[what])], drain=0) as runtime:
        run = await runtime.get("a")
        if what == "gone":
            assert isinstance(await run.result(), gr.Completed)
        else:
            (ticket,) = (await run.wait()).tickets
            assert ticket.replaces == "a.t1"
            assert (await run.decide(ticket.approve())).ok
            await run.result()
        (refused,) = payloads(await events_of(run), "decision.refused")
        assert refused["code"] == "fingerprint_mismatch"
        assert "the tool" in refused["detail"]


@pytest.mark.parametrize("what", RELEASES)
async def test_on_postgresql_a_refused_approval_gives_the_run_an_owner(postgres_url: str, what: str) -> None:
    async with gr.open_runtime(postgres_url) as edge:
        async with gr.open_runtime(postgres_url, agents=[helper(refund)]) as old:
            await (await old.start("helper", "hi", run_id="a")).wait()
        async with gr.open_runtime(postgres_url, agents=[helper(*RELEASES[what])]):
            with trio.fail_after(60):  # a runtime is open before its agents are published
                while "helper" not in await edge.store.agents():  # noqa: ASYNC110 - publications have no event
                    await trio.sleep(0.01)
            run = await edge.get("a")
            refused = await run.decide("c1", "approve")
            assert (refused.code, (refused.detail or "")[: len(REASONS[what])]) == (
                "fingerprint_mismatch",
                REASONS[what],
            )
            await comes_to(run, what)
