"""The news of the next release: the fragments build, and the changelog is a page for users."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.no_cover

LONGEST_SECTION = 150
LONGEST_LINE = 100


def build_news(folder: Path) -> subprocess.CompletedProcess[str]:
    """Print the section of a next release, from the fragments in a folder."""
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9.9", "--date", "2030-01-01"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def project(root: Path, tmp_path: Path) -> Path:
    """A folder with the project's settings and its changelog, without fragments."""
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(root / name, tmp_path)
    (tmp_path / "newsfragments").mkdir()
    return tmp_path


def test_the_fragments_of_the_next_release_build(root: Path) -> None:
    built = build_news(root)
    assert built.returncode == 0, built.stderr
    assert built.stdout.startswith("## [9.9.9] - 2030-01-01\n")


@pytest.mark.parametrize(
    ("kind", "section"),
    [
        ("feature", "Added"),
        ("change", "Changed"),
        ("removal", "Removed"),
        ("fix", "Fixed"),
        ("security", "Security"),
    ],
)
def test_a_fragment_is_listed_under_the_section_of_its_type(project: Path, kind: str, section: str) -> None:
    (project / "newsfragments" / f"+door.{kind}.md").write_text("A door.\n", encoding="utf-8")
    assert f"### {section}\n\n- A door.\n" in build_news(project).stdout


def test_a_fragment_with_an_unknown_type_fails_the_build(project: Path) -> None:
    (project / "newsfragments" / "+door.bug.md").write_text("A door.\n", encoding="utf-8")
    built = build_news(project)
    assert built.returncode != 0
    assert "+door.bug.md" in built.stderr


def test_each_section_of_the_changelog_is_short(root: Path) -> None:
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "<!-- towncrier release notes start -->\n" in text
    sections = text.split("\n## ")[1:]
    assert [section.splitlines()[0] for section in sections if section.count("\n") > LONGEST_SECTION] == []
    assert [line for line in text.splitlines() if len(line) > LONGEST_LINE] == []
