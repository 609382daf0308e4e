"""A run in a workspace whose process ends after any of its commits: the changes reach the folder once, and whole."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.workspaces import Shop

import greenroom as gr
from greenroom.testing import FunctionModel, call, crash_points

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
SAMPLED = 8

pytestmark = [pytest.mark.slow, pytest.mark.no_cover, pytest.mark.timeout(600)]


def answer(request: Any) -> Any:
    """Play a model: read, write two files in two steps, propose, apply."""
    newest = request.messages[-1].content
    results = [message for message in request.messages if message.role == "tool"]
    if len(results) < 4:
        return [call("read_file", path="a.txt"), call("write_file", path=f"n{len(results)}", content="new\n")]
    if newest.startswith("proposal "):
        proposal, _, _ = newest.removeprefix("proposal ").partition(":")
        return call("apply_changes", proposal=proposal, summary="new files")
    return "done" if newest.startswith("applied") else call("propose_changes")


class World:
    """A folder of a user, and what people were asked."""

    def __init__(self, place: Path) -> None:
        self.shop = Shop(place, repository=False)
        self.shop.write("a.txt", "one\n")
        self.before_consent: list[dict[str, Any]] = []
        self.log: list[str] = []

    async def life(self, store: gr.Store) -> None:
        """The program of one process."""
        coder = gr.Agent(
            "coder", model=FunctionModel(answer), tools=gr.ext.workspace_tools(), plugins=[gr.ext.Permission()]
        )
        async with gr.open_runtime(store, agents=[coder], workspaces=await self.shop.open()) as runtime:
            run = await runtime.start(coder, "go", workspace="shop", run_id="r")
            while isinstance(outcome := await run.wait(), gr.Waiting):
                for ticket in outcome.tickets:
                    self.before_consent.append(self.shop.contents())
                    await run.decide(ticket.approve(by="ada"))
            async with run.events() as events:
                self.log = [event.type async for event in events]

    def broken(self) -> Iterator[str]:
        """The promises that are broken."""
        files = {name: content for name, (_, content) in self.shop.contents().items()}
        if files != {"a.txt": b"one\n", "n0": b"new\n", "n2": b"new\n"}:
            yield f"the folder has {files}"
        if self.log.count("run.completed") != 1:
            yield f"the run ended so: {self.log[-3:]}"
        if not self.before_consent or any(len(contents) not in (1, 3) for contents in self.before_consent):
            yield f"the folder had {self.before_consent} when people were asked"


def test_a_run_in_a_workspace_survives_the_end_of_its_process_after_any_commit(seed: int) -> None:
    places = list[Path]()

    def world() -> World:
        places.append(Path(tempfile.mkdtemp(prefix="greenroom-")))
        return World(places[-1])

    try:
        report = crash_points(
            world,
            lambda world, store: world.life(store),
            lambda world: list(world.broken()),
            seeds=(seed,),
            sample=None if FULL else (SAMPLED, seed),
        )
        report.require()
    finally:
        for place in places:
            shutil.rmtree(place, ignore_errors=True)
