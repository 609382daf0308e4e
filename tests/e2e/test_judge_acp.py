"""The official clients of ACP, npm and PyPI, drive `greenroom acp`; every line of it is what the npm schema says.

`tests/judges/acp/client.mjs` and `client.py` are editors on these clients, in processes of their own.
"""

import base64
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import trio

from greenroom.transport import connect

from ..support.judges import FOLDER, need_node_modules, need_program
from .test_judge_ai_sdk import Speaker, speaking

pytestmark = [pytest.mark.slow, pytest.mark.judge, pytest.mark.no_cover]

AGENTS = Path(__file__).parent / "acp_agents.py"
COMMAND = (sys.executable, "-m", "greenroom.transport.cli")
PATIENCE = 60.0
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(80_000)).decode()
NOTICES = {"session": {"notices": {}}}
RESULTS = {
    "initialize": "InitializeResponse",
    "session/new": "NewSessionResponse",
    "session/load": "LoadSessionResponse",
    "session/resume": "ResumeSessionResponse",
    "session/list": "ListSessionsResponse",
    "session/close": "CloseSessionResponse",
    "session/prompt": "PromptResponse",
}
OURS = {
    "session/update": "SessionNotification",
    "session/request_permission": "RequestPermissionRequest",
    "elicitation/create": "CreateElicitationRequest",
    "$/cancel_request": "CancelRequestNotification",
}


@cache
def validator(name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((FOLDER / "acp/node_modules/@agentclientprotocol/sdk/schema/v1/schema.json").read_text())
    return jsonschema.Draft202012Validator({**schema, "anyOf": [{"$ref": f"#/$defs/{name}"}]})


class JudgedEditor:
    """An editor on one of the clients.

    Attributes:
        updates: what the client has handed on.
        asked: requests of the agent that are not answered: key -> message.
        withdrawn: keys of questions that the client has seen withdrawn.
        exit: how the agent has ended.
    """

    def __init__(self, speaker: Speaker, client: str) -> None:
        self._speaker, self.client = speaker, client
        self._orders = 0
        self._methods: list[str] = []
        self._ids: dict[Any, str] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self.updates: list[dict[str, Any]] = []
        self.asked: dict[int, dict[str, Any]] = {}
        self.withdrawn: list[int] = []
        self.lines = 0
        self.exit: dict[str, Any] | None = None

    async def _hear(self) -> None:
        message = json.loads(await self._speaker.hear())
        match message["type"]:
            case "line":
                self._check(json.loads(message["line"]))
            case "update":
                self.updates.append(message["params"])
            case "asked":
                self.asked[message["key"]] = message
            case "withdrawn":
                self.withdrawn.append(message["key"])
                self.asked.pop(message["key"], None)
            case "answer":
                self._answers[message["order"]] = message
            case "exit":
                self.exit = message

    def _check(self, line: dict[str, Any]) -> None:
        """Hold a line of the agent against the schema of the npm package, and of its method."""
        self.lines += 1
        validator_of_agent().validate(line)
        if "method" in line:
            validator(OURS[line["method"]]).validate(line["params"])
        elif "result" in line:
            # both clients number their requests in order, from 0
            validator(RESULTS[self._methods[int(line["id"])]]).validate(line["result"])
        else:
            validator("Error").validate(line["error"])

    async def until(self, condition: Callable[[], Any]) -> Any:
        with trio.fail_after(PATIENCE):
            while not (value := condition()):
                await self._hear()
        return value

    async def _say(self, **order: Any) -> None:
        stdin = self._speaker.process.stdin
        assert stdin is not None
        await stdin.send_all(json.dumps(order).encode() + b"\n")

    async def order(self, method: str, **params: Any) -> int:
        self._orders += 1
        self._methods.append(method)
        await self._say(do="request", order=self._orders, method=method, params=params)
        return self._orders

    async def answer_to(self, order: int) -> dict[str, Any]:
        message = await self.until(lambda: self._answers.get(order))
        assert "error" not in message, message["error"]
        result: dict[str, Any] = message.get("result") or {}
        return result

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        return await self.answer_to(await self.order(method, **params))

    async def new(self, cwd: Path, servers: Any = ()) -> str:
        return str((await self.call("session/new", cwd=str(cwd), mcpServers=[*servers]))["sessionId"])

    async def prompt(self, session_id: str, *blocks: Any) -> int:
        prompt = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        return await self.order("session/prompt", sessionId=session_id, prompt=prompt)

    async def question(self) -> dict[str, Any]:
        return await self.until(lambda: next(iter(self.asked.values()), None))

    async def reply(self, question: dict[str, Any], **result: Any) -> None:
        self.asked.pop(question["key"])
        await self._say(do="reply", key=question["key"], result=result)

    async def select(self, question: dict[str, Any], option: str) -> None:
        await self.reply(question, outcome={"outcome": "selected", "optionId": option})

    async def cancel(self, session_id: str) -> None:
        await self._say(do="notify", method="session/cancel", params={"sessionId": session_id})

    async def kill(self) -> None:
        await self._say(do="kill")
        await self.until(lambda: self.exit)

    async def end(self) -> dict[str, Any]:
        await self._say(do="end")
        return await self.until(lambda: self.exit)

    def said(self, kind: str = "agent_message_chunk") -> str:
        updates = [params["update"] for params in self.updates]
        return "".join(update["content"]["text"] for update in updates if update["sessionUpdate"] == kind)

    def statuses(self) -> list[str]:
        updates = [params["update"] for params in self.updates]
        return [
            update["status"]
            for update in updates
            if update["sessionUpdate"].startswith("tool_call") and "status" in update
        ]


@cache
def validator_of_agent() -> jsonschema.Draft202012Validator:
    schema = json.loads((FOLDER / "acp/node_modules/@agentclientprotocol/sdk/schema/v1/schema.json").read_text())
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture(params=["npm", "pypi"])
def client(request: pytest.FixtureRequest) -> str:
    """Which client the editor is built on; its version is printed."""
    folder = need_node_modules("acp")
    if request.param == "npm":
        need_program("node")
        package = json.loads((folder / "node_modules/@agentclientprotocol/sdk/package.json").read_text())
        sys.stdout.write(f"@agentclientprotocol/sdk {package['version']}\n")
    else:
        sys.stdout.write(f"agent-client-protocol {version('agent-client-protocol')}\n")
    return str(request.param)


@asynccontextmanager
async def editing(client: str, folder: Path, *words: str, capabilities: Any = None) -> AsyncIterator[JudgedEditor]:
    """An editor whose agent works in a folder."""
    judge = (
        ("node", str(FOLDER / "acp/client.mjs")) if client == "npm" else (sys.executable, str(FOLDER / "acp/client.py"))
    )
    words = words or (str(AGENTS), "--db", "runs.db")
    async with speaking(*judge, *COMMAND, "acp", *words, cwd=folder) as speaker:
        editor = JudgedEditor(speaker, client)
        shown = (
            {"elicitation": {"form": {}}, **(NOTICES if client == "npm" else {})}
            if capabilities is None
            else capabilities
        )
        answer = await editor.call("initialize", protocolVersion=1, clientCapabilities=shown)
        assert answer["agentCapabilities"]["loadSession"] is True
        yield editor


def token_in(path: str) -> str:
    return Path(path).read_text().strip()


def paid(folder: Path) -> list[str]:
    return (folder / "paid").read_text().split() if (folder / "paid").exists() else []


async def test_a_prompt_its_permission_and_its_rejection(client: str, tmp_path: Path) -> None:
    async with editing(client, tmp_path) as editor:
        session_id = await editor.new(tmp_path)
        prompt = await editor.prompt(session_id, "refund 7")
        question = await editor.question()
        assert question["method"] == "session/request_permission"
        await editor.select(question, "allow_once")
        assert (await editor.answer_to(prompt))["stopReason"] == "end_turn"
        assert editor.said() == "It says: paid 5"
        assert editor.statuses() == ["pending", "in_progress", "completed"]
        prompt = await editor.prompt(session_id, "refund 8")
        await editor.select(await editor.question(), "reject_once")
        await editor.answer_to(prompt)
        assert editor.statuses()[-1] == "failed"
        assert paid(tmp_path) == ["7"]
        image = {"type": "image", "data": PNG, "mimeType": "image/png"}
        await editor.answer_to(await editor.prompt(session_id, "what is it?", image))
        assert editor.said().endswith("1 parts, 0 tools of servers")
        listed = await editor.call("session/list", cwd=str(tmp_path))
        assert [(entry["sessionId"], entry["cwd"]) for entry in listed["sessions"]] == [(session_id, str(tmp_path))]
        await editor.call("session/close", sessionId=session_id)
        end = await editor.end()
        assert (end["code"], end["signal"]) == (0, None)
        assert editor.lines > 15


async def test_a_form_and_a_cancel_while_it_is_shown_and_while_the_model_writes(client: str, tmp_path: Path) -> None:
    async with editing(client, tmp_path) as editor:
        session_id = await editor.new(tmp_path)
        prompt = await editor.prompt(session_id, "paint")
        question = await editor.question()
        assert question["method"] == "elicitation/create"
        assert list(question["params"]["requestedSchema"]["properties"]) == ["colour"]
        await editor.reply(question, action="accept", content={"colour": "blue"})
        await editor.answer_to(prompt)
        assert editor.said() == "It says: painted blue"
        prompt = await editor.prompt(session_id, "refund 7")
        question = await editor.question()
        await editor.cancel(session_id)
        assert (await editor.answer_to(prompt))["stopReason"] == "cancelled"
        if client == "npm":
            await editor.until(lambda: question["key"] in editor.withdrawn)
        editor.asked.clear()
        prompt = await editor.prompt(session_id, "write")
        await editor.until(lambda: "and so on" in editor.said())
        await editor.cancel(session_id)
        assert (await editor.answer_to(prompt))["stopReason"] == "cancelled"
        assert paid(tmp_path) == []


async def test_a_kill_in_the_middle_of_a_question_and_a_load(client: str, tmp_path: Path) -> None:
    async with editing(client, tmp_path) as editor:
        session_id = await editor.new(tmp_path)
        prompt = await editor.prompt(session_id, "refund 7")
        await editor.select(await editor.question(), "allow_once")
        await editor.answer_to(prompt)
        await editor.prompt(session_id, "refund 8")
        await editor.question()
        before = editor.said()
        await editor.kill()
    async with editing(client, tmp_path) as editor:
        await editor.call("session/load", sessionId=session_id, cwd=str(tmp_path), mcpServers=[])
        assert editor.said("user_message_chunk") == "refund 7refund 8"
        assert editor.said() == before
        await editor.select(await editor.question(), "allow_once")
        await editor.until(lambda: editor.said() == f"{before}It says: paid 5")
        assert paid(tmp_path) == ["7", "8"]


async def test_a_question_that_is_decided_in_another_window(client: str, tmp_path: Path) -> None:
    """Beside `greenroom serve` on the same database, whose gateway then has the runs."""
    async with AsyncExitStack() as stack:
        serve = (*COMMAND, "serve", str(AGENTS), "--db", "runs.db", "--port", "0", "--json")
        server = await stack.enter_async_context(speaking(*serve, cwd=tmp_path))
        address = json.loads(await server.hear())
        editor = await stack.enter_async_context(editing(client, tmp_path, "--db", "runs.db"))
        token = token_in(address["tokenFile"])
        console = await stack.enter_async_context(connect(address["url"], token=token))
        prompt = await editor.prompt(await editor.new(tmp_path), "refund 7")
        question = await editor.question()
        (line,) = (await console.runs()).runs
        (ticket,) = (await console.view(line.run_id)).tickets
        await console.decide(line.run_id, ticket.approve())
        assert (await editor.answer_to(prompt))["stopReason"] == "end_turn"
        if client == "npm":
            await editor.until(lambda: question["key"] in editor.withdrawn)
        assert paid(tmp_path) == ["7"]


async def test_a_stdio_server_of_the_editor_is_used_and_asked_about(client: str, tmp_path: Path) -> None:
    """The server is npm's server-filesystem; none of its tools runs unasked."""
    node, modules = need_program("node"), need_node_modules("mcp-servers") / "node_modules/@modelcontextprotocol"
    program = str(modules / "server-filesystem/dist/index.js")
    server = {"name": "files", "command": node, "args": [program, str(tmp_path)], "env": []}
    (tmp_path / "a-file-of-mine").touch()
    async with editing(client, tmp_path) as editor:
        session_id = await editor.new(tmp_path, [server])
        prompt = await editor.prompt(session_id, f"list {tmp_path}")
        question = await editor.question()
        assert question["params"]["toolCall"]["title"].startswith("mcp__files__list_directory")
        await editor.select(question, "allow_once")
        await editor.answer_to(prompt)
        assert "a-file-of-mine" in editor.said()
        other = await editor.new(tmp_path)
        await editor.answer_to(await editor.prompt(other, "hello"))
        assert editor.said().endswith("0 parts, 0 tools of servers")
