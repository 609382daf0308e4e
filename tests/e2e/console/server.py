"""A gateway with agents that do what the console's tests need, in a process of its own that can be killed.

    python server.py DATABASE PORT TOKEN [LOOKER]

prints the address of the gateway and serves until it is killed. TOKEN is the operator's; LOOKER is the token of
a person who may only look. Port 0 takes a free one. With CONSOLE_SHOP, a folder, a run works in a copy of it. While a
file `orders-are-down` lies beside the database, no run can be taken up.
"""

import os
import struct
import sys
import zlib
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import trio

import greenroom as gr
from greenroom.testing import FunctionModel, ScriptedModel, Step, call, delay, text, think
from greenroom.transport import Principal, serve

RLO = "\u202e"
HOSTILE = f'<img src=x onerror="window.hacked = 1"> <script>window.hacked = 1</script> {RLO}gnp.exe'
LONG_WORD = "W" * 3_000
MEGABYTE = "m" * 1_000_000
BIG_NUMBER = 12_345_678_901_234_567_890


def picture(width: int = 96, height: int = 48) -> bytes:
    """A PNG with a gradient."""
    rows = b"".join(
        b"\0" + b"".join(bytes((40 + 2 * x, 120, 200 - 3 * y)) for x in range(width)) for y in range(height)
    )
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    sealed = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(sealed)


DIFFERENCE = Path(__file__).with_name("change.diff").read_text()


@gr.tool(replay="safe")
async def look_up(order: str) -> dict[str, Any]:
    """What an order cost."""
    return {"order": order, "customer": "Ada Lovelace", "cents": 4200, "paid": True, "items": ["lamp", "bulb"]}


@gr.tool(needs_approval=True, effect="write")
async def refund(ctx: gr.ToolContext, order: str, cents: int, note: str = "") -> str:
    """Pay the money of an order back."""
    return f"paid back {cents} cents of order {order}"


@gr.tool(needs_approval=True, effect="write")
async def settle(ctx: gr.ToolContext, password: str, place: str, cents: int) -> list[Any]:
    """Say which values have come, in a form that hides none."""
    return [sha256(password.encode()).hexdigest()[:12], sha256(place.encode()).hexdigest()[:12], cents]


@gr.tool
async def ask_person(question: str) -> Any:
    """Ask the decider for a value."""
    return gr.Suspend(
        message=question,
        resume_mode="use_decision_as_tool_result",
        response_schema={
            "type": "object",
            "properties": {
                "address": {"type": "string", "title": "Address", "description": "Street and number"},
                "floor": {"type": "integer", "title": "Floor"},
                "lift": {"type": "boolean", "title": "Is there a lift?"},
                "speed": {"enum": ["slow", "fast"], "title": "Speed"},
            },
            "required": ["address", "floor"],
        },
    )


@gr.tool
async def ship(to: str, parcels: int) -> Any:
    """Send parcels; the one who decides gives the arguments."""
    return gr.Suspend(resume_mode="pass_decision_to_tool", expires_after=3600.0, message="Where to, and how many?")


@gr.tool(replay="safe")
async def count(ctx: gr.ToolContext, to: int, pause: float) -> str:
    """Count slowly, say each number, and end when a test lets it: however slow a browser is, the call still runs."""
    for n in range(1, to + 1):
        await ctx.progress(n / to, f"{n} of {to}")
        await ctx.output(f"line {n}\n")
        await trio.sleep(pause)
    let_go = trio.Path(f"{sys.argv[1]}.{ctx.run_id}")
    while not await let_go.exists():  # noqa: ASYNC110 - a file of another process
        await trio.sleep(0.05)
    return f"counted to {to}"


@gr.tool
async def stick(ctx: gr.ToolContext) -> str:
    """Begin, and never end: the caller that restarts the process does not know whether it took effect."""
    await ctx.output("begun\n")
    await trio.sleep_forever()
    return "never"


@gr.tool(needs_approval=True)
async def run_anything(command: str, blob: str, number: int) -> str:
    """Whatever a hostile model makes up."""
    return f"{HOSTILE} {command[:40]} {number}"


@gr.tool(replay="safe")
async def tick(n: int) -> int:
    """A very short call."""
    return n


@gr.tool
async def publish(ctx: gr.ToolContext) -> str:
    """Publish one of each kind that the page shows in another way."""
    await ctx.artifact("notes.md", f"# Notes\n\npassword=hunter22\n{HOSTILE}\n", author="Ada")
    await ctx.artifact("change.diff", DIFFERENCE, kind="diff")
    await ctx.artifact("page.svg", f"<svg xmlns='http://www.w3.org/2000/svg'><script>{HOSTILE}</script></svg>")
    shot: dict[str, Any] = {"kind": "screenshot", "viewport": "1280x800", "route": "/", "theme": "dark"}
    await ctx.artifact("shot.png", picture(), **shot, language="en", privacy_review="passed")
    await ctx.artifact("faces.png", picture(), **shot, language="en", privacy_review="blocked")
    await ctx.artifact("build.zip", b"PK\x03\x04\0", media_type="application/zip")
    address = "http://127.0.0.1:3000/guide"
    await ctx.artifact("the guide", kind="preview", url=address, read_at=datetime(2031, 5, 1, 12, tzinfo=UTC))
    return "published"


def many(request: gr.ModelRequest) -> Step:
    """Call `tick` ten times per answer, until about five thousand events are written."""
    if request.model_attempts >= 150:
        return "Counted a lot."
    return [text(f"Round {request.model_attempts + 1}."), *(call("tick", n=n) for n in range(10))]


def echo(request: gr.ModelRequest) -> Step:
    """Say what came last, slowly; `wait` waits for more input first."""
    last = request.messages[-1]
    if last.content == "wait":
        return [text("I wait a little. "), call("count", to=30, pause=0.1)]
    return f"You said: {next(message.content for message in reversed(request.messages) if message.role == 'user')}"


SUPPORT = [
    [
        think("The customer wants a refund for order 7. I need to know what was paid before I propose it."),
        text("Let me look at order 7 first."),
        call("look_up", order="7"),
    ],
    [
        text("The lamp was paid in full. I would like to refund it."),
        call("refund", order="7", cents=4200, note="The lamp arrived broken; the photos show it."),
    ],
    "Done: your 42.00 are on their way. You will see them within three days.",
]
EVIL = {"command": f"rm -rf {RLO}/srv # \u200bsafe {HOSTILE}", "blob": MEGABYTE, "number": BIG_NUMBER}
HIDDEN = {"password": "correct horse battery", "place": "the list is in /home/ada/lists/7.txt", "cents": 4200}
SCRIPTS: dict[str, tuple[list[Any], list[Step]]] = {
    "keeper": ([settle], [call("settle", HIDDEN), "Settled."]),
    "asker": ([ask_person], [call("ask_person", question="Where do you live?"), "Thanks."]),
    "shipper": ([ship], [call("ship", to="?", parcels=0), "Shipped."]),
    "publisher": ([publish], [call("publish"), "Published."]),
    "counter": ([count], [[text("I count."), call("count", to=40, pause=0.1)], "Counted."]),
    "sticker": ([stick], [call("stick"), "Unstuck."]),
    "talker": ([], [[text("One. "), delay(3), text("Two. "), delay(0.3), text("Three.")]]),
    "late": ([refund], [[delay(1.5), call("refund", order="7", cents=1)], "Late."]),
    "hostile": (
        [run_anything],
        [[text(f"{HOSTILE} {LONG_WORD}"), call("run_anything", EVIL)], f"{HOSTILE} {MEGABYTE}"],
    ),
}


@gr.tool(effect="delegate")
async def coder(ctx: gr.ToolContext) -> str:
    """Let a program work that asks before its one call."""
    answer = await ctx.call_nested("Bash", {"command": "make test"}, effect="shell")
    if answer.arguments is None:
        return answer.text
    ctx.end_nested(answer.call_id, "all green")
    return "tested"


class AskFirst(gr.Plugin):
    """A person decides about the calls of a program."""

    async def tool_gate(self, ctx: gr.GateContext[Any]) -> Any:
        asks = ctx.call.parent is not None and ctx.decision is None
        return gr.Suspend(message="May the program do that?", reason="tool_permission") if asks else None


@gr.tool(effect="shell")
async def shell(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


def edits(request: gr.ModelRequest) -> Step:
    """Change two files of the workspace, propose that, and do what the decision says."""
    newest = request.messages[-1]
    if newest.role == "user":
        prices = call("edit_file", path="prices.txt", old="tea 3", new="tea 2")
        return [prices, call("write_file", path="notes/new.md", content="# New\n\nTea is cheaper.\n")]
    if newest.content.startswith("proposal "):
        proposal = newest.content.split(":")[0].removeprefix("proposal ")
        return call("apply_changes", proposal=proposal, summary="Tea is cheaper, and a note says so.")
    if newest.content == "Call it tea.md.":
        return call("write_file", path="notes/tea.md", content="# Tea\n")
    return f"Done: {newest.content}" if "applied: " in newest.content else call("propose_changes")


CODER = gr.Agent(
    "coder",
    tools=gr.ext.workspace_tools(),
    plugins=[gr.ext.Permission()],
    model=FunctionModel(edits),
)
PAYER = gr.Agent(
    "payer",
    description="Pays orders back.",
    tools=[refund],
    execution="parallel_streaming",
    model=ScriptedModel(
        [[call("refund", order="7", cents=4200), call("refund", order="8", cents=100)], "Both are paid back."]
    ),
)
AGENTS: tuple[gr.Agent[Any], ...] = (
    PAYER,
    CODER,
    gr.Agent(
        "boss",
        tools=[PAYER.as_tool()],
        model=ScriptedModel(
            [[text("I ask the payer."), call("payer", input="Pay 7 and 8 back.", id="P")], "All paid."]
        ),
    ),
    gr.Agent("coding", tools=[coder], model=ScriptedModel([call("coder", id="p1"), "Tested."]), plugins=[AskFirst()]),
    gr.Agent(
        "ruled",
        tools=[shell],
        model=ScriptedModel(
            [call("shell", command=text) for text in ("make test", "make  test", "git push", "make b")] + ["Done."]
        ),
        plugins=[gr.ext.Permission()],
    ),
    gr.Agent("support", tools=[look_up, refund], model=ScriptedModel(SUPPORT, chunk=7)),
    gr.Agent("echo", tools=[count], model=FunctionModel(echo, chunk=5)),
    gr.Agent(
        "many",
        tools=[tick],
        execution="parallel_streaming",
        stop=[gr.stop.MaxRounds(None)],
        model=FunctionModel(many),
    ),
    *(gr.Agent(key, tools=tools, model=ScriptedModel(steps)) for key, (tools, steps) in SCRIPTS.items()),
)


def orders(database: Path, _: gr.RunInfo) -> str:
    """The deps of every run."""
    if database.with_name("orders-are-down").exists():
        raise ConnectionError("the orders do not answer")
    return "orders"


async def main(database: str, port: int, token: str, looker: str | None) -> None:
    """Serve until killed."""
    principals = [Principal(name="looker", token=looker, scopes=frozenset({"follow"}))] if looker else []
    deps = partial(orders, Path(database))
    shop, more = os.environ.get("CONSOLE_SHOP"), dict[str, Any]()
    if shop is not None:
        state = Path(database).with_name("state")
        more["workspaces"] = await gr.ext.open_workspaces([gr.ext.Workspace("shop", Path(shop))], state=state)
    async with gr.open_runtime(database, agents=AGENTS, deps=deps, **more) as runtime, trio.open_nursery() as nursery:
        if shop is not None:  # a client cannot choose a workspace
            await runtime.start(CODER, "Make tea cheaper.", workspace="shop", run_id="in-the-shop", by="operator")
        address = await nursery.start(partial(serve, runtime, port=port, token=token, principals=principals))
        sys.stdout.write(f"{address.url}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else None)
