"""The gateway that `test_follow_through_kills.py` kills: runs that stream, call tools and ask, on a SQLite file.

    python followed_server.py FOLDER PORT TOKEN      # each line on stdin is one life, a process forked with all imports

`effects.log` is the world outside: bodies write there when they begin and when they end. A life says `pid N`, then
`ready` when the gateway answers, and `body` when one begins that must not be repeated; the nest says `dead CODE` when
it is over.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import trio
from killed_process import Log, live, say, tools

import greenroom as gr
from greenroom.testing import ScriptedModel, call, delay, text
from greenroom.transport import serve

FOLDER, PORT, TOKEN = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


EFFECTS = Log(FOLDER / "effects.log")
SECONDS = {"pay": 0.06, "post": 0.06, "scan": 0.15}


def note(ctx: gr.ToolContext[Any], tool: str, what: str) -> None:
    """A line in the world outside, on the disk before anything else happens."""
    EFFECTS.write(run=ctx.run_id, call=ctx.call_id, attempt=ctx.attempt, tool=tool, what=what)


async def works(ctx: gr.ToolContext[Any], tool: str) -> str:
    """A body that shows what it does."""
    note(ctx, tool, "begin")
    if tool != "scan":
        say("body")
    for part in range(1, 4):
        await trio.sleep(SECONDS[tool] / 3)
        await ctx.progress(part / 3, f"{tool}: part {part}")
        await ctx.output(f"part {part} of {tool} of attempt {ctx.attempt}\n")
    note(ctx, tool, "end")
    return f"{tool} {ctx.attempt}"


TOOLS = tools(works)


def spoken(words: str, pause: float) -> list[Any]:
    """An answer that comes word by word; «» and the rest are more than one byte each."""
    return [part for word in words.split(" ") for part in (text(f"{word} "), delay(pause))]


WORKER = gr.Agent(
    "worker",
    tools=TOOLS,
    execution="parallel_streaming",
    model=ScriptedModel(
        [
            [
                *spoken('I shall look «there», say "hello" \\ 你好 🌱, and then\nask whether I may pay for it.', 0.01),
                call("scan", where="there", id="scan"),
                call("pay", cents=500, id="pay"),
                call("post", to="him", id="post"),
            ],
            [
                *spoken("That went well, as far as I know; one more letter, and I am done.", 0.01),
                call("post", to="her"),
            ],
            spoken("All is done. The letters are on their way, and nobody has paid twice.", 0.01),
        ],
        chunk=4,
    ),
)
PAYER = gr.Agent("payer", tools=TOOLS[:1], model=ScriptedModel([call("pay", cents=5, id="pay"), "paid", "and more"]))


async def main() -> None:
    """One life."""
    async with (
        gr.open_runtime(FOLDER / "runs.db", agents=[WORKER, PAYER]) as runtime,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(partial(serve, runtime, port=PORT, token=TOKEN))
        say("ready")
        await trio.sleep_forever()


if __name__ == "__main__":
    live(lambda _: trio.run(main))
