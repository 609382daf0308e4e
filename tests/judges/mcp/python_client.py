"""PyPI mcp on trio, in the mode of the first argument: auto or legacy. It is driven as the programs in Node.js are."""

import json
import os
import sys
from contextlib import AsyncExitStack
from typing import Any

import mcp_types as types
import trio
from mcp import Client, StdioServerParameters
from mcp.client import streamable_http
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

streamable_http.MAX_RECONNECTION_ATTEMPTS = 60  # a busy machine starts a server slowly


def says(value: Any) -> None:
    """Write one line."""
    sys.stdout.write(f"{json.dumps(value)}\n")
    sys.stdout.flush()


class Driven:
    """A client that is driven by lines of standard input."""

    def __init__(self, patience: float | None) -> None:
        """`patience`: the limit of a request, in milliseconds."""
        self.patience = None if patience is None else patience / 1000
        self.answers, self._waiting = trio.open_memory_channel[dict[str, Any]](10)
        self.call = trio.CancelScope()

    async def asked(self, _: Any, params: Any) -> types.ElicitResult:
        """Show a question, and wait for the answer."""
        says({"asked": params.model_dump(mode="json", by_alias=True, exclude_none=True)})
        return types.ElicitResult.model_validate(await self._waiting.receive())

    async def tool(self, client: Client, task: dict[str, Any]) -> None:
        """Call a tool."""

        async def progress(done: float, total: float | None, message: str | None) -> None:
            says({"progress": {"progress": done, "total": total, "message": message}})

        with trio.CancelScope() as self.call:
            try:
                result = await client.call_tool(
                    task["name"],
                    task["arguments"],
                    read_timeout_seconds=self.patience,
                    progress_callback=progress,
                    meta=task.get("meta"),
                )
            except Exception as error:  # noqa: BLE001 - the test reads what the client raises
                says({"error": repr(error)})
            else:
                says({"result": result.model_dump(mode="json", by_alias=True, exclude_none=True)})
        if self.call.cancelled_caught:
            says({"error": "cancelled"})


async def main(mode: Any, server: dict[str, Any]) -> None:
    """Drive a client to the end of the input."""
    driven = Driven(server.get("patience"))
    async with AsyncExitStack() as stack:
        if "command" in server:
            command, *words = server["command"]
            target: Any = StdioServerParameters(command=command, args=words, env=dict(os.environ))
        else:
            headers = {"Authorization": f"Bearer {server['token']}"}
            http = await stack.enter_async_context(create_mcp_http_client(headers=headers))
            target = streamable_http_client(server["url"], http_client=http)
        asked = driven.asked if server["asks"] else None
        client = await stack.enter_async_context(Client(target, mode=mode, elicitation_callback=asked))
        says({"connected": client.protocol_version})
        async with trio.open_nursery() as nursery:
            async for line in trio.wrap_file(sys.stdin):
                task = json.loads(line)
                if task["do"] == "list":
                    tools = (await client.list_tools()).tools
                    says({"tools": [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]})
                elif task["do"] == "call":
                    nursery.start_soon(driven.tool, client, task)
                elif task["do"] == "answer":
                    await driven.answers.send(task["result"])
                else:
                    driven.call.cancel()
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    try:
        trio.run(main, sys.argv[1], json.loads(sys.argv[2]))
    except BaseException as error:  # noqa: ASYNC103, BLE001 - Python would wait for the thread that reads the input
        says({"gone": repr(error)})
        os._exit(1)
