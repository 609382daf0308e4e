"""The agents of `runs_7.db.gz`, a file of schema version 7 (payloads in snake_case), and the program that wrote it.

python tests/data/runs_7.py FOLDER      with the release of that schema; a later release writes another file
"""

import gzip
import sys
from pathlib import Path
from typing import Any

import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call

ORDER = {"order_id": 7, "call_id": "mine", "lines": [{"ticket_id": "theirs", "unit_price": 1.5}], "ünï_cöde": "é\u2028"}
"""User data with keys that look like fields of Greenroom."""
SCHEMA = {"type": "object", "properties": {"expires_at": {"type": "string"}}, "description": "x" * 600_000}
"""A response schema that makes the event too long: it is excerpted."""


@gr.tool(effect="write", replay="unsafe")
async def book(order: dict[str, Any]) -> dict[str, Any]:
    return {"booked_order": order, "thread_id": "of the user"}


@gr.tool(needs_approval=True, effect="write")
async def ship(order: dict[str, Any]) -> str:
    return "shipped " + str(order["order_id"])


@gr.tool
async def ask(order: dict[str, Any]) -> str:
    raise gr.Suspend(
        message="When?",
        parameters={"last_sequence": order},
        response_schema=SCHEMA,
        resume_mode="use_decision_as_tool_result",
    )


@gr.tool(background=True, replay="safe")
async def crawl(ctx: gr.ToolContext, site: str) -> dict[str, Any]:
    await ctx.progress(0.5, "half_way")
    return {"task_id": site}


TOOLS = [book, ship, ask, crawl]


def agent(key: str, *steps: Any) -> gr.Agent[Any]:
    return gr.Agent(key, tools=TOOLS, model=ScriptedModel(list(steps)))


AGENTS = [
    agent("done", call("book", order=ORDER, id="c1"), "booked_all"),
    agent("crawls", call("crawl", site="a_b", id="c1"), "reading", "read"),
    agent("ships", call("ship", order=ORDER, id="c1"), "shipped"),
    agent("asks", call("ask", order=ORDER, id="c1"), "asked"),
    agent("ends", call("ship", order=ORDER, id="c1"), "ended"),
]
"""One run of each is in the file, with the agent's key as its id."""


async def write(path: Path) -> None:
    async with gr.open_runtime(path, agents=AGENTS) as runtime:
        for one in AGENTS:
            run = await runtime.start(one, "user_text", run_id=one.key, by="some_body", workspace="work_space")
            await run.wait()
        run = await runtime.get("ends")
        await run.cancel(reason="no_more", by="some_body", command_id="stop_it")
        await run.result()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    trio.run(write, folder / "runs_7.db")
    content = (folder / "runs_7.db").read_bytes()
    (folder / "runs_7.db.gz").write_bytes(gzip.compress(content, 9, mtime=0))
