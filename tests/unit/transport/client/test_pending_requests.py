"""Commands over a real socket: they act once, whatever happens to the connection, and their answers are values."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.transport.client import ClientClosed, NotAllowed, StartedRun
from greenroom.transport.client.pending_requests import PendingAnswers
from greenroom.transport.client.trio_streams import TRIO
from greenroom.transport.client.waiting import ask

from ....support.fake_gateway import FakeGateway
from .kit import client_of

TICKET = gr.Ticket(
    ticket_id="t1",
    run_id="r",
    call_id="c1",
    tool="refund",
    arguments={"order": "7"},
    fingerprint="f1",
    reason="tool_permission",
    requested_at=datetime(2026, 1, 1, tzinfo=UTC),
)


@pytest.fixture
async def gateway(road: str) -> AsyncIterator[FakeGateway]:
    async with FakeGateway().open() as gateway:
        yield gateway


async def test_each_command_goes_out_as_the_protocol_has_it(gateway: FakeGateway) -> None:
    async with client_of(gateway) as client:
        answer = await client.decide(
            "r",
            "t1",
            "resume",
            result={"a": (1, 2)},
            edited_arguments={"order": "8"},
            reason="fine",
            fingerprint="f1",
            decision_id="d1",
        )
        assert answer == gr.CommandResult(status="accepted", command_id="d1")
        await client.decide("r", attrs_with_id(TICKET.deny("no")))
        await client.cancel("r", mode="after_step", reason="enough", command_id="c1")
        await client.send("r", "more", command_id="s1")
        await client.pause("r", reason="lunch", command_id="p1")
        started = await client.start("support", "help", thread_id="t", session_id="s", on_busy="refuse", command_id="x")
    assert gateway.acted == [
        {
            "type": "decide",
            "id": "d1",
            "run": "r",
            "target": "t1",
            "action": "resume",
            "result": {"a": [1, 2]},
            "editedArguments": {"order": "8"},
            "reason": "fine",
            "fingerprint": "f1",
        },
        {
            "type": "decide",
            "id": "d2",
            "run": "r",
            "target": "t1",
            "action": "cancel",
            "reason": "no",
            "fingerprint": "f1",
        },
        {"type": "cancel", "id": "c1", "run": "r", "mode": "after_step", "reason": "enough"},
        {"type": "send", "id": "s1", "run": "r", "text": "more"},
        {"type": "pause", "id": "p1", "run": "r", "reason": "lunch"},
        {
            "type": "start",
            "id": "x",
            "agent": "support",
            "text": "help",
            "thread": "t",
            "session": "s",
            "onBusy": "refuse",
        },
    ]
    assert started == StartedRun(run_id="run-of-x", thread_id="t1", duplicate=False)


def attrs_with_id(decision: gr.Decision) -> gr.Decision:
    import attrs

    return attrs.evolve(decision, decision_id="d2")


async def test_a_command_without_an_id_gets_one_and_the_answer_tells_it(gateway: FakeGateway) -> None:
    async with client_of(gateway) as client:
        first, second = await client.cancel("r"), await client.cancel("r")
        assert first.command_id
        assert first.command_id != second.command_id
        again = await client.cancel("r", command_id=first.command_id)
        assert (again.status, again.ok) == ("duplicate", True)
        assert (await client.start("a", "b", command_id="x")).duplicate is False
        assert (await client.start("a", "b", command_id="x")).duplicate is True
    assert len(gateway.acted) == 3


@pytest.mark.parametrize("answered", [False, True])
async def test_a_command_whose_answer_was_lost_is_sent_again_with_its_id(gateway: FakeGateway, answered: bool) -> None:
    """Whether the command itself had arrived or not: it acts once."""
    gateway.mute = True
    if not answered:
        gateway.answer = lambda frame: []
    async with client_of(gateway) as client, trio.open_nursery() as nursery:
        answers: list[gr.CommandResult] = []

        async def decide() -> None:
            answers.append(await client.decide("r", "t1", "resume", decision_id="d1"))

        nursery.start_soon(decide)
        await gateway.until(lambda: [frame["type"] for frame in gateway.received] == ["decide"])
        if not answered:
            del gateway.answer
        gateway.mute = False
        await gateway.connections[0].cut()
    assert answers == [gr.CommandResult(status="duplicate" if answered else "accepted", command_id="d1")]
    assert [frame["id"] for frame in gateway.received] == ["d1", "d1"]
    assert len(gateway.acted) == 1


async def test_a_command_without_a_connection_waits_for_one(gateway: FakeGateway) -> None:
    async with client_of(gateway) as client:
        await gateway.down()
        async with trio.open_nursery() as nursery:
            answers: list[gr.CommandResult] = []

            async def decide() -> None:
                answers.append(await client.decide("r", "t1", "resume"))

            nursery.start_soon(decide)
            await trio.sleep(0.05)
            assert answers == []
            await gateway.up()
        assert answers[0].status == "accepted"


async def test_a_gateway_that_is_closing_has_not_answered(gateway: FakeGateway) -> None:
    """The command goes to the next one."""
    answer = gateway.answer

    def closing(frame: dict[str, Any]) -> list[dict[str, Any]]:
        gateway.answer = answer
        return [{"type": "gw.error", "code": "closing", "message": "closing", "retry": True, "id": frame["id"]}]

    gateway.answer = closing
    async with client_of(gateway) as client, trio.open_nursery() as nursery:
        answers: list[gr.CommandResult] = []

        async def decide() -> None:
            answers.append(await client.decide("r", "t1", "resume"))

        nursery.start_soon(decide)
        await gateway.until(lambda: len(gateway.received) == 1)
        await gateway.connections[0].close(1012, bye={"retryAfterMs": 1})
    assert [answer.status for answer in answers] == ["accepted"]


async def test_a_refused_command_is_an_answer_and_a_refused_start_an_error(gateway: FakeGateway) -> None:
    codes = iter(["already_decided", "unknown_run", "not_allowed", "unknown_agent", "run_exists", "thread_busy"])

    def refuse(frame: dict[str, Any]) -> list[dict[str, Any]]:
        code = next(codes)
        return [{"type": "gw.error", "code": code, "message": f"it is {code}", "id": frame["id"]}]

    gateway.answer = refuse
    async with client_of(gateway) as client:
        answer = await client.decide("r", "t1", "resume", decision_id="d1")
        assert answer == gr.CommandResult(
            status="rejected", code="already_decided", detail="it is already_decided", command_id="d1"
        )
        assert (await client.send("r", "text")).code == "unknown_run"
        for kind in (NotAllowed, gr.UnknownAgent, gr.RunExists, gr.ThreadBusy):
            with pytest.raises(kind, match="it is"):
                await client.start("a", "b")


async def test_values_that_json_has_no_form_for_are_rejected_before_they_are_sent(gateway: FakeGateway) -> None:
    loop: list[Any] = []
    loop.append(loop)
    async with client_of(gateway) as client:
        assert (await client.decide("r", "t1", "resume", result=loop)).code == "invalid_result"
        assert (await client.decide("r", "t1", "resume", edited_arguments=[1])).code == "invalid_arguments"
        big = await client.send("r", "x" * 70_000)
        assert big.code == "too_big"
        assert "the gateway takes 65,536" in (big.detail or "")
    assert gateway.received == []


async def test_arguments_that_cannot_be_raise(gateway: FakeGateway) -> None:
    async with client_of(gateway) as client:
        with pytest.raises(ValueError, match="'maybe' is not known"):
            await client.decide("r", "t1", "maybe")
        with pytest.raises(ValueError, match="'later' is not known"):
            await client.cancel("r", mode="later")
        with pytest.raises(gr.UsageError, match="on_busy"):
            await client.start("a", "b", on_busy="wait")
        with pytest.raises(gr.UsageError, match="the text is 7; give a str"):
            await client.send("r", 7)
        for wrong in ("x" * 129, "a\nb"):
            with pytest.raises(gr.UsageError, match="at most 128 printable"):
                await client.cancel("r", command_id=wrong)


async def test_a_cancelled_command_leaves_the_connection_whole(gateway: FakeGateway) -> None:
    """At whichever moment; repeated with its id it has acted once."""
    async with client_of(gateway) as client:
        for number in range(60):
            with trio.move_on_after(number * 0.00005):
                await client.decide("r", f"t{number}", "resume", decision_id=f"d{number}")
            answer = await client.decide("r", f"t{number}", "resume", decision_id=f"d{number}")
            assert answer.ok
    assert [frame["id"] for frame in gateway.acted] == [f"d{number}" for number in range(60)]
    assert gateway.upgrades == 1


async def test_many_commands_at_once_all_get_their_own_answer(gateway: FakeGateway) -> None:
    async with client_of(gateway) as client:
        answers: dict[int, gr.CommandResult] = {}

        async def send(number: int) -> None:
            answers[number] = await client.send("r", str(number), command_id=f"s{number}")

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(send, number)
        assert {number: answer.command_id for number, answer in answers.items()} == {n: f"s{n}" for n in range(200)}


async def test_the_same_command_from_two_tasks_is_sent_once_and_another_with_its_id_is_refused(
    gateway: FakeGateway,
) -> None:
    gateway.mute = True
    async with client_of(gateway) as client, trio.open_nursery() as nursery:
        answers: list[gr.CommandResult] = []

        async def send() -> None:
            answers.append(await client.send("r", "text", command_id="s"))

        nursery.start_soon(send)
        nursery.start_soon(send)
        await gateway.until(lambda: len(gateway.received) == 1)
        with pytest.raises(gr.UsageError, match="every request has its own id"):
            await client.send("r", "other", command_id="s")
        gateway.mute = False
        await gateway.connections[0].cut()
    assert [answer.status for answer in answers] == ["duplicate", "duplicate"]


@pytest.mark.slow
async def test_more_than_the_gateway_takes_per_second_is_not_sent(gateway: FakeGateway) -> None:
    gateway.limits["messagesPerSecond"] = 20
    async with client_of(gateway) as client:
        began = trio.current_time()

        async with trio.open_nursery() as nursery:
            for number in range(26):
                nursery.start_soon(client.send, "r", str(number))
        assert trio.current_time() - began >= 0.2


async def test_who_waits_when_the_client_is_left_gets_an_error(gateway: FakeGateway) -> None:
    gateway.mute = True
    async with trio.open_nursery() as nursery:

        async def left() -> None:
            with pytest.raises(ClientClosed):
                await client.send("r", "text")

        async with client_of(gateway) as client:
            nursery.start_soon(left)
            await gateway.until(lambda: len(gateway.received) == 1)


async def test_a_request_without_a_waiter_is_forgotten() -> None:
    calls = PendingAnswers(lambda: None)
    with trio.move_on_after(0):
        await ask(TRIO, calls, "a", "text")
    assert calls.frame() is None
    assert repr(calls) == "<PendingAnswers: 0 open>"
