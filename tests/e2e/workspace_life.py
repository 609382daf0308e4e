"""One life of a process whose run works in a workspace, for `test_workspace_kills.py`.

    python workspace_life.py FOLDER KILL_AT [TEXT]

Opens the runtime on FOLDER/runs.db, and starts the run or takes it up again. With KILL_AT=shell the run works on a
command, which says its process id, and the process waits to be killed. With KILL_AT=wait the process says the id of the
ticket and waits to be killed. Otherwise the process approves, and kills itself before it replaces file number
KILL_AT of the user's folder; -1: never, and the output of the run is said.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import trio

import greenroom as gr
from greenroom.actors.workspaces import journal
from greenroom.testing import FunctionModel, call

FOLDER, KILL_AT = Path(sys.argv[1]), sys.argv[2]
TEXT = sys.argv[3] if len(sys.argv) > 3 else "go"
FILES = 5


def answer(request: Any) -> Any:
    """Play a model: write five files, propose them, apply the proposal."""
    newest = request.messages[-1]
    if newest.role == "user" and newest.content == "sleep":
        return call("shell", command="echo $$; exec sleep 600")
    if newest.role == "user":
        return [call("write_file", path=f"f{number}", content="new\n") for number in range(FILES)]
    if newest.content.startswith("proposal "):
        proposal, _, _ = newest.content.removeprefix("proposal ").partition(":")
        return call("apply_changes", proposal=proposal, summary="new files")
    return newest.content if newest.content.startswith("applied") else call("propose_changes")


def killed_in_the_middle(at: int) -> None:
    """Let the process kill itself before it replaces file number `at`."""
    replace, replaced = journal._replace, 0

    def counted(*arguments: Any) -> bool:
        nonlocal replaced
        if replaced == at:
            os.kill(os.getpid(), signal.SIGKILL)
        replaced += 1
        return replace(*arguments)

    journal._replace = counted


def say(text: str) -> None:
    """Print a line for the test, unbuffered."""
    os.write(1, f"{text}\n".encode())


async def main() -> None:
    """Run one life."""
    coder = gr.Agent(
        "coder",
        model=FunctionModel(answer),
        tools=gr.ext.workspace_tools(),
        plugins=[gr.ext.Permission([gr.ext.Rule("allow", effect="shell", compound=True)])],
    )
    workspaces = await gr.ext.open_workspaces([gr.ext.Workspace("shop", FOLDER / "shop")], state=FOLDER / "state")
    async with gr.open_runtime(FOLDER / "runs.db", agents=[coder], workspaces=workspaces) as runtime:
        run = await runtime.start(coder, TEXT, workspace="shop", run_id="r", thread_id="t")
        if KILL_AT == "shell":
            async with run.events() as events:
                async for event in events:
                    if event.type == "run.tool.output.delta":
                        say(event.payload["text"].strip())
        outcome = await run.wait()
        if isinstance(outcome, gr.Waiting):
            (ticket,) = outcome.tickets
            say(ticket.ticket_id if TEXT == "go" else ticket.reason)
            if KILL_AT == "wait":
                await trio.sleep_forever()
            killed_in_the_middle(int(KILL_AT))
            await run.decide(ticket.approve(by="ada"))
        say(str((await run.result()).output))


trio.run(main)
