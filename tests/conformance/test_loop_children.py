"""Rules of child runs: an agent as a tool, from the start of its run to its end."""

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.testing import call, delay, text

from ..support.child_scenes import CHILD, ChildLife, K, Spy, expert, with_expert
from ..support.scene_plugins import scripted, slow
from ..support.scene_tools import TOOLS
from ..support.scenes import after, approve, cancel, restart

SEQUENTIAL = pytest.mark.parametrize("mode", ["sequential"])


@attrs.frozen
class Order:
    """What the model gives instead of a text."""

    number: int
    urgent: bool = False


@pytest.mark.rule("CR-2", "CR-3", "CR-7", "CR-10")
async def test_the_output_of_a_child_run_is_the_result_of_the_call(play, autojump_clock):
    child = ChildLife()
    tools = with_expert(text("I know.", usage=gr.Usage(requests=1, input=5, output=7)))
    life = await play(K, "done", tools=tools, do=[child.look()], start={"by": "ada", "session_id": "s"})
    assert life.calls == {"K": "new running succeeded"}
    assert life.history == ["user: hi", "assistant: (K)", "K: I know.", "assistant: done"]
    info = child.record.info
    assert (info.run_id, info.parent_run, info.parent_call, info.depth) == (CHILD, "r", "K", 1)
    assert (info.thread_id, info.by, info.session_id) == (f"{CHILD}.thread", "ada", "s")
    assert [(m.role, m.content) for m in child.view.messages] == [("user", "do it"), ("assistant", "I know.")]
    assert life.payloads("child.started") == [{"callId": "K", "childRunId": CHILD, "agent": "expert"}]
    (finished,) = life.payloads("child.finished")
    assert (finished["stage"], finished["usage"]["output"]) == ("completed", 7)
    own = [payload["usage"]["requests"] for payload in life.payloads("inference.completed")]
    assert life.view.usage.requests == sum(own) + 1
    assert life.view.usage == life.outcome.usage


@pytest.mark.rule("CR-1")
@SEQUENTIAL
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_class_describes_the_arguments_and_functions_make_input_and_result(play, autojump_clock, is_async):
    async def later(order: Order) -> str:
        return f"order {order.number}, urgent: {order.urgent}"

    def now(order: Order) -> str:
        return f"order {order.number}, urgent: {order.urgent}"

    async def later_length(completed: gr.Completed[str]) -> int:
        return len(completed.output)

    how = {"build_input": later, "extract": later_length} if is_async else {}
    how = how or {"build_input": now, "extract": lambda completed: len(completed.output)}
    tool = expert("four").as_tool(name="shop", description="Sells.", parameters=Order, **how)
    child = ChildLife()
    steps = [call("shop", number=7, id="K"), call("shop", number="x", id="bad"), "done"]
    life = await play(*steps, tools=[*TOOLS, tool], do=[child.look()])
    assert life.tool_texts["K"] == "4"
    assert "Expected `int`" in life.tool_texts["bad"]
    assert child.view.messages[0].content == "order 7, urgent: False"
    assert tool.schema["properties"]["number"] == {"type": "integer"}


@pytest.mark.rule("CR-1")
@SEQUENTIAL
@pytest.mark.parametrize("where", ["build_input", "extract"])
async def test_a_function_that_fails_is_a_failure_of_the_tool(play, autojump_clock, where):
    def breaks(_: object) -> str:
        raise gr.ToolError("no luck")

    life = await play(K, "done", tools=with_expert("I know.", tool={where: breaks}))
    assert (life.codes["K"], life.tool_texts["K"]) == ("tool_error", "no luck")
    assert life.view.stage == "completed"


@pytest.mark.rule("CR-1")
async def test_the_gates_of_the_tool_come_before_the_child_run(play, autojump_clock):
    seen = Spy()

    async def exists(scene):
        return await scene.runtime.store.outline(CHILD) is not None

    tools = with_expert("I know.", tool={"needs_approval": True})
    life = await play(K, "done", tools=tools, do=[seen.see(exists), approve("K"), seen.see(exists)])
    assert seen.found == [False, True]
    assert life.tickets == {"r.t1": ("tool_permission", "approved")}


@pytest.mark.rule("CR-8")
@pytest.mark.parametrize(
    ("script", "options", "code"),
    [
        ([call("breaks", id="B"), "done"], {}, "tool_error"),
        ([call("look", id="C")], {"stop": [gr.stop.MaxRounds(1)]}, "max_rounds"),
    ],
)
async def test_a_failed_child_run_is_a_failed_call(play, autojump_clock, script, options, code):
    life = await play(K, "done", tools=with_expert(*script, **options))
    assert (life.codes["K"], life.view.stage) == ("child_failed", "completed")
    assert code in life.tool_texts["K"]
    assert life.payloads("child.finished")[0]["code"] == code


@pytest.mark.rule("CR-8")
@SEQUENTIAL
async def test_a_failure_ends_the_parent_run_if_its_tool_says_so(play, autojump_clock):
    tools = with_expert(call("breaks", id="B"), tool={"on_error": "raise"})
    life = await play(K, "done", tools=tools)
    assert (life.view.stage, life.outcome.code) == ("failed", "tool_error")
    assert life.outcome.message.startswith("expert: The agent failed")


@pytest.mark.rule("CR-9")
async def test_cancelling_a_child_run_cancels_the_call_and_nothing_else(play, autojump_clock):
    child = ChildLife()

    async def cancelled(scene):
        await (await scene.runtime.get(CHILD)).cancel(reason="enough", by="eve")

    life = await play(K, "done", tools=with_expert(call("look", id="C"), "x"), do=[after(3, cancelled), child.look()])
    assert (life.codes["K"], life.view.stage, child.stage) == ("cancelled", "completed", "cancelled")
    assert life.tool_texts["K"] == "The agent's run was cancelled: enough"
    assert life.effects == []


@pytest.mark.rule("CR-11")
@SEQUENTIAL
async def test_a_child_run_that_takes_too_long_is_cancelled(play, autojump_clock):
    child = ChildLife()
    tools = with_expert(call("hangs", id="H"), "x", tool={"timeout": 20.0})
    life = await play(K, "done", tools=tools, do=[child.look()])
    assert (life.codes["K"], child.stage) == ("tool_timeout", "cancelled")
    assert life.seconds("tool.result", call_id="K") == 20.0


@pytest.mark.rule("CR-11")
@SEQUENTIAL
async def test_waiting_for_people_is_no_work(play, autojump_clock):
    tools = with_expert(call("sign", id="S"), "signed", tool={"timeout": 15.0})

    async def later(_):
        await trio.sleep(500)

    life = await play(K, "done", tools=tools, do=[later, approve("K")])
    assert (life.codes["K"], life.effects) == (None, ["S"])


@pytest.mark.rule("CR-6")
@SEQUENTIAL
@pytest.mark.parametrize(("max_depth", "code"), [(0, "depth_exceeded"), (1, None), (None, None)])
async def test_child_runs_are_nested_as_deep_as_the_runtime_allows(play, autojump_clock, max_depth, code):
    play.runtime["max_depth"] = max_depth
    spy = Spy()

    async def outline(scene):
        return await scene.runtime.store.outline(CHILD)

    life = await play(K, "done", tools=with_expert("I know."), do=[spy.see(outline)])
    assert life.codes["K"] == code
    assert (spy.found[0] is None) is (code is not None)


@pytest.mark.rule("CR-5")
async def test_a_child_run_works_in_the_slot_of_its_parent(play, autojump_clock):
    play.runtime["max_running"] = 1
    life = await play(K, "done", tools=with_expert(call("look", id="C"), "I know."), do=[after(3, restart)])
    assert (life.view.stage, life.tool_texts["K"]) == ("completed", "I know.")
    assert life.effects == ["C"]


@pytest.mark.rule("CR-4")
@pytest.mark.parametrize("second", [0.5, 3.0, 12.0, 31.0])
async def test_a_restarted_call_finds_its_child_run(play, autojump_clock, second):
    child = ChildLife()
    script = [[delay(1), call("look", id="C")], [delay(20), "I know."]]
    tools = with_expert(*script, tool={"build_input": lambda _: f"at {trio.current_time()}"})
    life = await play(K, "done", tools=tools, do=[after(second, restart), child.look()])
    assert (life.view.stage, life.tool_texts["K"]) == ("completed", "I know.")
    assert life.types.count("child.started") == life.types.count("child.finished") == 1
    assert "approval.requested" not in life.types


@pytest.mark.rule("CR-24")
@pytest.mark.parametrize("down", [False, True])
async def test_cancelling_the_parent_run_ends_its_child_run_first(play, autojump_clock, down):
    child = ChildLife()
    acts = [after(3, cancel(reason="enough"))] + ([after(0, restart)] if down else [])
    life = await play(K, "done", tools=with_expert(call("tidy", id="T"), "x"), do=[*acts, child.look()])
    assert (life.view.stage, child.stage) == ("cancelled", "cancelled")
    assert (life.codes["K"], child.payloads("tool.result")[0]["code"]) in (
        ("cancelled", "cancelled"),
        ("cancelled", "outcome_unknown"),  # its process ended in the middle of the body
    )
    assert life.events[-1].timestamp >= child.events[-1].timestamp
    assert life.types.count("child.finished") == 1
    assert "stubborn" not in life.end


@pytest.mark.rule("CR-24")
@SEQUENTIAL
async def test_a_child_run_that_takes_longer_than_its_grace_is_named(play, autojump_clock):
    tools = with_expert(call("tidy", seconds=8.0, id="T"), "x", tool={"grace": 0.5})
    life = await play(K, "done", tools=tools, do=[after(3, cancel())])
    assert life.view.stage == "cancelled"
    assert list(life.end["stubborn"]) == ["K"]


@pytest.mark.rule("CR-25")
@SEQUENTIAL
async def test_the_deadline_of_the_parent_run_is_that_of_its_child_run(play, autojump_clock):
    child = ChildLife()
    tools = with_expert(call("hangs", id="H"), "x")
    life = await play(K, "done", tools=tools, start={"deadline": 20.0}, do=[child.look()])
    assert life.outcome.code == "run_timeout"
    assert child.record.info.deadline == life.record.info.deadline
    assert child.stage in ("failed", "cancelled")


@pytest.mark.rule("LO-11", "CR-8")
@pytest.mark.parametrize("mode", ["parallel_streaming", "parallel_batch_approval"])
@pytest.mark.parametrize("tool_fails", [False, True])
async def test_of_several_failing_child_runs_the_first_in_the_models_order_is_reported(
    play, autojump_clock, tool_fails
):
    """The first one fails, too, and ends later than what is behind it: cancelled while its last hook works."""
    ends_late = scripted("late", run_end=slow(3))
    raises = {"on_error": "raise"}
    first = expert(call("breaks", id="1"), key="first", plugins=[ends_late]).as_tool(**raises)
    second = expert(call("breaks", id="2"), key="second").as_tool(**raises)
    behind = call("breaks", id="B") if tool_fails else call("second", input="do it", id="B")
    life = await play([call("first", input="do it", id="A"), behind], "never", tools=[*TOOLS, first, second])
    assert life.outcome.code == "tool_error"
    assert life.outcome.message == "first: The agent failed (tool_error): breaks: RuntimeError: beyond repair"
    assert life.calls == {"A": "new running failed", "B": "new running failed"}
