"""A gateway with agents for the official A2A clients, in a separate process that can be killed.

    python a2a_server.py PLACE PORT TOKEN FOLDER

serves until it is killed. PLACE is a database, or the URL of PostgreSQL. Effects are lines in the file FOLDER/effects.
"""

import sys
from pathlib import Path
from typing import Any

import trio

import greenroom as gr
from greenroom.actors.stores.postgres.store import PostgresStore
from greenroom.testing import ScriptedModel, call, delay, text
from greenroom.transport import serve

FOLDER = Path(sys.argv[4])
LEASE: dict[str, float] = {"lease": 2.0, "turn": 0.3, "margin": 0.7}
"""So another process takes over soon; see `PostgresStore`."""


@gr.tool(needs_approval=True, effect="write")
async def refund(ctx: gr.ToolContext, order: str, cents: int) -> str:
    """Pay the money of an order back."""
    with (FOLDER / "effects").open("a") as file:
        file.write(f"{ctx.idempotency_key}\n")
    return f"paid {cents} for {order}"


@gr.tool(replay="safe")
async def chart() -> Any:
    """Draw something."""
    return ["a chart", gr.Image(b"\x89PNG\r\n\x1a\n" + bytes(64))]


def agents() -> list[gr.Agent[Any]]:
    """One agent per case."""
    refunds = [call("refund", order=order, cents=5, id=f"c{order}") for order in ("1", "2")]
    pieces = [one for n in range(4) for one in (text(f"piece {n}. "), delay(0.05))]
    scripts: dict[str, list[Any]] = {
        "plain": [[text("hel"), text("lo")]],
        "refunds": [[text("Two "), text("refunds. "), *refunds], "done"],
        "talker": [[*pieces, call("chart", id="k1")], [*pieces, call("refund", order="7", cents=5, id="c7")], "done"],
        "slow": [[text("Wait."), delay(3600)], "done"],
    }
    tools = [refund, chart]
    return [gr.Agent(key, model=ScriptedModel(script), tools=tools) for key, script in scripts.items()]


async def main(place: str, port: int, token: str) -> None:
    """Serve until killed."""
    store = PostgresStore(place, **LEASE) if "://" in place else place
    async with gr.open_runtime(store, agents=agents()) as runtime:
        await serve(runtime, port=port, token=token)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), sys.argv[3])
