"""Decisions at a gateway without agents: the answers of the process that has the agent, and those where none has it."""

import copy
from typing import Any

import pytest
import trio
from tests.support.gateway import TOKEN, gateway, http, welcomed
from tests.support.runs import agent
from tests.support.shared import cluster

import greenroom as gr
from greenroom.testing import call
from greenroom.transport import connect

from ..support.ai_sdk_page import Page
from .test_gateway_ag_ui import TOOLS, Front, parsed

pytestmark = pytest.mark.slow

REFUND = {"order": "1", "cents": 5}
APPROVE, DENY = {"action": "approve"}, {"action": "deny", "reason": "no"}
DECISIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "approved": (call("refund", **REFUND, id="c1"), APPROVE),
    "denied": (call("refund", **REFUND, id="c1"), DENY),
    "edited": (call("refund", **REFUND, id="c1"), APPROVE | {"editedArguments": {"order": "9", "cents": 1}}),
    "an edit that lacks a field": (call("refund", **REFUND, id="c1"), APPROVE | {"editedArguments": {"order": "9"}}),
    "an edit of another type": (
        call("refund", **REFUND, id="c1"),
        APPROVE | {"editedArguments": {"order": "9", "cents": "one"}},
    ),
    "an edit with more": (call("refund", **REFUND, id="c1"), APPROVE | {"editedArguments": {**REFUND, "to": "x"}}),
    "arguments given": (call("ship", id="c1"), APPROVE | {"result": {"to": "Oslo"}}),
    "arguments that do not fit": (call("ship", id="c1"), APPROVE | {"result": {"to": 7}}),
    "arguments that are no object": (call("ship", id="c1"), APPROVE | {"result": "Oslo"}),
    "a result": (call("seal", id="c1"), APPROVE | {"result": "red"}),
    "a result that does not fit": (call("seal", id="c1"), APPROVE | {"result": 7}),
    "an edit where no body runs": (call("seal", id="c1"), APPROVE | {"result": "red", "editedArguments": {}}),
    "another action": (call("refund", **REFUND, id="c1"), APPROVE | {"fingerprint": "0" * 32}),
    "an unknown target": (call("refund", **REFUND, id="c1"), APPROVE | {"target": "c9"}),
}


def helper(step: Any) -> gr.Agent[Any]:
    return agent(copy.deepcopy(step), "done", tools=TOOLS)


async def answers(where: str, door: str, step: Any, body: dict[str, Any]) -> list[Any]:
    """What a gateway answers to a decision, to its repetition and to another decision, and how the run ends."""
    async with cluster() as processes:
        worker = await processes.open(helper(step))
        deciding = worker if where == "worker" else await processes.open()
        run = await worker.start("helper", "hi", run_id="a")
        await run.wait()
        found: list[Any] = []
        async with gateway(deciding) as address:
            for key, fields in (("k", body), ("k", body), ("k2", APPROVE)):
                sent = {"target": "c1", **fields}
                if door == "rest":
                    headers = {"idempotency-key": key}
                    reply = await http(
                        address, "POST", "/v1/runs/a/commands", body={"type": "decide", **sent}, headers=headers
                    )
                    told = reply.json()
                    error = told.get("error", {})
                    found.append((reply.status, told.get("status"), told.get("code"), error.get("code")))
                else:
                    async with welcomed(address) as talk:
                        told = await talk.ask("decide", id=key, run="a", **sent)
                    found.append((told["type"], told.get("status"), told.get("code"), told.get("retry")))
        if any("accepted" in told for told in found):
            with trio.fail_after(60):
                found.append(type(await run.result()).__name__)
        view = await run.view()
        found.append([message.content for message in view.messages if message.role == "tool"])
        return found


@pytest.mark.parametrize("door", ["rest", "ws"])
@pytest.mark.parametrize("name", DECISIONS)
async def test_a_decision_has_the_same_answers_at_both(name: str, door: str) -> None:
    step, body = DECISIONS[name]
    there, here = [await answers(where, door, step, body) for where in ("edge", "worker")]
    assert there == here


async def test_a_decision_about_a_child_run_is_checked_by_the_child_s_tool() -> None:
    child = agent(call("refund", **REFUND, id="c1"), "paid", key="teller", tools=TOOLS)
    parent = agent(call("teller", input="pay", id="p1"), "done", key="helper", tools=[child.as_tool()])
    async with cluster() as processes:
        worker, edge = await processes.open(parent), await processes.open()
        run = await worker.start("helper", "hi", run_id="a")
        waiting = await run.wait()
        assert isinstance(waiting, gr.Waiting)
        ticket = waiting.tickets[0]
        refused = await edge.commands.decide("a", ticket.approve(edited_arguments={"order": 1}))
        assert (refused.status, refused.code) == ("rejected", "invalid_arguments")
        assert (await edge.commands.decide("a", ticket.approve(edited_arguments={"order": "9", "cents": 1}))).ok
        assert isinstance(await run.result(), gr.Completed)


async def test_of_several_releases_of_an_agent_one_that_takes_the_arguments_is_enough() -> None:
    @gr.tool(name="refund", needs_approval=True, effect="write")
    async def newer(order: str, cents: int, note: str = "") -> str:
        return f"paid {cents} for {order} {note}"

    async with cluster() as processes:
        worker, edge = await processes.open(helper(call("refund", **REFUND, id="c1"))), await processes.open()
        run = await worker.start("helper", "hi", run_id="a")
        await run.wait()
        ticket = (await run.view()).tickets[0]
        edited = {**REFUND, "note": "sorry"}
        first = await edge.commands.decide("a", ticket.approve(edited_arguments=edited))
        assert (first.status, first.code) == ("rejected", "invalid_arguments")
        await processes.open(agent("done", key="helper", tools=[newer]))
        assert (await edge.commands.decide("a", ticket.approve(edited_arguments=edited))).ok  # read anew at once


# --- an agent that no process has ------------------------------------------------------------------------------------


async def test_where_no_process_has_the_agent_every_door_says_so() -> None:
    async with cluster() as processes:
        worker, edge = await processes.open(helper(call("refund", **REFUND, id="c1"))), await processes.open()
        async with gateway(edge) as address:
            front, page = Front(address), Page(address, "v7")
            await front.ask("r1", "refund")
            await page.ask("u1", "refund")
            runs = [front.run_of_ours, page.run_of_ours]
            ticket = (await (await edge.get(runs[0])).view()).tickets[0]
            await processes.close(worker)

            edited = ticket.approve(edited_arguments=REFUND)
            refused = await edge.commands.decide(runs[0], edited)
            assert (refused.status, refused.code) == ("rejected", "unknown_agent")
            assert "no live process has the agent 'helper'" in (refused.detail or "")

            body = {"type": "decide", "target": "c1", **APPROVE, "editedArguments": REFUND}
            reply = await http(address, "POST", f"/v1/runs/{runs[0]}/commands", body=body)
            assert (reply.status, reply.json()["error"]["code"]) == (404, "unknown_agent")
            async with connect(address.url, token=TOKEN) as client:
                assert (await client.decide(runs[0], edited)).code == "unknown_agent"
            resumed = await front.post(front.body("r2", front.answers({"approved": True})))
            assert (resumed.status, resumed.json()["error"]["code"]) == (404, "unknown_agent")
            page.approve("c1")
            assert (await page.refused())[:2] == (404, "unknown_agent")

            # without arguments there is nothing to check: the decision waits for a process with the agent
            plain = await http(
                address, "POST", f"/v1/runs/{runs[0]}/commands", body={"type": "decide", "target": "c1"} | APPROVE
            )
            assert (plain.status, plain.json()["status"]) == (202, "accepted")
            again = await processes.open(helper(call("refund", **REFUND, id="c1")))
            assert isinstance(await (await again.get(runs[0])).result(), gr.Completed)
            frames = parsed((await front.post(front.body("r3"))).body)
            assert frames[-1]["type"] == "RUN_FINISHED"


async def test_on_postgresql_a_gateway_without_agents_takes_edited_arguments(postgres_url: str) -> None:
    worker_agent = helper(call("refund", **REFUND, id="c1"))
    async with gr.open_runtime(postgres_url, agents=[worker_agent]) as worker, gr.open_runtime(postgres_url) as edge:
        run = await worker.start("helper", "hi", run_id="a")
        await run.wait()
        async with gateway(edge) as address:
            body = {"type": "decide", "target": "c1", **APPROVE, "editedArguments": {"order": "9"}}
            reply = await http(address, "POST", "/v1/runs/a/commands", body=body)
            assert (reply.status, reply.json()["error"]["code"]) == (422, "invalid_arguments")
            front = Front(address)
            await front.ask("r1", "refund")
            await front.run("r2", front.answers({"approved": True, "editedArgs": {"order": "9", "cents": 1}}))
            assert front.results == {"c1": "paid 1 for 9"}
            body["editedArguments"] = {"order": "8", "cents": 2}
            assert (await http(address, "POST", "/v1/runs/a/commands", body=body)).status == 202
        assert isinstance(await run.result(), gr.Completed)
        view = await run.view()
        assert [message.content[-12:] for message in view.messages if message.role == "tool"] == ["paid 2 for 8"]
