"""One casing on the wire: keys of Greenroom are in camelCase, and no key of user data is ever touched.

The frames and bodies of all other tests are looked at where they are read (`support/gateway.py`, `e2e/cli_kit.py`).
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.actors.contract.casing import camel, from_wire, wire
from greenroom.actors.contract.catalogue import CATALOGUE
from greenroom.actors.contract.codec import parse
from greenroom.actors.contract.commits import EventDraft
from greenroom.actors.contract.envelope import EventEncoder
from greenroom.actors.contract.rows import RunInfo
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.testing import call
from greenroom.transport import connect
from greenroom.transport.client import frames
from greenroom.transport.protocol import up

from ..support.casing import SNAKE, cased, keys
from ..support.gateway import TOKEN, gateway, http, welcomed
from ..support.runs import agent
from ..unit.contract.strategies import MOMENTS, examples, instances

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
NAMES = sorted({name for cls in CATALOGUE.values() for name in cls.__struct_fields__ if "_" in name})
KEYS = [*NAMES, *map(camel, NAMES), "snake_case", "_private", "trailing_", "__dunder__", "a_B_c", "ünï_cöde", ""]
"""Keys of users: also those that fields of Greenroom have, in both casings."""
LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.sampled_from([*KEYS, "text"])
DATA = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS), DATA, max_size=4)
encode = msgspec.json.encode


# --- what is published -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_no_published_schema_names_a_field_in_snake_case(path: Path) -> None:
    document = json.loads(path.read_text())
    assert [key for key in keys(document) if SNAKE.search(key) and key not in CATALOGUE] == []
    required = re.findall(r'"required": \[([^\]]*)\]', path.read_text())
    assert [found for found in required if "_" in found] == []


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: path.stem)
def test_the_texts_of_a_schema_name_fields_as_they_are_on_the_wire(path: Path) -> None:
    document = json.loads(path.read_text())
    known = set(keys(document))
    texts = re.findall(r'"description": "((?:[^"\\]|\\.)*)"', path.read_text())
    quoted = {word for text in texts for word in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text)}
    assert {word for word in quoted if camel(word) in known} == set()


def test_the_look_at_keys_finds_a_key_in_snake_case() -> None:
    """Of ours; what is in user data is theirs."""
    fine = {"runId": "r", "arguments": {"order_id": 1}, "calls": {"call_1": "new"}, "tasks": {"c_1": {"taskId": "t"}}}
    assert cased(fine) is fine
    for wrong in ({"run_id": "r"}, {"page": [{"ticket_id": 1}]}, {"tasks": {"c1": {"task_id": "t"}}}):
        with pytest.raises(AssertionError, match="snake_case"):
            cased(wrong)


# --- user data in single values --------------------------------------------------------------------------------------


OWN = ("attachments", "entries", "files", "left_out")
"""Lists of facts about parts, plans and files: their keys are fields of Greenroom."""


def foreign(cls: type) -> Mapping[str, st.SearchStrategy[Any]]:
    """The fields of a payload that hold values of users."""
    hints = {field.name: field.type for field in msgspec.structs.fields(cls)}
    found = {}
    for name, hint in hints.items():
        if name in OWN:
            continue
        if "Mapping" in str(hint):
            found[name] = OBJECTS
        elif name in ("result", "output"):
            found[name] = DATA
    return found


HOLDERS = sorted(name for name, cls in CATALOGUE.items() if foreign(cls))


@pytest.mark.parametrize("kind", HOLDERS)
@examples(15)
@given(st.data())
def test_user_data_in_an_event_keeps_its_bytes(kind: str, data: st.DataObject) -> None:
    cls = CATALOGUE[kind]
    payload = data.draw(instances(cls, **foreign(cls)))
    info = RunInfo(
        run_id="r", thread_id="t", agent="a", agent_digest="d", created_at=data.draw(MOMENTS), execution="sequential"
    )
    (frame,) = EventEncoder(info, Redactor()).frames(0, info.created_at, [EventDraft(kind, payload)])
    report = json.loads(frame)["payload"]
    for name in foreign(cls):
        given_ = getattr(payload, name)
        if camel(name) in report:
            assert b'"%b":%b' % (camel(name).encode(), encode(given_)) in frame
    assert not [key for key in report if SNAKE.search(key)]


def test_every_place_of_user_data_in_events_is_among_them() -> None:
    assert {field for kind in HOLDERS for field in foreign(CATALOGUE[kind])} == {
        "arguments",
        "detail",
        "metadata",
        "output",
        "parameters",
        "response_schema",
        "result",
    }


@given(DATA, OBJECTS)
def test_user_data_in_a_command_arrives_as_it_was_sent(result: Any, edited: dict[str, Any]) -> None:
    sent = up.Decide(id="d", run="r", target="t", action="approve", result=result, edited_arguments=edited)
    text = frames.write(sent)
    assert cased(json.loads(text))
    assert b'"editedArguments":%b' % encode(edited) in text.encode()
    assert up.read(up.parse(text)) == sent


@given(OBJECTS, OBJECTS, OBJECTS | st.none(), MOMENTS)
def test_user_data_in_a_ticket_arrives_as_it_was(arguments: Any, parameters: Any, schema: Any, moment: Any) -> None:
    ticket = gr.Ticket(
        ticket_id="t",
        run_id="r",
        call_id="c",
        tool="pay_out",
        arguments=arguments,
        fingerprint="f",
        reason="tool_permission",
        requested_at=moment,
        parameters=parameters,
        response_schema=schema,
    )
    reported = wire(ticket)
    assert (reported["arguments"], reported["parameters"], reported["responseSchema"]) == (
        arguments,
        parameters,
        schema,
    )
    assert parse(gr.Ticket, from_wire(gr.Ticket, cased(json.loads(encode(reported))))) == ticket


# --- user data through a run -----------------------------------------------------------------------------------------


def some(chosen: Random, depth: int = 3) -> Any:
    """A value with the keys of users at each level."""
    if depth == 0:
        return chosen.choice(["call_id", 7, None, True, 1.5])
    if chosen.random() < 0.3:
        return [some(chosen, depth - 1) for _ in range(2)]
    return {key: some(chosen, depth - 1) for key in chosen.sample(KEYS, 4)}


def an_object(chosen: Random) -> dict[str, Any]:
    return {key: some(chosen, 2) for key in chosen.sample(KEYS, 5)}


@pytest.mark.slow
async def test_user_data_keeps_its_keys_on_every_road_out(rng: Random) -> None:
    """Arguments, parameters, schemas, results and outputs, over HTTP, events, the WebSocket and the client."""
    asked, details, reply, edited = (an_object(rng) for _ in range(4))
    schema = {"type": "object", "properties": {key: {} for key in asked}, "x_extension": details}

    @gr.tool
    async def ask_back(the_order: dict[str, Any]) -> str:
        raise gr.Suspend(
            parameters=details, response_schema=schema, resume_mode="use_decision_as_tool_result", message="m"
        )

    @gr.tool(needs_approval=True)
    async def pay_out(the_order: dict[str, Any]) -> dict[str, Any]:
        return the_order

    helper = agent(
        [call("ask_back", the_order=asked, id="c_1"), call("pay_out", the_order=asked, id="c_2")],
        "done",
        tools=[ask_back, pay_out],
        execution="parallel_streaming",
    )
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        async with connect(address.url, token=TOKEN) as client, welcomed(address) as talk:
            run = await runtime.start(helper, "hi", run_id="run_1")
            await run.wait()
            for plain in ((await http(address, "GET", "/v1/runs/run_1")).json(), await snapshot(talk)):
                by_tool = {ticket["tool"]: ticket for ticket in plain["tickets"]}
                assert by_tool["ask_back"]["parameters"] == details
                assert by_tool["ask_back"]["responseSchema"] == schema
                assert by_tool["pay_out"]["arguments"] == {"the_order": asked}
                assert list(plain["calls"]) == ["c_1", "c_2"]
            tickets = {ticket.tool: ticket for ticket in (await client.view("run_1")).tickets}
            assert tickets["ask_back"].response_schema == schema
            assert (await client.decide("run_1", tickets["ask_back"].approve(reply))).ok
            changed = {"the_order": edited}
            body = {"type": "decide", "target": "c_2", "action": "approve", "editedArguments": changed}
            assert (await http(address, "POST", "/v1/runs/run_1/commands", body=body)).status == 202
            with trio.fail_after(30):
                await run.result()
            page = (await http(address, "GET", "/v1/runs/run_1/events?limit=1000")).body
            stored = b"".join(await runtime.store.events("run_1", limit=1000))
            for content in (page, stored):
                for value in (asked, details, schema, reply, edited):
                    assert encode(value) in content
            results = [event["payload"] for event in json.loads(page)["events"] if event["type"] == "run.tool.result"]
            assert {result["callId"]: result["result"] for result in results} == {"c_1": reply, "c_2": edited}


async def snapshot(talk: Any) -> Any:
    """What a reader with a cursor beyond the head gets."""
    return (await talk.ask("subscribe", run="run_1", after=10_000))["snapshot"]
