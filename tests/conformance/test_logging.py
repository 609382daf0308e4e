"""What is logged of code that fails: once, under the id that its event has, without secrets, and nothing comes back."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call, delay, fail, text

from ..support.runs import agent, events_of, home
from ..support.scene_plugins import scripted

SECRET = "hunter2-hunter2"


class Kept(logging.Handler):
    """Keeps records, and what a formatter makes of them."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def named(self, name: str) -> list[logging.LogRecord]:
        return [record for record in self.records if record.name == name]

    @property
    def text(self) -> str:
        return "\n".join(map(logging.Formatter().format, self.records))


class Rude(logging.Handler):
    """Raises for every record."""

    def emit(self, record: logging.LogRecord) -> None:
        raise SystemExit(3)


@contextmanager
def hearing(handler: logging.Handler, level: int = logging.DEBUG) -> Iterator[None]:
    log = logging.getLogger("greenroom")
    before = log.level
    log.addHandler(handler)
    log.setLevel(level)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


@pytest.fixture
def heard() -> Iterator[Kept]:
    kept = Kept()
    with hearing(kept):
        yield kept


def failing(*_: Any) -> Any:
    raise ValueError(f"the key is {SECRET}\nFAKE line")


@gr.tool
async def broken() -> str:
    failing()
    return ""


@gr.tool
def broken_in_a_thread() -> str:
    failing()
    return ""


@gr.tool(background=True)
async def broken_task() -> str:
    failing()
    return ""


@gr.tool(on_error="raise")
async def fatal() -> str:
    failing()
    return ""


@gr.tool(needs_approval=failing)
async def judged() -> str:
    return ""


@gr.tool(needs_approval=lambda ctx, arguments: None)  # type: ignore[arg-type,return-value]
async def forgotten() -> str:
    return ""


@gr.tool
async def told() -> str:
    raise gr.ToolError("closed today")


@gr.tool(timeout=1)
async def slow() -> str:
    await trio.sleep(5)
    return ""


class Buggy(gr.Model):
    name = "buggy"

    def stream(self, request: Any) -> Any:
        failing()


async def came_to(helper: gr.Agent[Any], **options: Any) -> tuple[Any, list[gr.Event]]:
    """What a run came to, and its events."""
    async with home(None, agents=[helper], secrets=[SECRET], **options) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        outcome = await run.wait()
        return outcome, await events_of(run, until="rest")


def main_types(events: list[gr.Event]) -> list[str]:
    """The types of events, but for those of which there are as many as the store is quick."""
    return [event.type for event in events if not event.type.endswith(".delta")]


def degraded_of(events: list[gr.Event]) -> Any:
    (payload,) = [event.payload for event in events if event.type == "run.degraded"]
    return payload


def error_ids(events: list[gr.Event]) -> set[str]:
    return {event.payload["errorId"] for event in events if event.payload.get("errorId")}


SCENES: dict[str, tuple[gr.Agent[Any], str, str, str]] = {
    "a tool": (agent(call("broken", id="c1"), "done", tools=[broken]), "tool", "tool_error", "r1/c1#1"),
    "a sync tool": (
        agent(call("broken_in_a_thread", id="c1"), "done", tools=[broken_in_a_thread]),
        "tool",
        "tool_error",
        "r1/c1#1",
    ),
    "a background tool": (
        agent(call("broken_task", id="c1"), "done", "done", tools=[broken_task]),
        "tool",
        "tool_error",
        "r1/c1.task1#1",
    ),
    "a tool that ends the run": (agent(call("fatal", id="c1"), tools=[fatal]), "tool", "tool_error", "r1/c1#1"),
    "a hook": (agent("done", plugins=[scripted("x", step_start=failing)]), "plugin", "plugin_error", "r1/step_start/1"),
    "a hook that is ignored": (
        agent("done", plugins=[scripted("x", on_error="ignore", step_start=failing)]),
        "plugin",
        "plugin_error",
        "r1/step_start/1",
    ),
    "a gate": (
        agent(call("told", id="c1"), tools=[told], plugins=[scripted("x", tool_gate=failing)]),
        "plugin",
        "plugin_error",
        "r1/tool_gate/1/c1",
    ),
    "a predicate": (agent(call("judged", id="c1"), tools=[judged]), "tool", "predicate_failed", "r1/tool_gate/1/c1"),
    "a model": (gr.Agent("helper", model=Buggy()), "model", "model_bug", "r1/r1.m2"),
}


@pytest.mark.parametrize("scene", SCENES)
async def test_a_bug_is_logged_once_with_its_traceback_and_found_by_the_id_in_its_event(heard, scene):
    helper, logger, code, error_id = SCENES[scene]
    _, events = await came_to(helper)
    records = [record for record in heard.records if record.levelno == logging.ERROR]
    assert [record.name for record in records] == [f"greenroom.{logger}"]
    (record,) = records
    fields: Any = record
    assert (fields.error_id, fields.code, fields.run_id) == (error_id, code, "r1")
    assert error_ids(events) == {error_id}
    assert record.exc_text is not None
    assert "in failing" in record.exc_text
    assert heard.text.count("Traceback (most recent call last)") == 1
    assert SECRET not in heard.text
    assert "\nFAKE" not in record.getMessage()  # what an exception says cannot look like another line


async def test_the_end_of_a_run_names_the_bug_that_ended_it(heard):
    outcome, events = await came_to(SCENES["a tool that ends the run"][0])
    assert outcome.termination.error_id == "r1/c1#1"
    assert events[-1].payload["errorId"] == "r1/c1#1"


@pytest.mark.parametrize(
    ("script", "tools", "level", "logger"),
    [
        ((call("told"), "done"), [told], logging.INFO, "tool"),
        ((call("slow"), "done"), [slow], logging.WARNING, "tool"),
        ((call("told", {"x": 1}), "done"), [told], None, "tool"),
        ((fail("overloaded"), "done"), [], logging.WARNING, "model"),
        ((fail("unauthorized"),), [], logging.WARNING, "model"),
        (("done",), [], None, "run"),
    ],
    ids=["a ToolError", "a timeout", "arguments that do not fit", "a model that passes", "a key", "nothing"],
)
async def test_what_is_no_bug_has_a_level_of_its_own_and_no_traceback(
    heard, autojump_clock, script, tools, level, logger
):
    await came_to(agent(*script, tools=tools))
    found = [(record.name, record.levelno) for record in heard.records]
    assert found == ([] if level is None else [(f"greenroom.{logger}", level)])
    assert "Traceback" not in heard.text


@pytest.mark.parametrize("tool", [judged, forgotten])
async def test_a_predicate_that_fails_is_reported_in_the_log_in_an_event_and_to_those_who_decide(heard, tool):
    outcome, events = await came_to(agent(call(tool.name, id="c1"), tools=[tool]))
    (ticket,) = outcome.tickets
    doubt = f"the needs_approval predicate of tool {tool.name!r} failed: "
    assert ticket.message.startswith(f"It is not known whether this is allowed: {doubt}")
    assert degraded_of(events)["detail"].startswith(doubt)
    degraded = degraded_of(events)
    assert (degraded["reason"], degraded["errorId"]) == ("predicate_failed", "r1/tool_gate/1/c1")
    (record,) = heard.named("greenroom.tool")
    assert record.levelno == logging.ERROR
    assert SECRET not in heard.text + ticket.message + str(degraded)


async def test_a_run_whose_predicate_failed_is_replayed_without_a_difference(autojump_clock):
    for plugins in ([], [scripted("x", tool_gate=lambda ctx: None)]):
        helper = agent(call("judged", id="c1"), "done", tools=[judged], plugins=plugins)
        async with home(None, agents=[helper]) as runtime:
            run = await runtime.start(helper, "hi", run_id="r1")
            await run.wait()
            await run.decide("c1", "resume")
            await run.result()
            report = await runtime.replay("r1")
            assert report.equal, report


async def test_a_provider_of_deps_that_keeps_failing_is_logged_once_with_its_traceback(heard, autojump_clock):
    asked: list[int] = []

    def provider(info: gr.RunInfo) -> str:
        asked.append(1)
        return "deps" if len(asked) > 3 else failing()

    helper = agent("done")
    async with home(None, agents=[helper], deps=provider, secrets=[SECRET]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        with pytest.raises(gr.RunDegradedError, match="error_id r1/deps"):
            await run.result()
        await trio.sleep(100)
        assert (await run.result()).output == "done"
    assert [record.levelno for record in heard.named("greenroom.deps")] == [logging.ERROR, *[logging.WARNING] * 2]
    assert heard.text.count("Traceback (most recent call last)") == 1
    assert SECRET not in heard.text


@pytest.mark.parametrize("scene", SCENES)
async def test_a_handler_that_raises_hurts_nothing(scene, capsys):
    helper = SCENES[scene][0]
    with hearing(Kept()):
        quiet = await came_to(helper)
    with hearing(Rude()):
        loud = await came_to(helper)
    assert main_types(loud[1]) == main_types(quiet[1])
    assert type(loud[0]) is type(quiet[0])
    assert "a log handler of greenroom." in capsys.readouterr().err


async def test_output_without_a_listener_is_not_made():
    """No traceback is formatted, and no record made, for a logger that is off."""
    kept = Kept()
    with hearing(kept, logging.CRITICAL):
        await came_to(SCENES["a tool"][0])
    assert kept.records == []


async def test_a_text_that_is_no_unicode_is_written_all_the_same(heard):
    @gr.tool
    async def surrogate() -> str:
        raise ValueError("no \udc80 idea")

    await came_to(agent(call("surrogate"), "done", tools=[surrogate]))
    assert heard.text.encode()


async def test_the_restart_of_a_runs_owner_is_logged(heard, autojump_clock):
    class Failing(gr.MemoryStore):
        times = 1

        def submit(self, *args: Any, **kwargs: Any) -> None:
            if self.times:
                self.times -= 1
                raise RuntimeError(SECRET)
            super().submit(*args, **kwargs)

    helper = gr.Agent("helper", model=ScriptedModel(["done"]))
    async with home(Failing(), agents=[helper], secrets=[SECRET]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        assert (await run.result()).output == "done"
    kernel, own = heard.named("greenroom.supervision"), heard.named("greenroom.run")
    assert [record.getMessage() for record in kernel] == ["runtime/r1 crashed (RuntimeError); restart 1 follows"]
    assert [record.levelno for record in own] == [logging.ERROR]
    assert heard.text.count("Traceback (most recent call last)") == 1
    assert SECRET not in heard.text


async def test_a_denial_text_that_fails_is_logged_under_the_id_of_its_event(heard):
    @gr.tool(needs_approval=True)
    async def signed() -> str:
        return ""

    helper = agent(call("signed", id="c1"), "done", tools=[signed], denial=failing)
    async with home(None, agents=[helper], secrets=[SECRET]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        waiting = await run.wait()
        assert isinstance(waiting, gr.Waiting)
        await run.decide(waiting.tickets[0].deny())
        await run.result()
        events = await events_of(run)
    (record,) = heard.named("greenroom.run")
    fields: Any = record
    assert (record.levelno, fields.code, fields.call_id) == (logging.ERROR, "denial_failed", "c1")
    assert {fields.error_id} == error_ids(events)
    assert "in failing" in heard.text
    assert SECRET not in heard.text


async def test_a_reducer_that_fails_at_the_merge_is_logged(heard, autojump_clock):
    total = gr.StateKey(
        "total", int, default=0, merge=gr.commutative(lambda now, more: failing() if now else now + more)
    )

    @gr.tool
    async def add(ctx: gr.ToolContext) -> str:
        ctx.state.update(total, 1)
        await trio.sleep(1)
        return ""

    helper = agent([call("add", id="c1"), call("add", id="c2")], "done", tools=[add], execution="parallel_streaming")
    _, events = await came_to(helper)
    (conflict,) = [event.payload for event in events if event.type == "run.state.conflict"]
    assert conflict["writer"] == "c2"
    (record,) = heard.named("greenroom.run")
    fields: Any = record
    assert (record.levelno, fields.code, fields.call_id) == (logging.ERROR, "state_conflict", "c2")
    assert "in failing" in heard.text
    assert SECRET not in heard.text


async def judging(ctx: Any, result: Any) -> None:
    failing()


async def deaf_work() -> str:
    with trio.CancelScope(shield=True):
        await trio.sleep(100)
    return ""


async def failing_work() -> str:
    failing()
    return ""


async def quick_work() -> str:
    return ""


@pytest.mark.parametrize("background", [False, True], ids=["call", "task"])
@pytest.mark.parametrize(
    ("function", "options"),
    [
        (failing_work, {}),
        (deaf_work, {"timeout": 1.0, "grace": 1.0}),
        (quick_work, {"output_guardrails": [gr.tool_output_guardrail(judging)]}),
    ],
    ids=["raises", "ignores its time limit", "guardrail raises"],
)
async def test_a_failure_is_logged_with_the_ids_of_its_call_and_task(
    heard, autojump_clock, background, function, options
):
    tool = gr.tool(name="works", background=background, **options)(function)
    _, events = await came_to(agent(call("works", id="c1"), [delay(100), text("done")], "done", tools=[tool]))
    record: Any = next(record for record in heard.records if getattr(record, "call_id", None) is not None)
    tasks = [event.payload["taskId"] for event in events if event.type == "run.task.started"]
    assert (record.call_id, getattr(record, "task_id", None)) == ("c1", tasks[0] if background else None)
    assert "failed in call" not in record.getMessage() or not background
