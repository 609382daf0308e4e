"""The documents are run: what they show is what happens, and what they name is there.

A ```python block is the file that its first line names (`# hello.py`). A ```console block is typed into a shell in the
folder of these files, in the order of the page, and prints what stands below each command; `...` stands for anything.
"""

import ast
import inspect
import os
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

import greenroom as gr
from greenroom.actors.errors import MAY_PASS, MODEL_ERROR_KINDS
from greenroom.actors.runtime.runtime import StartOptions
from greenroom.actors.tools.definition import ToolOptions

pytestmark = pytest.mark.no_cover

RUN = (
    "README.md",
    "docs/coming-from.md",
    "docs/tutorial.md",
    "docs/lifecycle.md",
    "docs/approvals.md",
    "docs/plugins.md",
    "docs/state.md",
    "docs/tasks.md",
    "docs/attachments.md",
    "docs/threads.md",
    "docs/child-runs.md",
    "docs/tools.md",
    "docs/toolsets.md",
    "docs/mcp.md",
    "docs/mcp-server.md",
    "docs/mcp-client.md",
    "docs/outputs.md",
    "docs/handoffs.md",
    "docs/models.md",
    "docs/policies.md",
    "docs/permission.md",
    "docs/coding-agents.md",
    "docs/remote-agents.md",
    "docs/evidence.md",
    "docs/workspaces.md",
    "docs/testing.md",
    "docs/options.md",
    "docs/client.md",
    "docs/asyncio.md",
    "docs/sign-in.md",
    "docs/asgi.md",
    "docs/deploy.md",
    "docs/acp.md",
    "docs/a2a.md",
    "docs/chaos.md",
    "docs/supervision.md",
    "docs/logging.md",
    "docs/embedding.md",
)
SHOWN_ONLY = ("sh", "mermaid", "text", "nginx", "dockerfile", "ini")
"""Languages of blocks that are not run here: installing is what `make package` tries, diagrams are generated, and a
judge runs nginx."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATIENCE = 240.0


def blocks(page: Path) -> Iterator[tuple[str, str, str]]:
    """(where, language, text) of each block."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        yield f"{page.name}:{text.count(chr(10), 0, found.start()) + 1}", found[1], found[2]


def save(folder: Path, where: str, text: str) -> None:
    name = re.match(r"# (\w+\.py)\n", text)
    assert name, f"{where}: the first line of a file names it"
    (folder / name[1]).write_text(text, encoding="utf-8")


def play(folder: Path, where: str, text: str) -> None:
    """Type each command, and compare what it prints."""
    commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE)
    assert commands, f"{where}: no command"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    for command, expected in commands:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=folder,
            # the plugin by its name: an environment may be older than its entry point, and two are one
            env=environment | {"PATH": path, "COLUMNS": "80", "PYTEST_PLUGINS": "pytest_greenroom"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        printed = done.stdout + done.stderr
        assert done.returncode == 0, f"{where}: {command}\n{printed}"
        # what a page shows is what a program prints; a warning in the log, on standard error, need not be part of it
        assert fits(expected, printed) or fits(expected, done.stdout), (
            f"{where}: {command}\nsays\n{expected}but prints\n{printed}"
        )


def fits(expected: str, printed: str) -> bool:
    pattern = ".*".join(map(re.escape, expected.strip().split("...")))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_every_block_of_the_page_does_what_the_page_says(root: Path, tmp_path: Path, page: str) -> None:
    ran = 0
    for where, language, text in blocks(root / page):
        if language == "python":
            save(tmp_path, where, text)
        elif language == "console":
            play(tmp_path, where, text)
            ran += 1
        else:
            assert language in SHOWN_ONLY, f"{where}: nobody runs a block of language {language!r}"
    assert ran


def test_an_output_that_differs_is_found(tmp_path: Path) -> None:
    play(tmp_path, "here", "$ echo one two\none ...\n$ echo three\nthree\n")
    with pytest.raises(AssertionError, match="but prints"):
        play(tmp_path, "here", "$ echo one\ntwo\n")
    with pytest.raises(AssertionError, match="exit"):
        play(tmp_path, "here", "$ exit 3\n")
    with pytest.raises(AssertionError, match="names it"):
        save(tmp_path, "here", "x = 1\n")


def test_every_link_of_the_pages_leads_somewhere(root: Path) -> None:
    missing = []
    for page in (*root.glob("*.md"), *(root / "docs").rglob("*.md")):
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        targets = re.findall(r'\]\(([^)\s]+)\)|src="([^"]+)"', text)
        paths = [(one or other).partition("#")[0] for one, other in targets if "://" not in one + other]
        missing += [f"{page.name}: {path}" for path in paths if not (page.parent / path).exists()]
    assert missing == []


def test_every_picture_is_on_a_page(root: Path) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (root / "README.md", *(root / "docs").glob("*.md")))
    assert [
        picture.name for picture in (root / "docs" / "images").iterdir() if f"images/{picture.name}" not in text
    ] == []


def test_the_page_of_the_console_has_every_key(root: Path) -> None:
    dialogs = (root / "transport" / "console" / "dialogs.js").read_text(encoding="utf-8")
    listed = re.search(r"const KEYS = \[(.*?)\n\];", dialogs, re.DOTALL)
    assert listed is not None
    keys = re.findall(r"^  \[\[(.*?)\],", listed[1], re.MULTILINE)
    assert len(keys) == 15
    page = (root / "docs" / "console.md").read_text(encoding="utf-8")
    rows = [re.findall(r"`(.+?)`", row) for row in re.findall(r"^\| (`[^|]*`) \|", page, re.MULTILINE)]
    assert rows == [re.findall(r'"(.+?)"', line) for line in keys]


@pytest.mark.parametrize(
    "options",
    [
        [field.alias for field in attrs.fields(gr.Agent) if field.init and field.kw_only],
        list(typing.get_type_hints(ToolOptions)),
        list(inspect.signature(gr.open_runtime).parameters),
        list(typing.get_type_hints(StartOptions)),
    ],
    ids=["Agent", "tool", "open_runtime", "start"],
)
def test_the_page_of_options_has_every_option(root: Path, options: list[str]) -> None:
    """With one line that runs; the few that need more than a line are explained."""
    text = (root / "docs" / "options.md").read_text(encoding="utf-8")
    code = "\n".join(block for _, language, block in blocks(root / "docs" / "options.md") if language == "python")
    explained = [name for name in ("clock", "loop", "may_join", "store") if f"`{name}=`" in text]
    assert [name for name in options if f"{name}=" not in code and name not in explained] == []


def test_the_page_of_models_has_every_kind_of_error(root: Path) -> None:
    text = (root / "docs" / "models.md").read_text(encoding="utf-8")
    asked_again = {
        kind for kind in MODEL_ERROR_KINDS if re.search(rf"^\| {kind} \|.*waits and asks again \|$", text, re.M)
    }
    ends = {kind for kind in MODEL_ERROR_KINDS if re.search(rf"^\| {kind} \|.*\| fails", text, re.M)}
    assert (asked_again, ends) == (set(MAY_PASS), set(MODEL_ERROR_KINDS) - MAY_PASS)


LONGEST_TOUR = 300
LONGEST_LINE = 100


def design_pages(root: Path) -> dict[str, str]:
    """Path -> text without blocks, of the tour of the design, its details and the decisions."""
    docs = root / "docs"
    pages = [docs / "design.md", *sorted((docs / "design").glob("*.md")), *sorted((docs / "decisions").glob("*.md"))]
    return {str(page.relative_to(root)): BLOCK.sub("", page.read_text(encoding="utf-8")) for page in pages}


def test_the_design_is_a_tour_of_few_and_short_lines(root: Path) -> None:
    lines = (root / "docs" / "design.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= LONGEST_TOUR
    assert [number for number, line in enumerate(lines, 1) if len(line) > LONGEST_LINE] == []


def test_the_tour_leads_to_each_page_of_the_design(root: Path) -> None:
    tour = (root / "docs" / "design.md").read_text(encoding="utf-8")
    details = [page.name for page in (root / "docs" / "design").glob("*.md")]
    assert [name for name in details if f"](design/{name})" not in tour] == []


def test_the_decisions_are_numbered_and_listed_in_their_order(root: Path) -> None:
    folder = root / "docs" / "decisions"
    names = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    titles = [(folder / name).read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for name in names]
    lines = [f"{title.replace('. ', '. [', 1)}]({name})" for title, name in zip(titles, names, strict=True)]
    page = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in page if re.match(r"\d+\. ", line)] == lines


def test_the_design_names_files_tests_and_names_that_exist(root: Path) -> None:
    """A page about the code goes stale first where it names it."""
    text = "\n".join(design_pages(root).values())
    quoted = re.findall(r"`([^`\n]+)`", text)
    paths = [word for word in quoted if re.fullmatch(r"[\w/.-]+/[\w.-]*|[\w/-]+/[\w.-]+\.\w+", word)]
    assert [path for path in paths if not (root / path).exists()] == []
    tests = [word for word in quoted if word.startswith("test_")]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (root / "tests").rglob("*.py"))
    assert tests
    assert [name for name in tests if f"def {name}(" not in sources] == []


FOREIGN = {"MockClock", "GeneratorExit", "KeyboardInterrupt", "SystemExit"}
"""Names of trio and Python in the design."""


def defined_names(root: Path) -> dict[str, set[str]]:
    """Class or constant of the packages -> what is defined in it or a base. The test models are not the subject."""
    found: dict[str, set[str]] = {}
    bases: list[tuple[str, str]] = []
    for path in (path for package in ("actors", "supervision", "transport") for path in (root / package).rglob("*.py")):
        if path.is_relative_to(root / "actors" / "testing"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                inner = [part for part in ast.walk(node) if part is not node]
                names = {part.name for part in inner if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
                names |= {
                    part.target.id
                    for part in inner
                    if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
                }
                found.setdefault(node.name, set()).update(names)
                bases += [(node.name, base.id) for base in node.bases if isinstance(base, ast.Name)]
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.setdefault(node.id, set())
    for name, base in bases:
        found[name] |= found.get(base, set())
    return found


def test_the_design_names_classes_that_exist(root: Path) -> None:
    """With what it says of them: `StepBuilder.put` is a method of that class."""
    text = "\n".join(design_pages(root).values())
    named = re.findall(r"`(?:gr\.)?([A-Z][a-z]\w*)(?:\.(\w+))?(?:\([^`]*\))?`", text)
    known = defined_names(root)
    assert len(named) > 60
    assert sorted({name for name, _ in named} - known.keys() - FOREIGN) == []
    assert [f"{name}.{part}" for name, part in named if part and name in known and part not in known[name]] == []
