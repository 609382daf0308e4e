"""The script that runs flake8-async: the findings of the program itself, and each version of a file is judged once."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.no_cover

OPTIONS = ("--enable", "ASYNC", "--disable", "ASYNC124")
FAULTS = """
import trio


async def polls():
    while not done():
        await trio.sleep(1)


async def swallows():
    try:
        await trio.sleep(1)
    except BaseException:
        pass


async def endless():
    while True:
        pass


async def pardoned():
    while True:  # noqa: ASYNC913
        pass
"""
SYNCHRONOUS = """
def swallows():
    try:
        work()
    except:
        pass


def takes_one():
    try:
        work()
    except* ValueError as group:
        raise group.exceptions[0]
"""
Judged = Callable[..., tuple[int, list[str]]]
HARMLESS = "def f(a, b):\n    return a + b\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("faults.py", FAULTS), ("synchronous.py", SYNCHRONOUS), ("harmless.py", HARMLESS)):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def rules() -> ModuleType:
    """The script. The import takes half a second: it is not for each process that collects this file."""
    from scripts import async_rules

    return async_rules


@pytest.fixture
def judged(rules: ModuleType, folder: Path, capsys: pytest.CaptureFixture[str]) -> Judged:
    """Run the script in the folder; returns the exit code and the lines."""

    def run(*arguments: str) -> tuple[int, list[str]]:
        code = rules.main(arguments)
        return code, capsys.readouterr().out.splitlines()

    return run


@pytest.mark.slow
def test_the_findings_are_those_of_the_program_itself(folder: Path, judged: Judged) -> None:
    files = sorted(file.name for file in folder.iterdir())
    command = [sys.executable, "-m", "flake8_async", *OPTIONS, *files]
    expected = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    code, found = judged(*OPTIONS, *files)
    assert (code, found) == (expected.returncode, expected.stdout.splitlines())
    rules = {rule for line in found for rule in line.split() if rule.startswith("ASYNC")}
    assert rules >= {"ASYNC103", "ASYNC110", "ASYNC123", "ASYNC913"}


@pytest.mark.slow
def test_a_file_with_findings_is_judged_until_the_findings_are_gone(folder: Path, judged: Judged) -> None:
    first = judged(*OPTIONS, "faults.py")
    assert first[0] == 1
    assert judged(*OPTIONS, "faults.py") == first
    (folder / "faults.py").write_text(HARMLESS)
    assert judged(*OPTIONS, "faults.py") == (0, [])


@pytest.mark.slow
def test_content_that_is_remembered_is_not_judged_again(rules: ModuleType, folder: Path, judged: Judged) -> None:
    known = rules.digests(rules.parsed([*OPTIONS, "faults.py"]))
    rules.MEMORY.write_text(known["faults.py"])
    assert judged(*OPTIONS, "faults.py") == (0, [])
    (folder / "faults.py").write_text(FAULTS + "# changed\n")
    assert judged(*OPTIONS, "faults.py")[0] == 1


@pytest.mark.slow
def test_other_options_judge_a_clean_file_again(judged: Judged) -> None:
    assert judged("--enable", "ASYNC118", "faults.py") == (0, [])
    assert judged(*OPTIONS, "faults.py")[0] == 1
