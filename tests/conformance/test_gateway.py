"""The wire protocol of docs/gateway.md, frame by frame, over real sockets."""

import json
import re
from urllib.parse import quote

import pytest
import trio
from tests.support.gateway import TOKEN, gateway, http, talking, welcomed
from tests.support.runs import agent, events_of

import greenroom as gr
from greenroom.testing import call
from greenroom.transport import Limits, Principal, serve

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("gateways")]


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    """Pay back."""
    return f"paid {cents}"


def clerk(*steps, **options):
    return agent(*(steps or (call("refund", order="7", cents=5, id="c1"), "done")), tools=[refund], **options)


def stored(frames):
    return [frame for frame in frames if not frame["type"].startswith("gw.")]


async def test_a_run_is_started_followed_decided_and_ends_over_one_connection():
    helper = clerk()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        async with talking(address) as talk:
            welcome = await talk.hear()
            assert welcome["type"] == "gw.welcome"
            assert welcome["epoch"] == runtime.store.epoch
            assert welcome["principal"] == "operator"
            ack = await talk.ask("start", id="s1", agent="helper", text="hi")
            assert ack["status"] == "accepted"
            run = ack["run"]
            await talk.say("subscribe", run=run, id="q")
            first = await talk.hear()
            assert (first["type"], first["run"], first["after"], first["id"]) == ("gw.subscribed", run, 0, "q")
            seen = await talk.until("run.waiting")
            ticket = next(frame["payload"] for frame in seen if frame["type"] == "run.approval.requested")
            decided = await talk.ask(
                "decide",
                id="d1",
                run=run,
                target=ticket["ticketId"],
                action="resume",
                fingerprint=ticket["fingerprint"],
                reason="fine",
            )
            while decided["type"] == "gw.live":
                decided = json.loads(await talk.ws.get_message())
            rest = [decided, *await talk.until("gw.unsubscribed")]
            acks = [frame for frame in rest if frame["type"] == "gw.ack"]
            assert [frame["status"] for frame in acks] == ["accepted"]
            assert rest[-1]["reason"] == "done"
            events = stored(seen + rest)
            assert events == [json.loads(frame) for frame in await runtime.store.events(run)]
            resolved = next(frame for frame in events if frame["type"] == "run.approval.resolved")
            assert resolved["payload"]["by"] == "operator"


async def test_commands_are_idempotent_by_their_id():
    helper = clerk()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        async with welcomed(address) as talk:
            first = await talk.ask("start", id="s1", agent="helper", text="hi")
            again = await talk.ask("start", id="s1", agent="helper", text="hi")
            assert (again["run"], again["status"]) == (first["run"], "duplicate")
            other = await talk.ask("start", id="s1", agent="helper", text="something else")
            assert (other["type"], other["code"]) == ("gw.error", "run_exists")
            run = await runtime.get(first["run"])
            await run.wait()
            for status in ("accepted", "duplicate"):
                answer = await talk.ask("decide", id="d1", run=run.id, target="c1", action="cancel", reason="no")
                assert (answer["type"], answer["status"]) == ("gw.ack", status)
            answer = await talk.ask("decide", id="d1", run=run.id, target="c1", action="resume")
            assert answer["code"] == "decision_id_conflict"
            await run.result()
            answer = await talk.ask("decide", id="d2", run=run.id, target="c1", action="resume")
            assert answer["code"] in ("already_decided", "run_done")


async def test_the_text_of_a_denial_comes_through_to_the_model():
    helper = clerk()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address, welcomed(address) as talk:
        run = await runtime.start(helper, "hi")
        await run.wait()
        answer = await talk.ask("decide", id="d", run=run.id, target="c1", action="cancel", result="Not this year.")
        assert answer["status"] == "accepted"
        await run.result()
        texts = [message.content for message in (await run.view()).messages if message.role == "tool"]
        assert texts == ["Not this year."]


async def test_who_comes_too_late_is_shown_how_it_was_decided():
    helper = agent(
        [call("refund", order="7", cents=5, id="c1"), call("refund", order="8", cents=5, id="c2")],
        "done",
        tools=[refund],
        execution="parallel_streaming",
    )
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        run = await runtime.start(helper, "hi")
        await run.wait()
        await run.decide("c1", "cancel", by="ada")
        async with welcomed(address) as talk:
            answer = await talk.ask("decide", id="d", run=run.id, target="c1", action="resume")
            assert answer["code"] == "already_decided"
            assert (answer["current"]["status"], answer["current"]["decidedBy"]) == ("denied", "ada")


async def test_a_cursor_is_continued_on_another_connection():
    helper = clerk()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        run = await runtime.start(helper, "hi")
        everything = [event.sequence for event in await events_of(run, until="rest")]
        for after in (0, 1, everything[-1] - 1, everything[-1]):
            async with welcomed(address) as talk:
                await talk.say("subscribe", run=run.id, after=after, epoch=runtime.store.epoch)
                frames = await talk.until("gw.live")
                assert frames[0]["mode"] == ("live" if after == everything[-1] else "replay")
                assert [frame["sequence"] for frame in stored(frames)] == everything[after:]
                assert frames[-1]["sequence"] == everything[-1]


@pytest.mark.parametrize(("cursor", "reason"), [({"after": 3, "epoch": "another"}, "epoch"), ({"after": 999}, "ahead")])
async def test_a_cursor_that_is_no_good_is_reset_with_a_snapshot(cursor, reason):
    helper = clerk()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        run = await runtime.start(helper, "hi")
        await run.wait()
        view = await run.view()
        async with welcomed(address) as talk:
            reset = await talk.ask("subscribe", run=run.id, **cursor)
            assert (reset["type"], reset["reason"], reset["sequence"]) == ("gw.reset", reason, view.last_sequence)
            assert reset["snapshot"]["stage"] == "needs_approval"
            assert [ticket["ticketId"] for ticket in reset["snapshot"]["tickets"]] == [view.tickets[0].ticket_id]
            assert (await talk.hear())["type"] == "gw.live"
            await run.decide("c1", "resume")
            frames = await talk.until("gw.unsubscribed")
            assert stored(frames)[0]["sequence"] == view.last_sequence + 1


async def test_many_runs_on_one_connection_come_each_in_order():
    helper = agent("one", "two", "three")
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        async with welcomed(address) as talk:
            runs = [(await talk.ask("start", id=f"s{i}", agent="helper", text="hi"))["run"] for i in range(20)]
            for run in runs:
                await talk.say("subscribe", run=run)
            seen, ended = {run: [] for run in runs}, set()
            while len(ended) < len(runs):
                frame = await talk.hear()
                if frame["type"] == "gw.unsubscribed":
                    ended.add(frame["run"])
                elif not frame["type"].startswith("gw."):
                    seen[frame["runId"]].append(frame["sequence"])
            assert all(found == list(range(1, len(found) + 1)) for found in seen.values())


async def test_subscribing_again_continues_from_the_new_position():
    helper = clerk()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        run = await runtime.start(helper, "hi")
        await run.wait()
        last = (await run.view()).last_sequence
        async with welcomed(address) as talk:
            await talk.say("subscribe", run=run.id)
            await talk.say("subscribe", run=run.id, after=last - 1, id="again")
            frames = [await talk.hear()]
            while frames[-1].get("id") != "again":
                frames.append(await talk.hear())
            rest = await talk.until("gw.live")
            assert [frame["sequence"] for frame in stored(rest)] == [last]


async def test_unsubscribing_stops_the_events_and_not_the_run():
    helper = clerk()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        run = await runtime.start(helper, "hi")
        await run.wait()
        async with welcomed(address) as talk:
            await talk.say("subscribe", run=run.id)
            await talk.until("gw.live")
            left = await talk.ask("unsubscribe", run=run.id, id="u")
            assert (left["type"], left["reason"], left["id"]) == ("gw.unsubscribed", "asked", "u")
            await run.decide("c1", "resume")
            await run.result()
            assert (await talk.ask("ping", id="p"))["id"] == "p"
            answer = await talk.ask("unsubscribe", run=run.id)
            assert answer["code"] == "unknown_run"
        assert runtime._parts.services.signals.followed == 0


async def test_closing_the_connection_cancels_nothing():
    helper = clerk()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        async with welcomed(address) as talk:
            run = (await talk.ask("start", id="s", agent="helper", text="hi"))["run"]
            await talk.say("subscribe", run=run)
        outcome = await (await runtime.get(run)).wait()
        assert isinstance(outcome, gr.Waiting)


async def test_a_run_is_paused_and_resumed_by_frames():
    helper = clerk()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        run = await runtime.start(helper, "hi")
        await run.wait()
        async with welcomed(address) as talk:
            for status in ("accepted", "duplicate"):
                answer = await talk.ask("pause", id="p", run=run.id, reason="lunch")
                assert (answer["type"], answer["status"]) == ("gw.ack", status)
            assert (await talk.ask("pause", id="p", run=run.id))["code"] == "decision_id_conflict"
            assert (await talk.ask("pause", id="q", run="nobody"))["code"] == "unknown_run"
            assert (await talk.ask("decide", id="d1", run=run.id, target="c1", action="resume"))["status"] == "accepted"
            (ticket,) = (await until_paused(run)).tickets
            await talk.say("subscribe", run=run.id)
            requested = [one for one in stored(await talk.until("gw.live")) if one["type"] == "run.approval.requested"]
            assert (requested[-1]["payload"]["callId"], requested[-1]["payload"]["reason"]) == (None, "manual_pause")
            order = {"run": run.id, "target": ticket.ticket_id, "fingerprint": ticket.fingerprint}
            await talk.say("decide", id="d2", action="resume", result="back again", **order)
            await talk.until("gw.unsubscribed")
            late = await talk.ask("decide", id="d3", action="cancel", **order)
            assert (late["code"], late["current"]["status"]) == ("already_decided", "approved")
            assert late["current"]["callId"] is None
            assert (await talk.ask("pause", id="r", run=run.id))["code"] == "run_done"
        assert "back again" in [message.content for message in (await run.view()).messages]


async def until_paused(run):
    while True:
        outcome = await run.wait()
        if [ticket.reason for ticket in outcome.tickets] == ["manual_pause"]:
            return outcome
        await trio.sleep(0.01)


async def test_a_run_is_paused_and_ended_by_posts():
    helper = clerk()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        run = await runtime.start(helper, "hi")
        await run.wait()
        at, key = f"/v1/runs/{run.id}/commands", {"idempotency-key": "p"}
        for status in ("accepted", "duplicate"):
            reply = await http(address, "POST", at, body={"type": "pause", "reason": "lunch"}, headers=key)
            assert (reply.status, reply.json()["status"]) == (202, status)
        tickets = (await http(address, "GET", f"/v1/runs/{run.id}")).json()["tickets"]
        assert [(ticket["callId"], ticket["tool"], ticket["reason"]) for ticket in tickets] == [
            ("c1", "refund", "tool_permission"),
            (None, "", "manual_pause"),
        ]
        denied = {"type": "decide", "target": tickets[1]["ticketId"], "action": "cancel", "reason": "enough"}
        assert (await http(address, "POST", at, body=denied)).status == 202
        outcome = await run.result()
        assert (outcome.code, outcome.reason) == ("approval_rejected", "enough")
        over = await http(address, "POST", at, body={"type": "pause"})
        assert (over.status, over.json()["error"]["code"]) == (409, "run_done")


async def test_blank_input_is_unprocessable_at_every_door():
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime) as address:
        run = await runtime.start("helper", "hi")
        await run.wait()
        async with welcomed(address) as talk:
            for order in ({"type": "start", "agent": "helper"}, {"type": "send", "run": run.id}):
                answer = await talk.ask(order.pop("type"), **order, id="blank", text="\n")
                assert (answer["type"], answer["code"]) == ("gw.error", "unprocessable")
                assert "is blank" in answer["message"]
        body, headers = {"type": "send", "text": ""}, {"idempotency-key": "m"}
        reply = await http(address, "POST", f"/v1/runs/{run.id}/commands", body=body, headers=headers)
        assert (reply.status, reply.json()["error"]["code"]) == (422, "unprocessable")
        assert len((await runtime.runs()).runs) == 1
        assert b"run.input.received" not in b"".join(await runtime.store.events(run.id))


@pytest.mark.parametrize(
    ("kind", "field", "sent"),
    [
        ("start", "run", ""),
        ("start", "run", "a b"),
        ("start", "thread", ""),
        ("start", "session", "\n"),
        ("fork", "newRun", ""),
        ("fork", "newRun", "ü"),
    ],
)
async def test_an_id_that_is_none_is_unprocessable_under_the_name_that_was_sent(kind, field, sent):
    """An empty id of a run was taken for none, and the messages named arguments of Python."""
    body = {"agent": "helper", "text": "hi"} if kind == "start" else {"step": 0}
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime) as address:
        await (await runtime.start("helper", "hi", run_id="r")).wait()
        path = "/v1/runs" if kind == "start" else "/v1/runs/r/fork"
        reply = await http(address, "POST", path, body=body | {field: sent})
        assert (reply.status, reply.json()["error"]["code"]) == (422, "unprocessable")
        assert reply.json()["error"]["message"].startswith(f"{field}={sent!r}: use 1 to 128 letters")
        async with welcomed(address) as talk:
            frame = await talk.ask(kind, id="i", **body, **({"run": "r"} if kind == "fork" else {}), **{field: sent})
            assert (frame["code"], frame["message"]) == ("unprocessable", reply.json()["error"]["message"])
        assert len((await runtime.runs()).runs) == 1


async def test_conflicts_name_no_argument_of_python():
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime) as address:
        await (await runtime.start("helper", "hi", run_id="r", thread_id="t")).wait()
        for body, code in (({"run": "r"}, "run_exists"), ({"thread": "t", "onBusy": "refuse"}, "thread_busy")):
            reply = await http(address, "POST", "/v1/runs", body={"agent": "helper", "text": "other", **body})
            error = reply.json()["error"]
            assert (reply.status, error["code"]) == (409, code)
            assert "'r'" in error["message"]
            assert not re.search(r"None|[a-z]_[a-z]|=", error["message"])


async def test_cancel_and_send_reach_the_run():
    helper = clerk()
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime) as address:
        run = await runtime.start(helper, "hi")
        await run.wait()
        async with welcomed(address) as talk:
            assert (await talk.ask("send", id="m", run=run.id, text="hurry"))["status"] == "accepted"
            assert (await talk.ask("cancel", id="c", run=run.id, reason="enough"))["status"] == "accepted"
        outcome = await run.result()
        assert isinstance(outcome, gr.Cancelled)
        assert (outcome.reason, outcome.by) == ("enough", "operator")


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ({"type": "hello", "token": "nobody's token at all"}, 4401),
        ({"type": "ping"}, 4401),
        ({"type": "hello", "tokn": TOKEN}, 4400),
        ("[1]", 4400),
        ("no json", 4400),
        (b"binary", 4400),
    ],
)
async def test_a_first_frame_that_is_not_a_good_hello_closes_with_its_code(first, code):
    async with gr.open_runtime() as runtime, gateway(runtime) as address:
        async with talking(address, token=None) as talk:
            await talk.ws.send_message(json.dumps(first) if isinstance(first, dict) else first)
            bye = await talk.hear()
            assert (bye["type"], bye["code"]) == ("gw.bye", code)
            assert (await talk.closing())[0] == code


async def test_a_page_says_who_it_is_in_its_first_frame():
    async with gr.open_runtime() as runtime, gateway(runtime) as address:
        async with talking(address, token=None) as talk:
            welcome = await talk.ask("hello", token=TOKEN, client="test")
            assert (welcome["type"], welcome["principal"]) == ("gw.welcome", "operator")


async def test_who_says_nothing_is_closed_after_the_time_limit():
    async with gr.open_runtime() as runtime, gateway(runtime, limits=Limits(hello_seconds=0.05)) as address:
        async with talking(address, token=None) as talk:
            assert (await talk.closing())[0] == 4408


async def test_another_subprotocol_is_refused_after_the_upgrade():
    async with gr.open_runtime() as runtime, gateway(runtime) as address:
        async with talking(address, subprotocols=("other.v1",)) as talk:
            assert (await talk.closing())[0] == 4406


async def test_scopes_and_visibility_hold_for_every_frame():
    watcher = Principal(name="watcher", token="w" * 20, scopes={"follow"})
    stranger = Principal(name="stranger", token="s" * 20, scopes={"admin"}, sees=lambda info: info.by == "stranger")
    helper = clerk()
    async with (
        gr.open_runtime(agents=[helper]) as runtime,
        gateway(runtime, principals=[watcher, stranger]) as address,
    ):
        run = await runtime.start(helper, "hi", by="ada", thread_id="hers")
        await run.wait()
        async with welcomed(address, token="w" * 20) as talk:
            assert (await talk.ask("subscribe", run=run.id))["type"] == "gw.subscribed"
            await talk.until("gw.live")
            for frame in (
                {"kind": "start", "agent": "helper", "text": "x"},
                {"kind": "decide", "run": run.id, "target": "c1", "action": "resume"},
                {"kind": "cancel", "run": run.id},
                {"kind": "pause", "run": run.id},
                {"kind": "send", "run": run.id, "text": "x"},
            ):
                answer = await talk.ask(id="1", **frame)
                assert (answer["type"], answer["code"]) == ("gw.error", "not_allowed")
        async with welcomed(address, token="s" * 20) as talk:
            for frame in (
                {"kind": "subscribe", "run": run.id},
                {"kind": "decide", "run": run.id, "target": "c1", "action": "resume"},
                {"kind": "cancel", "run": run.id},
            ):
                assert (await talk.ask(id="1", **frame))["code"] == "unknown_run"
            answer = await talk.ask("start", id="1", agent="helper", text="x", thread="hers")
            assert answer["code"] == "not_allowed"
        assert isinstance(await run.wait(), gr.Waiting)


async def test_an_idle_connection_gets_ticks_with_the_heads():
    helper = clerk()
    limits = Limits(heartbeat_seconds=0.1)
    async with gr.open_runtime(agents=[helper]) as runtime, gateway(runtime, limits=limits) as address:
        run = await runtime.start(helper, "hi")
        await run.wait()
        async with welcomed(address) as talk:
            await talk.say("subscribe", run=run.id)
            await talk.until("gw.live")
            frames = await talk.until("gw.tick")
            assert frames[-1]["heads"] == {run.id: (await run.view()).last_sequence}


async def test_a_run_whose_agent_is_not_here_ends_the_subscription_as_degraded(tmp_path):
    helper = clerk()
    async with gr.open_runtime(tmp_path / "runs.db", agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        await run.wait()
    async with gr.open_runtime(tmp_path / "runs.db") as runtime, gateway(runtime) as address:
        async with welcomed(address) as talk:
            await talk.say("subscribe", run=run.id)
            frames = await talk.until("gw.unsubscribed")
            assert (frames[-1]["reason"], frames[-1]["code"]) == ("degraded", "agent_unknown")
            assert "no agent has the key" in frames[-1]["detail"]


async def test_a_cancelled_gateway_says_goodbye_and_when_to_come_back():
    async with gr.open_runtime() as runtime, trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def serving(task_status):  # noqa: ASYNC128 - serve calls started()
            with scope:
                await serve(runtime, port=0, token=TOKEN, task_status=task_status)

        address = await nursery.start(serving)
        async with welcomed(address) as talk:
            scope.cancel()
            bye = await talk.hear()
            assert (bye["type"], bye["code"], bye["name"]) == ("gw.bye", 1012, "restart")
            assert bye["retryAfterMs"] > 0
            assert (await talk.closing())[0] == 1012


async def test_when_the_runtime_goes_first_the_gateway_says_so():
    hearing = trio.Event()

    async with trio.open_nursery() as nursery:
        async with gr.open_runtime() as runtime:

            async def serving(task_status):  # noqa: ASYNC128 - serve calls started()
                with pytest.raises(gr.RuntimeClosed):
                    await serve(runtime, port=0, token=TOKEN, task_status=task_status)

            address = await nursery.start(serving)

            async def listen():
                async with welcomed(address) as talk:
                    hearing.set()
                    bye = await talk.hear()
                    assert (bye["code"], bye["name"]) == (1001, "going_away")

            nursery.start_soon(listen)
            await hearing.wait()


# --- HTTP ------------------------------------------------------------------------------------------------------------


async def test_http_starts_lists_reads_and_decides(tmp_path):
    helper = clerk()
    async with gr.open_runtime(tmp_path / "runs.db", agents=[helper]) as runtime, gateway(runtime) as address:
        started = await http(
            address, "POST", "/v1/runs", body={"agent": "helper", "text": "hi"}, headers={"idempotency-key": "k1"}
        )
        assert started.status == 201
        again = await http(
            address, "POST", "/v1/runs", body={"agent": "helper", "text": "hi"}, headers={"idempotency-key": "k1"}
        )
        assert (again.status, again.json()["run"]) == (200, started.json()["run"])
        run = await runtime.get(started.json()["run"])
        await run.wait()
        listed = (await http(address, "GET", "/v1/runs?status=waiting")).json()
        assert [row["run"] for row in listed["runs"]] == [run.id]
        for prefix, found in ((run.id[:-1], [run.id]), (f"{run.id}x", []), ("%25", []), ("\N{SNOWMAN}", [])):
            listed = (await http(address, "GET", f"/v1/runs?prefix={quote(prefix, safe='%')}")).json()
            assert [row["run"] for row in listed["runs"]] == found
        snapshot = (await http(address, "GET", f"/v1/runs/{run.id}")).json()
        ticket = snapshot["tickets"][0]
        assert ticket["arguments"] == {"order": "7", "cents": 5}
        page = (await http(address, "GET", f"/v1/runs/{run.id}/events?after=2&limit=3")).json()
        assert [event["sequence"] for event in page["events"]] == [3, 4, 5]
        assert (page["next"], page["head"], page["done"]) == (5, snapshot["sequence"], False)
        command = {"type": "decide", "target": ticket["ticketId"], "action": "resume"}
        for status in ("accepted", "duplicate"):
            reply = await http(
                address, "POST", f"/v1/runs/{run.id}/commands", body=command, headers={"idempotency-key": "k2"}
            )
            assert (reply.status, reply.json()["status"]) == (202, status)
        await run.result()
        end = (await http(address, "GET", f"/v1/runs/{run.id}/events?limit=1000")).json()
        assert end["done"] is True
        stream = await http(address, "GET", f"/v1/runs/{run.id}/events", headers={"accept": "text/event-stream"})
        data = [json.loads(line[6:]) for line in stream.body.decode().splitlines() if line.startswith("data: ")]
        assert data == end["events"]
        ids = [line[4:] for line in stream.body.decode().splitlines() if line.startswith("id: ")]
        assert ids[-1] == f"{runtime.store.epoch}-{len(data)}"
        back = await http(
            address,
            "GET",
            f"/v1/runs/{run.id}/events",
            headers={"accept": "text/event-stream", "last-event-id": ids[-2]},
        )
        assert [line[4:] for line in back.body.decode().splitlines() if line.startswith("id: ")] == [ids[-1]]
        wrong = await http(
            address,
            "GET",
            f"/v1/runs/{run.id}/events",
            headers={"accept": "text/event-stream", "last-event-id": "other-3"},
        )
        assert (wrong.status, wrong.json()["error"]["code"]) == (410, "reset")


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "code"),
    [
        ("GET", "/v1/runs?status=odd", None, 422, "unprocessable"),
        ("GET", "/v1/runs?state=waiting", None, 400, "bad_message"),
        ("GET", "/v1/runs?limit=x", None, 400, "bad_message"),
        ("GET", "/v1/runs?cursor=x", None, 422, "unprocessable"),
        ("GET", "/v1/runs/nothing", None, 404, "unknown_run"),
        ("GET", "/v1/nothing", None, 404, "not_found"),
        ("POST", "/v1/runs/x", {}, 405, "method_not_allowed"),
        ("POST", "/v1/runs", {"agent": "none", "text": "x"}, 404, "unknown_agent"),
        ("POST", "/v1/runs", {"agent": "helper"}, 400, "bad_message"),
        ("POST", "/v1/runs", {"agent": "helper", "text": " "}, 422, "unprocessable"),
        ("POST", "/v1/runs", b"{", 400, "bad_message"),
        ("POST", "/v1/runs/nothing/commands", {"type": "cancel"}, 404, "unknown_run"),
        ("POST", "/v1/runs/nothing/commands", {"type": "start"}, 400, "bad_message"),
        ("POST", "/v1/runs/nothing/commands", {"type": "cancel", "id": "x"}, 400, "bad_message"),
    ],
)
async def test_what_cannot_be_gets_its_status_and_code(method, target, body, status, code):
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime) as address:
        reply = await http(address, method, target, body=body)
        assert (reply.status, reply.json()["error"]["code"]) == (status, code)
        assert reply.json()["error"]["message"]


async def test_health_needs_no_token_and_everything_else_does():
    async with gr.open_runtime() as runtime, gateway(runtime) as address:
        for target in ("/healthz", "/readyz", "/v1/schemas", "/"):
            assert (await http(address, "GET", target, token=None)).status == 200
        for target in ("/v1/runs", "/v1/agents", "/metrics", "/v1/runs/x", "/v1/runs/x/events"):
            reply = await http(address, "GET", target, token=None)
            assert (reply.status, reply.json()["error"]["code"]) == (401, "unauthenticated")
            assert "Bearer" in reply.headers["www-authenticate"]
            assert (await http(address, "GET", target, token="wrong")).status == 401


async def test_metrics_count_what_happens():
    async with gr.open_runtime(agents=[clerk()]) as runtime, gateway(runtime) as address:
        async with welcomed(address) as talk:
            await talk.ask("ping")
            text = (await http(address, "GET", "/metrics")).body.decode()
        assert 'greenroom_connections{kind="websocket"} 1.0' in text
        assert 'greenroom_frames_received_total{type="ping"} 1.0' in text


@pytest.mark.parametrize("options", [{"host": "0.0.0.0"}, {"token": "short"}], ids=["open", "token"])
async def test_options_that_cannot_be_are_refused(options):
    async with gr.open_runtime() as runtime:
        with pytest.raises(gr.UsageError):
            await serve(runtime, port=0, **options)
