"""How many planted faults the tests find: random mutants of the engine and of the code that drives it.

    python -m scripts.mutants --notes NOTES                100 mutants, in a copy of the tree, with the tests below
    python -m scripts.mutants --notes NOTES --seed 7 --count 20
    python -m scripts.mutants --notes NOTES --only 12      one mutant again
    GREENROOM_CHAOS=full python -m scripts.mutants ...     also the cases that a session leaves out

A mutant is the source with one small change at one place: a comparison or a condition turned round, `and` for `or`, a
number off by one, True for False, a statement left out. The same seed draws the same mutants of the same source. A
mutant on which the tests hang counts as killed. Some survivors mean the same as the source: the numbers compare two
sets of tests.

Only tests that call the changed function can find a mutant. `NOTES` is a file with the functions that each test calls;
it is made first if it is missing (`touched.py`; one run of all tests), and is good for one state of the source. A
mutant is tested in a fork of a session that has collected all tests (`mutant_forks.py`): first one case of each test
function, the quick ones first; `--most 150` for a quick look, and `--only` for its survivors. A change outside of
functions is tested in a process of its own, with all tests.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("actors/engine", "actors/run")
TESTS: Final = ("tests/unit/engine", "tests/unit/run", "tests/conformance")
LIMIT: Final = 3_600.0
"""Seconds after which the tests of a mutant count as hanging: several times what they take on a busy machine."""
OTHER: Final[dict[type, str]] = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip


@attrs.frozen
class Mutant:
    """A file with another text between two offsets of its bytes."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {' '.join(self.old.split())[:60]} -> {' '.join(self.new.split())[:60]}"

    def applied(self, source: bytes) -> bytes:
        """The source with the change in it."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def changed(node: ast.AST) -> Iterator[str]:
    """What may stand in the place of a node; nothing for most."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield f"({ast.unparse(left)} {OTHER[type(operator)]} {ast.unparse(right)})"
        case ast.BoolOp(op=operator, values=values):
            word = " or " if isinstance(operator, ast.And) else " and "
            yield f"({word.join(f'({ast.unparse(value)})' for value in values)})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            yield str(not value)
        case ast.Constant(value=int() as value):
            yield str(value + 1)
        case ast.Return(value=ast.expr()):
            yield "return None"
        case ast.Expr(value=ast.Call() | ast.Await() | ast.YieldFrom()) | ast.AugAssign():
            yield "pass"
        case _:
            pass


def mutants(path: str, source: bytes) -> Iterator[Mutant]:
    """Every mutant of a file."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    places = [(node, new) for node in ast.walk(tree) for new in changed(node)]
    conditions = (node.test for node in ast.walk(tree) if isinstance(node, ast.If | ast.IfExp | ast.While))
    places += [(test, f"(not ({ast.unparse(test)}))") for test in conditions if not isinstance(test, ast.Compare)]
    for node, new in places:
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        if ast.unparse(node) != new and same(node, source[start:end]):
            yield Mutant(path, node.lineno, start, end, ast.unparse(node), new)


def same(node: ast.AST, text: bytes) -> bool:
    """Whether the text is that of the node: inside of an f-string the offsets of a node are not those of the file."""
    try:
        return ast.unparse(ast.parse(text.strip())) == ast.unparse(node)
    except SyntaxError:
        return False


def drawn(root: Path, seed: int, count: int) -> list[Mutant]:
    """So many mutants of the folders."""
    files = sorted(file for folder in FOLDERS for file in (root / folder).rglob("*.py"))
    all_mutants = [mutant for file in files for mutant in mutants(file.relative_to(root).as_posix(), file.read_bytes())]
    return random.Random(seed).sample(all_mutants, min(count, len(all_mutants)))  # noqa: S311 - the seed is the point


def copy_of(root: Path, place: Path) -> Path:
    """A copy of the files that git knows, links as links."""
    command = ["git", "ls-files", "-z"]
    listing = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)  # noqa: S603
    for name in filter(None, listing.stdout.split("\0")):
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, target, follow_symlinks=False)
    return place


def pytest_command(*arguments: str) -> list[str]:
    """How pytest is called in a tree."""
    return [sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "no:cacheprovider", *arguments]


def environment(tree: Path, **more: str) -> dict[str, str]:
    """What pytest is called with."""
    return {**os.environ, "PYTHONPATH": f"{tree / 'src'}", "PYTHONDONTWRITEBYTECODE": "1", **more}


def failure(tree: Path) -> str:
    """What all tests fail with in a tree: the last such line of pytest's; empty if they pass."""
    command = pytest_command("-x", *TESTS)
    try:
        done = subprocess.run(  # noqa: S603
            command, cwd=tree, env=environment(tree), capture_output=True, text=True, check=False, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return "they hang"
    if done.returncode == 0:
        return ""
    failures = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))]
    return (failures or done.stderr.splitlines() or ["?"])[-1]


def noted(tree: Path, file: Path) -> Any:
    """The functions that each test calls, and its seconds."""
    if not file.exists():
        command = pytest_command("-p", "scripts.touched", *TESTS)
        into = environment(tree, GREENROOM_TOUCHED=str(file.absolute()))
        subprocess.run(command, cwd=tree, env=into, check=True)  # noqa: S603
    return json.loads(file.read_text("utf-8"))


def function_at(path: str, source: bytes, line: int) -> str | None:
    """The innermost function around a line, as `touched.py` names it."""
    around = [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return f"{path}:{max(around)}" if around else None


def in_turn(tests: Sequence[str], seconds: Mapping[str, float]) -> list[str]:
    """One case of each test function first; the quick ones first."""
    quick = sorted(tests, key=lambda name: seconds[name])
    first = {name.partition("[")[0]: name for name in reversed(quick)}
    return sorted(quick, key=lambda name: first[name.partition("[")[0]] != name)


def plan_of(by_number: Mapping[int, Mutant], tree: Path, notes: Any, most: int | None) -> list[dict[str, Any]]:
    """What `mutant_forks.py` is to do."""
    plan = []
    for number, mutant in by_number.items():
        source = (tree / mutant.path).read_bytes()
        function = function_at(mutant.path, source, mutant.line)
        tests = in_turn(notes["functions"].get(function, ()), notes["tests"])[:most]
        plan.append({
            "name": number, "path": mutant.path, "line": mutant.line, "source": mutant.applied(source).decode(),
            "tests": tests, "limit": 120.0 + 5 * sum(notes["tests"][name] for name in tests),
        })  # fmt: skip
    return plan


def results(plan: list[dict[str, Any]], tree: Path) -> Iterator[dict[str, Any]]:
    """What became of each mutant of a plan, one after the other."""
    file = tree / "plan.json"
    file.write_text(json.dumps(plan), "utf-8")
    command = pytest_command("-s", "--timeout", "120", "-p", "scripts.mutant_forks", "--mutants", str(file), *TESTS)
    with subprocess.Popen(command, cwd=tree, env=environment(tree), stdout=subprocess.PIPE, text=True) as session:  # noqa: S603
        assert session.stdout is not None  # noqa: S101
        yield from (json.loads(line) for line in session.stdout if line.startswith("{"))


def told(number: int, mutant: Mutant, why: str, seconds: float) -> bool:
    """Print what became of a mutant; `why` is empty if it survived."""
    print(f"{number:3} {'killed' if why else 'SURVIVED':8} {seconds:6.1f} s  {mutant}  {why}", flush=True)
    return bool(why)


def main() -> int:
    """Test the mutants one after the other, and print what became of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--only", type=int, nargs="*", help="the numbers of the mutants to test")
    parser.add_argument("--list", action="store_true", help="print the mutants and test none")
    parser.add_argument("--most", type=int, help="tests per mutant; the others would hardly find it")
    parser.add_argument("--notes", type=Path, default=Path("mutants.json"), help="made if there is none")
    options = parser.parse_args()
    drew = dict(enumerate(drawn(ROOT, options.seed, options.count)))
    by_number = {number: mutant for number, mutant in drew.items() if options.only is None or number in options.only}
    if options.list:
        print(*(f"{number:3} {mutant}" for number, mutant in by_number.items()), sep="\n")
        return 0
    kills, elsewhere = 0, list[int]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = copy_of(ROOT, Path(folder))
        for result in results(plan_of(by_number, tree, noted(tree, options.notes), options.most), tree):
            number = result["name"]
            if result["verdict"] == "elsewhere":
                elsewhere.append(number)
            else:
                kills += told(number, by_number[number], result["why"], result["seconds"])
        for number in elsewhere:
            mutant, began = by_number[number], time.monotonic()
            file = tree / mutant.path
            source = file.read_bytes()
            file.write_bytes(mutant.applied(source))
            why = failure(tree)
            file.write_bytes(source)
            kills += told(number, mutant, why, time.monotonic() - began)
    print(f"seed {options.seed}: {kills} of {len(by_number)} killed", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
