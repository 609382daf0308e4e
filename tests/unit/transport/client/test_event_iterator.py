"""Following over a real socket: each event exactly once, in order, through everything that happens to connections."""

import json
from collections.abc import AsyncIterator, Iterable

import pytest
import trio

import greenroom as gr
from greenroom.transport.client import ClientClosed, LogReset, NotAllowed, RequestRefused
from greenroom.transport.client.unread_events import MOST_BYTES, MOST_EVENTS

from ....support.fake_gateway import FakeGateway, event
from .kit import all_of, client_of, some


@pytest.fixture
async def gateway(road: str) -> AsyncIterator[FakeGateway]:
    async with FakeGateway().open() as gateway:
        yield gateway


def sequences(events: Iterable[gr.Event]) -> list[int]:
    return [one.sequence for one in events]


async def test_it_gives_what_was_there_and_what_comes_and_ends_after_the_last_event(gateway: FakeGateway) -> None:
    gateway.append("r", 3)
    async with client_of(gateway) as client, client.follow("r") as events:
        first = await anext(events)
        assert (first.run_id, first.sequence, first.type) == ("r", 1, "run.message.delta")
        assert await some(events, 2) == [2, 3]
        gateway.append("r", 2, end=True)
        assert sequences(await all_of(events)) == [4, 5]
        assert events.after == 5
        assert await all_of(events) == []


async def test_it_begins_after_the_cursor(gateway: FakeGateway) -> None:
    gateway.append("r", 5, end=True)
    async with client_of(gateway) as client:
        async with client.follow("r", after=3) as events:
            assert sequences(await all_of(events)) == [4, 5]
        async with client.follow("r", after=5) as events:
            assert await all_of(events) == []


@pytest.mark.parametrize("how", ["cut", "close"])
async def test_a_lost_connection_is_made_again_and_continues_at_the_cursor(gateway: FakeGateway, how: str) -> None:
    gateway.append("r", 3)
    async with client_of(gateway) as client, client.follow("r") as events:
        for count in range(5):
            assert await some(events, 3) == [count * 3 + 1, count * 3 + 2, count * 3 + 3]
            if how == "cut":
                await gateway.connections[0].cut()
            else:
                await gateway.connections[0].close(1011, "a bug")
            gateway.append("r", 3)
        gateway.append("r", 1, end=True)
        assert sequences(await all_of(events)) == [16, 17, 18, 19]
    assert gateway.subscribes() == [0, 3, 6, 9, 12, 15]


async def test_a_cut_in_the_middle_of_a_replay_loses_nothing(gateway: FakeGateway) -> None:
    gateway.append("r", 500, end=True)
    sent = 0

    def cut_sometimes(text: str) -> list[str]:
        nonlocal sent
        sent += 1
        if sent % 90 == 0:
            gateway.connections[0].socket._stream.socket.close()
        return [text]

    gateway.tamper = cut_sometimes
    async with client_of(gateway) as client, client.follow("r") as events:
        assert sequences(await all_of(events)) == list(range(1, 501))
    assert gateway.upgrades > 3


async def test_the_server_may_be_away_for_a_while(gateway: FakeGateway) -> None:
    gateway.append("r", 2)
    async with client_of(gateway) as client, client.follow("r") as events:
        assert await some(events, 2) == [1, 2]
        await gateway.down()
        while client.state.attempt < 2:
            with trio.move_on_after(0.05):
                await anext(events)
        assert not client.state.connected
        assert "no gateway answers at" in client.state.reason
        gateway.append("r", 2, end=True)
        await gateway.up()
        assert sequences(await all_of(events)) == [3, 4]
        assert client.state.connected


async def test_what_comes_twice_is_given_once(gateway: FakeGateway) -> None:
    gateway.append("r", 20, end=True)
    gateway.tamper = lambda text: [text, text] if '"runId"' in text else [text]
    async with client_of(gateway) as client, client.follow("r") as events:
        assert sequences(await all_of(events)) == list(range(1, 21))


async def test_a_hole_is_noticed_and_filled(gateway: FakeGateway) -> None:
    gateway.append("r", 20, end=True)
    lost = {5, 6, 12}

    def lose_once(text: str) -> list[str]:
        frame = json.loads(text)
        if frame.get("sequence") in lost and frame["type"].startswith("run."):
            lost.discard(frame["sequence"])
            return []
        return [text]

    gateway.tamper = lose_once
    async with client_of(gateway) as client, client.follow("r") as events:
        assert sequences(await all_of(events)) == list(range(1, 21))
    assert gateway.subscribes()[0:2] == [0, 4]


async def test_another_log_is_reported_with_its_snapshot(gateway: FakeGateway) -> None:
    """The server came back with a restored database."""
    gateway.append("r", 5)
    async with client_of(gateway) as client:
        async with client.follow("r") as events:
            assert await some(events, 5) == [1, 2, 3, 4, 5]
            gateway.epoch = "second"
            gateway.logs["r"] = gateway.logs["r"][:3]
            await gateway.connections[0].cut()
            with pytest.raises(LogReset, match="follow from after=3") as caught:
                await anext(events)
            reset = caught.value
            assert (reset.run_id, reset.reason, reset.sequence, reset.snapshot) == ("r", "epoch", 3, {"run": "r"})
            with pytest.raises(LogReset):
                await anext(events)
        assert client.epoch == "second"
        gateway.append("r", 1, end=True)
        async with client.follow("r", after=reset.sequence) as events:
            assert sequences(await all_of(events)) == [4]


async def test_who_continues_after_a_reset_gets_the_events_after_the_snapshot(gateway: FakeGateway) -> None:
    gateway.append("r", 5)
    async with client_of(gateway) as client, client.follow("r", on_reset="continue") as events:
        assert await some(events, 5) == [1, 2, 3, 4, 5]
        assert events.reset is None
        gateway.epoch = "second"
        gateway.logs["r"] = gateway.logs["r"][:3]
        await gateway.connections[0].cut()
        await gateway.until(lambda: gateway.subscribes() == [0, 5])
        gateway.append("r", 2, end=True)
        assert sequences(await all_of(events)) == [4, 5]
        assert events.reset is not None
        assert events.reset.sequence == 3
        assert events.epoch == "second"


async def test_a_stored_cursor_of_another_log_is_reset(gateway: FakeGateway) -> None:
    gateway.append("r", 5)
    async with client_of(gateway) as client:
        async with client.follow("r", after=2, epoch="long ago") as events:
            with pytest.raises(LogReset):
                await anext(events)
        async with client.follow("r", after=2, epoch=client.epoch) as events:
            assert await some(events, 1) == [3]
        async with client.follow("r", after=99) as events:
            with pytest.raises(LogReset, match="ahead"):
                await anext(events)


@pytest.mark.slow
async def test_a_slow_reader_buffers_no_more_than_its_limit_and_loses_nothing(gateway: FakeGateway) -> None:
    gateway.append("r", 4 * MOST_EVENTS, end=True)
    async with client_of(gateway) as client, client.follow("r") as events:
        got = await some(events, 1)
        await gateway.until(lambda: any(frame["type"] == "unsubscribe" for frame in gateway.received))
        assert len(events._waiting) <= MOST_EVENTS
        async for one in events:
            got.append(one.sequence)
            assert len(events._waiting) <= MOST_EVENTS
    assert got == list(range(1, 4 * MOST_EVENTS + 1))


async def test_large_events_count_by_their_size(gateway: FakeGateway) -> None:
    gateway.logs["r"] = [event("r", number + 1, text="x" * 200_000) for number in range(60)]
    gateway.append("r", 1, end=True)
    async with client_of(gateway) as client, client.follow("r") as events:
        got = await some(events, 1)
        await gateway.until(lambda: any(frame["type"] == "unsubscribe" for frame in gateway.received))
        assert events._bytes <= MOST_BYTES + 200_000
        got += sequences(await all_of(events))
    assert got == list(range(1, 62))


async def test_a_slow_reader_does_not_hold_up_others_nor_commands(gateway: FakeGateway) -> None:
    gateway.append("slow", 3 * MOST_EVENTS)
    gateway.append("r", 100, end=True)
    async with client_of(gateway) as client, client.follow("slow") as slow:
        assert await some(slow, 1) == [1]
        await gateway.until(lambda: any(frame["type"] == "unsubscribe" for frame in gateway.received))
        async with client.follow("r") as events:
            assert len(await all_of(events)) == 100
        assert (await client.cancel("r")).ok
        assert slow.after == 1


async def test_two_readers_of_one_run_each_have_their_own_place(gateway: FakeGateway) -> None:
    gateway.append("r", 10)
    async with client_of(gateway) as client, client.follow("r", after=5) as late:
        assert await some(late, 5) == [6, 7, 8, 9, 10]
        async with client.follow("r") as early:
            assert await some(early, 10) == list(range(1, 11))
            gateway.append("r", 2)
            assert await some(late, 2) == await some(early, 2) == [11, 12]
        gateway.append("r", 1, end=True)
        assert sequences(await all_of(late)) == [13]


@pytest.mark.slow
async def test_a_slow_and_a_fast_reader_of_one_run_both_get_everything(gateway: FakeGateway) -> None:
    total = 3 * MOST_EVENTS
    gateway.append("r", total, end=True)
    got: dict[str, list[int]] = {"slow": [], "fast": []}
    async with client_of(gateway) as client, trio.open_nursery() as nursery:
        fast_is_done = trio.Event()

        async def follow(name: str) -> None:
            async with client.follow("r") as events:
                if name == "slow":
                    got[name] += await some(events, 1)
                    await fast_is_done.wait()
                got[name] += sequences(await all_of(events))
            fast_is_done.set()

        nursery.start_soon(follow, "slow")
        nursery.start_soon(follow, "fast")
    assert got["slow"] == got["fast"] == list(range(1, total + 1))


async def test_leaving_unsubscribes(gateway: FakeGateway) -> None:
    gateway.append("r", 2)
    async with client_of(gateway) as client:
        async with client.follow("r") as events:
            assert await some(events, 1) == [1]
        await gateway.until(lambda: gateway.received[-1]["type"] == "unsubscribe")


async def test_a_run_without_an_owner_raises_after_its_events(gateway: FakeGateway) -> None:
    gateway.append("r", 2)
    detail = str(gr.RunDegradedError("r", "deps_missing", "the provider has none"))
    gateway.ends["r"] = {"reason": "degraded", "detail": detail}
    async with client_of(gateway) as client, client.follow("r") as events:
        assert await some(events, 2) == [1, 2]
        with pytest.raises(gr.RunDegradedError, match="deps_missing"):
            await anext(events)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "unknown_run", "message": "no"}, gr.UnknownRun),
        ({"code": "not_allowed", "message": "no"}, NotAllowed),
        ({"code": "too_many_subscriptions", "message": "no"}, RequestRefused),
        ({"code": "bad_message", "message": "no"}, gr.UsageError),
    ],
)
async def test_a_run_that_cannot_be_followed_raises_from_the_iteration(
    gateway: FakeGateway, error: dict[str, str], kind: type[Exception]
) -> None:
    gateway.refusals["r"] = error
    async with client_of(gateway) as client, client.follow("r") as events:
        with pytest.raises(kind):
            await anext(events)


async def test_a_store_that_does_not_answer_is_asked_again(gateway: FakeGateway) -> None:
    gateway.append("r", 1, end=True)
    gateway.refusals["r"] = {"code": "store_unavailable", "message": "not now", "retry": True}
    async with client_of(gateway) as client, client.follow("r") as events, trio.open_nursery() as nursery:

        async def answers_again() -> None:
            await gateway.until(lambda: len(gateway.subscribes()) == 3)
            del gateway.refusals["r"]

        nursery.start_soon(answers_again)
        assert sequences(await all_of(events)) == [1]


async def test_a_cancelled_iteration_continues_with_the_next_event(gateway: FakeGateway, rng: object) -> None:
    gateway.append("r", 300, end=True)
    got: list[int] = []
    async with client_of(gateway) as client, client.follow("r") as events:
        for count in range(10_000):
            with trio.CancelScope() as scope:
                if count % 3 == 0:
                    scope.cancel()
                async for one in events:
                    got.append(one.sequence)
                    if len(got) % 7 == 0:
                        scope.cancel()
                break
    assert got == list(range(1, 301))


async def test_events_do_not_outlive_the_client(gateway: FakeGateway) -> None:
    gateway.append("r", 1)
    async with client_of(gateway) as client:
        held = client.follow("r")
        events = await held.__aenter__()
        assert await some(events, 1) == [1]
    with pytest.raises(ClientClosed, match="connect again"):
        await anext(events)
    await held.__aexit__(None, None, None)
    with pytest.raises(ClientClosed):
        client.follow("r")


@pytest.mark.parametrize("options", [{"after": -1}, {"after": "1"}, {"after": True}, {"on_reset": "ignore"}])
async def test_arguments_that_cannot_be_are_refused_at_once(gateway: FakeGateway, options: dict[str, object]) -> None:
    async with client_of(gateway) as client:
        with pytest.raises(gr.UsageError):
            client.follow("r", **options)
        with pytest.raises(gr.UsageError, match="run_id=7"):
            client.follow(7)
