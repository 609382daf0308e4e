"""The script that runs flake8-async: the findings of the program itself, and each version of a file is judged once."""

import subprocess
import sys
from pathlib import Path

import pytest
from scripts import async_rules

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
HARMLESS = "def f(a, b):\n    return a + b\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("faults.py", FAULTS), ("synchronous.py", SYNCHRONOUS), ("harmless.py", HARMLESS)):
        (tmp_path / name).write_text(text)
    return tmp_path


def judged(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    code = async_rules.main(arguments)
    return code, capsys.readouterr().out.splitlines()


@pytest.mark.slow
def test_the_findings_are_those_of_the_program_itself(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted(file.name for file in folder.iterdir())
    command = [sys.executable, "-m", "flake8_async", *OPTIONS, *files]
    expected = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    code, found = judged(capsys, *OPTIONS, *files)
    assert (code, found) == (expected.returncode, expected.stdout.splitlines())
    rules = {rule for line in found for rule in line.split() if rule.startswith("ASYNC")}
    assert rules >= {"ASYNC103", "ASYNC110", "ASYNC123", "ASYNC913"}


@pytest.mark.slow
def test_a_file_with_findings_is_judged_until_the_findings_are_gone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = judged(capsys, *OPTIONS, "faults.py")
    assert first[0] == 1
    assert judged(capsys, *OPTIONS, "faults.py") == first
    (folder / "faults.py").write_text(HARMLESS)
    assert judged(capsys, *OPTIONS, "faults.py") == (0, [])


@pytest.mark.slow
def test_content_that_is_remembered_is_not_judged_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = async_rules.digests(async_rules.parsed([*OPTIONS, "faults.py"]))
    async_rules.MEMORY.write_text(known["faults.py"])
    assert judged(capsys, *OPTIONS, "faults.py") == (0, [])
    (folder / "faults.py").write_text(FAULTS + "# changed\n")
    assert judged(capsys, *OPTIONS, "faults.py")[0] == 1


@pytest.mark.slow
def test_other_options_judge_a_clean_file_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(capsys, "--enable", "ASYNC118", "faults.py") == (0, [])
    assert judged(capsys, *OPTIONS, "faults.py")[0] == 1
