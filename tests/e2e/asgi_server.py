"""A FastAPI application with the gateway under /greenroom, as `test_asgi_kills.py` starts and kills it.

uvicorn --app-dir tests/e2e asgi_server:app      # FOLDER and TOKEN are in the environment
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from fastapi import FastAPI

import greenroom as gr
from greenroom import aio
from greenroom.testing import ScriptedModel, call

FOLDER, TOKEN = Path(os.environ["FOLDER"]), os.environ["TOKEN"]


@gr.tool(replay="safe")
async def count(ctx: gr.ToolContext[Any], lines: int) -> str:
    """Write lines; behind the fifth, wait for the file `go`."""
    for line in range(lines):
        await ctx.output(f"line {line}\n")
        while line >= 5 and not (FOLDER / "go").exists():  # noqa: ASYNC110 - another process makes it
            await trio.sleep(0.05)
    return "counted"


counter = gr.Agent("counter", tools=[count], model=ScriptedModel([call("count", lines=40), "done"]))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The runtime and its gateway live as long as the application."""
    async with aio.open_runtime(FOLDER / "runs.db", agents=[counter], drain=0.2) as runtime:
        async with aio.asgi_app(runtime, token=TOKEN, on_abort="cancel") as gateway:
            app.mount("/greenroom", gateway)
            yield


app = FastAPI(lifespan=lifespan)


@app.get("/")
async def hello() -> dict[str, str]:
    """A route of the application's own."""
    return {"hello": "world"}
