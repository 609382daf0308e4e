"""The release before the fourth level is found in a whole history; elsewhere a sentence says what is missing."""

import subprocess
from pathlib import Path

import pytest

from .releases import FOURTH, SCHEMA, tree_before_the_fourth_level


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=tests", "-c", "user.email=tests@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def commit(folder: Path, files: dict[str, str]) -> None:
    """Write files and commit them; the folders that every release has are there."""
    for name in ("actors/a", "supervision/a", "transport/a", "src/a", "tests/a", "scripts/a"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "files")


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A repository whose third commit brings the level, and whose fourth moves its file."""
    folder = tmp_path / "history"
    folder.mkdir()
    git(folder, "init", "--quiet")
    commit(folder, {"README.md": "-"})
    commit(folder, {SCHEMA: "first"})
    commit(folder, {SCHEMA: f"first, {FOURTH}"})
    (folder / SCHEMA).unlink()
    commit(folder, {"actors/stores/moved.py": f"first, {FOURTH}"})
    return folder


def found(root: Path, tmp_path: Path) -> Path | str:
    place = tmp_path / "place"
    place.mkdir()
    return tree_before_the_fourth_level(root, place)


def test_a_whole_history_has_it_wherever_the_file_is_today(history: Path, tmp_path: Path):
    tree = found(history, tmp_path)
    assert isinstance(tree, Path)
    assert (tree / SCHEMA).read_text() == "first"


def test_a_shallow_clone_says_how_to_get_it(history: Path, tmp_path: Path):
    git(tmp_path, "clone", "--quiet", "--depth", "1", history.as_uri(), "shallow")
    assert "shallow clone" in str(found(tmp_path / "shallow", tmp_path))


def test_a_source_tree_has_no_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert "not a git repository" in str(found(tmp_path, tmp_path))


def test_a_source_tree_in_the_repository_of_something_else_has_none(history: Path, tmp_path: Path):
    inner = history / "vendored"
    inner.mkdir()
    assert "no repository of its own" in str(found(inner, tmp_path))


@pytest.mark.parametrize("before", [None, {"README.md": "-"}])
def test_a_history_that_begins_with_the_level_lacks_it(before: dict[str, str] | None, tmp_path: Path):
    folder = tmp_path / "late"
    folder.mkdir()
    git(folder, "init", "--quiet")
    if before is not None:
        commit(folder, before)
    commit(folder, {SCHEMA: FOURTH})
    assert "begins after" in str(found(folder, tmp_path))


def test_without_the_program_it_is_said(history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no program git" in str(found(history, tmp_path))


def test_a_whole_history_without_the_words_is_a_fault_of_the_test(tmp_path: Path):
    folder = tmp_path / "reworded"
    folder.mkdir()
    git(folder, "init", "--quiet")
    commit(folder, {SCHEMA: "other words"})
    with pytest.raises(AssertionError, match="no commit brought"):
        found(folder, tmp_path)
