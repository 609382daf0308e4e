"""The requests of an editor: their parameters as values, checked. Pure.

Members that are not known are passed over, as the protocol wants it.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from typing import Any, Final, TypeVar

import msgspec

from greenroom.actors.agents.attachments import Image
from greenroom.actors.contract.casing import camel
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.errors import UsageError

SERVERS: Final = 32
"""Most MCP servers of a session."""
WORDS: Final = 1_000
"""Most arguments, variables or headers of an MCP server."""
BLOCKS: Final = 1_000
"""Most blocks of a prompt."""
PATH: Final = 4_096
"""Most characters of a path, as in Linux."""
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")

T = TypeVar("T")


class InvalidParams(Exception):
    """The parameters of a request are invalid; the message names the value and the way out."""


class _Params(msgspec.Struct, frozen=True, kw_only=True, rename=camel):
    pass


class NamedValue(_Params, frozen=True, kw_only=True):
    """A variable of the environment, or a header."""

    name: str
    value: str

    def __repr__(self) -> str:
        """Show the name; the value may be a secret."""
        return f"NamedValue({self.name!r})"


class MCPServer(_Params, frozen=True, kw_only=True):
    """An MCP server that the editor names: a program, or an address.

    Attributes:
        name: For people.
        command, args, env: The program.
        type: "stdio", "http" or "sse".
        url, headers: The address.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[NamedValue, ...] = ()
    type: str = "stdio"
    url: str = ""
    headers: tuple[NamedValue, ...] = ()


class ClientFeatures(_Params, frozen=True, kw_only=True):
    """What an editor shows.

    Attributes:
        forms: It shows forms.
        notices: It shows notices.
        name: Its name, for the log.
    """

    forms: bool = False
    notices: bool = False
    name: str = ""


class OpenSession(_Params, frozen=True, kw_only=True):
    """session/new, session/load or session/resume; `session_id` is "" for a new one."""

    cwd: str
    mcp_servers: tuple[MCPServer, ...] = ()
    session_id: str = ""


class ListSessions(_Params, frozen=True, kw_only=True):
    """session/list."""

    cwd: str | None = None
    cursor: str | None = None


class OneSession(_Params, frozen=True, kw_only=True):
    """session/close or session/cancel."""

    session_id: str


class PromptParams(_Params, frozen=True, kw_only=True):
    """session/prompt: its text and images."""

    session_id: str
    text: str
    images: tuple[Any, ...] = ()


class _Block(_Params, frozen=True, kw_only=True):
    type: str
    text: str = ""
    data: str = ""
    mime_type: str | None = None
    name: str = ""
    uri: str | None = None


class _RawPrompt(_Params, frozen=True, kw_only=True):
    session_id: str
    prompt: tuple[_Block, ...]


def features_of(params: JSONObject) -> ClientFeatures:
    """Return what an editor says of itself with `initialize`.

    Raises:
        InvalidParams: `protocolVersion` is not a number.
    """
    if type(params.get("protocolVersion")) is not int:
        raise InvalidParams("protocolVersion: give a whole number, such as 1")
    offered, info = params.get("clientCapabilities"), params.get("clientInfo")
    forms, notices = (_within(offered, *path) is not None for path in (("elicitation", "form"), ("session", "notices")))
    name = _within(info, "name")
    return ClientFeatures(forms=forms, notices=notices, name=name if isinstance(name, str) else "")


def _within(value: object, *path: str) -> object:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def opened(params: JSONObject, *, new: bool) -> OpenSession:
    """Return the parameters of a request that opens a session.

    Raises:
        InvalidParams: cwd is not an absolute path, an MCP server is not one, or the id cannot be one.
    """
    request = _converted(params, OpenSession)
    if new and "mcpServers" not in params:
        raise InvalidParams("mcpServers is missing: give a list, such as []")
    _check_folder(request.cwd)
    if len(request.mcp_servers) > SERVERS:
        raise InvalidParams(f"mcpServers: {len(request.mcp_servers)} servers; give at most {SERVERS}")
    for server in request.mcp_servers:
        _check_server(server)
    names = [server.name for server in request.mcp_servers]
    if len(set(names)) < len(names):
        raise InvalidParams("mcpServers: two servers have one name")
    if not new:
        _check_id(request.session_id)
    return request


def _check_server(server: MCPServer) -> None:
    what = f"the MCP server {server.name!r:.100}"
    if len(server.args) + len(server.env) + len(server.headers) > WORDS:
        raise InvalidParams(f"{what} has more than {WORDS:,} arguments, variables and headers")
    if server.type not in ("stdio", "http"):
        raise InvalidParams(f"{what} is of type {server.type!r:.40}; this agent speaks stdio and http")
    if server.type == "stdio" and not server.command:
        raise InvalidParams(f"{what} has no command")
    if server.type == "http" and not server.url:
        raise InvalidParams(f"{what} has no url")


def listed(params: JSONObject) -> ListSessions:
    """Return the parameters of session/list.

    Raises:
        InvalidParams: cwd is not an absolute path.
    """
    request = _converted(params, ListSessions)
    if request.cwd is not None:
        _check_folder(request.cwd)
    return request


def named(params: JSONObject) -> OneSession:
    """Return the parameters of a request about one session.

    Raises:
        InvalidParams: The id cannot be one.
    """
    request = _converted(params, OneSession)
    _check_id(request.session_id)
    return request


def prompted(params: JSONObject) -> PromptParams:
    """Return the text and the images of a prompt; links to resources become links in the text.

    Raises:
        InvalidParams: A block is of another type, an image is none, or the prompt is empty.
    """
    request = _converted(params, _RawPrompt)
    _check_id(request.session_id)
    if len(request.prompt) > BLOCKS:
        raise InvalidParams(f"prompt: {len(request.prompt):,} blocks; give at most {BLOCKS:,}")
    texts, images = list[str](), list[Image]()
    for index, block in enumerate(request.prompt):
        match block.type:
            case "text":
                texts.append(block.text)
            case "resource_link":
                texts.append(f"[{block.name}]({block.uri or ''})")
            case "image":
                images.append(_image(block, index))
            case other:
                raise InvalidParams(f"prompt[{index}]: this agent takes text, resource_link and image, not {other:.40}")
    text = "".join(texts)
    if not text.strip() and not images:
        raise InvalidParams("prompt is empty: give a text or an image")
    return PromptParams(session_id=request.session_id, text=text, images=tuple(images))


def _image(block: _Block, index: int) -> Image:
    try:
        return Image(base64.b64decode(block.data, validate=True), media_type=block.mime_type)
    except (binascii.Error, ValueError, UsageError) as error:
        raise InvalidParams(f"prompt[{index}]: {error}") from error


def _converted(params: JSONObject, kind: type[T]) -> T:
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise InvalidParams(f"{error}"[:300]) from error


def _check_folder(cwd: str) -> None:
    if not posixpath.isabs(cwd) or "\0" in cwd or len(cwd) > PATH:
        raise InvalidParams(f"cwd={cwd!r:.200}: give an absolute path")


def _check_id(session_id: str) -> None:
    if _ID.fullmatch(session_id) is None:
        raise InvalidParams(f"sessionId={session_id!r:.200}: give the id of a session, as session/new returned it")
