"""A FastAPI service with a runtime of its own, under uvicorn: started, killed and stopped by the tests.

    python asyncio_service.py DATABASE EFFECTS PORT LOOP

serves until stopped; LOOP is asyncio or uvloop. Effects are lines in the file EFFECTS.
"""

import asyncio  # noqa: TID251 - the host of the runtime
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

import greenroom as gr
from greenroom import aio
from greenroom.testing import ScriptedModel, call

DATABASE, EFFECTS, PORT, LOOP = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]


def note(line: str) -> None:
    with EFFECTS.open("a") as file:
        file.write(f"{line}\n")


@gr.tool(loop="asyncio", replay="safe")
async def look(ctx: gr.ToolContext) -> str:
    """Look for a while, and say so."""
    for step in range(20):
        await ctx.output(f"piece {step}")
        await asyncio.sleep(0.02)
    return "seen"


@gr.tool(needs_approval=True, effect="write")
async def refund(ctx: gr.ToolContext, order: str) -> str:
    """Refund an order."""
    note(ctx.idempotency_key)
    return "refunded"


answers = [call("look", id="c1"), call("refund", order="7", id="c2"), "Done."]
shop = gr.Agent("shop", model=ScriptedModel(answers), tools=[look, refund])


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    async with aio.open_runtime(DATABASE, agents=[shop], drain=0.5) as runtime:
        yield {"runtime": runtime}
    note("closed")


app = FastAPI(lifespan=lifespan)


@app.post("/runs/{run_id}")
async def start(run_id: str, request: Request) -> dict[str, str]:
    return {"run": (await request.state.runtime.start(shop, "refund order 7", run_id=run_id)).id}


@app.get("/runs/{run_id}")
async def view(run_id: str, request: Request) -> dict[str, Any]:
    seen = await request.state.runtime.view(run_id)
    return {"status": seen.status.value, "tickets": [ticket.ticket_id for ticket in seen.tickets]}


@app.post("/runs/{run_id}/{ticket_id}")
async def approve(run_id: str, ticket_id: str, request: Request) -> dict[str, str]:
    run = await request.state.runtime.get(run_id)
    return {"status": (await run.decide(ticket_id, "approve", decision_id="d1")).status}


@app.get("/runs/{run_id}/events")
async def follow(run_id: str, request: Request, after: int = 0) -> StreamingResponse:
    async def stream() -> AsyncIterator[str]:
        async with request.state.runtime.follow(run_id, after=after) as events:
            async for event in events:
                yield f"{event.sequence} {event.type}\n"  # noqa: ASYNC119 - Starlette cancels the task of a stream

    return StreamingResponse(stream(), media_type="text/plain")


@app.get("/followed")
async def followed(request: Request) -> int:
    return int(request.state.runtime.inner.reader.statistics().followed)


if __name__ == "__main__":
    uvicorn.run(app, port=PORT, loop=LOOP, log_level="error", timeout_graceful_shutdown=1)
