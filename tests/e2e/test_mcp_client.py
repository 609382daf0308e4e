"""Tools of an MCP server that is a program, in both eras."""

import logging
import os
from pathlib import Path

import pytest

import greenroom as gr
from greenroom.testing import call, check_toolset

from ..support.mcp_servers import SAFE, agent_with, executed, program, run_with, seen, until, use

CANARY = "canary-7f3a9c1e5b"


@pytest.fixture(params=["modern", "handshake"])
def era(request):
    return request.param


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


# --- names, rules ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("MC-2")
async def test_a_run_calls_a_tool_of_a_server(era):
    life = await run_with(program(era), use("echo", {"text": "hello"}))
    assert life.outcome.output == "done"
    assert life.texts == {"A": "hello"}
    assert "mcp__t__echo" in life.offered


@pytest.mark.rule("MC-2")
async def test_globs_choose_what_is_offered():
    life = await run_with(program(include=["e*", "a*", "p*"], exclude=["*o", "*sk", "pid"]), "done")
    assert life.offered == ["mcp__t__add", "mcp__t__picture"]


@pytest.mark.rule("MC-2")
async def test_a_name_that_models_do_not_accept_is_changed_and_called_all_the_same():
    life = await run_with(program(include=["odd*"]), "done")
    (name,) = life.offered
    assert name == "mcp__t__odd_name_of_a_tool_" + name[-8:]
    life = await run_with(program(include=["odd*"]), call(name, {"text": "x"}, id="A"))
    assert life.texts == {"A": "x"}


@pytest.mark.rule("MC-2")
async def test_a_list_is_asked_for_again_when_the_server_says_that_it_has_changed(era, log):
    steps = [use("rename", id="A"), use("echo", {"text": "x"}, id="B"), use("renamed", {"text": "y"}, id="C")]
    life = await run_with(program(era, log), *steps)
    assert life.codes["B"] == "unknown_tool"
    assert life.texts["C"] == "y"
    assert executed(log).count("tools/list") == 2


@pytest.mark.rule("MC-2")
async def test_a_list_is_kept_and_has_pages(log):
    life = await run_with(program("modern", log, env={"PAGES": "3"}), use("echo", {"text": "a"}), use("key", id="B"))
    assert len(life.offered) == 15
    assert executed(log).count("tools/list") == 3


@pytest.mark.rule("MC-3")
async def test_a_tool_about_which_nothing_is_known_asks_people_and_counts_as_external(log):
    agent = agent_with(program("modern", log, tools={}), steps=[use("echo", {"text": "a"}), "done"])
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start(agent, "go")
        (ticket,) = (await run.wait()).tickets
        assert (ticket.reason, ticket.tool, executed(log)) == ("tool_permission", "mcp__t__echo", ["tools/list"])
        await run.decide(ticket.approve(edited_arguments={"text": "b"}))
        life = await seen(run, agent, await run.result())
    assert life.texts["A"].endswith("\nb")
    assert {event["effect"] for event in life.of("run.tool.call")} == {"external"}


@pytest.mark.rule("MC-3")
async def test_the_first_rule_whose_glob_fits_counts_and_hints_count_if_they_are_trusted(log):
    read = gr.mcp.Rule(effect="read", needs_approval=False, replay="safe", timeout=3.0)
    life = await run_with(program(tools={"e*": read, "echo": gr.mcp.Rule(effect="deploy")}), use("echo", {"text": "a"}))
    assert life.texts == {"A": "a"}
    assert {event["effect"] for event in life.of("run.tool.call")} == {"read"}
    life = await run_with(program(tools={}, trust_hints=True), use("echo", {"text": "a"}), use("key", id="B"))
    assert life.texts == {"A": "a"}
    assert [ticket.tool for ticket in life.outcome.tickets] == ["mcp__t__key"]


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("MC-4")
async def test_results_are_structured_content_texts_and_attachments(era):
    steps = [use("add", {"numbers": [1, 2]}, id="A"), use("picture", id="B"), use("fail", id="C"), use("wrong", id="D")]
    life = await run_with(program(era), *steps)
    assert life.texts["A"] == '{"sum":3}'
    assert life.texts["B"].startswith('["here",{"type":"image","media_type":"image/png"')
    assert '"a.txt file:///a.txt"' in life.texts["B"]
    assert '"media_type":"application/pdf"' in life.texts["B"]
    assert (life.texts["C"], life.codes["C"]) == ("no such issue", "tool_error")
    assert "does not fit the tool's outputSchema: $.sum" in life.texts["D"]
    assert life.codes["D"] == "schema_validation_failed"


@pytest.mark.rule("MC-5")
async def test_a_call_carries_its_idempotency_key():
    life = await run_with(program(), use("key"), use("key", id="B"))
    assert len({*life.texts.values()}) == 2
    assert all(life.texts.values())


# --- the life of the program -----------------------------------------------------------------------------------------


@pytest.mark.rule("MC-1")
async def test_one_program_serves_all_runs_of_a_runtime_and_ends_with_it(log):
    agent = agent_with(program("modern", log), steps=[use("pid"), "done"])
    async with gr.open_runtime(agents=[agent]) as runtime:
        runs = [await runtime.start(agent, "go") for _ in range(3)]
        for run in runs:
            await run.result()
        results = [request.messages[-1] for request in agent.model.requests]
        (pid,) = {int(message.content) for message in results if message.role == "tool"}
        os.kill(pid, 0)
    await gone(pid)


@pytest.mark.rule("MC-1")
async def test_a_server_of_the_scope_run_is_one_program_for_each_run_and_ends_with_it():
    agent = agent_with(program(scope="run"), steps=[use("pid"), "done"])
    async with gr.open_runtime(agents=[agent]) as runtime:
        lives = []
        for _ in range(2):
            run = await runtime.start(agent, "go")
            lives.append(await seen(run, agent, await run.result()))
        pids = [int(life.texts["A"]) for life in lives]
        assert pids[0] != pids[1]
        for pid in pids:
            await gone(pid)


@pytest.mark.rule("MC-1")
async def test_a_program_starts_when_a_step_first_needs_its_tools(log):
    agent = agent_with(program("modern", log), key="b")
    other = agent_with(key="a", steps=["done"])
    async with gr.open_runtime(agents=[agent, other]) as runtime:
        run = await runtime.start(other, "go")
        await run.result()
        assert executed(log) == []


@pytest.mark.rule("MC-1", "MC-4")
async def test_secrets_of_a_server_are_in_no_event_and_no_log(monkeypatch, caplog, tmp_path):
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.setenv("OTHER", "other-canary-55")
    caplog.set_level(logging.DEBUG)
    life = await run_with(program(pass_env=["CANARY"]), use("secret"), store=tmp_path / "runs.db")
    assert "HOME is True; OTHER is False" in life.texts["A"]
    assert CANARY not in repr([event.payload for event in life.events])
    assert "stderr has" in caplog.text
    assert CANARY not in caplog.text
    life = await run_with(program(env={"CANARY": gr.env("CANARY", "x-{}")}), use("secret"))
    assert "the result has x-" in repr(life.of("run.tool.result"))
    assert CANARY not in repr([event.payload for event in life.events])


async def gone(pid: int) -> None:
    """Wait until a process has ended."""
    await until(lambda: not Path(f"/proc/{pid}").exists())


# --- calls that are cut ----------------------------------------------------------------------------------------------


@pytest.mark.rule("MC-8")
async def test_an_unsafe_call_that_is_cut_is_made_once_and_asks_people(era, log, tmp_path):
    agent = agent_with(program(era, log), steps=[use("die"), "done"])
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start(agent, "go")
        (ticket,) = (await run.wait()).tickets
        assert (ticket.reason, executed(log).count("die")) == ("outcome_unknown", 1)
        assert "exit code 3" in ticket.message
        await run.decide(ticket.approve(result={"paid": True}))
        life = await seen(run, agent, await run.result())
    assert (life.texts, executed(log).count("die")) == ({"A": '{"paid":true}'}, 1)


@pytest.mark.rule("MC-8")
async def test_a_cut_call_is_made_again_when_people_say_so(log):
    agent = agent_with(program("modern", log), steps=[use("die_once"), "done"])
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start(agent, "go")
        (ticket,) = (await run.wait()).tickets
        await run.decide(ticket.approve())
        life = await seen(run, agent, await run.result())
    assert (life.texts, executed(log).count("die_once")) == ({"A": "alive"}, 2)


@pytest.mark.rule("MC-8")
async def test_a_safe_call_that_is_cut_is_made_once_more_and_no_more(era, log):
    life = await run_with(program(era, log, tools={"*": SAFE}), use("die_once"), use("die", id="B"))
    assert (life.texts["A"], executed(log).count("die_once")) == ("alive", 2)
    assert (life.codes["B"], executed(log).count("die")) == ("runtime_unavailable", 2)


@pytest.mark.rule("MC-8")
async def test_a_cancel_reaches_the_server_and_the_next_call_works(era, log):
    agent = agent_with(program(era, log), steps=[use("slow"), "done"])
    other = agent_with(*agent.toolsets, steps=[use("echo", {"text": "x"}), "done"], key="b")
    async with gr.open_runtime(agents=[agent, other]) as runtime:
        run = await runtime.start(agent, "go")
        async with run.events() as stream:
            async for event in stream:
                if event.type == "run.tool.progress":
                    break
        await run.cancel()
        assert isinstance(await run.result(), gr.Cancelled)
        await until(lambda: "cancelled" in executed(log))
        run = await runtime.start(other, "go")
        assert (await seen(run, other, await run.result())).texts == {"A": "x"}


@pytest.mark.rule("MC-5")
async def test_progress_and_logs_of_a_server_are_reported(era, caplog):
    caplog.set_level(logging.DEBUG, "greenroom.mcp")
    life = await run_with(program(era), use("report"))
    progress = [(event["fraction"], event["text"]) for event in life.of("run.tool.progress")]
    assert progress[-1] == (0.5, "step 2")
    assert "half way" in caplog.text


@pytest.mark.rule("MC-8")
async def test_a_call_of_a_silent_server_fails_after_the_idle_time(log):
    life = await run_with(program("modern", log, idle=0.3), use("slow"))
    assert life.codes == {"A": "run_timeout"}
    assert "said nothing for 0.3 s" in life.texts["A"]
    assert executed(log).count("slow") <= 1


# --- servers that are not there --------------------------------------------------------------------------------------


@pytest.mark.rule("MC-9")
async def test_a_run_goes_on_without_a_server_that_is_not_there():
    server = gr.mcp.Server("t", command=["no-such-program-here"])
    life = await run_with(server, "done")
    (degraded,) = life.of("run.degraded")
    assert degraded["reason"] == "toolset_unavailable"
    assert "exit code 127" in degraded["detail"]


@pytest.mark.rule("MC-9")
async def test_a_call_of_a_server_that_has_gone_fails_as_unavailable(tmp_path):
    path = tmp_path / "server"
    path.symlink_to(program().command[0])
    server = gr.mcp.Server("t", command=[str(path), *program().command[1:]], tools={"key": gr.mcp.Rule()})
    agent = agent_with(server, steps=[use("key"), "done"])
    async with gr.open_runtime(tmp_path / "runs.db", agents=[agent]) as runtime:
        run = await runtime.start(agent, "go", run_id="r")
        (ticket,) = (await run.wait()).tickets
    path.unlink()
    path.symlink_to("/bin/false")
    async with gr.open_runtime(tmp_path / "runs.db", agents=[agent]) as runtime:
        run = await runtime.get("r")
        await run.decide(ticket.approve())
        life = await seen(run, agent, await run.result())
    assert life.codes == {"A": "runtime_unavailable"}
    assert "MCP server 't' is not available: " in life.texts["A"]


async def test_a_server_keeps_the_promises_of_a_toolset(era):
    await check_toolset(lambda: program(era))


@pytest.mark.rule("MC-7")
async def test_a_program_that_asks_while_two_runs_call_it_gets_cancel_and_nobody_is_asked(log, caplog):
    agent = agent_with(program("handshake", log), steps=[use("slow"), "done"])
    other = agent_with(*agent.toolsets, steps=[use("ask"), "done"], key="b")
    async with gr.open_runtime(agents=[agent, other]) as runtime:
        slow = await runtime.start(agent, "go")
        await until(lambda: "slow" in executed(log))
        run = await runtime.start(other, "go")
        life = await seen(run, other, await run.result())
        await slow.cancel()
    assert life.texts == {"A": '{"action": "cancel"}'}
    assert "unknown for which call" in caplog.text


@pytest.mark.rule("MC-3")
async def test_rules_of_permission_judge_the_calls_of_a_server_like_all_others(log):
    rules = [gr.ext.Rule("deny", tool={"glob": "mcp__t__k*"}), gr.ext.Rule("allow", effect="external")]
    steps = [use("key", id="A"), use("echo", {"text": "a"}, id="B"), "done"]
    agent = agent_with(program("modern", log), steps=steps, plugins=[gr.ext.Permission(rules)])
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start(agent, "go")
        life = await seen(run, agent, await run.result())
    assert (life.codes["A"], life.texts["B"]) == ("permission_denied", "a")
    assert "key" not in executed(log)
