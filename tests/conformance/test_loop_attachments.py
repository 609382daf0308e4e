"""Rules of images and files: in the input of a run and in results, over restarts, forks, replays and prunes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.contract.casing import camel
from greenroom.actors.contract.parts import MAX_BYTES
from greenroom.testing import FakeWall, FunctionModel, ScriptedModel, call, delay, text

from ..support.part_scenes import AT, CHART, DRAWS, FACTS, PNG, TABLE, chart, seen
from ..support.runs import agent, events_of, home
from ..support.scene_tools import TOOLS, Context, Outside
from ..support.scenes import THREAD, after, approve, cancel, restart

SEQUENTIAL = pytest.mark.parametrize("mode", ["sequential"])
LONG_AGO = datetime(1990, 1, 1, tzinfo=UTC)


def stored(life: Any) -> str:
    """Everything that the store has of a run but its bytes, and its record, as one text."""
    taken = [entry for commit in life.log for entry in commit.taken]
    rows = [life.record.row, life.record.calls, life.record.state, taken, life.view.messages]
    return repr(rows) + b"".join(life.frames).decode()


async def kept(life: Any, *parts: gr.Part) -> dict[str, bytes]:
    """The bytes of parts in the run's thread, as the next process finds them."""
    async with home(life.scene.play.shelf.open()) as runtime:
        return dict(await runtime.store.parts(THREAD, [part.sha256 for part in parts]))


def on_wire(*facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Facts of parts as an event has them."""
    return [{camel(name): value for name, value in one.items()} for one in facts]


# --- input -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AT-5", "AT-12", "AT-16")
async def test_attachments_of_a_start_are_parts_of_the_input(play, autojump_clock):
    life = await play("done", start={"attachments": [CHART, AT, TABLE]})
    assert [seen(request) for request in life.requests] == [{"user": [PNG, AT.part.url, b"month,sales\nMay,7\n"]}]
    (created,) = life.payloads("created")
    assert created["attachments"] == on_wire(FACTS[0], AT.part.facts(), FACTS[1])
    parts = life.view.messages[0].parts
    assert [(part.facts(), part.data) for part in parts] == [(f, None) for f in (FACTS[0], AT.part.facts(), FACTS[1])]
    assert await kept(life, parts[0], AT.part) == {parts[0].sha256: PNG}


class Counting(gr.MemoryStore):
    """Counts the reads of bytes."""

    reads = 0

    async def parts(self, *args: Any) -> Any:
        """Count."""
        self.reads += 1
        return await super().parts(*args)


@pytest.mark.rule("AT-13")
async def test_the_bytes_of_a_waiting_run_are_in_the_store_only(autojump_clock):
    """While the run works they are kept; the first request of a process, and the first one after a rest, reads them."""
    store, calls = Counting(), [call("look", id="L"), call("pay", id="P"), call("look", id="M")]
    helper = agent(*calls, "done", tools=TOOLS)
    async with home(store, agents=[helper], deps=Outside(), passivate_after=None) as runtime:
        run = await runtime.start(helper, "hi", attachments=[CHART])
        await run.wait()
        assert (len(helper.model.requests), store.reads) == (2, 1)
        assert (await run.decide("P", "approve")).ok
        await run.result()
        assert (len(helper.model.requests), store.reads) == (4, 2)
    assert [seen(request)["user"] for request in helper.model.requests] == [[PNG]] * 4


@pytest.mark.rule("AT-5")
@SEQUENTIAL
async def test_an_input_may_be_an_image_alone(play, autojump_clock):
    life = await play("done", ask="", start={"attachments": [CHART]})
    assert life.history == ["user:", "assistant: done"]
    assert life.view.title == "r"


async def test_a_run_in_a_program_takes_attachments(autojump_clock):
    helper = agent("done")
    outcome = await gr.run(helper, " ", attachments=[CHART])
    assert outcome.output == "done"
    assert seen(helper.model.requests[0]) == {"user": [PNG]}


@pytest.mark.rule("AT-4")
@pytest.mark.parametrize("given", [CHART, [PNG], None, "chart.png"], ids=["no list", "bytes", "none", "text"])
async def test_what_is_no_attachment_is_refused_at_the_start(shelf, given, autojump_clock):
    async with home(shelf.open()) as runtime:
        with pytest.raises(gr.InvalidAttachment, match=r"attachments.*gr\.Image"):
            await runtime.start(agent("done"), "hi", attachments=given)
        assert (await runtime.runs()).runs == ()


@pytest.mark.rule("AT-3")
async def test_the_limits_hold_for_an_input(shelf, autojump_clock):
    helper, large = agent("done"), gr.File(bytes(MAX_BYTES - 7), media_type="a/b")
    async with home(shelf.open(), agents=[helper]) as runtime:
        for many in ([CHART] * 101, [large, CHART]):
            with pytest.raises(gr.InvalidAttachment, match=r"give at most 100|8,388,616 bytes together"):
                await runtime.start(helper, "hi", attachments=many)
        run = await runtime.start(helper, "hi", attachments=[large])
        assert (await run.result()).output == "done"
        assert len(helper.model.requests[0].messages[0].parts[0].data) == MAX_BYTES - 7


@pytest.mark.rule("AT-6")
async def test_attachments_are_part_of_the_content_of_a_start(shelf, autojump_clock):
    helper = agent("done")
    async with home(shelf.open(), agents=[helper]) as runtime:
        first = await runtime.start(helper, "hi", run_id="r", attachments=[CHART])
        again = await runtime.start(helper, "hi", run_id="r", attachments=[gr.Image(PNG)])
        assert first.id == again.id
        for other in ([], [CHART, CHART], [TABLE]):
            with pytest.raises(gr.RunExists):
                await runtime.start(helper, "hi", run_id="r", attachments=other)


def sends(words: str, *attachments: Any, **options: Any) -> Any:
    async def act(scene: Any) -> None:
        scene.note(await scene.run.send(words, attachments=attachments, by="ada", **options))

    return act


@pytest.mark.rule("AT-24")
@pytest.mark.parametrize("seconds", [None, 0.5, 3.0, 9.0])
async def test_more_input_may_have_attachments(play, seconds, autojump_clock):
    """It joins the thread at the next step, also after a restart, and its bytes with it."""
    script = [delay(2), call("chart", id="A", seconds=6.0, kind="none")], "done", "done"
    acts = [after(1, sends("and this", CHART, TABLE)), *([] if seconds is None else [after(seconds, restart)])]
    life = await play(*script, do=acts, **DRAWS)
    assert life.replies == ["accepted"]
    assert seen(life.requests[-1]) == {"user": [PNG, TABLE.part.data]}
    (received,) = life.payloads("input.received")
    assert received["attachments"] == on_wire(*FACTS)
    assert PNG.decode("latin1")[:12] not in stored(life).replace("\\x", "x")


@pytest.mark.rule("AT-24")
@SEQUENTIAL
async def test_more_input_may_be_an_image_alone_and_acts_once(play, autojump_clock):
    acts = [
        after(1, sends("", CHART, command_id="s1")),
        after(0, sends("", CHART, command_id="s1")),
        after(0, sends("", TABLE, command_id="s1")),
    ]
    life = await play([delay(3), text("so far")], "done", do=acts)
    assert life.replies == ["accepted", "duplicate", "rejected decision_id_conflict"]
    assert seen(life.requests[-1]) == {"user": [PNG]}


@pytest.mark.rule("AT-4", "AT-24")
async def test_more_input_with_anything_else_is_refused(shelf, autojump_clock):
    async with home(shelf.open()) as runtime:
        run = await runtime.start(agent([delay(5), text("done")]), "hi")
        for given in (CHART, [PNG], [CHART] * 101):
            with pytest.raises(gr.InvalidAttachment, match="attachments"):
                await run.send("more", attachments=given)
        with pytest.raises(gr.UsageError, match="blank"):
            await run.send(" ")
        await run.result()


@pytest.mark.rule("AT-13")
@SEQUENTIAL
async def test_an_input_that_waits_for_its_thread_keeps_its_parts(play, autojump_clock):
    life = await play("done", start={"attachments": [CHART]}, behind=30, do=[after(3, restart)])
    assert seen(life.requests[-1]) == {"user": [PNG]}


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("AT-7", "AT-12")
async def test_a_model_sees_what_a_tool_returned(play, autojump_clock):
    life = await play([call("chart", id="A"), call("chart", id="B", kind="one")], "done", **DRAWS)
    assert seen(life.requests[1]) == {"A": [PNG, b"month,sales\nMay,7\n"], "B": [PNG]}
    results = {payload["callId"]: payload["result"] for payload in life.payloads("tool.result")}
    assert results == {"A": ["a chart", FACTS[0], {"n": 1}, FACTS[1]], "B": FACTS[0]}
    assert life.tool_texts["B"].startswith('{"type":"image","media_type":"image/png","size":15,"sha256":"')
    assert PNG.decode("latin1")[:12] not in stored(life).replace("\\x", "x")


@pytest.mark.rule("AT-7")
@SEQUENTIAL
async def test_an_address_is_passed_on(play, autojump_clock):
    life = await play(call("chart", id="A", kind="at"), "done", **DRAWS)
    assert seen(life.requests[1]) == {"A": [AT.part.url]}
    assert life.payloads("tool.result")[0]["result"] == [AT.part.facts()]


@pytest.mark.rule("AT-8")
@pytest.mark.parametrize("kind", ["deep", "many"])
async def test_an_attachment_without_a_place_fails_the_call(play, kind, autojump_clock):
    life = await play(call("chart", id="A", kind=kind), "done", **DRAWS)
    assert (life.codes, life.effects) == ({"A": "tool_error"}, ["A"])
    said = "has no place here" if kind == "deep" else "101 images and files; give at most 100"
    assert said in life.tool_texts["A"]
    assert seen(life.requests[1]) == {}


@pytest.mark.rule("AT-8")
@SEQUENTIAL
async def test_an_attachment_without_a_place_ends_the_run_of_a_tool_that_raises(play, autojump_clock):
    async def draw(ctx: Context) -> Any:
        """Draws."""
        return {"a": CHART}

    life = await play(call("draw", id="A"), "done", tools=[gr.tool(draw, on_error="raise")])
    assert (life.outcome.code, "has no place here" in life.outcome.message) == ("tool_error", True)


@pytest.mark.rule("AT-9")
@pytest.mark.parametrize("verdict", ["allow", "reject", "trip"])
async def test_a_guardrail_of_the_tool_sees_the_attachments(play, verdict, autojump_clock):
    asked: list[Any] = []

    @gr.tool_output_guardrail
    async def look(ctx: gr.PhaseContext[Any], result: Any) -> Any:
        asked.append(result)
        return {"allow": None, "reject": gr.Reject("not this"), "trip": gr.Trip("bad")}[verdict]

    async def draw(ctx: Context, kind: str) -> Any:
        """Draws."""
        return CHART if kind == "one" else ["a", CHART, {"n": 1}]

    guarded = gr.tool(draw, output_guardrails=[look])
    life = await play(call("draw", id="A", kind="list"), call("draw", id="B", kind="one"), "done", tools=[guarded])
    assert asked[0] == ["a", CHART, {"n": 1}]
    assert asked[0][1].part.data == PNG
    if verdict == "allow":
        assert asked[1] is CHART
        assert seen(life.requests[-1]) == {"A": [PNG], "B": [PNG]}
        return
    assert all(seen(request) == {} for request in life.requests)
    assert await kept(life, CHART.part) == {}
    assert CHART.part.sha256 not in stored(life)


@pytest.mark.rule("AT-10")
@SEQUENTIAL
async def test_a_child_runs_result_may_have_parts(play, autojump_clock):
    expert = gr.Agent("expert", model=ScriptedModel(["I know."]))
    tool = expert.as_tool(extract=lambda completed: [completed.output, CHART])
    life = await play(call("expert", id="K", input="do it"), "done", tools=[tool], do=[after(0.1, restart)])
    assert seen(life.requests[-1]) == {"K": [PNG]}
    assert life.payloads("tool.result")[0]["result"] == ["I know.", FACTS[0]]


@pytest.mark.rule("AT-8", "AT-10")
@SEQUENTIAL
async def test_a_child_runs_result_with_a_misplaced_part_fails_the_call(play, autojump_clock):
    expert = gr.Agent("expert", model=ScriptedModel(["I know."]))
    tool = expert.as_tool(extract=lambda _: {"a": CHART})
    life = await play(call("expert", id="K", input="do it"), "done", tools=[tool])
    assert life.codes == {"K": "tool_error"}


@pytest.mark.rule("AT-10")
@SEQUENTIAL
async def test_a_background_task_hands_its_attachments_to_the_model(play, autojump_clock):
    async def draw(ctx: Context) -> Any:
        """Draws."""
        await trio.sleep(5)
        return [CHART]

    tools = [*TOOLS, gr.tool(draw, background=True, replay="safe")]
    life = await play(call("draw", id="A"), "so far", "done", tools=tools, do=[after(8, restart)])
    assert seen(life.requests[-1]) == {"user": [PNG]}


@pytest.mark.rule("AT-11")
@SEQUENTIAL
async def test_a_decision_holds_no_attachments(play, autojump_clock):
    life = await play(call("pay", id="A"), "done", do=[approve("A", result=[CHART])])
    assert life.replies == ["rejected invalid_result"]
    assert "has no place here" in str(life.scene.details)


@SEQUENTIAL
async def test_a_dropped_batch_takes_the_parts_of_its_attempt_along(play, autojump_clock):
    """Two bodies write one key; the second runs again, alone, and returns something else."""
    key, times = gr.StateKey("k", int, default=0), []

    async def draw(ctx: Context, seconds: float) -> Any:
        """Draws."""
        times.append(seconds)
        await trio.sleep(seconds)
        ctx.state.set(key, len(times))
        return "again" if len(times) > 2 else CHART

    tool = gr.tool(draw, on_conflict="retry", replay="safe")
    calls = [call("draw", id="A", seconds=1.0), call("draw", id="B", seconds=2.0)]
    life = await play(calls, "done", tools=[tool], state=[key], start={"execution": "parallel_streaming"})
    assert len(times) == 3
    assert seen(life.requests[-1]) == {"A": [PNG]}
    assert life.tool_texts["B"] == "again"


# --- restart, fork, replay, prune ------------------------------------------------------------------------------------


@pytest.mark.rule("AT-13")
@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5, 7.0, 12.5])
async def test_parts_survive_a_restart(play, seconds, autojump_clock):
    steps = [call("chart", id="A"), call("chart", id="B", seconds=10.0, kind="none")], [delay(5), text("done")]
    life = await play(*steps, start={"attachments": [TABLE]}, do=[after(seconds, restart)], **DRAWS)
    assert seen(life.requests[-1]) == {"user": [TABLE.part.data], "A": [PNG, TABLE.part.data]}
    assert len(await kept(life, *life.view.messages[2].parts)) == 2


@pytest.mark.rule("AT-13")
async def test_the_rows_stay_small(watched, mode, autojump_clock):
    """The input waits in the row of the run, which every commit writes; the record has it, too."""
    large = gr.File(bytes(1_000_000), media_type="a/b")
    helper = agent(call("look", id="A"), "done", tools=[chart_of(large)])
    async with home(watched.open(), agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", attachments=[large], execution=mode)
        await run.result()
        assert runtime.store.statistics().bytes_written < 2_100_000  # the bytes of both parts, and of all rows
        assert [len(part.data) for m in helper.model.requests[-1].messages for part in m.parts] == [1_000_000] * 2


def chart_of(attachment: Any) -> Any:
    async def look() -> Any:
        """Looks."""
        return attachment

    return gr.tool(look)


@pytest.mark.rule("AT-14", "AT-15")
async def test_a_fork_has_the_parts_of_its_history(play, autojump_clock):
    life = await play(call("chart", id="A"), "done", start={"attachments": [TABLE]}, **DRAWS)
    helper = life.scene.agent
    async with home(life.scene.play.shelf.open(), agents=[helper], deps=life.scene.outside) as runtime:
        for step, parts in ((0, {"user"}), (1, {"user", "A"})):
            fork = await runtime.fork("r", step=step)
            await fork.result()
            assert set(seen(helper.model.requests[-1])) >= parts
            assert all(data for found in seen(helper.model.requests[-1]).values() for data in found)
            (created, *_) = await events_of(fork)
            assert created.payload["attachments"] == on_wire(FACTS[1])
            assert (await runtime.replay(fork.id)).equal


@pytest.mark.rule("AT-14")
async def test_bytes_are_pruned_with_the_messages_of_their_thread(shelf, autojump_clock):
    helper, wall = agent("done"), FakeWall(LONG_AGO)
    sha256 = CHART.part.sha256
    async with home(shelf.open(), agents=[helper], clock=gr_clock(wall)) as runtime:
        first = await runtime.start(helper, "hi", thread_id="t", attachments=[CHART])
        await first.result()
        fork = await runtime.fork(first.id, step=0)
        await fork.result()
        second = await runtime.start(helper, "more", thread_id="t")
        await second.result()
        store = runtime.store
        assert len(await store.parts("t", (sha256,))) == 1
        await store.prune(LONG_AGO + timedelta(days=9))
        assert await store.parts("t", (sha256,)) == {}
        assert await store.parts(fork.thread_id, (sha256,)) == {}


def gr_clock(wall: FakeWall) -> Any:
    from greenroom.actors.services.clock import Clock

    return Clock(wall)


@pytest.mark.rule("AT-12")
async def test_the_bytes_of_a_part_can_be_read(shelf, autojump_clock):
    helper = agent("done")
    async with home(shelf.open(), agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", attachments=[CHART, AT])
        await run.result()
        image, at = (await run.view()).messages[0].parts
        assert await run.part(image) == await run.part(image.sha256) == PNG
        assert await runtime.reader.part(run.id, image.sha256) == PNG
        for wrong in (at, "0" * 64, "\ud800"):
            with pytest.raises(gr.UsageError, match="no image or file with the digest"):
                await run.part(wrong)
        with pytest.raises(gr.UsageError, match="give a Part"):
            await run.part(7)  # type: ignore[arg-type]
        with pytest.raises(gr.UnknownRun):
            await runtime.reader.part("nothing", image.sha256)


@pytest.mark.rule("AT-12")
@SEQUENTIAL
async def test_a_hook_sees_facts_and_its_model_gets_bytes(play, autojump_clock):
    facts: list[Any] = []
    other = FunctionModel(lambda request: f"saw {[part.data for m in request.messages for part in m.parts]}")

    class Looks(gr.Plugin):
        async def before_inference(self, ctx: Any) -> Any:
            facts.append([part.data for message in ctx.messages for part in message.parts])
            answer = await ctx.ask_model(*ctx.messages, model=other)
            return gr.Mutation().add_message("".join(answer.text)).spend(answer.usage)

    life = await play("done", start={"attachments": [CHART]}, plugins=[Looks()])
    assert facts == [[None]]
    assert str([PNG]) in life.requests[0].messages[-1].content


@pytest.mark.rule("AT-16")
async def test_redaction_masks_addresses_and_names_and_leaves_bytes_alone(shelf, autojump_clock):
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
    attachments = [
        gr.Image(url=f"https://example.org/a.png?key={secret}"),
        gr.File(secret.encode(), media_type="text/plain", name=f"{secret}.txt"),
    ]
    helper = agent("done")
    async with home(shelf.open(), agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", attachments=attachments)
        (created, *_) = await events_of(run)
        assert secret not in str(created.payload)
        assert created.payload["attachments"][1]["sha256"] == attachments[1].part.sha256
        await run.result()
        assert seen(helper.model.requests[0]) == {"user": [attachments[0].part.url, secret.encode()]}


@SEQUENTIAL
async def test_a_cancelled_run_keeps_what_its_calls_returned(play, autojump_clock):
    life = await play(
        [call("chart", id="A", seconds=1.0), call("note", id="B", seconds=10.0)],
        "done",
        do=[after(5, cancel())],
        **DRAWS,
    )
    assert [len(message.parts) for message in life.view.messages] == [0, 0, 2, 0]
    assert len(await kept(life, *life.view.messages[2].parts)) == 2


def test_the_tool_of_the_scenes_is_a_tool():
    assert chart.name == "chart"


@pytest.mark.rule("AT-23")
@SEQUENTIAL
async def test_a_context_window_counts_images(play, autojump_clock):
    calls = [call("chart", id="A", kind="one")], [call("chart", id="B", kind="one")]
    life = await play(*calls, "done", plugins=[gr.ContextWindow(1_500)], **DRAWS)
    assert [seen(request) for request in life.requests] == [{}, {"A": [PNG]}, {"B": [PNG]}]


@pytest.mark.rule("AT-23")
@SEQUENTIAL
async def test_a_summary_is_made_of_facts(play, autojump_clock):
    asked: list[gr.ModelRequest] = []
    sums = FunctionModel(lambda request: asked.append(request) or "in short")
    calls = [call("chart", id="A", kind="one")], [call("chart", id="B", kind="one")]
    await play(*calls, "done", plugins=[gr.Compaction(above=1_500, keep=1, model=sums)], **DRAWS)
    words = asked[0].messages[-1].content
    assert "[image image/png, 15 bytes]" in words
    assert all(not message.parts for request in asked for message in request.messages)


@pytest.mark.rule("AT-25")
@SEQUENTIAL
@pytest.mark.parametrize("input_filter", [None, gr.filters.without_tools, gr.filters.nested])
async def test_the_agent_of_a_handoff_reads_the_parts_of_what_it_inherits(play, input_filter, autojump_clock):
    other = gr.Agent("other", model=ScriptedModel([[delay(3), text("done")]]))
    hands = gr.handoff(other, input_filter=input_filter)
    steps = call("chart", id="A"), call("transfer_to_other", id="H")
    life = await play(
        *steps,
        start={"attachments": [AT]},
        do=[after(5, restart)],
        handoffs=[hands],
        model=ScriptedModel(list(steps)),
        **DRAWS,
    )
    assert life.outcome.output == "done"
    inherited = seen(other.model.requests[-1])
    if input_filter is gr.filters.nested:
        assert inherited == {"user": [AT.part.url, PNG, TABLE.part.data]}
        assert "[file text/csv, 18 bytes, sales.csv]" in other.model.requests[-1].messages[-1].content
    else:
        results = {} if input_filter else {"A": [PNG, TABLE.part.data]}
        assert inherited == {"user": [AT.part.url], **results}


@pytest.mark.rule("AT-13")
async def test_bytes_of_an_ending_that_the_store_takes_back_are_kept(play, autojump_clock):
    """A command is accepted while the result that ends the run is written: the store refuses that commit first."""
    runs: list[Any] = []

    async def look(scene: Any) -> None:
        runs.append(scene.run)

    async def draw(ctx: Context) -> Any:
        """Draws."""
        await trio.sleep(3)
        await runs[0].cancel(mode="after_step", by="ada")
        return [CHART]

    tool = gr.tool(draw)
    life = await play(call("draw", id="A"), tools=[tool], tool_use="stop_on_first_tool", do=[after(1, look)])
    assert [part.sha256 for part in life.view.messages[-1].parts] == [CHART.part.sha256]
    assert await kept(life, CHART.part) == {CHART.part.sha256: PNG}
