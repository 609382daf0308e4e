"""Runs whose program works in a worktree: what it changes is a proposal, which people apply, refuse or send back."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import greenroom as gr
from greenroom.testing import ScriptedModel, call

from ...support.workspaces import Shop

PROGRAM = str(Path(__file__).parents[2] / "support" / "scripted_program.py")

pytestmark = pytest.mark.slow


class Desk:
    """A runtime with a workspace and an agent whose program works there."""

    def __init__(self, place: Path, form: str) -> None:
        self.shop = Shop(place)
        self.shop.write("a.txt", "one\ntwo\nthree\n")
        command = (sys.executable, "-SE", PROGRAM, form, str(place / "effects.txt"))
        make: Any = gr.backends.Acp if form == "acp" else gr.backends.Claude
        self.backend = make(command=command)

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[gr.Runtime]:
        workspaces = await gr.ext.open_workspaces([gr.ext.Workspace("shop", self.shop.folder)], state=self.shop.state)
        agent = gr.backends.agent("coder", self.backend, **options)
        async with gr.open_runtime(agents=[agent], workspaces=workspaces) as runtime:
            yield runtime

    async def start(self, runtime: gr.Runtime, *script: list[Any], thread: str = "t") -> Any:
        return await runtime.start("coder", json.dumps(script), workspace="shop", thread_id=thread)


@pytest.fixture(params=["acp", "claude"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    return Desk(tmp_path, request.param)


async def ticket_of(run: Any) -> gr.Ticket:
    outcome = await run.wait()
    assert isinstance(outcome, gr.Waiting), outcome
    (ticket,) = outcome.tickets
    return ticket


async def test_a_change_waits_for_a_person_and_is_then_in_the_folder(desk):
    async with desk.open() as runtime:
        run = await desk.start(runtime, ["write", "b.txt", "new\n"], ["say", "I made b."])
        ticket = await ticket_of(run)
        assert (ticket.tool, ticket.arguments["summary"]) == ("apply_changes", "I made b.")
        assert sorted(desk.shop.contents()) == ["a.txt"]
        await run.decide(ticket.approve(by="ada"))
        assert (await run.result()).output == "I made b.\n\nApplied: b.txt."
        assert (await runtime.replay(run.id)).equal
        async with run.events() as events:
            ready = [event.payload async for event in events if event.type == "run.diff.ready"]
        assert [(one["proposal"], [file["path"] for file in one["files"]]) for one in ready] == [
            (ticket.arguments["proposal"], ["b.txt"])
        ]
    assert desk.shop.read("b.txt") == "new\n"


async def test_a_run_that_changes_nothing_asks_nothing(desk):
    async with desk.open() as runtime:
        run = await desk.start(runtime, ["read", "a.txt"])
        assert (await run.result()).output == "one\ntwo\nthree\n"


async def test_a_denial_with_a_text_goes_to_the_program_and_its_next_proposal_has_everything(desk):
    async with desk.open() as runtime:
        run = await desk.start(runtime, ["write", "b.txt", "new\n"], ["say", "I made b."])
        ticket = await ticket_of(run)
        text = json.dumps([["write", "c.txt", "more\n"], ["say", "And c."]])
        await run.decide(ticket.deny(text=text, by="ada"))
        ticket = await ticket_of(run)
        assert (ticket.arguments["summary"], desk.shop.contents().keys()) == ("And c.", {"a.txt"})
        await run.decide(ticket.approve(by="ada"))
        assert (await run.result()).output == "And c.\n\nApplied: b.txt, c.txt."


async def test_a_denial_without_a_text_ends_the_run_and_the_changes_stay_pending_for_the_next_one(desk):
    async with desk.open() as runtime:
        run = await desk.start(runtime, ["write", "b.txt", "new\n"], ["say", "I made b."])
        await run.decide((await ticket_of(run)).deny("not now", by="ada"))
        assert isinstance(await run.result(), gr.Cancelled)
        assert sorted(desk.shop.contents()) == ["a.txt"]
        run = await desk.start(runtime, ["read", "b.txt"])
        assert (await ticket_of(run)).arguments["summary"] == "new\n"


async def test_some_files_can_be_applied_and_the_rest_stays_pending(desk):
    async with desk.open() as runtime:
        run = await desk.start(runtime, ["write", "b.txt", "b\n"], ["write", "c.txt", "c\n"], ["say", "Both."])
        ticket = await ticket_of(run)
        edited = {**ticket.arguments, "paths": ["b.txt"]}
        await run.decide(ticket.approve(edited_arguments=edited, by="ada"))
        assert (await run.result()).output == "Both.\n\nApplied: b.txt."
        assert sorted(desk.shop.contents()) == ["a.txt", "b.txt"]


async def test_a_conflict_changes_nothing_and_the_program_resolves_it(desk):
    async with desk.open() as runtime:
        run = await desk.start(runtime, ["write", "a.txt", "one\n2\nthree\n"], ["say", "Digits."])
        ticket = await ticket_of(run)
        desk.shop.write("a.txt", "one\nzwei\nthree\n")
        await run.decide(ticket.approve(by="ada"))
        # the prompt is the conflict and no script, so the program only says what it was told; it resolved nothing
        ticket = await ticket_of(run)
        assert desk.shop.read("a.txt") == "one\nzwei\nthree\n"
        assert "Your changes were not applied: the workspace has moved" in ticket.arguments["summary"]
        script = json.dumps([["read", "a.txt"], ["write", "a.txt", "one\nzwei=2\nthree\n"], ["say", "Resolved."]])
        await run.decide(ticket.deny(text=script, by="ada"))
        await run.decide((await ticket_of(run)).approve(by="ada"))
        assert (await run.result()).output == "Resolved.\n\nApplied: a.txt."
    assert desk.shop.read("a.txt") == "one\nzwei=2\nthree\n"


async def test_a_second_prompt_of_the_thread_continues_the_session(desk):
    async with desk.open() as runtime:
        first = (await (await desk.start(runtime, ["session"])).result()).output
        second = (await (await desk.start(runtime, ["session"])).result()).output
        other = (await (await desk.start(runtime, ["session"], thread="other")).result()).output
    assert (second, other.startswith("session-")) == (f"continued {first}", True)


async def test_a_program_that_has_lost_its_session_gets_the_newest_exchange_again(desk):
    """Sessions are files of the program, which it removes after a while."""
    async with desk.open() as runtime:
        await (await desk.start(runtime, ["say", "It is done."])).result()
        (desk.shop.place / "lost").touch()
        run = await desk.start(runtime, ["prompt"])
        output = (await run.result()).output
    assert "you were asked:" in output
    assert "and answered:\n\nIt is done.\n\nNow:" in output


async def test_settings_that_a_program_writes_are_gone_before_the_next_program_starts(desk):
    """The program of the second prompt would obey them."""
    async with desk.open() as runtime:
        run = await desk.start(runtime, ["write", "b.txt", "b"], ["write", "opencode.json", "{}"], ["say", "Written."])
        ticket = await ticket_of(run)
        assert "opencode.json" not in str(ticket.arguments)
        await run.decide(ticket.deny(text=json.dumps([["read", "opencode.json"]]), by="ada"))
        assert (await ticket_of(run)).arguments["summary"] == "nothing"


async def test_the_agent_is_a_tool_of_another_one_and_its_tickets_are_decided_at_the_parent(desk):
    script = json.dumps([["write", "b.txt", "new\n"], ["say", "I made b."]])
    model = ScriptedModel([call("coder", input=script), "Told the team."])
    boss = gr.Agent("boss", model=model, tools=[gr.backends.agent("coder", desk.backend).as_tool()])
    workspaces = await gr.ext.open_workspaces([gr.ext.Workspace("shop", desk.shop.folder)], state=desk.shop.state)
    async with gr.open_runtime(agents=[boss], workspaces=workspaces) as runtime:
        run = await runtime.start("boss", "go", workspace="shop")
        ticket = await ticket_of(run)
        assert (ticket.reason, ticket.tool) == ("child_approval", "apply_changes")
        await run.decide(ticket.approve(by="ada"))
        assert (await run.result()).output == "Told the team."
    assert desk.shop.read("b.txt") == "new\n"
