"""Lists of runs over the gateway: whole pages of visible runs over HTTP, and the same list live over the WebSocket."""

import base64
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlencode

import pytest
import trio
from tests.support.gateway import TOKEN, gateway, http, welcomed
from tests.support.ports import free_port

import greenroom as gr
from greenroom.testing import FunctionModel, call
from greenroom.transport import Limits, Principal, connect
from greenroom.transport.client import ListedRunChanged, ListedRuns
from greenroom.transport.gateway import listing
from greenroom.transport.gateway.feed import RunListFeed
from greenroom.transport.gateway.watches import ListWatch
from greenroom.transport.protocol import down

pytestmark = pytest.mark.slow

ANN = "a-token-of-ann-herself"


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str) -> str:
    return order


def clerk():
    """Asks for a refund in its first step, and is done with the second."""

    def answer(request):
        return "done" if any(message.role == "tool" for message in request.messages) else call("refund", order="7")

    return gr.Agent("clerk", model=FunctionModel(answer), tools=[refund])


def people():
    """One who sees all, one who sees her own."""
    return [
        Principal(name="operator", token=TOKEN),
        Principal(name="ann", token=ANN, scopes={"follow", "decide"}, sees=lambda info: info.by == "ann"),
    ]


@asynccontextmanager
async def served(**limits):
    limits = Limits(**{"watch_seconds": 0.02, **limits})
    async with (
        gr.open_runtime(agents=[clerk()]) as runtime,
        gateway(runtime, principals=people(), limits=limits) as address,
    ):
        yield runtime, address


async def listed(address, token=TOKEN, **query):
    """All ids of a list, and how long each page was."""
    found, sizes = [], []
    while True:
        reply = await http(address, "GET", f"/v1/runs?{urlencode(query, quote_via=quote)}", token=token)
        assert reply.status == 200, reply.json()
        page = reply.json()
        found += [row["run"] for row in page["runs"]]
        sizes.append(len(page["runs"]))
        if page["cursor"] is None:
            return found, sizes, page
        query["cursor"] = page["cursor"]


async def waiting(runtime, run_id, **options):
    run = await runtime.start("clerk", options.pop("text", "Refund order 7"), run_id=run_id, **options)
    await run.wait()
    return run


# --- HTTP ------------------------------------------------------------------------------------------------------------


async def test_a_row_says_all_that_a_list_needs():
    async with served() as (runtime, address):
        await waiting(runtime, "r1", by="ann", title="Pay back")
        reply = await http(address, "GET", "/v1/runs?order=waiting_longest&counts=true", token=TOKEN)
        (row,) = reply.json()["runs"]
        assert (row["title"], row["by"], row["status"], row["held"], row["askedCount"]) == (
            "Pay back", "ann", "waiting", False, 1,
        )  # fmt: skip
        assert row["asked"][0]["tool"] == "refund"
        assert row["asked"][0]["reason"] == "tool_permission"
        assert row["waitingSince"] == row["asked"][0]["requestedAt"]
        assert reply.json()["counts"] == {"created": 0, "running": 0, "waiting": 1}
        snapshot = (await http(address, "GET", "/v1/runs/r1", token=TOKEN)).json()
        assert snapshot["title"] == "Pay back"
        run = await runtime.get("r1")
        await run.cancel(reason="no longer needed")
        await run.result()
        (row,) = (await http(address, "GET", "/v1/runs", token=TOKEN)).json()["runs"]
        assert (row["asked"], row["waitingSince"], row["termination"]["kind"]) == ([], None, "cancelled")
        assert row["endedAt"] is not None


async def test_pages_of_visible_runs_are_whole_and_say_nothing_of_the_others():
    async with served() as (runtime, address):
        for number in range(60):
            await waiting(runtime, f"r{number:02}", by="ann" if number % 9 == 4 else "bob")
        mine = [f"r{number:02}" for number in range(60) if number % 9 == 4]
        for order, wanted in (("newest", mine[::-1]), ("waiting_longest", mine)):
            found, sizes, page = await listed(address, ANN, limit=2, order=order, counts="true")
            assert (found, sizes) == (wanted, [2, 2, 2, 1] if len(mine) == 7 else sizes)
            assert page["counts"] == {"created": 0, "running": 0, "waiting": len(mine)}
        first = (await http(address, "GET", "/v1/runs?limit=2", token=ANN)).json()["cursor"]
        again = (await http(address, "GET", "/v1/runs?limit=2", token=ANN)).json()["cursor"]
        assert first != again, "what is the same does not look the same"
        plain = (await http(address, "GET", "/v1/runs?limit=2", token=TOKEN)).json()["cursor"]
        assert base64.urlsafe_b64decode(plain)[:1] == b"["
        assert base64.urlsafe_b64decode(plain)[2:10] not in base64.urlsafe_b64decode(first)
        for wrong in (first[:-4], "A" * 60, "%20"):
            reply = await http(address, "GET", f"/v1/runs?limit=2&cursor={wrong}", token=ANN)
            assert reply.status == 422
        assert (await http(address, "GET", f"/v1/runs?limit=2&cursor={first}", token=TOKEN)).status == 422
        assert len((await listed(address, limit=25))[0]) == 60


async def test_filters_of_the_list_and_their_mistakes():
    async with served() as (runtime, address):
        await waiting(runtime, "r1", by="ann", text="Ärger & 100% mess")
        await waiting(runtime, "r2", by="bob", text="Refund")
        assert (await listed(address, text="ärger & 100%"))[0] == ["r1"]
        assert (await listed(address, by="bob", status="waiting"))[0] == ["r2"]
        assert (await listed(address, status="needs_approval"))[0] == ["r2", "r1"]
        assert (await listed(address, status="failed"))[0] == []
        created = (await http(address, "GET", "/v1/runs?by=bob", token=TOKEN)).json()["runs"][0]["createdAt"]
        assert (await listed(address, since=created))[0] == ["r2"]
        assert (await listed(address, until=created.replace("Z", "+00:00")))[0] == ["r1"]
        for query, status in (
            ("since=yesterday", 422),
            ("since=2026-01-01T00:00:00", 422),
            ("text=", 422),
            ("order=oldest", 422),
            ("order=waiting_longest&status=done", 422),
            ("limit=0", 400),
            ("colour=red", 400),
            ("counts=1", 400),
        ):
            assert (await http(address, "GET", f"/v1/runs?{query}", token=TOKEN)).status == status, query


# --- live ------------------------------------------------------------------------------------------------------------


async def until(talk, wanted):
    """Frames up to one that is wanted."""
    frames = []
    with trio.fail_after(60):
        while not frames or not wanted(frames[-1]):
            frames.append(await talk.hear())
    return frames


async def test_a_watched_list_is_live():
    async with served() as (runtime, address), welcomed(address) as talk:
        await waiting(runtime, "r1", by="bob")
        await talk.say("watch", id="w", status="waiting", order="waiting_longest", limit=10)
        page = await talk.hear()
        assert (page["type"], page["watch"], page["reason"], page["cursor"]) == ("gw.runs", "w", "asked", None)
        assert ([row["run"] for row in page["runs"]], page["counts"]["waiting"]) == (["r1"], 1)
        second = await waiting(runtime, "r2", by="bob")
        frames = await until(talk, lambda frame: frame["type"] == "gw.counts" and frame["counts"]["waiting"] == 2)
        rows = [frame for frame in frames if frame["type"] == "gw.run" and frame["run"] == "r2"]
        assert (rows[-1]["matches"], rows[-1]["row"]["asked"][0]["tool"]) == (True, "refund")
        await second.cancel()
        await second.result()
        frames = await until(talk, lambda frame: frame["type"] == "gw.counts" and frame["counts"]["waiting"] == 1)
        assert [frame for frame in frames if frame["type"] == "gw.run"][-1] == {
            "type": "gw.run", "watch": "w", "run": "r2", "matches": False,
        }  # fmt: skip
        assert await talk.ask("unwatch", id="w") == {"type": "gw.unwatched", "watch": "w"}
        assert not runtime._parts.services.signals.listeners, "who watches nothing costs nothing"
        assert (await talk.ask("unwatch", id="w"))["code"] == "bad_message"


async def test_who_may_not_see_a_run_hears_nothing_of_it():
    async with served() as (runtime, address), welcomed(address, token=ANN) as talk:
        await waiting(runtime, "r1", by="bob")
        await waiting(runtime, "r2", by="ann")
        page = await talk.ask("watch", id="w")
        assert ([row["run"] for row in page["runs"]], page["counts"]["waiting"]) == (["r2"], 1)
        await waiting(runtime, "r3", by="bob")
        await waiting(runtime, "r4", by="ann")
        frames = await until(talk, lambda frame: frame["type"] == "gw.counts" and frame["counts"]["waiting"] == 2)
        assert {frame["run"] for frame in frames if frame["type"] == "gw.run"} == {"r4"}
        assert "bob" not in str(frames)


async def test_text_that_streams_and_too_many_changes_do_not_flood_a_list():
    async with served() as (runtime, address), welcomed(address) as talk:
        await waiting(runtime, "r1")
        assert (await talk.ask("watch", id="w", limit=10))["reason"] == "asked"
        delta = b'{"id":"r1-9","sequence":9,"type":"run.message.delta","payload":{}}'
        for _ in range(100):
            for listener in tuple(runtime._parts.services.signals.listeners):
                listener("r1", [delta, delta])
        for number in range(10_000):
            runtime._parts.services.signals.left(f"x{number}")
        page = await talk.hear()
        assert (page["type"], page["reason"]) == ("gw.runs", "too_many")
        for _ in range(50):
            for listener in tuple(runtime._parts.services.signals.listeners):
                listener("r1", [delta])
        for _ in range(10):
            runtime._parts.services.signals.left("r1")
        frames = await until(talk, lambda frame: frame["type"] == "gw.run")
        assert len(frames) == 1, "ten changes of a round are one row"


async def test_a_prune_gives_each_watch_its_first_page_again():
    async with served() as (runtime, address), welcomed(address) as talk:
        done = await waiting(runtime, "r1")
        await waiting(runtime, "r2")
        await done.cancel()
        await done.result()
        page = await talk.ask("watch", id="w")
        assert [row["run"] for row in page["runs"]] == ["r2", "r1"]
        await runtime.store.prune(datetime.now(UTC) + timedelta(hours=1))
        frames = await until(talk, lambda frame: frame["type"] == "gw.runs")
        assert (frames[-1]["reason"], [row["run"] for row in frames[-1]["runs"]]) == ("too_many", ["r2"])


class Deaf:
    """A connection that takes nothing."""

    def __init__(self):
        self.touched = 0

    def touch(self, _):
        self.touched += 1


async def test_what_waits_for_a_slow_connection_is_bounded_and_becomes_a_page():
    async with served() as (runtime, _):
        feed = RunListFeed(runtime.reader, 0.1, lambda *_: None)
        watch = ListWatch(Deaf(), feed, "w", gr.RunQuery(), 10_000)
        watch.wants = None
        for number in range(1000):
            watch.put(f"r{number}", down.RunChanged(watch="w", run=f"r{number}", matches=False))
            if watch.wants:
                break
            watch.put(f"r{number}", down.RunChanged(watch="w", run=f"r{number}", matches=False))
        assert (watch.wants, number < 200) == ("too_many", True)
        assert await watch.advance() is None
        assert watch.ready
        watch.wants = None
        for _ in range(1000):
            watch.put("r1", down.RunChanged(watch="w", run="r1", matches=False))
        assert watch.wants is None, "a newer row takes the place of one that was not written"
        assert (await watch.advance()).count(b"gw.run") == 1


async def test_counts_that_a_left_list_had_not_sent_come_with_another_list_of_the_connection(autojump_clock):
    """One list of a connection receives the counts; they were lost with it until they changed again."""
    async with gr.open_runtime(agents=[clerk()]) as runtime, trio.open_nursery() as nursery:
        feed, person = RunListFeed(runtime.reader, 0.1, lambda *_: None), Deaf()
        person.who = people()[0]
        nursery.start_soon(feed.run)
        lists = [ListWatch(person, feed, name, gr.RunQuery(prefix=name), 10_000) for name in ("x", "y")]
        for one in lists:
            feed.join(one)
        await trio.testing.wait_all_tasks_blocked()
        assert [b"gw.runs" in await one.advance() for one in lists] == [True, True]
        await waiting(runtime, "r1")
        await trio.sleep(10)
        assert [one.holds_counts for one in lists] == [True, False]
        lists[0].drop()
        assert b'"waiting":1' in await lists[1].advance()
        nursery.cancel_scope.cancel()


class Patient(Deaf):
    """A connection whose owner may see all runs, after a second that each look takes."""

    def __init__(self, clock):
        super().__init__()
        self.who = Principal(name="patient", token=TOKEN, sees=lambda _: clock.jump(1.0) is None)
        self.pages = {}

    def touch(self, watch):
        super().touch(watch)
        self.pages[watch.name] = trio.current_time()


async def test_a_list_that_is_asked_for_does_not_wait_for_the_pause_of_the_feed(autojump_clock):
    """The pause after a round of a second lasts five; a page of a person behind it came with the next round."""
    async with gr.open_runtime(agents=[clerk()]) as runtime, trio.open_nursery() as nursery:
        await waiting(runtime, "r1")
        feed, person = RunListFeed(runtime.reader, 0.1, lambda *_: None), Patient(autojump_clock)
        nursery.start_soon(feed.run)
        feed.join(ListWatch(person, feed, "first", gr.RunQuery(), 10_000))
        await trio.testing.wait_all_tasks_blocked()
        assert set(person.pages) == {"first"}
        asked = trio.current_time()
        feed.join(ListWatch(person, feed, "second", gr.RunQuery(), 10_000))
        await trio.testing.wait_all_tasks_blocked()
        assert set(person.pages) == {"first", "second"}
        assert person.pages["second"] - asked < 3
        nursery.cancel_scope.cancel()


async def test_a_list_that_is_asked_for_while_another_one_is_read_does_not_wait_for_the_pause(autojump_clock):
    """It is asked for in the pause, between the look at the lists and the wait for the next one."""
    async with gr.open_runtime(agents=[clerk()]) as runtime, trio.open_nursery() as nursery:
        await waiting(runtime, "r1")
        feed = RunListFeed(runtime.reader, 0.1, lambda *_: None)
        asked: list[float] = []

        class Hurried(Patient):
            def touch(self, watch):
                super().touch(watch)
                if watch.name == "second" and not asked:
                    asked.append(trio.current_time())
                    feed.join(ListWatch(self, feed, "third", gr.RunQuery(), 10_000))

        person = Hurried(autojump_clock)
        nursery.start_soon(feed.run)
        feed.join(ListWatch(person, feed, "first", gr.RunQuery(), 10_000))
        await trio.testing.wait_all_tasks_blocked()
        feed.join(ListWatch(person, feed, "second", gr.RunQuery(), 10_000))
        await trio.testing.wait_all_tasks_blocked()
        assert set(person.pages) == {"first", "second", "third"}
        assert person.pages["third"] - asked[0] < 3
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"order": "oldest"}, "bad_message"),
        ({"limit": 0}, "bad_message"),
        ({"text": " "}, "unprocessable"),
        ({"since": "now"}, "unprocessable"),
        ({"colour": "red"}, "bad_message"),
    ],
)
async def test_a_watch_that_can_not_be_is_refused_and_the_earlier_one_stays(fields, code):
    async with served() as (runtime, address), welcomed(address) as talk:
        assert (await talk.ask("watch", id="w"))["type"] == "gw.runs"
        refused = await talk.ask("watch", id="w", **fields)
        assert (refused["type"], refused["code"], refused["id"]) == ("gw.error", code, "w")
        await waiting(runtime, "r1")
        assert (await until(talk, lambda frame: frame["type"] == "gw.run"))[-1]["run"] == "r1"
        for number in range(Limits().watches - 1):
            await talk.say("watch", id=f"more{number}")
        await talk.say("watch", id="one too many")
        error = (await until(talk, lambda frame: frame["type"] == "gw.error"))[-1]
        assert (error["code"], error["id"]) == ("too_many_subscriptions", "one too many")


# --- the client ------------------------------------------------------------------------------------------------------


async def test_the_client_watches_a_list_over_any_number_of_connections():
    limits, port, down_again = Limits(watch_seconds=0.02), free_port(), trio.Event()

    async def serving(runtime, task_status):
        with trio.CancelScope() as scope:
            async with gateway(runtime, port=port, limits=limits) as address:
                task_status.started((scope, address.url))
                await trio.sleep_forever()
        down_again.set()

    async with gr.open_runtime(agents=[clerk()]) as runtime, trio.open_nursery() as nursery:
        await waiting(runtime, "r1", title="one")
        first_life, url = await nursery.start(serving, runtime)
        async with connect(url, token=TOKEN) as client:
            lines = await client.runs(order="waiting_longest", text="ONE", counts=True)
            assert ([line.title for line in lines.runs], lines.counts.waiting) == (["one"], 1)
            async with client.watch_runs(status="waiting") as changes:
                with trio.fail_after(60):
                    first = await anext(changes)
                    assert ([line.run_id for line in first.runs], first.counts.waiting) == (["r1"], 1)
                    await waiting(runtime, "r2")
                    assert (await line_in(changes, "r2")).asked[0].tool == "refund"
                    first_life.cancel()
                    await down_again.wait()
                    await waiting(runtime, "r3")
                    await nursery.start(serving, runtime)
                    page = await anext(changes)
                    while not isinstance(page, ListedRuns):  # a change from before the end of the first connection
                        page = await anext(changes)
                    assert [line.run_id for line in page.runs] == ["r3", "r2", "r1"]
                    await waiting(runtime, "r4")
                    assert (await line_in(changes, "r4")).asked[0].tool == "refund"
        nursery.cancel_scope.cancel()


async def test_a_watched_list_of_a_tool_and_a_text_has_the_runs_that_come_to_match():
    async with served() as (runtime, address), connect(address.url, token=TOKEN) as client:
        await waiting(runtime, "r1", text="A lamp for Ada")
        async with client.watch_runs(tool="refund", text="lamp") as changes:
            with trio.fail_after(60):
                assert [line.run_id for line in (await anext(changes)).runs] == ["r1"]
                await waiting(runtime, "r2", text="a bulb")
                await waiting(runtime, "r3", text="another LAMP")
                heard = {}
                while "r3" not in heard or not heard["r3"]:
                    change = await anext(changes)
                    if isinstance(change, ListedRunChanged):
                        heard[change.run_id] = change.line is not None
                assert heard.get("r2", False) is False


async def test_a_page_of_a_search_looks_into_so_many_runs_and_goes_on(monkeypatch):
    """Nothing is found in the runs of the first page; its cursor leads to the rest, also past runs that are hidden."""
    monkeypatch.setattr(listing, "READS", 1)
    async with served() as (runtime, address):
        await waiting(runtime, "old", text="the needle", by="ann")
        for number in range(3):
            await waiting(runtime, f"r{number}", text="x" * 200_000, by="ann")
        for token in (TOKEN, ANN):
            found, sizes, _ = await listed(address, token, text="needle")
            assert (found, sum(sizes), len(sizes) > 1) == (["old"], 1, True)


async def line_in(changes, run_id):
    """The row of a run, once it comes as a change of its own."""
    async for change in changes:
        if isinstance(change, ListedRunChanged) and change.run_id == run_id and change.line is not None:
            return change.line
    raise AssertionError("the list has ended")


async def test_a_watch_that_the_gateway_refuses_raises():
    async with served() as (_, address), connect(address.url, token=ANN) as client:
        with pytest.raises(gr.UsageError, match="text"):
            async with client.watch_runs(text=" ") as changes:
                await anext(changes)


async def test_a_list_whose_visibility_fails_ends_with_an_error_and_nothing_else_of_the_connection_does():
    broken = []

    def sees(info):
        if broken:
            raise ValueError(f"no table of owners for {info.run_id}")
        return True

    ops = [Principal(name="ops", token=TOKEN, sees=sees), Principal(name="ann", token=ANN)]
    async with (
        gr.open_runtime(agents=[clerk()]) as runtime,
        gateway(runtime, principals=ops, limits=Limits(watch_seconds=0.02)) as address,
        welcomed(address) as talk,
        welcomed(address, token=ANN) as other,
    ):
        run = await waiting(runtime, "r1")
        await talk.say("subscribe", run="r1")
        await talk.until("gw.live")
        broken.append(True)
        answer = await talk.ask("watch", id="all")
        assert (answer["type"], answer["code"], answer["id"]) == ("gw.error", "internal", "all")
        broken.clear()
        assert (await talk.ask("watch", id="all"))["type"] == "gw.runs"  # the name is free again
        broken.append(True)
        await run.decide((await run.view()).tickets[0].approve())  # the subscription from before continues
        assert (await talk.until("gw.unsubscribed"))[-1]["reason"] == "done"
        assert (await other.ask("watch", id="hers"))["type"] == "gw.runs"  # and the feed serves the others


async def test_the_throughput_counts_the_visible_runs_that_ended_by_hour_and_outcome():
    async with served() as (runtime, address):
        for number, by in enumerate(("ann", "ann", "bob")):
            run = await waiting(runtime, f"r{number}", by=by)
            await run.cancel()
            await run.result()
        await waiting(runtime, "open", by="ann")
        for token, cancelled in ((TOKEN, 3), (ANN, 2)):
            reply = (await http(address, "GET", "/v1/throughput?hours=3", token=token)).json()
            assert (len(reply["hours"]), reply["complete"]) == (3, True)
            assert [hour["hour"] for hour in reply["hours"]] == sorted(hour["hour"] for hour in reply["hours"])
            assert sum(hour["cancelled"] for hour in reply["hours"]) == cancelled
            assert sum(hour["completed"] + hour["failed"] + hour["stopped"] for hour in reply["hours"]) == 0
        assert (await http(address, "GET", "/v1/throughput?hours=0", token=TOKEN)).status == 400
