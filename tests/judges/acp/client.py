"""An editor on the Python client of ACP, with the orders and words of `client.mjs`.

python client.py COMMAND WORDS...
"""

import asyncio  # noqa: TID251 - this client runs on asyncio only, in a process of its own
import json
import os
import sys
from typing import Any

import acp
from acp.schema import RequestPermissionResponse
from pydantic import TypeAdapter

_METHODS: dict[str, tuple[str, Any]] = {
    "initialize": ("initialize", acp.InitializeRequest),
    "session/new": ("new_session", acp.NewSessionRequest),
    "session/load": ("load_session", acp.LoadSessionRequest),
    "session/resume": ("resume_session", acp.schema.ResumeSessionRequest),
    "session/list": ("list_sessions", acp.schema.ListSessionsRequest),
    "session/close": ("close_session", acp.schema.CloseSessionRequest),
    "session/prompt": ("prompt", acp.PromptRequest),
}
"""Method -> the client's name for it, and the type of its parameters."""
_ANSWER: Any = TypeAdapter(acp.schema.CreateElicitationResponse)


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def plain(value: Any) -> Any:
    return None if value is None else value.model_dump(by_alias=True, exclude_none=True, mode="json")


class Editor:
    """What the agent calls."""

    def __init__(self) -> None:
        self.waiting: dict[int, asyncio.Future[Any]] = {}

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        say(type="update", params={"sessionId": session_id, "update": plain(update)})

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        params = {"sessionId": session_id, "toolCall": plain(tool_call), "options": [plain(one) for one in options]}
        return RequestPermissionResponse.model_validate(await self._asked("session/request_permission", params))

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        params = {"message": message, **plain(mode)}
        return _ANSWER.validate_python(await self._asked("elicitation/create", params))

    async def _asked(self, method: str, params: Any) -> Any:
        key = len(self.waiting) + 1
        self.waiting[key] = asyncio.get_running_loop().create_future()
        say(type="asked", key=key, method=method, params=params)
        try:
            return await self.waiting[key]
        except asyncio.CancelledError:
            say(type="withdrawn", key=key)
            raise


async def order(connection: Any, order: dict[str, Any]) -> None:
    """Call the method of the client that makes a request, with the parameters as its own types."""
    name, kind = _METHODS[order["method"]]
    request = kind.model_validate(order["params"])
    fields = {field: getattr(request, field) for field in request.model_fields_set}
    try:
        result = await getattr(connection, name)(**fields)
        say(type="answer", order=order["order"], result=plain(result))
    except acp.RequestError as error:
        say(type="answer", order=order["order"], error={"code": error.code, "message": str(error), "data": error.data})


def seen(event: Any) -> None:
    """Report a message of the agent."""
    if event.direction.value == "incoming":
        say(type="line", line=json.dumps(event.message))


async def main() -> None:
    editor, command = Editor(), sys.argv[1:]
    reader = asyncio.StreamReader(limit=2**24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    options = {"limit": 2**24, "stderr": None}
    async with acp.spawn_agent_process(
        editor, *command, env=dict(os.environ), transport_kwargs=options, observers=[seen], use_unstable_protocol=True
    ) as (connection, process):
        tasks = {asyncio.create_task(watch(process))}
        while line := await reader.readline():
            message = json.loads(line)
            if message.get("do") == "kill":
                process.kill()
            elif message.get("do") == "end":
                process.stdin.close()
            elif message.get("do") == "reply":
                editor.waiting[message["key"]].set_result(message["result"])
            elif message.get("do") == "notify":
                await connection.cancel(session_id=message["params"]["sessionId"])
            else:
                tasks.add(asyncio.create_task(order(connection, message)))


async def watch(process: Any) -> None:
    code = await process.wait()
    say(type="exit", code=code, signal=None)


asyncio.run(main())
