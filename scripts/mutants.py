"""How many planted faults the tests find: random mutants of the engine and of the code that drives it.

    python -m scripts.mutants                              100 mutants, in a copy of the tree, with the tests below
    python -m scripts.mutants --seed 7 --count 20 -- -n 2  another draw; what follows -- is for pytest
    python -m scripts.mutants --only 12 -- tests/chaos     one mutant again, with other tests
    GREENROOM_CHAOS=full python -m scripts.mutants         all sweeps, all stores in all modes

A mutant is the source with one small change at one place: a comparison or a condition turned round, `and` for `or`, a
number off by one, True for False, a statement left out. The same seed draws the same mutants of the same source. A
mutant on which the tests hang counts as killed. Some survivors mean the same as the source: the numbers compare two
sets of tests.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("actors/engine", "actors/run")
TESTS: Final = ("tests/unit/engine", "tests/unit/run", "tests/conformance")
"""Asked one after the other, the quick ones first."""
LIMIT: Final = 1_800.0
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
    found = [mutant for file in files for mutant in mutants(file.relative_to(root).as_posix(), file.read_bytes())]
    return random.Random(seed).sample(found, min(count, len(found)))  # noqa: S311 - the seed is the point


def copy_of(root: Path, place: Path) -> Path:
    """A copy of the files that git knows, links as links."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)  # noqa: S603
    for name in filter(None, listed.stdout.split("\0")):
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, target, follow_symlinks=False)
    return place


def failure(tree: Path, arguments: list[str]) -> str:
    """What the tests fail with in a tree: the last such line of pytest's; empty if they pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(  # noqa: S603
            command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return "they hang"
    if done.returncode == 0:
        return ""
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR", "E  "))]
    return (failed or done.stderr.splitlines() or ["?"])[-1]


def main() -> int:
    """Test the mutants one after the other, and print what became of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--only", type=int, nargs="*", help="the numbers of the mutants to test")
    parser.add_argument("--list", action="store_true", help="print the mutants and test none")
    parser.add_argument("pytest", nargs="*", help="tests and options for pytest, after --")
    options = parser.parse_args()
    found = drawn(ROOT, options.seed, options.count)
    chosen = [number for number in range(len(found)) if options.only is None or number in options.only]
    if options.list:
        print(*(f"{number:3} {found[number]}" for number in chosen), sep="\n")
        return 0
    stages = [options.pytest] if options.pytest else [[tests] for tests in TESTS]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = copy_of(ROOT, Path(folder))
        killed = 0
        for number in chosen:
            mutant, began = found[number], time.monotonic()
            file = tree / mutant.path
            source = file.read_bytes()
            file.write_bytes(mutant.applied(source))
            why = next((why for tests in stages if (why := failure(tree, tests))), "")
            file.write_bytes(source)
            killed += bool(why)
            verdict = "killed" if why else "SURVIVED"
            print(f"{number:3} {verdict:8} {time.monotonic() - began:6.1f} s  {mutant}  {why}", flush=True)
        print(f"seed {options.seed}: {killed} of {len(chosen)} killed", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
