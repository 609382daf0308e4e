"""A pytest plugin that tests mutants in forks of one session, which has imported and collected everything once.

    python -m pytest -q -s -p scripts.mutant_forks --mutants PLAN.json TESTS

The plan is a list of {"name", "path", "line", "source", "tests", "limit"}. For each mutant the session forks. The
fork puts the code of the changed function in the place of the present one, runs the tests in the order of the plan up
to the first failure, and ends. One line of JSON per mutant is printed: its name, a verdict (killed, survived, or
"elsewhere": the change is in no function that lives) and the reason.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

FULL = os.environ.get("GREENROOM_CHAOS") == "full"


def pytest_addoption(parser: pytest.Parser) -> None:
    """One option."""
    parser.addoption("--mutants", type=Path, required=True, help="a file with the plan")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Test the mutants instead of the program."""
    items = {item.nodeid: item for item in session.items}
    gc.freeze()  # the forks share what is here now
    for mutant in json.loads(session.config.getoption("--mutants").read_text("utf-8")):
        began = time.monotonic()
        tests = [items[name] for name in mutant["tests"] if name in items]
        if FULL:
            functions = {name.partition("[")[0] for name in mutant["tests"]}
            tests += [one for name, one in items.items() if name.partition("[")[0] in functions and one not in tests]
        verdict, why = tested(mutant, tests)
        line = {"name": mutant["name"], "verdict": verdict, "why": why, "seconds": time.monotonic() - began}
        print(f"\n{json.dumps(line)}", flush=True)
    return True


def tested(mutant: Mapping[str, Any], items: Sequence[Any]) -> tuple[str, str]:
    """Test a mutant in a fork."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        try:
            os.write(writing, json.dumps(in_fork(mutant, items)).encode()[:4_000])
        finally:
            os._exit(0)  # the fork must not become a second session
    os.close(writing)
    deadline = time.monotonic() + mutant["limit"]
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            break
        time.sleep(0.05)  # noqa: TID251 - no trio here
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        output = pipe.read()
    if not output:
        return "killed", "the tests hang, or the process dies"
    verdict, why = json.loads(output)
    return verdict, why


def in_fork(mutant: Mapping[str, Any], items: Sequence[Any]) -> tuple[str, str]:
    """Change the function, and run the tests up to the first failure."""
    if not replaced(mutant["path"], mutant["source"], mutant["line"]):
        return "elsewhere", ""
    for item, following in zip(items, [*items[1:], None], strict=True):
        for report in runtestprotocol(item, log=False, nextitem=following):
            if report.failed:
                return "killed", item.nodeid
    return "survived", ""


def replaced(path: str, source: str, line: int) -> bool:
    """Put the code of the function around a line in the place of the present one; False if none lives."""
    functions = [one for one in gc_functions() if one.__code__.co_filename.endswith(path)]
    name = functions[0].__code__.co_filename if functions else path
    done = False
    for code in codes(compile(source, name, "exec", dont_inherit=True)):
        if not code.co_firstlineno <= line <= max(number or 0 for _, _, number in lines(code)):
            continue
        for function in functions:
            now = function.__code__
            if (now.co_qualname, now.co_firstlineno) == (code.co_qualname, code.co_firstlineno) and now != code:
                function.__code__ = code
                done = True
    return done


def gc_functions() -> list[FunctionType]:
    """All functions that live."""
    gc.unfreeze()
    return [one for one in gc.get_objects() if isinstance(one, FunctionType)]


def codes(code: CodeType) -> Iterator[CodeType]:
    """The outermost functions of a module: those of the module and of its classes."""
    for inner in code.co_consts:
        if not isinstance(inner, CodeType):
            continue
        if inner.co_flags & 0x2:  # CO_NEWLOCALS: a function, not the body of a class
            yield inner
        else:
            yield from codes(inner)


def lines(code: CodeType) -> Iterator[tuple[int, int, int | None]]:
    """The lines of a function, with those of the functions inside it."""
    yield from code.co_lines()
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from lines(inner)
