"""The ACP agent: reads the messages of an editor, and answers with the sessions that a gateway keeps.

Nothing of a session is kept here that a restart could lose: a session is a thread, a prompt is a run on it, and what an
editor sees is what the log has. A session is forgotten with its MCP servers when it is closed.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, Unpack, assert_never

import attrs
import trio

from greenroom import __version__
from greenroom.actors.backends.dialects.json_lines import decoded
from greenroom.actors.backends.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Answered,
    JSONRPCPeer,
    Notification,
    PeerRequest,
    ProtocolFault,
    RequestId,
)
from greenroom.actors.backends.lines import LINE_LIMIT
from greenroom.actors.contract.plain import JSONObject, JSONValue
from greenroom.actors.contract.run_lists import RunFilters
from greenroom.actors.errors import GreenroomError
from greenroom.supervision.nursery import open_collapsing_nursery

from ..client import Client, ListedRun, ListedRuns, StartedRun
from . import requests
from .editor import NOT_FOUND, Editor, RequestFailed
from .link import GatewayLink
from .requests import MCPServer, OpenSession, PromptParams
from .session import Desk, FollowedRun

VERSION: Final = 1
"""The version of the protocol, whatever the editor offers."""
SESSIONS: Final = 1_000
"""Most sessions that are open at the same time."""
PAGE: Final = 50
"""Runs of one page of session/list, and of one request for the runs of a thread."""
CLOSING: Final = 10.0
"""Seconds that session/close waits for the end of cancelled runs."""
_CWD: Final = 12
"""Hex digits of the digest of a folder in the id of a session."""

_log = logging.getLogger("greenroom.acp")


class Servers(Protocol):
    """Who gets the MCP servers of an editor."""

    async def keep(self, thread_id: str, servers: tuple[MCPServer, ...]) -> str | None:
        """Keep the servers of a thread in place of earlier ones; return why they are not used, or None."""

    def forget(self, thread_id: str) -> None:
        """Forget the servers of a thread."""


@attrs.define(eq=False)
class _Session:
    """A session that is open here.

    Attributes:
        cwd: The folder that the editor has named.
        runs: The runs that are followed, oldest first.
        starting: The run of a prompt is being started.
    """

    cwd: str
    runs: list[FollowedRun] = attrs.field(factory=list)
    starting: bool = False

    @property
    def prompting(self) -> bool:
        """True while a prompt is not answered."""
        return self.starting or any(run.prompt is not None for run in self.runs)


@attrs.define(eq=False)
class _PromptMark:
    """A prompt that is not answered; `cancelled` may be set before its run has been started."""

    session_id: object
    cancelled: bool = False


class ACPAgent:
    """The agent's side of one connection.

    Args:
        link: The gateway.
        agent: Key of the agent that works on prompts.
        write: Sends bytes to the editor.
        where: Run id -> a sentence that says where else its tickets can be answered.
        servers: Who gets the MCP servers of the editor.
    """

    def __init__(
        self,
        link: GatewayLink,
        agent: str,
        write: Callable[[bytes], Awaitable[None]],
        *,
        where: Callable[[str], str],
        servers: Servers,
    ) -> None:
        self._link, self._agent, self._servers, self._where = link, agent, servers, where
        self._peer = JSONRPCPeer()
        self._editor = Editor(self._peer, write)
        self._desk: Desk | None = None
        self._sessions: dict[str, _Session] = {}
        self._prompts: dict[RequestId, _PromptMark] = {}

    def __repr__(self) -> str:
        return f"<ACPAgent {self._agent} at {self._link!r}: {len(self._sessions)} sessions>"

    async def serve(self, lines: AsyncIterator[bytes | None]) -> None:
        """Serve until the editor's lines end. A line is None in place of one that is too long."""
        async with open_collapsing_nursery() as writing:
            writing.start_soon(self._editor.write_lines)
            async with open_collapsing_nursery() as nursery:
                async for line in lines:
                    await self._take(line, nursery)
                nursery.cancel_scope.cancel()
            self._editor.close()

    async def _take(self, line: bytes | None, nursery: trio.Nursery) -> None:
        if line is not None and not line.strip():
            return
        message, rule = (None, f"a line of more than {LINE_LIMIT:,} bytes") if line is None else decoded(line)
        if message is None:
            code = INVALID_REQUEST if rule.endswith("object") else PARSE_ERROR
            await self._editor.send(self._peer.refuse(ProtocolFault(rule=rule, code=code)))
            return
        match self._peer.receive(message):
            case PeerRequest() as request:
                if request.method == "session/prompt":  # noted now: a cancel may be the next line
                    self._prompts[request.request_id] = _PromptMark(request.params.get("sessionId"))
                nursery.start_soon(self._answer, request, nursery)
            case Notification() as notification:
                self._notified(notification, nursery)
            case Answered() as answer:
                self._editor.answered(answer)
            case ProtocolFault() as fault:
                _log.warning("the editor broke the protocol: %s", fault.rule)
                await self._editor.send(self._peer.refuse(fault))
            case other:
                assert_never(other)

    def _notified(self, notification: Notification, nursery: trio.Nursery) -> None:
        params = notification.params
        match notification.method:
            case "session/cancel":
                self._cancel_session(params.get("sessionId"), nursery)
            case "$/cancel_request":
                request_id = params.get("requestId")
                prompt = self._prompts.get(request_id) if isinstance(request_id, int | str) else None
                if prompt is not None:
                    self._cancel_session(prompt.session_id, nursery)
            case _:
                return

    def _cancel_session(self, session_id: object, nursery: trio.Nursery) -> None:
        session = self._sessions.get(session_id) if isinstance(session_id, str) else None
        if session is None:
            return
        for prompt in self._prompts.values():
            prompt.cancelled = prompt.cancelled or prompt.session_id == session_id
        for run in tuple(session.runs):
            nursery.start_soon(self._cancel, run)

    async def _cancel(self, run: FollowedRun) -> None:
        try:
            await run.cancel()
        except GreenroomError as error:
            _log.warning("%s was not cancelled: %s", run.run_id, error)

    async def _answer(self, request: PeerRequest, nursery: trio.Nursery) -> None:
        """Answer a request, and do what follows the answer."""
        request_id = request.request_id
        try:
            await self._handler(request.method)(self, request_id, request.params, nursery)
        except RequestFailed as failure:
            await self._editor.fail(request_id, failure)
        except requests.InvalidParams as error:
            await self._editor.fail(request_id, RequestFailed(INVALID_PARAMS, str(error)))
        except GreenroomError as error:
            await self._editor.fail(request_id, RequestFailed(INTERNAL_ERROR, str(error)))
        finally:
            self._prompts.pop(request_id, None)

    def _handler(self, method: str) -> _Handler:
        handler = _METHODS.get(method)
        if handler is None:
            raise RequestFailed(METHOD_NOT_FOUND, f"{method:.100} is not supported")
        if self._desk is None and method != "initialize":
            raise RequestFailed(INVALID_REQUEST, f"{method:.100} before initialize")
        return handler

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _initialize(self, request_id: RequestId, params: JSONObject, _: trio.Nursery) -> None:
        features = requests.features_of(params)
        self._desk = Desk(link=self._link, editor=self._editor, features=features, where=self._where)
        await self._editor.respond(request_id, capabilities())

    async def _new(self, request_id: RequestId, params: JSONObject, _: trio.Nursery) -> None:
        request = requests.opened(params, new=True)
        session_id = f"{_digest(request.cwd)}.{secrets.token_hex(10)}"
        refused = await self._open(session_id, request)
        await self._editor.respond(request_id, {"sessionId": session_id})
        await self._report(session_id, refused)

    async def _load(self, request_id: RequestId, params: JSONObject, nursery: trio.Nursery) -> None:
        await self._reopen(request_id, params, nursery, shown=True)

    async def _resume(self, request_id: RequestId, params: JSONObject, nursery: trio.Nursery) -> None:
        await self._reopen(request_id, params, nursery, shown=False)

    async def _reopen(self, request_id: RequestId, params: JSONObject, nursery: trio.Nursery, *, shown: bool) -> None:
        request = requests.opened(params, new=False)
        session_id, before = request.session_id, self._sessions.get(request.session_id)
        if before is not None and (before.prompting or before.runs):
            raise RequestFailed(INVALID_REQUEST, f"the session {session_id} is open, and works")
        lines = await self._runs(session_id)
        if not lines and before is None:
            raise RequestFailed(NOT_FOUND, f"there is no session {session_id}")
        refused = await self._open(session_id, request)
        session, runs = self._sessions[session_id], list[FollowedRun]()
        for line in lines:
            if shown or line.ended_at is None:
                run = FollowedRun(self._must_desk(), session_id, line.run_id)
                await run.replay(line.last_sequence, shown=shown)
                runs += [] if run.ended else [run]
        session.runs += runs
        await self._editor.respond(request_id, {})
        await self._report(session_id, refused)
        for run in runs:
            nursery.start_soon(self._follow, session, run)

    async def _list(self, request_id: RequestId, params: JSONObject, _: trio.Nursery) -> None:
        request = requests.listed(params)
        by = (await self._link.client()).principal
        page = await self._page(by=by, agent=self._agent, cursor=request.cursor, limit=PAGE)
        lines: dict[str, ListedRun] = {}
        for line in page.runs:
            lines.setdefault(line.thread_id, line)
        if request.cursor is not None:  # a thread is listed at its newest run, which an earlier page may have
            newest = [await self._page(by=by, agent=self._agent, thread_id=thread, limit=1) for thread in lines]
            newest_ids = {line.run_id for listing in newest for line in listing.runs}
            lines = {thread: line for thread, line in lines.items() if line.run_id in newest_ids}
        sessions = [self._session_info(line, request.cwd) for line in lines.values()]
        shown = [info for info in sessions if request.cwd in (None, info["cwd"])]
        more = {} if page.cursor is None else {"nextCursor": page.cursor}
        await self._editor.respond(request_id, {"sessions": shown, **more})

    async def _close(self, request_id: RequestId, params: JSONObject, nursery: trio.Nursery) -> None:
        session_id = requests.named(params).session_id
        session = self._session(session_id)
        self._cancel_session(session_id, nursery)
        with trio.move_on_after(CLOSING):
            for run in tuple(session.runs):
                await run.wait_ended()
        self._sessions.pop(session_id, None)
        self._servers.forget(session_id)
        await self._editor.respond(request_id, {})

    async def _prompt(self, request_id: RequestId, params: JSONObject, _: trio.Nursery) -> None:
        prompt = requests.prompted(params)
        session = self._session(prompt.session_id)
        if session.prompting:
            raise RequestFailed(INVALID_REQUEST, "a prompt of this session is not answered yet; wait, or cancel it")
        session.starting = True
        try:
            for waiting in session.runs:
                waiting.ask_again()
            started = await self._link.call(self._start(prompt))
            run = FollowedRun(self._must_desk(), prompt.session_id, started.run_id, request_id)
            session.runs.append(run)
        finally:
            session.starting = False
        if self._prompts[request_id].cancelled:
            await self._cancel(run)
        await self._follow(session, run)

    def _start(self, prompt: PromptParams) -> Callable[[Client], Awaitable[StartedRun]]:
        key, thread, images = secrets.token_hex(16), prompt.session_id, prompt.images
        return lambda client: client.start(
            self._agent, prompt.text, thread_id=thread, attachments=images, command_id=key
        )

    async def _follow(self, session: _Session, run: FollowedRun) -> None:
        try:
            await run.follow()
        finally:
            session.runs.remove(run)

    # --- sessions ----------------------------------------------------------------------------------------------------

    def _must_desk(self) -> Desk:
        assert self._desk is not None  # noqa: S101 - `_answer` refuses requests before initialize
        return self._desk

    def _session(self, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise RequestFailed(NOT_FOUND, f"there is no open session {session_id}; load it, or make a new one")
        return session

    async def _open(self, session_id: str, request: OpenSession) -> str | None:
        """Open a session; return why its MCP servers are not used."""
        if session_id not in self._sessions and len(self._sessions) >= SESSIONS:
            raise RequestFailed(INVALID_REQUEST, f"{SESSIONS:,} sessions are open; close one")
        refused = await self._servers.keep(session_id, request.mcp_servers)
        self._sessions[session_id] = _Session(request.cwd)
        return refused

    async def _report(self, session_id: str, refused: str | None) -> None:
        if refused is None:
            return
        _log.warning("%s", refused)
        if self._must_desk().features.notices:
            await self._editor.update(session_id, {"sessionUpdate": "notice", "severity": "warning", "title": refused})

    async def _runs(self, thread_id: str) -> list[ListedRun]:
        """Return the runs of a thread that this principal sees, oldest first."""
        lines, cursor = list[ListedRun](), None
        while True:
            page = await self._page(thread_id=thread_id, limit=PAGE, cursor=cursor)
            lines += page.runs
            cursor = page.cursor
            if cursor is None:
                return lines[::-1]

    async def _page(self, **filters: Unpack[RunFilters]) -> ListedRuns:
        return await self._link.call(lambda client: client.runs(**filters))

    def _session_info(self, line: ListedRun, cwd: str | None) -> dict[str, Any]:
        session_id = line.thread_id
        folder = next((known for known in self._folders(session_id, cwd) if session_id.startswith(_digest(known))), "/")
        return {
            "sessionId": session_id,
            "cwd": folder,
            "title": line.title,
            "updatedAt": (line.ended_at or line.created_at).isoformat(),
        }

    def _folders(self, session_id: str, cwd: str | None) -> list[str]:
        """Return the folders that a session may be of: its id has a digest of the folder and not the folder."""
        opened = [session.cwd for session in self._sessions.values()]
        return [folder for folder in (cwd, *dict.fromkeys(opened)) if folder is not None]


def capabilities() -> JSONValue:
    """Return the answer to `initialize`."""
    sessions: JSONObject = {"list": {}, "resume": {}, "close": {}}
    return {
        "protocolVersion": VERSION,
        "agentInfo": {"name": "greenroom", "version": __version__},
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": False},
            "mcpCapabilities": {"http": True, "sse": False},
            "sessionCapabilities": sessions,
        },
        "authMethods": [],
    }


def _digest(folder: str) -> str:
    return hashlib.sha256(folder.encode("utf-8", "replace")).hexdigest()[:_CWD]


_Handler = Callable[[ACPAgent, RequestId, JSONObject, trio.Nursery], Awaitable[None]]
_METHODS: Final[Mapping[str, _Handler]] = {
    "initialize": ACPAgent._initialize,
    "session/new": ACPAgent._new,
    "session/load": ACPAgent._load,
    "session/resume": ACPAgent._resume,
    "session/list": ACPAgent._list,
    "session/close": ACPAgent._close,
    "session/prompt": ACPAgent._prompt,
}
