"""The tools of an agent in a worktree, called as a runtime calls them."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.workspaces import Shop

import greenroom as gr
from greenroom.actors.backends.workspace_tools import workspace_tools
from greenroom.actors.errors import ToolError
from greenroom.actors.workspaces.worktree import Worktree

pytestmark = pytest.mark.slow

BY_NAME: dict[str, Any] = {tool.name: tool for tool in workspace_tools()}


@pytest.fixture
async def worktree(tmp_path: Path) -> Worktree:
    shop = Shop(tmp_path)
    shop.write("a.txt", "one\ntwo\nthree\n")
    shop.write("src/x.py", "def f():\n    return 1\n")
    shop.write(".gitignore", "build/\n")
    shop.commit()
    worktree = await shop.worktree()
    (worktree.path / "build").mkdir()
    (worktree.path / "build/out.py").write_text("ignored")
    return worktree


async def use(worktree: Worktree, name: str, **arguments: Any) -> str:
    return await BY_NAME[name](gr.ToolContext(workspace=worktree), **arguments)


async def refused(worktree: Worktree, name: str, **arguments: Any) -> str:
    with pytest.raises(ToolError) as caught:
        await use(worktree, name, **arguments)
    return str(caught.value)


def test_the_tools_say_what_they_do_to_the_world() -> None:
    assert {name: tool.effect for name, tool in BY_NAME.items()} == {
        "list_files": "read",
        "read_file": "read",
        "search_files": "read",
        "write_file": "write",
        "edit_file": "write",
        "apply_patch": "patch",
        "propose_changes": "read",
        "apply_changes": "patch",
        "shell": "shell",
    }
    assert {tool.plugin for tool in BY_NAME.values()} == {"permission"}
    assert [tool.name for tool in workspace_tools(write=False, shell=False)] == [
        "list_files",
        "read_file",
        "search_files",
    ]
    assert "read_file" not in [tool.name for tool in workspace_tools(read=False)]


async def test_files_are_listed_without_ignored_ones(worktree: Worktree) -> None:
    assert await use(worktree, "list_files") == ".gitignore\na.txt\nsrc/x.py"
    assert await use(worktree, "list_files", pattern="*.py") == "src/x.py"
    assert await use(worktree, "list_files", path="src", pattern="*.md") == "[no files]"
    for number in range(1_001):
        (worktree.path / f"src/f{number:04}").touch()
    assert (await use(worktree, "list_files", path="src")).endswith("f0999\n[2 more; name a folder]")


async def test_a_file_is_read_in_pieces_with_numbered_lines(worktree: Worktree) -> None:
    assert await use(worktree, "read_file", path="a.txt") == "1\tone\n2\ttwo\n3\tthree"
    assert await use(worktree, "read_file", path="a.txt", start=2, lines=1) == "2\ttwo\n[3 lines; go on with start=3]"
    assert await use(worktree, "read_file", path="a.txt", start=9) == "[no line 9; the file has 3]"
    (worktree.path / "long").write_text("x" * 1_000 + "\n" + "y" * 70_000 + "\nz\n")
    assert (await use(worktree, "read_file", path="long")).endswith("x\n[3 lines; go on with start=2]")
    assert len(await use(worktree, "read_file", path="long", start=2)) < 70_000
    (worktree.path / "picture").write_bytes(b"\xff\xfe")
    assert "is not a text in UTF-8 (2 bytes)" in await refused(worktree, "read_file", path="picture")
    assert "lines count from 1" in await refused(worktree, "read_file", path="a.txt", start=0)


async def test_lines_are_found_by_a_pattern_and_named_with_file_and_number(worktree: Worktree) -> None:
    (worktree.path / "binary").write_bytes(b"\0two")
    assert await use(worktree, "search_files", pattern="t[wh]") == "a.txt:2: two\na.txt:3: three"
    assert await use(worktree, "search_files", pattern="return", path="src") == "src/x.py:2:     return 1"
    assert await use(worktree, "search_files", pattern="nowhere") == "[no line matches]"
    assert "without back-references" in await refused(worktree, "search_files", pattern=r"(a)\1")
    (worktree.path / "many").write_text("hit\n" * 300)
    assert (await use(worktree, "search_files", pattern="hit")).splitlines()[-1] == "[more; search for less]"


async def test_files_are_written_and_edited(worktree: Worktree) -> None:
    assert await use(worktree, "write_file", path="deep/new.txt", content="x y x\n") == "deep/new.txt is written"
    assert "is at the lines 1, 1; give more" in await refused(
        worktree, "edit_file", path="deep/new.txt", old="x", new="z"
    )
    assert (
        await use(worktree, "edit_file", path="deep/new.txt", old="x", new="z", all=True)
        == "deep/new.txt is changed at 2 places"
    )
    assert (worktree.path / "deep/new.txt").read_text() == "z y z\n"
    assert "is not in the file" in await refused(worktree, "edit_file", path="a.txt", old="four", new="")
    assert "is not in the file" in await refused(worktree, "edit_file", path="a.txt", old="", new="x")
    assert "lone surrogate" in await refused(worktree, "write_file", path="a.txt", content="\udc80")


PATHS = ("../x", "/etc/passwd", ".env", ".git/hooks/pre-commit", "a\nb", ".codex/config.toml", "missing")


@pytest.mark.parametrize("path", PATHS)
async def test_a_path_outside_gets_the_text_of_a_missing_one(worktree: Worktree, path: str) -> None:
    assert (await refused(worktree, "read_file", path=path)).startswith("workspace_outside_allowlist: ")
    if path != "missing":
        patch = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch"
        assert (await refused(worktree, "write_file", path=path, content="x")).startswith(
            "workspace_outside_allowlist: "
        )
        if "\n" not in path:
            assert (await refused(worktree, "apply_patch", patch=patch)).startswith("workspace_outside_allowlist: ")


async def test_a_patch_changes_all_its_files_or_none(worktree: Worktree) -> None:
    head = ["*** Begin Patch", "*** Update File: a.txt", "@@", "-two", "+2", "*** Add File: new.txt", "+new"]
    moved = [
        "*** Update File: src/x.py",
        "*** Move to: src/y.py",
        "@@",
        "-    return 1",
        "+    return 2",
        "*** End Patch",
    ]
    bad = await refused(
        worktree, "apply_patch", patch="\n".join([*head, "*** Update File: src/x.py", "@@", "-no", "+x"])
    )
    assert bad.startswith("nothing is changed: src/x.py: the hunk at line 9 of the patch")
    assert (worktree.path / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert not (worktree.path / "new.txt").exists()
    answer = await use(worktree, "apply_patch", patch="\n".join([*head, *moved]))
    assert sorted(answer.splitlines()) == [
        "a.txt is written",
        "new.txt is written",
        "src/x.py is removed",
        "src/y.py is written",
    ]
    assert (worktree.path / "a.txt").read_text() == "one\n2\nthree\n"
    assert (worktree.path / "src/y.py").read_text() == "def f():\n    return 2\n"
    assert not (worktree.path / "src/x.py").exists()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["*** Add File: a.txt", "+x"], "a.txt: the file is there already"),
        (
            ["*** Update File: a.txt", "*** Move to: src/x.py", "@@", "-two", "+2"],
            "src/x.py: the file is there already",
        ),
        (["*** Delete File: a.txt", "*** Add File: a.txt", "+x"], "names the file twice"),
        ([line for n in range(101) for line in (f"*** Add File: f{n}", "+x")], "101 files; the limit is 100"),
    ],
)
async def test_a_patch_that_does_not_fit_the_folder_is_refused(
    worktree: Worktree, lines: list[str], words: str
) -> None:
    assert words in await refused(
        worktree, "apply_patch", patch="\n".join(["*** Begin Patch", *lines, "*** End Patch"])
    )
