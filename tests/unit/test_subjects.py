"""Subjects of commits: which are faulty, and which commits are judged (scripts/subjects.py)."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.subjects import faults

pytestmark = pytest.mark.no_cover


@pytest.mark.parametrize(
    "message",
    [
        "Add a door",
        "Embed the runtime in a page",
        "Pass the claim on",
        "Process commands in order\n\nThe reason.\n# a comment of git",
        "Merge branch 'rooms' of a very long address that is longer than seventy-two characters can be",
        'Revert "added a door."',
    ],
)
def test_an_imperative_subject_has_no_fault(message: str) -> None:
    assert list(faults(message)) == []


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("Added a door", "imperative"),
        ("Adding a door", "imperative"),
        ("Adds a door", "imperative"),
        ("The door opens", "imperative"),
        ("add a door", "capital"),
        ("", "capital"),
        ("Door: add a handle", "prefix"),
        ("Add a door.", "full stop"),
        ("Add " + "a" * 69, "73 characters"),
        ("Add a door\nThe reason.", "second line"),
    ],
)
def test_the_fault_of_a_subject_is_named(message: str, fault: str) -> None:
    found = list(faults(message))
    assert len(found) == 1
    assert fault in found[0]


@pytest.fixture
def repository(root: Path, tmp_path: Path) -> Path:
    """A repository whose first commit has another style, and whose second one adds the script."""
    folder = tmp_path / "project"
    (folder / "scripts").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, "old style.")
    shutil.copy(root / "scripts" / "subjects.py", folder / "scripts")
    commit(folder, "check subjects.")
    return folder


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "core.hooksPath=none"]
    subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, check=True)


def commit(folder: Path, subject: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", subject)


def check(folder: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, str(folder / "scripts" / "subjects.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_only_commits_after_the_script_are_judged(repository: Path) -> None:
    assert check(repository) == (0, "subjects: 0 commits, 0 faulty\n")
    commit(repository, "Add a door")
    assert check(repository) == (0, "subjects: 1 commits, 0 faulty\n")
    commit(repository, "added a door")
    code, said = check(repository)
    assert code == 1
    assert "added a door\n  begin with a capital letter" in said


def test_a_merge_and_the_older_branch_that_it_brings_are_not_judged(repository: Path) -> None:
    git(repository, "checkout", "-q", "-b", "older", "HEAD~1")
    commit(repository, "written before the rule.")
    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "older")
    assert check(repository) == (0, "subjects: 0 commits, 0 faulty\n")


def test_a_clone_without_the_history_is_not_judged(repository: Path, tmp_path: Path) -> None:
    commit(repository, "Add a door")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    assert check(tmp_path / "shallow") == (0, "subjects: not checked, the clone is shallow\n")
    shutil.rmtree(tmp_path / "shallow" / ".git")
    assert check(tmp_path / "shallow") == (0, "subjects: not checked, there is no history\n")


def test_the_hook_refuses_a_faulty_message(repository: Path, tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text("added a door\n", encoding="utf-8")
    assert check(repository, str(message))[0] == 1
    message.write_text("Add a door\n", encoding="utf-8")
    assert check(repository, str(message)) == (0, "")


def test_the_hooks_call_scripts_that_exist(root: Path) -> None:
    text = (root / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert "entry: python3 scripts/subjects.py" in text
    assert "stages: [commit-msg]" in text
    assert (root / "scripts" / "subjects.py").is_file()
