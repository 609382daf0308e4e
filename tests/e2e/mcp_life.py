"""One life of a process whose run calls a tool of an MCP server, for `test_mcp_kills.py`.

    python mcp_life.py STORE LOG ERA TOOL

Opens the runtime on STORE and starts the run, or takes it up; says how the run came to rest.
"""

import os
import sys
from pathlib import Path
from typing import Any

import trio

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.mcp_servers import agent_with, program, use

import greenroom as gr


def caller(log: Path, era: str, tool: str) -> Any:
    """The agent."""
    return agent_with(program(era, log), steps=[use(tool), "done"])


async def main() -> None:
    """Run one life."""
    store, log, era, tool = sys.argv[1:]
    agent = caller(Path(log), era, tool)
    async with gr.open_runtime(store, agents=[agent]) as runtime:
        run = await runtime.start(agent, "go", run_id="r")
        await run.wait()
        os.write(1, b"rests\n")
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main)
