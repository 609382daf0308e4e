"""The subject of a call: what rules read of the call, the same for each program and tool that can do the thing.

Theory of operation. A row of `READERS` knows where one tool has its command, paths or address; Claude Code, Codex, the
Agent Client Protocol and the tools of this library have rows. A field is a text, absent, or *unread*: the call has one,
but it is missing or cannot be relied on. An unread field meets every condition of a deny or ask rule and none of an
allow rule, so that a call that hides its subject gains nothing.
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from ..contract.plain import JSONObject
from ..workspaces.withheld import Withheld
from .commands import COMMAND_LIMIT, ShellCommand, inner_command, read_command
from .publishing import effects_of

Place = Literal["none", "inside", "unknown", "outside", "withheld"]
"""Where the paths of a call lead, seen from the workspace; of several paths the later word of this list counts."""
PLACES: Final[tuple[Place, ...]] = ("none", "inside", "unknown", "outside", "withheld")
PATH_LIMIT: Final = 4_096
"""Most characters of a path, as in Linux."""
PATHS_LIMIT: Final = 1_000
"""Most paths of one call that are read."""
URL_LIMIT: Final = 8_192
"""Most characters of an address."""
_HOST_LIMIT: Final = 253
"""Most characters of a name in the DNS."""


@attrs.frozen(kw_only=True)
class Ground:
    """The folder that paths are read against.

    Attributes:
        root: The absolute path of the workspace; None if the agent works in none.
        withheld: The files of the workspace that no call may touch.
    """

    root: str | None = None
    withheld: Withheld = attrs.field(factory=Withheld)

    def locate(self, path: str) -> tuple[str, Place]:
        """Return a path as rules read it, relative to the root if it leads inside, and where it leads."""
        if self.root is None:
            whole = posixpath.normpath(path)
            return whole, "withheld" if self.withheld.has(whole) else "unknown"
        whole = posixpath.normpath(posixpath.join(self.root, path))
        # two leading slashes are kept by normpath, and mean one to every file system of Linux
        whole = whole[1:] if whole.startswith("//") else whole
        root = posixpath.normpath(self.root)
        if whole == root:
            return ".", "inside"
        if not whole.startswith(root.rstrip("/") + "/"):
            return whole, "outside"
        inner = whole[len(root.rstrip("/")) + 1 :]
        return inner, "withheld" if self.withheld.has(inner) else "inside"


@attrs.frozen(kw_only=True)
class Subject:
    """What rules read of one call.

    Attributes:
        tool: The name of the tool.
        effects: The effects; more than one only for a command that publishes and deploys.
        command: The command, if the call runs one.
        folder: The folder of the command, as `paths`.
        paths: The files and folders that the call names; relative to the workspace if they are inside.
        host, url: The address; the host is in lower case and in its ASCII form.
        place: Where the paths and the folder lead.
        unread: The fields that the call should have and that cannot be read.
    """

    tool: str
    effects: frozenset[str]
    command: ShellCommand | None = None
    folder: str | None = None
    paths: tuple[str, ...] = ()
    host: str | None = None
    url: str | None = None
    place: Place = "none"
    unread: frozenset[str] = frozenset()

    @property
    def compound(self) -> bool:
        """The call runs a compound command."""
        return self.command is not None and self.command.compound

    @property
    def headline(self) -> str:
        """The command, the address or the first path; "" if the call names none."""
        texts = (self.command.text if self.command else None, self.url, *self.paths[:1])
        return next((text for text in texts if text), "")

    def texts(self, field: str) -> Sequence[str]:
        """Return the texts of a field: path, folder, host, url or command."""
        match field:
            case "path":
                return self.paths
            case "command":
                return () if self.command is None else (self.command.text,)
            case _:
                text: str | None = getattr(self, field)
                return () if text is None else (text,)


def subject_of(tool: str, effect: str, arguments: JSONObject, ground: Ground | None = None) -> Subject:
    """Return the subject of a call. Pure; never raises for any arguments.

    Args:
        tool: The tool's name: of our own, of Claude Code (Bash), an item of Codex (commandExecution), or a kind of the
            Agent Client Protocol (execute), whose arguments are the tool call with its `toolCallId`.
        effect: The effect of the tool.
        arguments: The arguments.
        ground: The workspace; None: the agent works in none.
    """
    reading = _Reading(tool, effect, arguments, ground or Ground())
    row = _row(tool, arguments)
    if row is not None:
        row(reading)
    else:
        reading.well_known()
    return reading.subject()


def effect_of(tool: str, arguments: JSONObject) -> str:
    """Return the effect of a program's tool by the table; "unknown" for a tool that the table does not have."""
    kinds = ACP_EFFECTS if "toolCallId" in arguments else PROGRAM_EFFECTS
    return kinds.get(tool, "external" if tool.startswith("mcp__") else "unknown")


class _Reading:
    """The reading of one call: each method reads one field, and notes an unread one."""

    def __init__(self, tool: str, effect: str, arguments: JSONObject, ground: Ground) -> None:
        self.tool, self.effects, self.arguments, self.ground = tool, frozenset({effect}), arguments, ground
        self._fields: dict[str, Any] = {}
        self._paths: list[str] = []
        self._places: set[Place] = set()
        self._unread: set[str] = set()

    def subject(self) -> Subject:
        place = max(self._places, key=PLACES.index, default=PLACES[0])
        unread = frozenset(self._unread)
        paths = tuple(self._paths)
        return Subject(tool=self.tool, effects=self.effects, paths=paths, place=place, unread=unread, **self._fields)

    def command(self, value: object, *, wrapped: bool = False) -> None:
        given: Any = value
        words = isinstance(value, list) and all(isinstance(word, str) for word in value)
        size = sum(map(len, given)) if words or isinstance(value, str) else 0
        if not 0 < size <= COMMAND_LIMIT:
            self._unread |= {"command", "argv"}
            return
        inner = inner_command(given) if wrapped else None
        self._fields["command"] = command = read_command(given if inner is None else inner)
        if more := effects_of(command):
            self.effects = more

    def path(self, value: object) -> None:
        located = self._located(value, "path")
        if located is None:
            return
        if len(self._paths) >= PATHS_LIMIT:
            self._unread.add("path")
        elif located not in self._paths[-1:]:
            self._paths.append(located)

    def folder(self, value: object) -> None:
        if value is not None:
            self._fields["folder"] = self._located(value, "folder")

    def _located(self, value: object, field: str) -> str | None:
        if not isinstance(value, str) or not 0 < len(value) <= PATH_LIMIT or not _PLAIN_PATH(value):
            self._unread.add(field)
            return None
        text = value.removeprefix("file://")
        path, place = self.ground.locate(text)
        self._places.add(place)
        if ".." in text.split("/"):
            # a link on the way leads elsewhere than the text says, so a path that seems to stay inside may not
            self._unread.add(field)
        return path

    def url(self, value: object) -> None:
        if not isinstance(value, str) or len(value) > URL_LIMIT or (host := host_of(value)) is None:
            self._unread |= {"host", "url"}
            return
        self._fields["url"], self._fields["host"] = value, host

    def first(self, *names: str, among: JSONObject | None = None) -> object:
        """Return the value of the first of these arguments that is there, else None."""
        values = self.arguments if among is None else among
        return next((values[name] for name in names if values.get(name) is not None), None)

    def unread(self, *fields: str) -> None:
        self._unread.update(fields)

    def well_known(self) -> None:
        """Read the arguments of a tool without a row by the names that tools give them."""
        if (path := self.first(*_PATH_NAMES)) is not None:
            self.path(path)
        if (url := self.first("url", "uri")) is not None:
            self.url(url)
        if "shell" in self.effects:
            self.command(self.first("command", "cmd", "argv"))
            self.folder(self.first("folder", "cwd", "workdir"))


_PATH_NAMES: Final = ("path", "file_path", "filePath", "absolute_path", "filename", "file", "notebook_path", "dir_path")
_PLAIN_PATH: Final[Callable[[str], object]] = re.compile(r"(?!~)[^\x00-\x1f\x7f\\]+\Z").match
"""No control character, no backslash, and no home folder, which each program expands in its own way."""
_AUTHORITY: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
_PORT: Final = re.compile(r":\d*\Z")


def host_of(url: str) -> str | None:
    """Return the host of an address, in lower case and ASCII; None if programs may disagree about the host."""
    authority = _AUTHORITY.match(url)
    if authority is None or "\\" in url or any(letter.isspace() or not letter.isprintable() for letter in url):
        return None
    host = _PORT.sub("", authority[1].rpartition("@")[2]).rstrip(".").lower()
    if authority[1].count("@") > 1 or "%" in host or not 0 < len(host) <= _HOST_LIMIT:
        return None
    try:
        if host.startswith("["):
            return ipaddress.IPv6Address(host.removeprefix("[").removesuffix("]")).compressed
        if not host.isascii():
            host = host.encode("idna").decode("ascii").lower()
        if re.fullmatch(r"\d+|0x[0-9a-f]*", host.rpartition(".")[2]):
            return str(ipaddress.IPv4Address(host))  # any other spelling of a number is some address, too
    except ValueError:
        return None
    return host if re.fullmatch(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*", host) else None


def _row(tool: str, arguments: JSONObject) -> Callable[[_Reading], None] | None:
    return ACP_READERS.get(tool) if "toolCallId" in arguments else READERS.get(tool)


# --- rows -------------------------------------------------------------------------------------------------------------


def _one_path(*names: str, needed: bool = True) -> Callable[[_Reading], None]:
    def read(reading: _Reading) -> None:
        value = reading.first(*names)
        reading.path("." if value is None and not needed else value)

    return read


def _search(reading: _Reading) -> None:
    """Read where Glob and Grep look: in a folder, and for Glob also where the pattern itself leads."""
    path = reading.first("path")
    reading.path("." if path is None else path)
    pattern = reading.first("pattern")
    if reading.tool == "Glob":
        fixed = pattern.partition("*")[0].rpartition("/")[0] if isinstance(pattern, str) else None
        if not isinstance(pattern, str) or ".." in pattern or "~" in pattern:
            reading.unread("path")
        elif pattern.startswith("/"):
            reading.path(fixed or "/")


def _shell(reading: _Reading) -> None:
    reading.command(reading.first("command", "argv"))
    reading.folder(reading.first("folder", "cwd"))


def _codex_command(reading: _Reading) -> None:
    reading.command(reading.first("command"), wrapped=True)
    reading.folder(reading.first("cwd"))
    actions = reading.first("commandActions")
    for action in actions if isinstance(actions, list) else ():
        if isinstance(action, Mapping) and action.get("path") is not None:
            reading.path(action["path"])


def _codex_change(reading: _Reading) -> None:
    changes = reading.first("changes")
    if not isinstance(changes, list) or not changes:
        reading.unread("path")
        return
    for change in changes:
        reading.path(change.get("path") if isinstance(change, Mapping) else None)
        kind = change.get("kind") if isinstance(change, Mapping) else None
        if isinstance(kind, Mapping) and kind.get("move_path") is not None:
            reading.path(kind["move_path"])
    if (root := reading.first("grantRoot")) is not None:
        reading.path(root)


_PATCHED: Final = re.compile(
    r"^(?:(?:\*\*\* (?:Add File|Update File|Delete File|Move to): |(?:rename|copy) (?:from|to) )(.+)"
    r"|(?:---|\+\+\+) (?:[ab]/)?(.+))$",
    re.MULTILINE,
)
"""The lines of a patch that name a file, in the form "*** Begin Patch" and in that of `diff -u` and git."""


def _patch(reading: _Reading) -> None:
    text = reading.first("patch")
    names = [one or other for one, other in _PATCHED.findall(text)] if isinstance(text, str) else []
    if not names:
        reading.unread("path")
    for name in names:
        plain = name.rstrip("\r").partition("\t")[0]  # a tab separates the name from a time
        if plain != "/dev/null":
            reading.path(plain)


def _nothing(reading: _Reading) -> None:
    """Read nothing: the tool has no subject but its effect."""


def _apply(reading: _Reading) -> None:
    """Take the effect that rules have for the one tool whose calls change the user's own folder."""
    reading.effects = frozenset({"apply_changes"})


def _url(reading: _Reading) -> None:
    reading.url(reading.first("url"))


READERS: Final[Mapping[str, Callable[[_Reading], None]]] = {
    # ours
    **dict.fromkeys(("read_file", "write_file", "edit_file"), _one_path("path")),
    **dict.fromkeys(("list_files", "search_files"), _one_path("path", needed=False)),
    "apply_patch": _patch,
    "shell": _shell,
    "propose_changes": _nothing,
    "apply_changes": _apply,
    # Claude Code
    "Bash": _shell,
    **dict.fromkeys(("Read", "Write", "Edit", "MultiEdit"), _one_path("file_path")),
    **dict.fromkeys(("NotebookEdit", "NotebookRead"), _one_path("notebook_path")),
    **dict.fromkeys(("Glob", "Grep"), _search),
    "LS": _one_path("path", needed=False),
    "WebFetch": _url,
    **dict.fromkeys(("WebSearch", "Task", "Agent", "TodoWrite", "Skill", "BashOutput", "KillShell"), _nothing),
    # Codex
    "commandExecution": _codex_command,
    "fileChange": _codex_change,
}
"""Tool -> the function that reads the subject of its calls."""

PROGRAM_EFFECTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("Read", "NotebookRead", "Glob", "Grep", "LS", "BashOutput", "TodoWrite", "ToolSearch"), "read"),
    **dict.fromkeys(("Write", "Edit", "MultiEdit", "NotebookEdit"), "write"),
    "Bash": "shell",
    **dict.fromkeys(("WebFetch", "WebSearch"), "network"),
    **dict.fromkeys(("Task", "Agent", "Skill", "KillShell"), "delegate"),
    "commandExecution": "shell",
    "fileChange": "patch",
}
"""Tool of a program -> its effect."""


# --- the Agent Client Protocol ----------------------------------------------------------------------------------------


def _raw(reading: _Reading) -> JSONObject:
    raw = reading.arguments.get("rawInput")
    return raw if isinstance(raw, Mapping) else {}


def _acp_paths(reading: _Reading) -> None:
    """Read the paths of a tool call: of its input, its differences and its locations."""
    paths = [value for name in _PATH_NAMES if (value := _raw(reading).get(name)) is not None]
    parts = _objects(reading.arguments.get("content"))
    paths += [part.get("path") for part in parts if part.get("type") == "diff"]
    paths += [location.get("path") for location in _objects(reading.arguments.get("locations"))]
    if not paths:
        reading.unread("path")
    for path in paths:
        reading.path(path)


def _acp_execute(reading: _Reading) -> None:
    raw = _raw(reading)
    command = reading.first("command", "cmd", "argv", among=raw)
    title = reading.arguments.get("title")
    if command is None and isinstance(title, str) and ("…" in title or "..." in title):
        title = None  # the program may have cut the command, and the rest is unknown
    reading.command(title if command is None else command)
    reading.folder(reading.first("cwd", "workdir", "directory", among=raw))


def _acp_fetch(reading: _Reading) -> None:
    url = reading.first("url", "uri", among=_raw(reading))
    reading.url(reading.arguments.get("title") if url is None else url)


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


ACP_READERS: Final[Mapping[str, Callable[[_Reading], None]]] = {
    **dict.fromkeys(("read", "edit", "delete", "move", "search"), _acp_paths),
    "execute": _acp_execute,
    "fetch": _acp_fetch,
    **dict.fromkeys(("think", "switch_mode", "other"), _nothing),
}
"""Kind of a tool call of the Agent Client Protocol -> the function that reads its subject."""
ACP_EFFECTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("read", "search", "think"), "read"),
    **dict.fromkeys(("edit", "delete", "move"), "write"),
    "execute": "shell",
    "fetch": "network",
}
"""Kind -> effect; the other kinds are unknown."""
