"""Remembered rules through the gateway: made by each road of a decision, listed and revoked by those who may."""

from typing import Any

import pytest
from tests.support.gateway import TOKEN, gateway, http, talking
from tests.support.runs import agent

import greenroom as gr
from greenroom.testing import call
from greenroom.transport import Principal
from greenroom.transport.client import NotAllowed, connect

pytestmark = pytest.mark.slow

ANN, BOB, EVE = "token-of-ann-0123456789", "token-of-bob-0123456789", "token-of-eve-0123456789"
PEOPLE = [
    Principal(name="ann", token=ANN, scopes={"follow", "decide"}, sees=lambda info: info.by == "ann"),
    Principal(name="bob", token=BOB, scopes={"follow", "decide"}, sees=lambda info: info.by == "bob"),
    Principal(name="eve", token=EVE, scopes={"follow"}),
    Principal(name="operator", token=TOKEN),
]


@gr.tool(effect="shell")
async def shell(command: str) -> str:
    """Run a command."""
    return "done"


def coder(*commands: str) -> gr.Agent[Any]:
    steps = [call("shell", command=command) for command in commands or ("make a", "make a", "make b")]
    return agent(*steps, "done", key="coder", tools=[shell], plugins=[gr.ext.Permission()])


async def asked(run: gr.Run[Any]) -> gr.Ticket:
    outcome = await run.wait()
    assert isinstance(outcome, gr.Waiting)
    return outcome.tickets[0]


async def by_http(address: Any, ticket: gr.Ticket, remember: dict[str, str]) -> str:
    body = {"type": "decide", "target": ticket.ticket_id, "action": "approve", "remember": remember}
    reply = await http(address, "POST", f"/v1/runs/{ticket.run_id}/commands", body=body)
    data = reply.json()
    return str(data["status"] if reply.status == 202 else data["error"]["code"])


async def by_socket(address: Any, ticket: gr.Ticket, remember: dict[str, str]) -> str:
    async with talking(address) as talk:
        await talk.hear()
        fields = {"run": ticket.run_id, "target": ticket.ticket_id, "action": "approve", "remember": remember}
        answer = await talk.ask("decide", id="d1", **fields)
        return str(answer["status"] if answer["type"] == "gw.ack" else answer["code"])


async def by_client(address: Any, ticket: gr.Ticket, remember: dict[str, str]) -> str:
    async with connect(address.url, token=TOKEN) as client:
        always: Any = gr.ext.Always(**remember)
        result = await client.decide(ticket.run_id, ticket.approve(), remember=always)
        return str(result.code or result.status)


ROADS = [by_http, by_socket, by_client]


@pytest.mark.parametrize("road", ROADS)
async def test_always_beside_a_decision_is_a_rule(road: Any) -> None:
    async with gr.open_runtime(agents=[coder()]) as runtime, gateway(runtime) as address:
        run = await runtime.start("coder", "go", run_id="r", thread_id="t")
        assert await road(address, await asked(run), {"scope": "run", "form": "argv"}) == "accepted"
        assert (await asked(run)).arguments == {"command": "make b"}
        (rule,) = await runtime.rules()
        assert (rule.by, rule.scope, rule.holder, rule.form) == ("operator", "run", "r", "argv")
        line = (await http(address, "GET", "/v1/rules?run=r")).json()
        assert line["cursor"] is None
        assert {name: line["rules"][0][name] for name in ("ruleId", "about", "by", "revokedAt")} == {
            "ruleId": rule.rule_id,
            "about": "make a",
            "by": "operator",
            "revokedAt": None,
        }
        assert await road(address, await asked(run), {"scope": "workspace", "form": "call"}) == "not_allowed"
        assert len(await runtime.rules()) == 1


@pytest.mark.parametrize(
    ("remember", "words"),
    [
        ({"scope": "for ever"}, "'for ever' is not known"),
        ({"form": "cal"}, "did you mean 'call'"),
        ({"as": "call"}, "as is not known here"),
        ("thread", "expected an object"),
    ],
)
async def test_another_always_is_refused_and_names_what_there_is(remember: Any, words: str) -> None:
    async with gr.open_runtime(agents=[coder()]) as runtime, gateway(runtime) as address:
        run = await runtime.start("coder", "go", run_id="r")
        body = {"type": "decide", "target": (await asked(run)).ticket_id, "action": "approve", "remember": remember}
        reply = await http(address, "POST", "/v1/runs/r/commands", body=body)
        assert (reply.status, reply.json()["error"]["code"]) == (400, "bad_message")
        assert words in reply.json()["error"]["message"]
        denial = {**body, "action": "deny", "remember": {}}
        reply = await http(address, "POST", "/v1/runs/r/commands", body=denial)
        assert (reply.status, reply.json()["error"]["code"]) == (422, "unprocessable")
        await asked(run)


async def test_people_see_and_revoke_the_rules_of_the_runs_that_they_see() -> None:
    async with (
        gr.open_runtime(agents=[coder()]) as runtime,
        gateway(runtime, principals=PEOPLE) as address,
        connect(address.url, token=ANN) as ann,
        connect(address.url, token=BOB) as bob,
        connect(address.url, token=EVE) as eve,
    ):
        for name, client in (("ann", ann), ("bob", bob)):
            run = await runtime.start("coder", "go", run_id=f"of-{name}", by=name)
            always = gr.ext.Always(scope="thread")
            assert (await client.decide(run.id, (await asked(run)).approve(), remember=always)).ok
            await asked(run)
        assert [rule.run_id for rule in await ann.rules()] == ["of-ann"]
        assert [rule.run_id for rule in await bob.rules("of-bob")] == ["of-bob"]
        assert {rule.run_id for rule in await eve.rules()} == {"of-ann", "of-bob"}
        with pytest.raises(gr.UnknownRun):
            await bob.rules("of-ann")
        (of_ann,) = await ann.rules()
        assert of_ann.covered == of_ann.definition == ""
        assert await bob.revoke_rule(of_ann.rule_id) is None
        assert await bob.revoke_rule("no such rule/?") is None
        with pytest.raises(NotAllowed):
            await eve.revoke_rule(of_ann.rule_id)
        assert [rule.revoked_at for rule in await runtime.rules()] == [None, None]
        revoked = await ann.revoke_rule(of_ann.rule_id)
        assert revoked is not None
        assert (revoked.revoked_by, await ann.rules()) == ("ann", [revoked])
        reply = await http(address, "POST", f"/v1/rules/{of_ann.rule_id}/revoke", token=ANN)
        assert (reply.status, reply.json()["revokedBy"]) == (200, "ann")
        reply = await http(address, "POST", f"/v1/rules/{of_ann.rule_id}/revoke", token=BOB)
        assert (reply.status, reply.json()["error"]["code"]) == (404, "unknown_rule")


async def test_nobody_makes_a_rule_for_runs_that_they_may_not_see() -> None:
    async with (
        gr.open_runtime(agents=[coder()]) as runtime,
        gateway(runtime, principals=PEOPLE) as address,
        connect(address.url, token=ANN) as ann,
        connect(address.url, token=TOKEN) as operator,
    ):
        await (await runtime.start("coder", "go", run_id="b", thread_id="t", by="bob")).cancel()
        run = await runtime.start("coder", "go", run_id="a", thread_id="t", by="ann")
        approval = (await asked(run)).approve()
        for scope, words in [("workspace", "are not open to you; use"), ("thread", "is not open to you")]:
            always: Any = gr.ext.Always(scope=scope)
            result = await ann.decide("a", approval, remember=always)
            assert (result.status, result.code) == ("rejected", "not_allowed")
            assert words in str(result.detail)
        result = await operator.decide("a", approval, remember=gr.ext.Always(scope="workspace"))
        assert "works in no workspace" in str(result.detail)
        assert await runtime.rules() == []
        assert (await ann.decide("a", approval, remember=gr.ext.Always(scope="run"))).ok
        assert [rule.by for rule in await runtime.rules()] == ["ann"]
        wrong: Any = {"scope": "run"}
        with pytest.raises(gr.UsageError, match=r"give gr\.ext\.Always"):
            await ann.decide("a", approval, remember=wrong)


async def test_pages_of_rules_are_complete_and_refuse_what_is_no_cursor() -> None:
    async with gr.open_runtime(agents=[coder("make a")]) as runtime, gateway(runtime) as address:
        for number in range(5):
            run = await runtime.start("coder", "go", thread_id=f"t{number}")
            assert (await run.decide((await asked(run)).approve(), remember=gr.ext.Always())).ok
            await run.result()
        pages, path = [], "/v1/rules?limit=2"
        while True:
            data = (await http(address, "GET", path)).json()
            pages.append([rule["holder"] for rule in data["rules"]])
            if data["cursor"] is None:
                break
            path = f"/v1/rules?limit=2&cursor={data['cursor']}"
        assert [len(page) for page in pages] == [2, 2, 1]
        assert sorted(holder for page in pages for holder in page) == [f"t{number}" for number in range(5)]
        for query, code in [("limit=0", 400), ("limit=201", 400), (f"cursor={'x' * 600}", 400), ("cursor=%0a", 422)]:
            assert (await http(address, "GET", f"/v1/rules?{query}")).status == code
        assert (await http(address, "GET", "/v1/rules?run=nothing")).status == 404
