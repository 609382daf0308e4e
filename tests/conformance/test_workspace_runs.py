"""Runs in a workspace, on a store in memory and in a file: the copy, the proposal, the decision, the folder."""

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from tests.support.workspaces import Shop, never_busy

import greenroom as gr
from greenroom.testing import FunctionModel, call

pytestmark = pytest.mark.slow


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.write("a.txt", "one\ntwo\n")
    made.commit()
    return made


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """What `open_runtime` takes."""
    return None if request.param == "memory" else tmp_path / "runs.db"


def coder(model: Any, *rules: gr.ext.Rule, **options: Any) -> gr.Agent:
    permission = gr.ext.Permission(rules or None)
    return gr.Agent("coder", model=model, tools=gr.ext.workspace_tools(), plugins=[permission], **options)


async def log(run: gr.Run[Any]) -> list[gr.Event]:
    """All events of a run that has ended."""
    async with run.events() as events:
        return [event async for event in events]


def edit_and_apply(request: Any) -> Any:
    """Play a model: edit, propose, apply what was proposed."""
    newest = request.messages[-1]
    if newest.role == "user":
        return call("edit_file", path="a.txt", old="two", new="2")
    if newest.content.startswith("proposal "):
        return apply_newest(newest.content)
    return "done" if newest.content.startswith("applied") else call("propose_changes")


@pytest.mark.parametrize("execution", ["sequential", "parallel_batch_approval", "parallel_streaming"])
async def test_an_agent_works_in_a_copy_and_a_person_lets_the_changes_in(
    shop: Shop, store: Any, execution: str
) -> None:
    agent = coder(FunctionModel(edit_and_apply), execution=execution)
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        run = await runtime.start(agent, "count", workspace="shop")
        (ticket,) = (await run.wait()).tickets
        assert ticket.tool == "apply_changes"
        assert shop.read("a.txt") == "one\ntwo\n"
        await run.decide(ticket.approve(by="ada"))
        assert (await run.result()).output == "done"
        (started,) = [event for event in await log(run) if event.type == "run.started"]
        assert started.payload["detail"]["workspace"] == "shop"
    assert shop.read("a.txt") == "one\n2\n"


async def asked(run: gr.Run[Any]) -> gr.Ticket:
    """The one ticket for which a run waits."""
    outcome = await run.wait()
    assert isinstance(outcome, gr.Waiting), outcome
    (ticket,) = outcome.tickets
    return ticket


def scripted(*steps: Any) -> FunctionModel:
    """A model that plays one step after the other; a function gets the newest message."""
    answers = iter(steps)

    def answer(request: Any) -> Any:
        step = next(answers)
        return step(request.messages[-1].content) if callable(step) else step

    return FunctionModel(answer)


def apply_newest(content: str) -> Any:
    """Apply the proposal that the newest message describes."""
    proposal, _, _ = content.removeprefix("proposal ").partition(":")
    return call("apply_changes", proposal=proposal, summary="changes")


async def test_some_files_of_a_proposal_are_applied_and_the_rest_stays_pending(shop: Shop, store: Any) -> None:
    agent = coder(
        scripted(
            [call("write_file", path="b.txt", content="b\n"), call("write_file", path="c.txt", content="c\n")],
            call("propose_changes"),
            apply_newest,
            call("propose_changes"),
            lambda content: content,
        )
    )
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        run = await runtime.start(agent, "go", workspace="shop")
        ticket = await asked(run)
        await run.decide(ticket.approve(edited_arguments={**ticket.arguments, "paths": ["b.txt"]}, by="ada"))
        output = (await run.result()).output
    assert shop.read("b.txt") == "b\n"
    assert not (shop.folder / "c.txt").exists()
    assert output is not None
    assert "added c.txt (+1 -0)" in output
    assert "b.txt" not in output


async def test_a_person_says_what_to_change_and_is_asked_again(shop: Shop, store: Any) -> None:
    agent = coder(
        scripted(
            call("write_file", path="b.txt", content="b\n"),
            call("propose_changes"),
            apply_newest,
            lambda content: call("write_file", path="b.txt", content=content.upper()),
            call("propose_changes"),
            apply_newest,
            "done",
        )
    )
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        run = await runtime.start(agent, "go", workspace="shop")
        first = await asked(run)
        await run.decide(first.deny(text="in capitals", by="ada"))
        second = await asked(run)
        assert second.fingerprint != first.fingerprint
        await run.decide(second.approve(by="ada"))
        await run.result()
    assert shop.read("b.txt") == "IN CAPITALS"


async def test_a_conflict_changes_no_byte_and_goes_back_to_the_agent(shop: Shop, store: Any) -> None:
    def resolve(content: str) -> Any:
        assert "<<<<<<< workspace" in content
        return call("write_file", path="a.txt", content="one\nboth\n")

    agent = coder(
        scripted(
            call("edit_file", path="a.txt", old="two", new="2"),
            call("propose_changes"),
            apply_newest,
            call("read_file", path="a.txt"),
            resolve,
            call("propose_changes"),
            apply_newest,
            "done",
        )
    )
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        run = await runtime.start(agent, "go", workspace="shop")
        ticket = await asked(run)
        shop.write("a.txt", "one\nzwei\n")
        await run.decide(ticket.approve(by="ada"))
        again = await asked(run)
        assert shop.read("a.txt") == "one\nzwei\n"
        await run.decide(again.approve(by="ada"))
        await run.result()
    assert shop.read("a.txt") == "one\nboth\n"


async def test_two_runs_see_nothing_of_each_other_until_one_is_applied(shop: Shop, store: Any) -> None:
    def writer(name: str) -> FunctionModel:
        return scripted(
            call("write_file", path=name, content=name), call("propose_changes"), apply_newest, call("list_files"), str
        )

    agents = [
        gr.Agent(name, model=writer(name), tools=gr.ext.workspace_tools(), plugins=[gr.ext.Permission()])
        for name in "xy"
    ]
    async with gr.open_runtime(store, agents=agents, workspaces=await shop.open()) as runtime:
        runs = [await runtime.start(agent, "go", workspace="shop") for agent in agents]
        tickets = [await asked(run) for run in runs]
        assert sorted(shop.contents()) == ["a.txt"]
        outputs = []
        for run, ticket in reversed([*zip(runs, tickets, strict=True)]):
            await run.decide(ticket.approve(by="ada"))
            outputs.append((await run.result()).output)
    assert outputs == ["a.txt\ny", "a.txt\nx"]
    assert sorted(shop.contents()) == ["a.txt", "x", "y"]


async def test_the_next_run_of_a_thread_begins_with_what_is_pending_else_with_the_folder_of_now(
    shop: Shop, store: Any
) -> None:
    agent = coder(
        scripted(
            *(call("write_file", path="b.txt", content="b\n"), "written"),
            *(call("list_files"), call("propose_changes"), apply_newest, "applied"),
            *(call("list_files"), str),
        )
    )
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        run = await runtime.start(agent, "one", workspace="shop", thread_id="t")
        await run.result()
        shop.write("later.txt", "x")
        run = await runtime.start(agent, "two", workspace="shop", thread_id="t")
        ticket = await asked(run)
        assert [message.content for message in (await run.view()).messages if message.role == "tool"][
            1
        ] == "a.txt\nb.txt"
        await run.decide(ticket.approve(by="ada"))
        await run.result()
        run = await runtime.start(agent, "three", workspace="shop", thread_id="t")
        assert (await run.result()).output == "a.txt\nb.txt\nlater.txt"


async def test_a_fork_begins_with_the_files_of_its_step(shop: Shop, store: Any) -> None:
    """Also of a step that changed nothing, of the last one, and of a run after which another one has worked."""
    looking = (call("search_files", pattern="."), str)
    agent = coder(
        scripted(
            call("write_file", path="n.txt", content="1"),
            call("list_files"),
            call("write_file", path="n.txt", content="3"),
            "done",
            *looking,
            *(call("write_file", path="n.txt", content="later"), "done"),
            *looking * 5,
        )
    )
    found = {}
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        run = await runtime.start(agent, "go", workspace="shop", thread_id="t")
        await run.result()
        early = await runtime.fork(run.id, step=4)
        found["early"] = (await early.result()).output
        await (await runtime.start(agent, "again", workspace="shop", thread_id="t")).result()
        for step in range(5):
            fork = await runtime.fork(run.id, step=step)
            found[step] = (await fork.result()).output
    rest = "a.txt:1: one\na.txt:2: two"
    assert found == {
        0: rest,
        1: f"{rest}\nn.txt:1: 1",
        2: f"{rest}\nn.txt:1: 1",
        3: f"{rest}\nn.txt:1: 3",
        4: f"{rest}\nn.txt:1: 3",
        "early": f"{rest}\nn.txt:1: 3",
    }
    assert not (shop.folder / "n.txt").exists()


async def test_a_fork_whose_files_are_gone_says_so_and_begins_with_the_folder_of_now(shop: Shop, store: Any) -> None:
    agent = coder(scripted(call("write_file", path="n.txt", content="1"), "done", call("list_files"), str))
    workspaces = await shop.open()
    async with gr.open_runtime(store, agents=[agent], workspaces=workspaces) as runtime:
        run = await runtime.start(agent, "go", workspace="shop")
        await run.result()
        assert await workspaces.expire(never_busy, age=-1.0) == (run.thread_id,)
        fork = await runtime.fork(run.id, step=1)
        assert (await fork.result()).output == "a.txt"
        degraded = [event.payload for event in await log(fork) if event.type == "run.degraded"]
    assert [payload["reason"] for payload in degraded] == ["files_gone"]


async def test_without_git_the_run_fails_in_preparing_and_says_what_to_install(
    shop: Shop, store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    agent = coder(scripted())
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        run = await runtime.start(agent, "go", workspace="shop")
        outcome = await run.wait()
        assert isinstance(outcome, gr.Failed)
        assert outcome.code == "runtime_unavailable"
        assert "missing" in outcome.message
        assert "install git 2.38" in outcome.message
        failed = (await log(run))[-1]
    assert (failed.type, failed.payload["from"]) == ("run.failed", "preparing")


@pytest.mark.parametrize("where", ["shop/nothing", "shop/a.txt"])
async def test_a_folder_that_is_not_there_fails_the_run_in_preparing(shop: Shop, store: Any, where: str) -> None:
    agent = coder(scripted())
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        outcome = await (await runtime.start(agent, "go", workspace=where)).wait()
    assert isinstance(outcome, gr.Failed)
    assert outcome.code == "workspace_outside_allowlist"


@pytest.mark.parametrize("where", ["shop/../x", "shop/.git/hooks", "shop/a\nb"])
async def test_a_path_that_no_workspace_may_have_is_refused_at_the_start(shop: Shop, store: Any, where: str) -> None:
    agent = coder(scripted())
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        with pytest.raises(gr.WorkspaceRefused, match="workspace_outside_allowlist"):
            await runtime.start(agent, "go", workspace=where)


async def test_tools_gates_and_hooks_have_the_worktree_of_the_run(shop: Shop, store: Any) -> None:
    seen = dict[str, object]()

    @gr.tool
    def sync_tool(ctx: gr.SyncToolContext) -> str:
        """Look."""
        seen["tool"] = ctx.workspace.path
        return "seen"

    def wants(ctx: gr.ToolContext, arguments: Any) -> bool:
        seen["predicate"] = ctx.workspace.path
        return False

    @gr.tool(needs_approval=wants)
    async def predicate_tool(ctx: gr.ToolContext) -> str:
        """Look."""
        return "seen"

    class Looking(gr.Plugin):
        name = "looking"

        async def run_start(self, ctx: gr.PhaseContext) -> None:
            seen["hook"] = ctx.workspace.path

        async def tool_gate(self, ctx: gr.GateContext) -> None:
            seen["gate"] = ctx.workspace.path

    agent = gr.Agent(
        "looker",
        model=scripted([call("sync_tool"), call("predicate_tool")], "done", "done"),
        tools=[sync_tool, predicate_tool],
        plugins=[Looking()],
    )
    workspaces = await shop.open()
    async with gr.open_runtime(store, agents=[agent], workspaces=workspaces) as runtime:
        run = await runtime.start(agent, "go", workspace="shop")
        await run.result()
        path = workspaces.find("shop", run.thread_id).path
        assert seen == dict.fromkeys(("tool", "predicate", "hook", "gate"), path)


async def test_a_workspace_tool_without_a_workspace_says_what_is_missing(store: Any) -> None:
    agent = coder(scripted(call("list_files"), str), gr.ext.Rule("allow", tool="list_files"))
    async with gr.open_runtime(store, agents=[agent]) as runtime:
        output = (await (await runtime.start(agent, "go")).result()).output
    assert output == "this run works in no workspace; start it with workspace=, the name of one"


def test_an_agent_with_workspace_tools_needs_a_permission() -> None:
    with pytest.raises(gr.AgentDefinitionError, match=r"'list_files' acts only under the plugin 'permission'"):
        gr.Agent("coder", model=scripted(), tools=gr.ext.workspace_tools())


async def test_the_rules_of_a_workspace_hold_beside_those_of_the_agent(shop: Shop, store: Any) -> None:
    rules = [gr.ext.Rule("deny", effect="write", where={"path": {"under": "locked"}}, reason="by ada")]
    agent = coder(
        scripted(
            [call("write_file", path="locked/x", content=""), call("write_file", path=".env", content="")],
            lambda content: call("write_file", path="open/x", content="x"),
            call("list_files"),
            str,
        ),
        gr.ext.Rule("allow", effect="write"),
    )
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open(rules=rules)) as runtime:
        run = await runtime.start(agent, "go", workspace="shop")
        assert (await run.result()).output == "a.txt\nopen/x"
        answers = [message.content for message in (await run.view()).messages if message.role == "tool"]
    assert "write_file is not allowed: by ada." in answers[0]
    assert "write_file is not allowed" in answers[1]


async def test_a_runtime_removes_worktrees_that_no_open_run_needs_after_seven_days(shop: Shop, tmp_path: Path) -> None:
    agent = coder(
        scripted("done", call("write_file", path="b.txt", content="b"), call("propose_changes"), apply_newest)
    )
    workspaces = await shop.open()
    async with gr.open_runtime(tmp_path / "runs.db", agents=[agent], workspaces=workspaces) as runtime:
        await (await runtime.start(agent, "go", workspace="shop", thread_id="done")).result()
        await asked(await runtime.start(agent, "go", workspace="shop", thread_id="waits"))
    threads = {name: workspaces.find("shop", name)._thread for name in ("done", "waits")}
    for thread in threads.values():
        record = thread.load()
        assert record is not None
        thread.save(attrs.evolve(record, used=record.used - 8 * 86_400))
    async with gr.open_runtime(tmp_path / "runs.db", agents=[agent], workspaces=workspaces):
        with trio.fail_after(20):
            while threads["done"].folder.exists():  # noqa: ASYNC110 - the part that removes sets no event
                await trio.sleep(0.02)
        assert threads["waits"].tree.exists()


async def test_the_log_has_what_was_read_proposed_applied_and_discarded(shop: Shop, store: Any) -> None:
    agent = coder(
        scripted(
            [call("read_file", path="a.txt", lines=1), call("write_file", path="b.txt", content="b\n")],
            call("propose_changes"),
            call("write_file", path="c.txt", content="c\n"),
            call("propose_changes"),
            apply_newest,
            "done",
        )
    )
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        run = await runtime.start(agent, "go", workspace="shop")
        ticket = await asked(run)
        await run.decide(ticket.approve(by="ada"))
        await run.result()
        events = [(event.type, event.payload) for event in await log(run)]
        (read,) = [payload for kind, payload in events if kind == "run.file.read"]
        first, second = [payload for kind, payload in events if kind == "run.diff.ready"]
        artifact = await runtime.artifact(run.id, second["artifact"])
        assert (await runtime.replay(run.id)).equal
        evidence = await runtime.evidence(run.id)
    assert [proposal.get("status", "shown") for proposal in evidence.proposals] == [
        "shown",
        "shown",
        "applied",
        "discarded",
    ]
    assert {**read, "readAt": None, "callId": None} == {
        "path": "a.txt",
        "readAt": None,
        "callId": None,
        "bytes": 8,
        "lines": 1,
    }
    assert (first["summary"], second["summary"]) == ("1 file: +1 -0", "2 files: +2 -0")
    assert second["files"] == [
        {"path": name, "change": "added", "mode": "100644", "added": 1, "removed": 0} for name in ("b.txt", "c.txt")
    ]
    assert b"+++ b/c.txt" in artifact
    moves = [(kind, payload) for kind, payload in events if kind.startswith("run.patch.")]
    assert moves == [
        ("run.patch.proposed", {"proposal": first["proposal"], "files": ["b.txt"], "status": "proposed"}),
        ("run.patch.proposed", {"proposal": second["proposal"], "files": ["b.txt", "c.txt"], "status": "proposed"}),
        (
            "run.patch.applied",
            {
                "proposal": second["proposal"],
                "files": ["b.txt", "c.txt"],
                "status": "applied",
                "approvalId": ticket.ticket_id,
            },
        ),
        (
            "run.patch.discarded",
            {"proposal": first["proposal"], "files": [], "status": "discarded", "approvalId": ticket.ticket_id},
        ),
    ]


async def test_a_conflict_is_an_event_with_the_paths(shop: Shop, store: Any) -> None:
    agent = coder(
        scripted(call("write_file", path="a.txt", content="mine\n"), call("propose_changes"), apply_newest, "done")
    )
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        run = await runtime.start(agent, "go", workspace="shop")
        ticket = await asked(run)
        shop.write("a.txt", "yours\n")
        await run.decide(ticket.approve(by="ada"))
        await run.result()
        events = [(event.type, event.payload) for event in await log(run)]
    (conflict,) = [payload for kind, payload in events if kind == "run.patch.conflicted"]
    assert (conflict["status"], conflict["conflicts"], conflict["files"]) == ("conflicted", ["a.txt"], [])
    assert not [payload for kind, payload in events if kind == "run.patch.applied"]


async def test_no_absolute_path_of_the_workspace_leaves_the_rows(shop: Shop, store: Any) -> None:
    """Neither events nor tickets say where the folder is, nor where its copies are."""
    agent = coder(
        scripted(
            call("shell", command=f"pwd; echo {shop.folder}; ls {shop.state}"),
            call("shell", command=f"cat {shop.folder}/a.txt"),
            str,
        ),
        gr.ext.Rule("allow", effect="shell", where={"command": {"regex": "pwd.*"}}, compound=True),
    )
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        run = await runtime.start(agent, f"look at {shop.folder}", workspace="shop")
        ticket = await asked(run)
        shown = [repr(ticket)]
        await run.decide(ticket.approve(by="ada"))
        await run.result()
        shown += [repr(event) for event in await log(run)]
    assert "[redacted]" in "".join(shown)
    assert not [text for text in shown if str(shop.place) in text]


async def test_a_child_run_works_in_a_worktree_of_its_own_and_its_apply_is_decided_at_the_parent(
    shop: Shop, store: Any
) -> None:
    worker = coder(FunctionModel(edit_and_apply))
    boss = gr.Agent(
        "boss",
        model=scripted(
            [call("write_file", path="boss.txt", content="x"), call("coder", input="count")], call("list_files"), str
        ),
        tools=[*gr.ext.workspace_tools(), worker.as_tool()],
        plugins=[gr.ext.Permission()],
    )
    async with gr.open_runtime(store, agents=[boss, worker], workspaces=await shop.open()) as runtime:
        run = await runtime.start(boss, "go", workspace="shop")
        ticket = await asked(run)
        assert ticket.tool == "apply_changes"
        await run.decide(ticket.approve(by="ada"))
        assert (await run.result()).output == "a.txt\nboss.txt"
    assert sorted(shop.contents()) == ["a.txt"]
    assert shop.read("a.txt") == "one\n2\n"


async def test_a_call_does_not_begin_if_the_files_of_its_step_cannot_be_kept(shop: Shop, store: Any) -> None:
    class Cutting(gr.Plugin):
        name = "cutting"

        async def step_start(self, ctx: gr.PhaseContext) -> None:
            if ctx.step == 2:
                (ctx.workspace._thread.folder / "record.json").unlink()

    agent = gr.Agent(
        "coder",
        model=scripted(
            call("write_file", path="b.txt", content="b"), call("write_file", path="c.txt", content="c"), str
        ),
        tools=gr.ext.workspace_tools(),
        plugins=[gr.ext.Permission(), Cutting()],
    )
    workspaces = await shop.open()
    async with gr.open_runtime(store, agents=[agent], workspaces=workspaces) as runtime:
        run = await runtime.start(agent, "go", workspace="shop")
        output = (await run.result()).output
        assert not (workspaces.find("shop", run.thread_id).path / "c.txt").exists()
    assert output is not None
    assert output.startswith("The call has not begun: the workspace cannot keep its files.")
    assert "was removed" in output


async def test_a_run_says_what_it_works_in(shop: Shop, store: Any) -> None:
    shop.write(".env", "KEY=secret")
    shop.write("cache/x", "cached")
    shop.write(".gitignore", "cache/\n")
    agent = coder(scripted("done"))
    workspaces = await shop.open(copy=["cache"], trusted=True)
    async with gr.open_runtime(store, agents=[agent], workspaces=workspaces) as runtime:
        run = await runtime.start(agent, "go", workspace="shop")
        await run.result()
        (started,) = [event for event in await log(run) if event.type == "run.started"]
    detail = dict(started.payload["detail"])
    assert len(detail.pop("base")) == 40
    assert detail == {
        "workspace": "shop",
        "files": 2,
        "pending": False,
        "withheld": [".env"],
        "removed": [],
        "copied": ["cache"],
        "trusted": True,
    }


async def test_nobody_is_asked_about_a_proposal_that_cannot_be_applied(shop: Shop, store: Any) -> None:
    def with_a_path(content: str) -> Any:
        proposal, _, _ = content.removeprefix("proposal ").partition(":")
        return call("apply_changes", proposal=proposal, summary="changes", paths=["b.txt", "a.txt"])

    agent = coder(
        scripted(
            [call("write_file", path="b.txt", content="b"), call("apply_changes", proposal="made up", summary="x")],
            call("propose_changes"),
            with_a_path,
            str,
        )
    )
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        run = await runtime.start(agent, "go", workspace="shop")
        output = (await run.result()).output
        answers = [message.content for message in (await run.view()).messages if message.role == "tool"]
    assert answers[1] == "no proposal 'made up' is open in this thread; propose the changes again"
    assert output == "the proposal changes no file 'a.txt'; it changes b.txt"


async def test_another_process_with_the_place_takes_the_run_over_and_applies(shop: Shop) -> None:
    """Two processes share a store and a state folder; the one that worked ends while the apply waits."""
    agent, first = coder(FunctionModel(edit_and_apply)), gr.MemoryStore()
    second = first.peer()
    async with gr.open_runtime(first, agents=[agent], workspaces=await shop.open()) as runtime:
        run = await runtime.start(agent, "count", workspace="shop")
        ticket = await asked(run)
    async with gr.open_runtime(second, agents=[agent], workspaces=await shop.open()) as runtime:
        run = await runtime.get(run.id)
        await run.decide(ticket.approve(by="ada"))
        assert (await run.result()).output == "done"
    assert shop.read("a.txt") == "one\n2\n"


async def test_a_tool_of_the_workspace_works_as_a_background_task_and_tells_its_end_only(
    shop: Shop, store: Any
) -> None:
    @gr.tool
    async def starts(ctx: gr.ToolContext) -> str:
        """Let a file be read beside the steps."""
        return await ctx.spawn("read_file", path="a.txt")

    tools = [*gr.ext.workspace_tools(), starts]
    agent = gr.Agent("coder", model=scripted(call("starts"), "wait", str), tools=tools, plugins=[gr.ext.Permission()])
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        run = await runtime.start(agent, "go", workspace="shop")
        output = (await run.result()).output
        kinds = [event.type for event in await log(run)]
    assert "one" in str(output)
    assert "run.task.finished" in kinds
    assert "run.file.read" not in kinds


async def test_the_event_of_a_large_proposal_names_its_first_files_and_counts_all(shop: Shop, store: Any) -> None:
    names = f"for n in $(seq -w 1500); do echo x > $n-{'n' * 100}; done"
    command = names + r"""; touch .env "$(printf 'a\tb')" """
    agent = coder(
        scripted(call("shell", command=command), call("propose_changes"), apply_newest, "done"),
        gr.ext.Rule("allow", effect=["shell", "apply_changes"], compound=True),
    )
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        run = await runtime.start(agent, "go", workspace="shop")
        await run.result()
        payloads = {event.type: event.payload for event in await log(run)}
    difference, applied = payloads["run.diff.ready"], payloads["run.patch.applied"]
    assert difference["summary"] == "1,500 files: +1500 -0"
    assert difference["truncated"]
    assert 100 < len(difference["files"]) < 400
    assert [one["path"] for one in difference["leftOut"]] == [".env", r"a\tb"]
    assert len(applied["files"]) < 200
    assert len(shop.contents()) == 1_501


async def test_what_a_person_always_allows_in_a_workspace_holds_for_the_next_thread_there(
    shop: Shop, store: Any
) -> None:
    agent = coder(scripted(*[step for _ in range(3) for step in (call("shell", command="cat a.txt"), "done")]))
    (shop.place / "other").mkdir()
    workspaces = await gr.ext.open_workspaces(
        [gr.ext.Workspace("shop", shop.folder), gr.ext.Workspace("other", shop.place / "other")], state=shop.state
    )
    async with gr.open_runtime(store, agents=[agent], workspaces=workspaces) as runtime:
        run = await runtime.start(agent, "go", workspace="shop")
        ticket = await asked(run)
        always = gr.ext.Always(scope="workspace", form="argv")
        assert (await run.decide(ticket.approve(by="ada"), remember=always)).status == "accepted"
        await run.result()
        await (await runtime.start(agent, "go", workspace="shop")).result()
        assert isinstance(await (await runtime.start(agent, "go", workspace="other")).wait(), gr.Waiting)


async def test_a_run_that_is_cancelled_while_its_worktree_is_made_leaves_the_thread_usable(
    shop: Shop, store: Any
) -> None:
    for number in range(300):
        shop.write(f"d{number % 7}/f{number}", f"{number}\n")
    agent = coder(FunctionModel(edit_and_apply))
    async with gr.open_runtime(store, agents=[agent], workspaces=await shop.open()) as runtime:
        first = await runtime.start(agent, "count", workspace="shop", thread_id="t")
        async with first.events() as events:
            async for event in events:
                if event.type == "run.preparing":
                    await first.cancel(by="ada")
        assert isinstance(await first.wait(), gr.Cancelled)
        run = await runtime.start(agent, "count", workspace="shop", thread_id="t")
        await run.decide((await asked(run)).approve(by="ada"))
        assert (await run.result()).output == "done"
    assert shop.read("a.txt") == "one\n2\n"
    assert len(shop.contents()) == 301
