"""The arrows and the sans-IO zone, read from the source: `supervision <- actors <- transport`, never back.

The rooms of `actors` stand in an order, too (`ROOMS`), and so do those of `transport`.

Nothing is imported here; the syntax trees tell. `violations(root)` returns one sentence per offence, and a made-up
repository with one planted offence at a time shows that each rule can fail.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.no_cover

PACKAGES = ("supervision", "actors", "transport")

# What each package may import of ours. The facade imports everything, so only the topmost package may import it.
ALLOWED = {
    "supervision": {"supervision"},
    "actors": {"supervision", "actors"},
    "transport": {"supervision", "actors", "transport", "facade"},
}

# Deciding happens here: no trio, no await, no clock, no randomness, no files. The time comes in with every input.
PURE = (
    *(
        f"actors/backends/{name}.py"
        for name in (
            *("a2a_codec", "a2a_forms", "a2a_memo", "a2a_task", "a2a_values"),
            *("dialect", "items", "jsonrpc", "lines", "dialects/*"),
        )
    ),
    "actors/contract/*",
    "actors/engine/*",
    "actors/evidence/*",
    "actors/models/codecs/*",
    *(
        f"actors/permission/{name}.py"
        for name in (
            *("always", "commands", "judgement", "matchers", "publishing", "remembered", "rule_files", "rules"),
            "subject",
        )
    ),
    "actors/replay/*",
    "actors/state/*",
    *(f"actors/workspaces/{name}.py" for name in ("allowlist", "withheld", "difference", "tools/patch")),
    *(f"actors/toolsets/mcp_{name}.py" for name in ("forms", "results", "rules")),
    "supervision/strategy.py",
    "supervision/intensity.py",
    *(
        f"transport/frontends/{name}.py"
        for name in ("ag_ui/builder", "ag_ui/encoder", "ag_ui/history", "ag_ui/interrupts")
    ),
    *(f"transport/frontends/{name}.py" for name in ("ai_sdk/builder", "ai_sdk/encoder")),
    *(
        f"transport/frontends/a2a/{name}.py"
        for name in ("card", "encoder", "files", "ids", "input", "questions", "view")
    ),
    "transport/cli/mcp_session.py",
    *(
        f"transport/client/{name}.py"
        for name in (
            *("close_reasons", "endpoint", "errors", "frames", "http_exchange", "link", "list_buffer"),
            *("pending_requests", "subscriptions", "timing", "unread_events", "wire"),
        )
    ),
    *(f"transport/acp/{name}.py" for name in ("encoder", "forms", "questions", "requests", "updates")),
    "transport/protocol/*",
    "transport/gateway/openapi.py",
    "transport/gateway/asyncapi.py",
    "transport/gateway/components.py",
    "transport/gateway/bodies.py",
)
IMPURE_MODULES = frozenset(
    {
        *("trio", "asyncio", "anyio", "time", "random", "secrets", "os", "io", "socket", "ssl", "select", "selectors"),
        *("threading", "subprocess", "multiprocessing", "concurrent", "signal", "tempfile", "shutil", "sqlite3"),
        *("httpx", "psycopg", "trio_websocket"),
    }
)
# These read the clock or draw a random number; `datetime` and `uuid` themselves are fine as types.
IMPURE_NAMES = frozenset({"now", "utcnow", "today", "uuid1", "uuid4"})
AWAITING = (ast.Await, ast.AsyncFor, ast.AsyncWith)
IMPURE_BUILTINS = frozenset({"open", "input", "print"})

# The folders of `actors` and `transport`, from the lowest floor up. Rooms of one floor may import each other; a module
# beside the folders (a port, the errors) belongs to the lowest floor.
ROOMS = {
    "actors": (
        {"abc", "contract", "state"},
        {"engine"},
        {"agents", "evidence", "models", "plugins", "replay", "stores", "tools"},
        {"workspaces"},
        {"permission"},
        {"backends"},
        {"toolsets"},
        {"services"},
        {"user_code"},
        {"run"},
        {"runtime"},
        {"testing"},
    ),
    "transport": (
        {"protocol"},
        {"bridge", "console", "terminal"},
        {"client", "gateway"},
        {"acp", "frontends"},
        {"server"},
        {"aio", "cli", "demo"},
    ),
}
MOST_FILES = 45
"""Modules of a folder. A folder with more is two rooms without a wall."""

# A run is the same whichever process works on it: what decides about it does not know that there are several.
ALONE = ("actors/contract/*", "actors/engine/*", "actors/replay/*")
PROCESSES = "greenroom.actors.processes"

# A run knows no workspace, no rules and no program: these are plugins and tools to it.
WORK = ("workspaces", "permission", "backends", "toolsets")
WORKLESS = tuple(f"actors/{room}/*" for room in ("engine", "replay", "run", "services", "stores", "user_code"))

# Folders are a library of their own: it leans on no part that works on runs, and only the opening of a runtime on it.
WORKSPACES = "actors/workspaces/*"
APART_FROM_WORKSPACES = frozenset({"engine", "stores", "replay"})
USERS_OF_WORKSPACES = (WORKSPACES, "actors/permission/*", "actors/backends/*", "actors/runtime/open_runtime.py")

# Whatever starts a program decides what it may see; these are two modules.
STARTERS = ("actors/workspaces/git.py", "actors/backends/process.py")
STARTS = frozenset({"run_process", "open_process", "Popen"})

# A library at the edge has one folder that knows it; everything else goes through our own port.
OWNERS = {
    "httpx": ("actors/models/http.py", "actors/backends/a2a_http.py"),
    "psycopg": ("actors/stores/postgres/*",),
    "sqlite3": ("actors/stores/*",),
    "trio_websocket": ("transport/*",),
    **dict.fromkeys(("mcp", "mcp_types", "anyio", "httpx2"), ("actors/toolsets/mcp*.py",)),
    "pydantic": ("actors/toolsets/mcp*.py", "actors/contract/user_types/pydantic_*.py"),
}

# Programs on asyncio host a runtime, and use a client; everything else is trio.
ASYNCIO = ("transport/bridge/*", "transport/aio/*")

# Design notes and prototypes lie beside the repository; nothing may depend on them.
OUTSIDE = frozenset({"shared", "prototypes"})


class Source:
    """One module: where it is, what it is called when imported, and its syntax tree."""

    def __init__(self, root: Path, path: Path) -> None:
        self.path = path.relative_to(root).as_posix()
        parts = self.path.removeprefix("src/greenroom/").removesuffix(".py").split("/")
        self.is_package = parts[-1] == "__init__"
        self.module = ".".join(["greenroom", *(parts[:-1] if self.is_package else parts)])
        self.package = parts[0] if parts[0] in PACKAGES and not self.path.startswith("src/") else "facade"
        self.tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        self.pure = any(fnmatch(self.path, pattern) for pattern in PURE)

    def resolve(self, node: ast.ImportFrom) -> str:
        """The absolute name of what `from ... import` names, for relative forms too."""
        if not node.level:
            return node.module or ""
        base = self.module.split(".")
        base = base[: len(base) - node.level + self.is_package]
        return ".".join([*base, *([node.module] if node.module else [])])

    def imports(self) -> Iterator[tuple[int, str]]:
        """Every (line, dotted name) imported anywhere in the module, by statement or by a constant string."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                origin = self.resolve(node)
                yield from ((node.lineno, f"{origin}.{alias.name}") for alias in node.names)
            elif isinstance(node, ast.Call) and name_of(node.func).endswith(("import_module", "__import__")):
                yield from (
                    (node.lineno, arg.value)
                    for arg in node.args[:1]
                    if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
                )

    def absolute_imports(self) -> set[int]:
        """The lines of the import statements that give a whole name."""
        return {
            node.lineno
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)
        }


def name_of(node: ast.expr) -> str:
    """`a.b.c` as written, or the last name of it when what is before is no plain name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}".lstrip(".")
    return ""


@lru_cache(maxsize=1)  # the tests of the real tree share it
def sources(root: Path) -> list[Source]:
    """All modules of the package, each once: the links in src are not followed."""
    files = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    files += sorted((root / "src" / "greenroom").glob("*.py"))
    return [Source(root, path) for path in files]


def our_package(target: str) -> str | None:
    """Which of our packages a dotted name belongs to; `facade` for greenroom itself; None for a foreign one."""
    head, *rest = target.split(".")
    if head != "greenroom":
        return None
    return rest[0] if rest and rest[0] in PACKAGES else "facade"


def import_offences(source: Source) -> Iterator[tuple[int, str]]:
    absolute = source.absolute_imports()
    for line, target in source.imports():
        head = target.split(".")[0]
        ours = our_package(target)
        if source.package != "facade" and ours and ours not in ALLOWED[source.package]:
            yield line, f"{source.package} imports {target} ({ours} stands above it)"
        if head in PACKAGES:
            yield line, f"imports {target} by its folder name; it is greenroom.{target}"
        if ours == source.package != "facade" and line in absolute:
            yield line, f"imports {target}, of its own package, absolutely; write a relative import"
        if head == "asyncio" and not any(fnmatch(source.path, room) for room in ASYNCIO):
            yield line, f"imports asyncio; this project is trio only, except in {', '.join(ASYNCIO)}"
        if head in OUTSIDE:
            yield line, f"imports {target} from outside the repository"
        if head in OWNERS and not any(fnmatch(source.path, owner) for owner in OWNERS[head]):
            yield line, f"imports {head}, which only {', '.join(OWNERS[head])} may"
        if source.pure and head in IMPURE_MODULES:
            yield line, f"is sans-IO and imports {head}"
        if source.pure and target.split(".")[-1] in IMPURE_NAMES:
            yield line, f"is sans-IO and imports {target}"


def process_offences(source: Source) -> Iterator[tuple[int, str]]:
    if any(fnmatch(source.path, pattern) for pattern in ALONE):
        for line, target in source.imports():
            if f"{target}.".startswith(f"{PROCESSES}."):
                yield line, f"imports {target}, and is not to know of processes"


def work_offences(source: Source) -> Iterator[tuple[int, str]]:
    if any(fnmatch(source.path, pattern) for pattern in WORKLESS):
        for line, target in source.imports():
            if target.startswith(tuple(f"greenroom.actors.{room}" for room in WORK)):
                yield line, f"imports {target}, and is not to know of workspaces and programs"


def floor(path: str) -> int:
    """The floor of a module's room in its package, 0 for the lowest."""
    package, room, *_ = path.split("/")
    if room == "__init__.py":  # the facade of the package
        return len(ROOMS.get(package, ()))
    return next((n for n, rooms in enumerate(ROOMS.get(package, ())) if room in rooms), 0)


def room_offences(source: Source, by_module: dict[str, Source]) -> Iterator[tuple[int, str]]:
    if source.package not in ROOMS:
        return
    for line, target in source.imports():
        other = by_module.get(target) or by_module.get(target.rpartition(".")[0])
        if other is not None and other.package == source.package and floor(other.path) > floor(source.path):
            yield line, f"imports {other.module}, from a room above"


def workspace_offences(source: Source, by_module: dict[str, Source]) -> Iterator[tuple[int, str]]:
    for line, target in source.imports():
        other = by_module.get(target) or by_module.get(target.rpartition(".")[0])
        if other is None or source.package != "actors" or other.package != "actors":
            continue
        if fnmatch(source.path, WORKSPACES) and other.path.split("/")[1] in APART_FROM_WORKSPACES:
            yield line, f"is of the workspaces and imports {other.module}"
        if fnmatch(other.path, WORKSPACES) and not any(fnmatch(source.path, user) for user in USERS_OF_WORKSPACES):
            yield line, f"imports {other.module}, which only {USERS_OF_WORKSPACES[-1]} may"


def starting_offences(source: Source) -> Iterator[tuple[int, str]]:
    if source.package != "actors" or source.path in STARTERS:
        return
    for line, target in source.imports():
        if target.split(".")[0] in {"subprocess", "multiprocessing"}:
            yield line, f"imports {target}, and programs are started by {', '.join(STARTERS)}"
    for node in ast.walk(source.tree):
        name = name_of(node).split(".")[-1] if isinstance(node, (ast.Name, ast.Attribute)) else ""
        by_os = name_of(node).startswith("os.") and name.startswith(("exec", "spawn", "posix_spawn", "fork", "system"))
        if name in STARTS or by_os:
            yield node.lineno, f"names {name_of(node)}, and programs are started by {', '.join(STARTERS)}"


def path_offences(source: Source) -> Iterator[tuple[int, str]]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and name_of(node) == "sys.path":
            yield node.lineno, "touches sys.path"
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "../shared" in node.value:
            yield node.lineno, "names a file outside the repository"


def purity_offences(source: Source) -> Iterator[tuple[int, str]]:
    if not source.pure:
        return
    clocks = {"datetime", "date", "uuid"}
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.AsyncFunctionDef, *AWAITING)):
            yield node.lineno, f"is sans-IO and has {type(node).__name__}"
        elif isinstance(node, ast.comprehension) and node.is_async:
            yield node.target.lineno, "is sans-IO and has an async comprehension"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_BUILTINS:
            yield node.lineno, f"is sans-IO and calls {node.func.id}()"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in IMPURE_NAMES:
            yield node.lineno, f"is sans-IO and calls {name_of(node.func)}()"
        elif isinstance(node, ast.Attribute) and node.attr in IMPURE_NAMES and clocks & {*name_of(node).split(".")}:
            yield node.lineno, f"is sans-IO and uses {name_of(node)}"


def reached_offences(source: Source, by_module: dict[str, Source]) -> Iterator[tuple[int, str]]:
    """A sans-IO module may lean on modules of ours outside the zone only as long as they do no I/O either.

    They may know trio's types (an exit reason knows `trio.Cancelled`) and declare async ports, but not await anything.
    """
    if not source.pure:
        return
    for line, target in source.imports():
        other = by_module.get(target) or by_module.get(target.rpartition(".")[0])
        if other is None or other.pure or other.package == "facade":
            continue
        impure = {name.split(".")[0] for _, name in other.imports()} & (IMPURE_MODULES - {"trio"})
        if impure:
            yield line, f"is sans-IO and imports {other.module}, which imports {', '.join(sorted(impure))}"
        if any(isinstance(node, AWAITING) for node in ast.walk(other.tree)):
            yield line, f"is sans-IO and imports {other.module}, which awaits"


def import_graph(modules: list[Source]) -> dict[str, dict[str, int]]:
    """Module -> the modules of ours that it imports, anywhere in it, with the line; `if TYPE_CHECKING` is no excuse."""
    names = {source.module for source in modules}
    graph: dict[str, dict[str, int]] = {}
    for source in modules:
        edges = graph[source.module] = {}
        for line, target in source.imports():
            other = target if target in names else target.rpartition(".")[0]
            if other in names and other != source.module:
                edges.setdefault(other, line)
    return graph


def circles(graph: Mapping[str, Mapping[str, int]]) -> list[set[str]]:
    """The sets of modules that reach each other (Tarjan's strongly connected components of two and more)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack, found = list[str](), list[set[str]]()

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in graph[module]:
            if other not in number:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            start = stack.index(module)
            circle = set(stack[start:])
            del stack[start:]
            if len(circle) > 1:
                found.append(circle)

    for module in graph:
        if module not in number:
            visit(module)
    return found


def circle_offences(modules: list[Source]) -> Iterator[str]:
    graph, paths = import_graph(modules), {source.module: source.path for source in modules}
    for circle in circles(graph):
        for module in sorted(circle):
            for other in sorted(circle & graph[module].keys()):
                yield f"{paths[module]}:{graph[module][other]}: imports {other}, which leads back: an import circle"


def violations(root: Path) -> list[str]:
    """One sentence for each offence below root, `path:line: what`."""
    modules = sources(root)
    by_module = {source.module: source for source in modules}
    found = set(circle_offences(modules))
    for source in modules:
        offences = [*import_offences(source), *path_offences(source), *purity_offences(source)]
        offences += [
            *work_offences(source),
            *process_offences(source),
            *room_offences(source, by_module),
            *reached_offences(source, by_module),
        ]
        offences += [*workspace_offences(source, by_module), *starting_offences(source)]
        found |= {f"{source.path}:{line}: {what}" for line, what in offences}
    return sorted(found)


def test_the_source_keeps_the_arrows_and_the_sans_io_zone(root: Path) -> None:
    """No module of the real tree breaks a rule of this file."""
    assert violations(root) == []


def test_no_folder_has_more_modules_than_a_room_holds_and_each_folder_has_a_floor(root: Path) -> None:
    """A new folder is given a floor; otherwise it would be in the lowest room, and its imports unguarded."""
    count = Counter(source.path.rpartition("/")[0] for source in sources(root))
    assert {folder: n for folder, n in count.items() if n > MOST_FILES} == {}
    for package, floors in ROOMS.items():
        rooms = {folder.split("/")[1] for folder in count if folder.startswith(f"{package}/")}
        assert rooms == set().union(*floors)


def test_the_rules_see_the_real_tree(root: Path) -> None:
    """A wrong folder name would make every rule above pass for want of modules."""
    seen = {source.package for source in sources(root)}
    assert seen == {*PACKAGES, "facade"}


CLEAN = {
    "actors/run/loop.py": "async def run(): ...\n",
    "transport/server/serve.py": "async def serve(): ...\n",
    "src/greenroom/__init__.py": "from greenroom.actors.contract.ids import RunId as RunId\n",
    "supervision/__init__.py": "",
    "supervision/exits.py": "import trio\nGone = trio.Cancelled\nclass Port:\n    async def get(self): ...\n",
    "supervision/mailbox.py": "import trio\nfrom . import refs\nasync def take():\n    await trio.sleep(1)\n",
    "supervision/refs.py": "import time\n",
    "actors/__init__.py": "",
    "actors/errors.py": "class GreenroomError(Exception): ...\n",
    "actors/contract/__init__.py": "",
    "actors/contract/ids.py": "import datetime\nfrom ..errors import GreenroomError\nAt = datetime.datetime\n",
    "actors/engine/step.py": "from greenroom.supervision import exits\nG = exits.Gone\ndef f(s):\n    return s.now\n",
    "actors/backends/dialect.py": "",
    "actors/permission/rules.py": "",
    "actors/workspaces/paths.py": "",
    "actors/models/http.py": "import httpx\nfrom ..contract.ids import RunId\n",
    "actors/stores/postgres/_sql.py": "import psycopg\n",
    "actors/stores/postgres/store.py": "from psycopg import sql\n",
    "actors/stores/sqlite/store.py": "import sqlite3\nfrom greenroom.supervision.mailbox import Mailbox\n",
    "actors/workspaces/git.py": "import subprocess\nimport trio\nRUN = trio.run_process\n",
    "actors/runtime/open_runtime.py": "from ..workspaces import git\n",
    "transport/__init__.py": "",
    "transport/bridge/trio_thread.py": "import asyncio\n",
    "transport/gateway.py": "import trio_websocket\nimport greenroom as gr\nfrom greenroom.actors import errors\n",
}

PLANTED = [
    ("supervision/x.py", "import greenroom.actors", "actors stands above it"),
    ("supervision/x.py", "from greenroom.transport.gateway import serve", "transport stands above it"),
    ("supervision/x.py", "from greenroom import actors", "actors stands above it"),
    ("supervision/x.py", "from ..actors import errors", "actors stands above it"),
    ("supervision/x.py", "from .. import transport", "transport stands above it"),
    ("supervision/deep/x.py", "def f():\n    from ...actors.errors import GreenroomError", "actors stands above it"),
    ("supervision/deep/__init__.py", "from ...actors import errors", "actors stands above it"),
    ("supervision/x.py", "import greenroom", "facade stands above it"),
    ("supervision/x.py", "from greenroom import Agent", "facade stands above it"),
    ("supervision/x.py", "import importlib\nimportlib.import_module('greenroom.actors')", "actors stands above it"),
    ("actors/x.py", "from greenroom.transport import serve", "transport stands above it"),
    ("actors/engine/x.py", "from ..processes import Taken", "is not to know of processes"),
    ("actors/contract/x.py", "from .. import processes", "is not to know of processes"),
    ("actors/replay/x.py", "import greenroom.actors.processes", "is not to know of processes"),
    ("actors/contract/x.py", "from ..engine.step import f", "from a room above"),
    ("actors/workspaces/x.py", "from ..permission.rules import Rule", "from a room above"),
    ("actors/permission/x.py", "from ..backends.dialect import Dialect", "from a room above"),
    ("actors/run/x.py", "from ..permission.rules import Rule", "is not to know of workspaces"),
    ("actors/engine/x.py", "from ..backends.dialect import Dialect", "is not to know of workspaces"),
    ("actors/backends/dialects/x.py", "import subprocess", "is sans-IO and imports subprocess"),
    ("actors/stores/x.py", "from ..workspaces import paths", "is not to know of workspaces"),
    ("actors/user_code/x.py", "from ..run.loop import run", "from a room above"),
    ("transport/gateway/x.py", "from ..server.serve import serve", "from a room above"),
    ("actors/workspaces/x.py", "from ..engine.step import f", "is of the workspaces"),
    ("actors/workspaces/x.py", "from ..stores.sqlite import store", "is of the workspaces"),
    ("actors/workspaces/tools/x.py", "from ...run.loop import run", "from a room above"),
    ("actors/tools/x.py", "from ..workspaces.git import Git", "from a room above"),
    ("actors/run/x.py", "from ..workspaces import git", "which only actors/runtime/open_runtime.py may"),
    ("actors/workspaces/x.py", "import subprocess", "programs are started by"),
    ("actors/workspaces/x.py", "import trio\nRUN = trio.run_process", "programs are started by"),
    ("actors/run/x.py", "import os\nos.execv('sh', [])", "programs are started by"),
    ("actors/run/x.py", "from trio.lowlevel import open_process\nopen_process('sh')", "programs are started by"),
    ("actors/x.py", "from ..transport.gateway import serve", "transport stands above it"),
    ("actors/run/x.py", "from ... import transport", "transport stands above it"),
    ("actors/x.py", "import greenroom as gr", "facade stands above it"),
    ("actors/x.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from greenroom import Run", "facade"),
    ("actors/x.py", "import supervision", "by its folder name"),
    ("actors/x.py", "from greenroom.actors.errors import GreenroomError", "of its own package, absolutely"),
    ("actors/run/x.py", "import greenroom.actors.errors", "of its own package, absolutely"),
    (
        "supervision/deep/x.py",
        "def f():\n    from greenroom.supervision import exits",
        "of its own package, absolutely",
    ),
    ("transport/x.py", "from actors.errors import GreenroomError", "by its folder name"),
    ("actors/contract/x.py", "import trio", "is sans-IO and imports trio"),
    ("actors/engine/x.py", "from time import monotonic", "is sans-IO and imports time"),
    ("actors/models/codecs/x.py", "import trio", "is sans-IO and imports trio"),
    ("actors/engine/deep/x.py", "import random", "is sans-IO and imports random"),
    ("actors/state/x.py", "import os.path", "is sans-IO and imports os"),
    ("supervision/strategy.py", "import socket", "is sans-IO and imports socket"),
    ("supervision/intensity.py", "import threading", "is sans-IO and imports threading"),
    ("transport/protocol/up.py", "import trio", "is sans-IO and imports trio"),
    ("transport/frontends/ai_sdk/encoder.py", "async def encode(): ...", "has AsyncFunctionDef"),
    ("actors/engine/x.py", "def f(xs):\n    return [x async for x in xs]", "async comprehension"),
    ("actors/contract/x.py", "from datetime import datetime\nAT = datetime.now()", "calls datetime.now()"),
    ("actors/contract/x.py", "import datetime as dt\nAT = dt.datetime.utcnow()", "calls dt.datetime.utcnow()"),
    ("actors/contract/x.py", "from datetime import date\nfactory = date.today", "uses date.today"),
    ("actors/contract/x.py", "from uuid import uuid4", "imports uuid.uuid4"),
    ("actors/contract/x.py", "def f(clock):\n    return clock.now()", "calls clock.now()"),
    ("actors/engine/x.py", "TEXT = open('x').read()", "calls open()"),
    ("actors/engine/x.py", "from greenroom.supervision.mailbox import take", "which awaits"),
    ("actors/engine/x.py", "from ...supervision import refs", "which imports time"),
    ("actors/run/x.py", "import httpx", "which only actors/models/http.py, actors/backends/a2a_http.py may"),
    ("actors/run/x.py", "import sqlite3", "which only actors/stores/* may"),
    (
        "actors/stores/sqlite/store.py",
        "import psycopg",
        "which only actors/stores/postgres/* may",
    ),
    ("actors/run/x.py", "from psycopg import Connection", "which only actors/stores/postgres/*"),
    ("actors/run/x.py", "from trio_websocket import open_websocket", "which only transport/* may"),
    ("transport/x.py", "from asyncio import sleep", "trio only"),
    ("src/greenroom/x.py", "import asyncio", "trio only"),
    ("transport/gateway/x.py", "def f():\n    import asyncio", "trio only"),
    ("actors/x.py", "import shared.design", "from outside the repository"),
    ("actors/x.py", "import sys\nsys.path.insert(0, '..')", "touches sys.path"),
    ("actors/x.py", "NOTES = '../shared/design'", "names a file outside"),
]


CIRCLES = [
    {"actors/x.py": "from . import y", "actors/y.py": "from .x import X"},
    {"actors/x.py": "from .y import Y", "actors/y.py": "def f():\n    from .x import X"},
    {"actors/x.py": "from .y import Y", "actors/y.py": "from .z import Z", "actors/z.py": "import greenroom.actors.x"},
    {
        "actors/x.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .deep.y import Y",
        "actors/deep/y.py": "from ..x import X",
    },
]


def plant(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def test_a_clean_tree_has_no_violations(tmp_path: Path) -> None:
    """The rules let pass what is allowed: types from datetime, a field called now, the owners of their libraries."""
    plant(tmp_path, CLEAN)
    assert violations(tmp_path) == []


@pytest.mark.parametrize(("path", "text", "words"), PLANTED)
def test_a_planted_violation_is_found(tmp_path: Path, path: str, text: str, words: str) -> None:
    """Each rule fails for a tree that is clean but for one offence, and names the file."""
    plant(tmp_path, CLEAN | {path: text + "\n"})
    found = violations(tmp_path)
    assert found, text
    assert all(one.startswith(f"{path}:") for one in found)
    assert any(words in one for one in found), found


@pytest.mark.parametrize("files", CIRCLES)
def test_a_planted_circle_is_found_whole(tmp_path: Path, files: dict[str, str]) -> None:
    """Each import of the circle is named, also one inside a function or for type checkers only."""
    plant(tmp_path, CLEAN | {path: text + "\n" for path, text in files.items()})
    found = [violation for violation in violations(tmp_path) if "circle" in violation]
    assert {one.split(":")[0] for one in found} == set(files)


def test_modules_side_by_side_that_share_an_import_are_no_circle() -> None:
    graph = {"a": {"c": 1}, "b": {"c": 1, "a": 2}, "c": {"d": 1}, "d": {}, "e": {"f": 1}, "f": {"e": 1}}
    assert circles(graph) == [{"e", "f"}]
