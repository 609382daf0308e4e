"""Runs in a workspace, on a store in memory and in a file: the copy, the proposal, the decision, the folder."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.workspaces import Shop

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
        proposal = newest.content.split(":")[0].removeprefix("proposal ")
        return call("apply_changes", proposal=proposal, summary="count on")
    return "done" if newest.content.startswith("applied") else call("propose_changes")


async def test_an_agent_works_in_a_copy_and_a_person_lets_the_changes_in(shop: Shop, store: Any) -> None:
    agent = coder(FunctionModel(edit_and_apply))
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
