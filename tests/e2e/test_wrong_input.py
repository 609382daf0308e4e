"""Wrong input: each has a clear typed error or an Answer that names the value and the way out; others are unharmed."""

import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import pytest
import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call, delay
from greenroom.transport import connect

from ..support.runs import KINDS, Shelf, agent, events_of, home, payloads


@gr.tool(needs_approval=True)
async def refund(order: str, cents: int) -> str:
    return f"refunded {cents} for {order}"


@gr.tool
async def ask(ctx: gr.ToolContext) -> str:
    if ctx.decision is None:
        raise gr.Suspend(response_schema={"type": "object", "required": ["name"]})
    return str(ctx.decision.result)


@gr.tool
async def plain() -> str:
    return "plain"


@pytest.fixture(params=KINDS)
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    return Shelf(request.param, tmp_path)


HELPER_STEPS = ([call("refund", order="7", cents=5, id="c1"), call("plain", id="c0")], "done")


@asynccontextmanager
async def waiting(shelf: Shelf, *steps, **options) -> AsyncIterator[tuple[gr.Runtime, gr.Run, gr.Ticket]]:
    """A run that waits for one decision; at the end it, and another run, must still complete."""
    helper = agent(*(steps or HELPER_STEPS), tools=[refund, ask, plain], **options)
    other = agent("unharmed", key="other")
    async with home(shelf, agents=[helper, other]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        outcome = await run.wait()
        before = (await run.view()).last_sequence
        yield runtime, run, outcome.tickets[0]
        assert (await (await runtime.start(other, "hi")).result()).output == "unharmed"
        if (await run.view()).status != "done":
            assert (await run.view()).last_sequence == before, "a rejected command leaves no trace"
            assert await run.wait() == outcome
            result = {"name": "Ada"} if outcome.tickets[0].response_schema else None
            assert (await run.decide(outcome.tickets[0].ticket_id, "resume", result=result)).ok
            assert (await run.result()).output == "done"


# --- starting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"run_id": "has space"}, "has space"),
        ({"run_id": "x" * 129}, "128"),
        ({"run_id": 7}, "run_id=7"),
        ({"run_id": ""}, "run_id=''"),
        ({"run_id": "-dash"}, "letter or digit first"),
        ({"run_id": "line\nbreak"}, "run_id"),
        ({"run_id": "end\n"}, "run_id"),
        ({"thread_id": ""}, "thread_id=''"),
        ({"session_id": "/"}, "session_id='/'"),
        ({"deadline": datetime(2030, 1, 1)}, "timezone"),
        ({"deadline": 30.0}, "deadline=30.0"),
        ({"deadline": "tomorrow"}, "tomorrow"),
        ({"execution": "parallel"}, "parallel_streaming"),
        ({"execution": []}, "execution"),
        ({"on_busy": "wait"}, "'queue' or 'refuse'"),
        ({"by": 42}, "by=42"),
        ({"workspace": Path("a/b")}, "workspace"),
        ({"dependencies": 1}, "dependencies"),
        ({"has_deps": True}, "has_deps"),
    ],
    ids=lambda value: repr(value) if isinstance(value, dict) else "",
)
async def test_a_wrong_option_of_start_is_a_usage_error_that_names_it(shelf, autojump_clock, options, names):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        with pytest.raises(gr.UsageError) as caught:
            await runtime.start(helper, "hi", **options)
        assert names in str(caught.value)
        assert isinstance(caught.value, ValueError)
        assert (await runtime.runs()).runs == ()
        assert (await (await runtime.start(helper, "hi")).result()).output == "done"


@pytest.mark.parametrize("text", [None, 42, b"bytes", ["list"]], ids=repr)
async def test_input_that_is_no_text_is_a_usage_error(shelf, autojump_clock, text):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        with pytest.raises(gr.UsageError, match="give a str"):
            await runtime.start(helper, text)
        run = await runtime.start(helper, "hi")
        with pytest.raises(gr.UsageError, match="str"):
            await run.send(text)
        assert (await run.result()).output == "done"


@pytest.mark.rule("L-39")
@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u3000\u00a0"], ids=ascii)
async def test_blank_input_is_a_usage_error_and_leaves_no_trace(shelf, autojump_clock, text):
    """Providers refuse a blank message, at every later step, too: it would stay in the thread."""
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        with pytest.raises(gr.UsageError, match=r"the input is blank \(.*\); give a text with something in it"):
            await runtime.start(helper, text)
        assert (await runtime.runs()).runs == ()
        run = await runtime.start(helper, "hi")
        with pytest.raises(gr.UsageError, match=r"send: the text is blank"):
            await run.send(text, command_id="m")
        assert (await run.send(f"{text}more", command_id="m")).status == "accepted"
        await run.result()
        assert [payload["text"] for payload in payloads(await events_of(run), "input.received")] == [f"{text}more"]


@pytest.mark.parametrize("key", ["nobody", "", 42, ["list"]], ids=repr)
async def test_an_unknown_agent_is_named_with_the_known_ones(shelf, autojump_clock, key):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        with pytest.raises(gr.UnknownAgent) as caught:
            await runtime.start(key, "hi")
        assert repr(key) in str(caught.value)
        assert "helper" in str(caught.value)


async def test_an_agent_without_a_model_or_with_an_unknown_one_is_refused_before_anything_is_written(
    shelf, autojump_clock
):
    bare, named, odd = gr.Agent("bare"), gr.Agent("named", model="openai:gpt-5-mini"), gr.Agent("odd", model="gpt")
    async with home(shelf, agents=[bare, named, odd]) as runtime:
        with pytest.raises(gr.AgentDefinitionError, match="'bare' has no model"):
            await runtime.start(bare, "hi")
        with pytest.raises(gr.AgentDefinitionError, match="openai"):
            await runtime.start("named", "hi")
        with pytest.raises(gr.AgentDefinitionError, match="provider:name"):
            await runtime.start(odd, "hi")
        assert (await runtime.runs()).runs == ()


async def test_a_model_of_the_wrong_kind_is_refused_when_the_agent_is_made():
    with pytest.raises(gr.AgentDefinitionError, match="42"):
        gr.Agent("helper", model=42)


async def test_gr_run_says_the_same_errors(autojump_clock):
    with pytest.raises(gr.UsageError, match="give a str"):
        await gr.run(agent("done"), 42)
    with pytest.raises(gr.AgentDefinitionError, match="no model"):
        await gr.run(gr.Agent("bare"), "hi")


# --- finding ---------------------------------------------------------------------------------------------------------


async def test_a_database_that_is_open_already_is_one_error_and_nothing_in_the_log(tmp_path, caplog):
    """It received as a crash of the runtime, too, with its traceback."""
    async with gr.open_runtime(tmp_path / "a.db"):
        with pytest.raises(gr.StoreOpenError, match="is open already in this process"):
            async with gr.open_runtime(tmp_path / "a.db"):
                pass
    assert caplog.records == []


async def test_memory_is_no_path_and_no_file_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(gr.StoreOpenError, match=":memory: is no file; runs are kept in memory if no path is given"):
        async with gr.open_runtime(":memory:"):
            pass
    assert list(tmp_path.iterdir()) == []


async def test_a_secret_that_is_no_text_is_a_usage_error_that_does_not_show_it():
    with pytest.raises(gr.UsageError, match="secrets has a value that is int; give a list of str"):
        async with gr.open_runtime(secrets=["hunter2", 4711]):
            pass


async def test_a_url_that_is_no_text_is_a_usage_error():
    with pytest.raises(gr.UsageError, match="url=5: give a str, such as ws://HOST:PORT"):
        async with connect(5):
            pass


def test_another_event_loop_is_named_with_the_way_out():
    with pytest.raises(
        gr.UsageError, match=r"write trio.run\(main\), or, in a program on asyncio, open it with greenroom.aio"
    ):
        gr.run(agent("done"), "hi").send(None)  # as any other loop does


async def test_an_unknown_run_is_named_everywhere(shelf, autojump_clock):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        known = await runtime.start(helper, "hi")
        ghost = gr.Run("ghost", "t", runtime.reader, runtime.commands)
        for attempt in (
            lambda: runtime.get("ghost"),
            lambda: runtime.resume("ghost"),
            lambda: runtime.fork("ghost", step=0),
            ghost.wait,
            ghost.result,
            ghost.view,
            ghost.cancel,
            lambda: ghost.send("hi"),
            lambda: ghost.decide("c1", "resume"),
            lambda: events_of(ghost),
        ):
            with pytest.raises(gr.UnknownRun, match="'ghost'"):
                await attempt()
        assert (await known.result()).output == "done"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"after": -1}, "-1"),
        ({"after": "3"}, "'3'"),
        ({"after": 1.5}, "1.5"),
        ({"until": "done"}, "'done'"),
        ({"until": None}, "None"),
    ],
    ids=repr,
)
async def test_a_wrong_cursor_or_end_of_events_is_a_usage_error(shelf, autojump_clock, options, names):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi")
        with pytest.raises(gr.UsageError) as caught:
            run.events(**options)
        assert names in str(caught.value)
        assert (await run.result()).output == "done"


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"status": "sleeping"}, "waiting"),
        ({"status": 3}, "3"),
        ({"limit": 0}, "0"),
        ({"limit": 1001}, "1,000"),
        ({"limit": "ten"}, "ten"),
        ({"limit": True}, "True"),
        ({"cursor": "nonsense"}, "nonsense"),
        ({"cursor": "bm9uc2Vuc2U="}, "bm9uc2Vuc2U="),
        ({"cursor": 7}, "7"),
        ({"cursor": "ключ"}, "ключ"),
        ({"agent": 7}, "7"),
    ],
    ids=repr,
)
async def test_a_wrong_query_of_runs_is_a_usage_error(shelf, autojump_clock, query, names):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        with pytest.raises(gr.UsageError) as caught:
            await runtime.runs(**query)
        assert names in str(caught.value)
        assert (await (await runtime.start(helper, "hi")).result()).output == "done"


async def test_a_cursor_of_another_query_is_refused(shelf, autojump_clock):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        for _ in range(3):
            await (await runtime.start(helper, "hi")).result()
        page = await runtime.runs(limit=2)
        with pytest.raises(gr.UsageError, match="another query"):
            await runtime.runs(status="done", limit=2, cursor=page.cursor)


@pytest.mark.parametrize("step", [-1, 3, "1", 1.5, None, True], ids=repr)
async def test_a_fork_at_a_step_that_is_not_there_is_a_usage_error(shelf, autojump_clock, step):
    helper = agent(call("plain", id="c1"), "done", tools=[plain])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        await run.result()
        with pytest.raises(gr.UsageError, match="2 finished steps"):
            await runtime.fork("r1", step=step)
        assert len((await runtime.runs()).runs) == 1


@pytest.mark.parametrize("new_run_id", ["has space", 7, ""], ids=repr)
async def test_a_fork_under_an_impossible_id_is_a_usage_error(shelf, autojump_clock, new_run_id):
    helper = agent("done")
    async with home(shelf, agents=[helper]) as runtime:
        await (await runtime.start(helper, "hi", run_id="r1")).result()
        with pytest.raises(gr.UsageError, match="new_run_id"):
            await runtime.fork("r1", step=0, new_run_id=new_run_id)


# --- deciding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["nothing", "", "r1.t99", "c9"], ids=repr)
async def test_a_decision_about_nothing_is_unknown_target(shelf, autojump_clock, target):
    async with waiting(shelf) as (_, run, _ticket):
        answer = await run.decide(target, "resume")
        assert (answer.status, answer.code) == ("rejected", "unknown_target")
        assert repr(target) in answer.detail


async def test_a_decision_for_a_finished_call_is_rejected(shelf, autojump_clock):
    async with waiting(shelf) as (_, run, _ticket):
        answer = await run.decide("c0", "cancel")
        assert (answer.status, answer.code) == ("rejected", "unknown_target")
        assert "succeeded" in answer.detail


@pytest.mark.parametrize(
    "edited",
    [{"order": "7"}, {"order": "7", "cents": "many"}, {"order": 7, "cents": 1}, {"order": "7", "cents": 1, "x": 1}],
    ids=repr,
)
async def test_edited_arguments_that_do_not_fit_the_tool_are_invalid_with_the_path(shelf, autojump_clock, edited):
    async with waiting(shelf) as (_, run, _ticket):
        answer = await run.decide("c1", "resume", edited_arguments=edited)
        assert (answer.status, answer.code) == ("rejected", "invalid_arguments")
        assert answer.detail


@pytest.mark.parametrize(
    "edited", [["a", "list"], "text", 7, {"order": object(), "cents": 1}], ids=["list", "text", "int", "object"]
)
async def test_edited_arguments_that_are_no_object_are_invalid(shelf, autojump_clock, edited):
    async with waiting(shelf) as (_, run, _ticket):
        answer = await run.decide("c1", "resume", edited_arguments=edited)
        assert (answer.status, answer.code) == ("rejected", "invalid_arguments")
        assert "edited_arguments" in answer.detail


@pytest.mark.parametrize("result", [None, {}, {"nom": "Ada"}, "Ada", ["name"]], ids=repr)
async def test_a_result_that_does_not_fit_the_response_schema_is_invalid_with_the_path(shelf, autojump_clock, result):
    async with waiting(shelf, call("ask", id="c1"), "done") as (_, run, _ticket):
        answer = await run.decide("c1", "resume", result=result)
        assert (answer.status, answer.code) == ("rejected", "invalid_result")
        assert "$" in answer.detail


async def test_a_result_without_a_form_in_json_is_invalid(shelf, autojump_clock):
    async with waiting(shelf) as (_, run, _ticket):
        answer = await run.decide("c1", "resume", result=object())
        assert (answer.status, answer.code) == ("rejected", "invalid_result")
        assert "JSON" in answer.detail


@pytest.mark.parametrize("action", ["maybe", None, "", 7], ids=repr)
async def test_an_unknown_action_is_a_value_error_and_not_an_answer(shelf, autojump_clock, action):
    async with waiting(shelf) as (_, run, _ticket):
        with pytest.raises(ValueError, match=r"'approve' \(or 'resume'\), or 'deny' \(or 'cancel'\)"):
            await run.decide("c1", action)


@pytest.mark.parametrize("options", [{"by": 7}, {"reason": ["list"]}, {"decision_id": 7}], ids=repr)
async def test_a_decision_with_something_else_than_text_is_a_usage_error(shelf, autojump_clock, options):
    async with waiting(shelf) as (_, run, _ticket):
        with pytest.raises(gr.UsageError, match=next(iter(options))):
            await run.decide("c1", "resume", **options)
        with pytest.raises(gr.UsageError, match="target"):
            await run.decide(7, "resume")


async def test_a_denial_with_something_else_than_text_is_a_value_error(shelf, autojump_clock):
    """It was accepted, and the model read something else."""
    async with waiting(shelf) as (_, _run, ticket):
        with pytest.raises(ValueError, match=r"deny\(text=5\): give a str"):
            ticket.deny(text=5)


async def test_one_decision_in_place_of_several_is_a_usage_error(shelf, autojump_clock):
    async with waiting(shelf) as (_, run, ticket):
        with pytest.raises(gr.UsageError, match="give a list of decisions"):
            await run.decide_all(ticket.approve())


async def test_an_unknown_mode_of_cancel_is_a_value_error(shelf, autojump_clock):
    async with waiting(shelf) as (_, run, _ticket):
        with pytest.raises(ValueError, match="'now' or 'after_step'"):
            await run.cancel(mode="later")
        with pytest.raises(gr.UsageError, match="by"):
            await run.cancel(by=7)
        with pytest.raises(gr.UsageError, match="reason"):
            await run.cancel(reason=7)


# --- odd text from people --------------------------------------------------------------------------------------------


async def test_text_with_lone_surrogates_is_taken_with_a_mark_in_their_place(shelf, autojump_clock):
    odd = "caf\udce9"
    helper = agent([delay(1), call("refund", order="7", cents=5, id="c1")], "done", tools=[refund])
    async with home(shelf, agents=[helper]) as runtime:
        run = await runtime.start(helper, odd, by=odd, workspace=odd)
        assert (await run.send(odd)).ok
        await run.wait()
        assert (await run.decide("c1", "resume", reason=odd, by=odd, result=odd)).ok
        assert (await run.result()).output == "done"
        other = await runtime.start(helper, "hi")
        assert (await other.cancel(reason=odd, by=odd)).ok
        assert (await other.result()).reason == "caf?"
    assert helper.model.requests[0].messages[0].content == "caf?"


# --- opening ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"store": 42}, "42"),
        ({"store": "mysql://localhost/x"}, "mysql"),
        ({"max_running": 0}, "max_running=0"),
        ({"max_running": "two"}, "max_running"),
        ({"drain": -1}, "drain"),
        ({"drain": "long"}, "drain"),
        ({"store_patience": -1}, "store_patience"),
        ({"agents": [42]}, "42"),
        ({"agents": "helper"}, "agents"),
        ({"secrets": ["abc"]}, "6"),
        ({"secrets": "not-a-list"}, "secrets"),
    ],
    ids=repr,
)
async def test_a_wrong_option_of_open_runtime_is_a_value_error_that_names_it(autojump_clock, options, names):
    with pytest.raises(ValueError, match=names):
        async with gr.open_runtime(**options):
            pass


async def test_two_agents_of_one_key_are_refused(autojump_clock):
    with pytest.raises(gr.UsageError, match="'helper'"):
        async with gr.open_runtime(agents=[agent(), agent()]):
            pass


async def done_run(path: Path) -> None:
    async with gr.open_runtime(path) as runtime:
        assert (await (await runtime.start(agent("done"), "hi", run_id="r1")).result()).output == "done"


async def refused(path: Path | str, *, match: str) -> gr.StoreOpenError:
    with pytest.raises(gr.StoreOpenError, match=match) as caught:
        async with gr.open_runtime(path):
            pytest.fail("it opened")
    return caught.value


async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes " * 100)
    await refused(path, match="not a database")
    assert path.read_text() == "my notes " * 100


async def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE runs (x)")
    connection.close()
    before = path.read_bytes()
    await refused(path, match="another program")
    assert path.read_bytes() == before


async def test_a_truncated_database_is_refused(tmp_path):
    path = tmp_path / "runs.db"
    await done_run(path)
    path.write_bytes(path.read_bytes()[:5000])
    await refused(path, match="cut off")


async def test_a_damaged_database_is_refused_or_reported_and_never_silently_emptied(tmp_path):
    path = tmp_path / "runs.db"
    await done_run(path)
    data = bytearray(path.read_bytes())
    data[:16] = b"garbage garbage!"
    path.write_bytes(data)
    await refused(path, match="not a database")
    assert path.read_bytes() == bytes(data)


async def test_a_database_of_a_newer_release_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "runs.db"
    await done_run(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 999")
    connection.commit()
    connection.close()
    await refused(path, match=r"999.*upgrade")


async def test_a_read_only_database_is_refused_with_the_way_out(tmp_path):
    path = tmp_path / "runs.db"
    await done_run(path)
    path.chmod(stat.S_IRUSR)
    await refused(path, match=r"read-only|readable and writable")
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    async with gr.open_runtime(path) as runtime:
        assert (await (await runtime.get("r1")).result()).output == "done"


async def test_a_place_that_cannot_be_is_refused(tmp_path):
    await refused(tmp_path / "no" / "folder" / "runs.db", match="does not exist")
    await refused(tmp_path, match="is a folder")


async def test_a_database_that_another_program_holds_is_refused_and_can_be_opened_later(tmp_path):
    path = tmp_path / "runs.db"
    await done_run(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    await refused(path, match="locked")
    other.execute("ROLLBACK")
    other.close()
    async with gr.open_runtime(path) as runtime:
        assert (await (await runtime.get("r1")).result()).output == "done"


async def test_a_database_that_another_program_locks_for_a_while_delays_runs_and_loses_nothing(tmp_path):
    path = tmp_path / "runs.db"
    helper = agent(call("plain", id="c1"), "done", tools=[plain])
    with trio.fail_after(120):
        async with gr.open_runtime(path, agents=[helper]) as runtime:
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            started = []

            async def start() -> None:
                started.append(await runtime.start(helper, "hi"))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(start)
                await trio.sleep(0.2)
                assert started == []
                other.execute("ROLLBACK")
            other.close()
            assert (await started[0].result()).output == "done"


async def test_a_full_disk_is_reported_and_runs_continue_when_there_is_room(tmp_path, autojump_clock):
    """SQLite's own page limit plays the full disk."""
    path = tmp_path / "runs.db"
    big = "x" * 200_000
    helper = gr.Agent("helper", model=ScriptedModel([big]))
    store = gr.SQLiteStore(path, writer="inline", patience=60)
    async with home(store) as runtime:
        connection = store._transactor._connection
        first = await runtime.start(helper, "hi", run_id="r1")
        await first.result()
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 5}")
        second = await runtime.start(helper, "hi", run_id="r2")
        await trio.sleep(5)
        with pytest.raises(gr.StoreUnavailable, match="full"):
            await runtime.start(helper, "hi", run_id="r3")
        answer = await second.cancel()
        assert (answer.status, answer.code) == ("rejected", "store_unavailable")
        assert "full" in answer.detail
        assert (await first.result()).output == big
        connection.execute("PRAGMA max_page_count = 1000000")
        assert (await second.result()).output == big
        third = await runtime.start(helper, "hi", run_id="r3")
        assert (await third.result()).output == big
    assert connection is not None
