"""The house itself is tested: links, docstrings, sizes, and that the documents say what the files say."""

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts.helpers import helpers

pytestmark = pytest.mark.no_cover

PACKAGES = ("actors", "supervision", "transport")
LONGEST_FUNCTION = 60
LONGEST_MODULE = 600
MOST_ANY = 12
"""Uses of Any in 1,000 lines that are not blank, per package; h11 and httpcore have 5, trio 2."""
Defined = ast.FunctionDef | ast.AsyncFunctionDef


def modules(root: Path, *folders: str) -> list[Path]:
    """All modules in the folders and the facade's own; links are not followed, so each comes once."""
    found = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    return found + sorted((root / "src" / "greenroom").glob("*.py"))


def docstring_lines(node: Defined) -> int:
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return (first.end_lineno or first.lineno) - first.lineno + 1
    return 0


def too_long(path: Path) -> Iterator[str]:
    """Modules over the limit, and functions whose lines without their docstring are."""
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines > LONGEST_MODULE:
        yield f"{path}: {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Defined):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1 - docstring_lines(node)
            if lines > LONGEST_FUNCTION:
                yield f"{path}:{node.lineno}: {node.name} has {lines} lines"


def test_every_link_is_relative_and_leads_somewhere(root: Path) -> None:
    """An absolute link works on the machine where it was made and nowhere else."""
    for name in PACKAGES:
        link = root / "src" / "greenroom" / name
        assert link.is_symlink(), name
        assert os.readlink(link) == f"../../{name}"
        assert link.resolve() == root / name


def test_the_start_of_the_documents_names_every_page(root: Path) -> None:
    start = (root / "docs/README.md").read_text(encoding="utf-8")
    assert [page.name for page in (root / "docs").glob("[a-z]*.md") if f"]({page.name})" not in start] == []


def test_type_checkers_are_told_that_the_package_is_typed(root: Path) -> None:
    assert (root / "src" / "greenroom" / "py.typed").is_file()


def test_every_public_module_says_what_it_is(root: Path) -> None:
    """A module has a docstring unless some part of its path starts with an underscore."""
    mute = []
    for path in modules(root, *PACKAGES, "examples", "benchmarks"):
        parts = path.relative_to(root).parts
        private = any(part.startswith("_") and part != "__init__.py" and part != "__main__.py" for part in parts)
        if not private and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))):
            mute.append("/".join(parts))
    assert mute == []


def test_no_function_and_no_module_is_too_long(root: Path) -> None:
    """Over 60 lines a function is split, over 600 a module; the docstring of a function is free."""
    offenders = [line for path in modules(root, *PACKAGES, "examples", "benchmarks") for line in too_long(path)]
    assert offenders == []


def test_a_long_function_and_a_long_module_are_found(tmp_path: Path) -> None:
    """The check above can fail. A docstring makes no function too long, but a module."""
    body = "    x = 1\n" * LONGEST_FUNCTION
    path = tmp_path / "long.py"
    path.write_text(f"async def long():\n{body}", encoding="utf-8")
    assert [line.split(": ")[1] for line in too_long(path)] == ["long has 61 lines"]
    path.write_text(f'def short():\n    """{"words" * 9}\n' + "\n" * 700 + '    """\n    return 1\n', encoding="utf-8")
    assert [line.split(": ")[1] for line in too_long(path)] == ["704 lines"]
    path.write_text("x = 1\n" * LONGEST_MODULE, encoding="utf-8")
    assert list(too_long(path)) == []
    path.write_text("x = 1\n" * (LONGEST_MODULE + 1), encoding="utf-8")
    assert [line.split(": ")[1] for line in too_long(path)] == ["601 lines"]


def uses_of_any(paths: list[Path]) -> float:
    """Uses of Any in 1,000 lines that are not blank; the import of it is none."""
    texts = [path.read_text(encoding="utf-8") for path in paths]
    lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())
    nodes = (node for text in texts for node in ast.walk(ast.parse(text)))
    return 1_000 * sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes) / lines


@pytest.mark.parametrize("package", PACKAGES)
def test_types_are_said_where_they_are_known(root: Path, package: str) -> None:
    """What takes any value says object, JSON data has names of its own (`contract/plain.py`), and the rest is Any."""
    assert uses_of_any(sorted((root / package).rglob("*.py"))) <= MOST_ANY


def test_each_use_of_any_counts_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "loose.py"
    path.write_text(
        "from typing import Any\n\n\ndef f(x: Any, *y: list[Any]) -> 'str': ...\n\nz: Any = f\n", encoding="utf-8"
    )
    assert uses_of_any([path]) == 1_000


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_every_make_command_in_the_documents_exists(root: Path, document: str) -> None:
    """Whoever types what a document says must not hear that there is no such target."""
    targets = set(re.findall(r"^([a-z]+):", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", (root / document).read_text(encoding="utf-8"), re.MULTILINE))
    assert {"test"} <= named <= targets


def test_the_readme_names_the_two_commands_that_do_everything(root: Path) -> None:
    text = (root / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text
    assert "make test" in text


def test_the_python_in_the_readme_is_python(root: Path) -> None:
    """Each example compiles; the tutorial tests run them."""
    blocks = re.findall(r"^```python\n(.*?)^```", (root / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    for block in blocks:
        compile(block, "README.md", "exec")


def test_the_changelog_starts_with_the_version_of_the_package(root: Path) -> None:
    version = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    entries = re.findall(r"^## \[([^\]]+)\]", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert entries
    assert entries[0] == version


def test_no_document_and_no_module_names_a_place_on_somebodys_machine(root: Path) -> None:
    """Paths that exist on one machine only do not belong into the project."""
    place = re.compile("(?<![\\w.])/(?:" + "|".join(["root", "work"]) + ")/[a-z]")
    files = modules(root, *PACKAGES, "examples", "benchmarks", "tests", "scripts")
    files += [*root.glob("*.md"), *(root / "docs").rglob("*.md"), root / "Makefile", root / "pyproject.toml"]
    named = [
        f"{path.relative_to(root)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if place.search(line)
    ]
    assert named == []


def test_names_of_tests_are_the_same_in_every_process(request: pytest.FixtureRequest) -> None:
    """Processes share the tests by name (`make test`); an address in a name is another one in each of them."""
    assert [item.nodeid for item in request.session.items if re.search(r"0x[0-9a-f]{6}", item.nodeid)] == []


def test_no_class_name_is_used_twice(root: Path) -> None:
    """One name, one meaning (docs/glossary.md): a reader who searches for a class finds one class.

    But for `Rule`, of which the module says what it is about: `gr.ext.Rule` and `gr.mcp.Rule`; and for the facade on
    asyncio, whose classes stand for those of the same name.
    """
    homes: dict[str, list[str]] = {}
    for path in modules(root, *PACKAGES):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(f"{path.relative_to(root)}:{node.lineno}")
    twice = ("Rule", "Run", "RunReader", "Runtime")
    assert {name: places for name, places in homes.items() if len(places) > 1} == {name: homes[name] for name in twice}
    assert {len(homes[name]) for name in twice} == {2}
    assert all(homes[name][1].startswith("transport/aio/runtime.py") for name in twice[1:])


def test_every_name_in_code_of_the_glossary_exists(root: Path) -> None:
    """A word that lost its class, or whose class was renamed, is found."""
    text = (root / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| **")]
    named = {name for row in rows for name in re.findall(r"`([A-Z]\w+)(?:\.\w+)?`", row[3])}
    files = {name for row in rows for name in re.findall(r"`((?:\w+/)*\w+\.py)`", row[3])}
    code = "\n".join(path.read_text(encoding="utf-8") for path in modules(root, *PACKAGES))
    defined = set(re.findall(r"^class (\w+)|^([A-Z]\w+)(?=: TypeAlias|: Final| = )", code, re.MULTILINE))
    assert len(rows) > 50
    assert named <= {name for pair in defined for name in pair if name}
    paths = {str(path.relative_to(root)) for path in modules(root, *PACKAGES)}
    assert [name for name in files if not any(path.endswith(name) for path in paths)] == []


MOST_ONCE = 0.45
"""The greatest part of the private helpers that may be used exactly once; h11 has 0.40, trio 0.30."""


@pytest.mark.parametrize("rooms", [("engine",), ("services", "user_code", "run", "runtime")], ids="-".join)
def test_most_private_helpers_have_more_than_one_caller(root: Path, rooms: tuple[str, ...]) -> None:
    """A helper with one caller is a hand-over for the reader; some are worth it for their names."""
    found = helpers(*(root / "actors" / room for room in rooms))
    assert found.share <= MOST_ONCE, sorted(found.once)


def test_a_helper_with_one_caller_is_counted(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "def _a(): ...\n\n\ndef _b(): ...\n\n\ndef _b2(): ...\n\n\ndef __c(): ...\n\n\n_a()\n_a()\n_b()\n"
    )
    (tmp_path / "two.py").write_text("class C:\n    def _m(self):\n        self._m()\n\n    def n(self): ...\n")
    found = helpers(tmp_path)
    assert set(found.places) == {"_a", "_b", "_b2", "_m"}
    assert found.once == {"_b", "_m"}
    assert found.share == 0.5


BARE_REPRS = {"UNSET", "<hidden>"}
"""Reprs of a sentinel and of a value that is not shown, which say what they stand for and not their class."""


def misnamed_reprs(path: Path) -> Iterator[str]:
    """`file:line` of every `__repr__` that returns a text which begins with another name than the class's."""
    for owner in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(owner, ast.ClassDef):
            continue
        methods = [node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == "__repr__"]
        for node in (node for method in methods for node in ast.walk(method) if isinstance(node, ast.Return)):
            text = ast.unparse(node.value or ast.Constant(None)).lstrip("f").strip("'\"")
            named = re.match(rf"<?({owner.name.lstrip('_')}\b|{{type\(self\).__name__}})", text)
            if not named and text not in BARE_REPRS:
                yield f"{path}:{node.lineno} {owner.name}: {text}"


def test_a_repr_begins_with_the_name_of_its_class(root: Path) -> None:
    """A reader of a log or a debugger finds the class by the name that is shown."""
    assert [fault for path in modules(root, *PACKAGES) for fault in misnamed_reprs(path)] == []


def test_a_repr_with_another_name_is_found(tmp_path: Path) -> None:
    made = tmp_path / "made.py"
    wrong = "    def __repr__(self):\n        return f'<Roster of {self.name}>'\n"
    right = "    def __repr__(self):\n        return f'<Registry of {self.name}>'\n"
    made.write_text(f"class Registry:\n{wrong}\n\nclass _Registry:\n{right}\n\nclass RegistryOfRuns:\n{right}")
    assert [fault.split()[1] for fault in misnamed_reprs(made)] == ["Registry:", "RegistryOfRuns:"]


BROAD = {"Exception", "BaseException", "ExceptionGroup", "BaseExceptionGroup"}


def catches_all(handler: ast.ExceptHandler) -> bool:
    """True for a handler of every exception, or of everything that is no exit."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or (isinstance(kind, ast.Name) and kind.id in BROAD) for kind in kinds)


def without_reason(path: Path) -> Iterator[str]:
    """Broad handlers whose line, and the lines up to the first statement, have no comment but the name of a rule."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ExceptHandler) or not catches_all(node):
            continue
        comments = [line.partition("#")[2] for line in lines[node.lineno - 1 : node.body[0].lineno]]
        if not any(re.sub(r"^ (noqa|type: ignore)[^-]*(- )?", "", comment).strip() for comment in comments):
            yield f"{path}:{node.lineno}"


def test_a_handler_of_every_exception_says_why(root: Path) -> None:
    """`except Exception` belongs to a border of supervision or to clean-up; the reason is beside it."""
    found = modules(root, *PACKAGES, "benchmarks", "scripts", "examples")
    assert [fault for path in found if "node_modules" not in path.parts for fault in without_reason(path)] == []


def test_a_handler_without_a_reason_is_found(tmp_path: Path) -> None:
    path = tmp_path / "loose.py"
    shapes = {
        "except Exception:\n    pass": True,
        "except BaseException:  # noqa: BLE001\n    pass": True,
        "except (OSError, Exception):\n    pass": True,
        "except:\n    pass": True,
        "except Exception:  # noqa: BLE001 - why\n    pass": False,
        "except Exception:  # why\n    pass": False,
        "except BaseException:\n    # why\n    raise": False,
        "except OSError:\n    pass": False,
    }
    for handler, faulty in shapes.items():
        path.write_text(f"try:\n    pass\n{handler}\n", encoding="utf-8")
        assert list(without_reason(path)) == ([f"{path}:3"] if faulty else []), handler
