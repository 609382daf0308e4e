"""Apply: all or nothing, once, merged with what people did meanwhile."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from tests.support.workspaces import Shop, contents, git, proposed

from greenroom.actors.workspaces.errors import UnknownProposal, WorkspaceError
from greenroom.actors.workspaces.paths import TEMPORARY
from greenroom.actors.workspaces.worktree import Worktree

pytestmark = pytest.mark.slow


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.write("a.txt", "".join(f"line {n}\n" for n in range(20)))
    made.write("b.txt", "b\n")
    made.write("run.sh", "#!/bin/sh\n", mode=0o755)
    made.write("dir/x.txt", "x\n")
    made.write("dir/y.txt", "y\n")
    made.write("data.bin", bytes(range(256)))
    made.commit()
    made.write("b.txt", "dirty\n")
    made.write("untracked.txt", "mine\n")
    return made


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_bytes().decode()
    assert old in text
    path.write_bytes(text.replace(old, new).encode())


async def applied(worktree: Worktree, *paths: str) -> None:
    result = await worktree.apply((await proposed(worktree)).id, paths or None)
    assert result.status == "applied", result


EDITS: dict[str, Callable[[Path], object]] = {
    "modify": lambda tree: replace(tree / "a.txt", "line 5\n", "changed\n"),
    "add deep": lambda tree: [(tree / "n/e/w").mkdir(parents=True), (tree / "n/e/w/f").write_text("new")],
    "delete": lambda tree: (tree / "b.txt").unlink(),
    "delete a folder": lambda tree: [
        (tree / "dir/x.txt").unlink(),
        (tree / "dir/y.txt").unlink(),
        (tree / "dir").rmdir(),
    ],
    "rename": lambda tree: (tree / "a.txt").rename(tree / "dir/z.txt"),
    "mode off": lambda tree: (tree / "run.sh").chmod(0o644),
    "mode on": lambda tree: (tree / "a.txt").chmod(0o755),
    "binary": lambda tree: (tree / "data.bin").write_bytes(bytes(reversed(range(256))) * 100),
    "crlf": lambda tree: (tree / "a.txt").write_bytes(b"one\r\ntwo\r\n"),
    "no newline": lambda tree: (tree / "a.txt").write_bytes(b"no newline at the end"),
    "empty": lambda tree: (tree / "a.txt").write_bytes(b""),
    "dirty": lambda tree: (tree / "b.txt").write_text("dirty, and more\n"),
    "untracked": lambda tree: (tree / "untracked.txt").write_text("yours\n"),
    "file to link": lambda tree: [(tree / "a.txt").unlink(), (tree / "a.txt").symlink_to("b.txt")],
    "file to folder": lambda tree: [
        (tree / "b.txt").unlink(),
        (tree / "b.txt").mkdir(),
        (tree / "b.txt/in").write_text("in"),
    ],
    "folder to file": lambda tree: [
        (tree / "dir/x.txt").unlink(),
        (tree / "dir/y.txt").unlink(),
        (tree / "dir").rmdir(),
        (tree / "dir").write_text("file"),
    ],
    "large": lambda tree: [
        (tree / "a.txt").write_bytes(b"x" * 3_000_000),
        (tree / "big.bin").write_bytes(bytes(range(256)) * 8_000),
    ],
    "latin": lambda tree: (tree / "a.txt").write_bytes(b"caf\xe9\n"),
}


@pytest.mark.parametrize("edit", EDITS)
async def test_each_kind_of_change_arrives_byte_by_byte(shop: Shop, edit: str) -> None:
    worktree = await shop.worktree()
    EDITS[edit](worktree.path)
    await applied(worktree)
    assert shop.contents() == contents(worktree.path)
    assert await worktree.propose() is None


async def test_all_kinds_of_changes_together_beside_edits_of_a_person(shop: Shop) -> None:
    worktree = await shop.worktree()
    for edit in ("modify", "add deep", "delete a folder", "mode off", "binary", "untracked"):
        EDITS[edit](worktree.path)
    replace(shop.folder / "a.txt", "line 15\n", "by a person\n")
    shop.write("b.txt", "by a person\n")
    shop.write("person.txt", "new")
    await applied(worktree)
    assert "changed\n" in shop.read("a.txt")
    assert "by a person\n" in shop.read("a.txt")
    assert shop.read("b.txt") == "by a person\n"
    assert shop.read("person.txt") == "new"
    assert not (shop.folder / "dir").exists()
    assert (shop.folder / "run.sh").stat().st_mode & 0o777 == 0o644


async def test_a_renamed_file_takes_the_edits_of_a_person_along(shop: Shop) -> None:
    worktree = await shop.worktree()
    EDITS["rename"](worktree.path)
    replace(shop.folder / "a.txt", "line 3\n", "by a person\n")
    await applied(worktree)
    assert "by a person\n" in shop.read("dir/z.txt")
    assert not (shop.folder / "a.txt").exists()


async def test_other_permissions_of_a_file_stay(shop: Shop) -> None:
    shop.write("b.txt", "private\n", mode=0o600)
    worktree = await shop.worktree()
    (worktree.path / "b.txt").write_text("changed\n")
    await applied(worktree)
    assert (shop.folder / "b.txt").stat().st_mode & 0o777 == 0o600


CONFLICTS: dict[str, Callable[[Path], object]] = {
    "the same line": lambda folder: replace(folder / "a.txt", "line 5\n", "by a person\n"),
    "deleted": lambda folder: (folder / "a.txt").unlink(),
    "a link": lambda folder: [(folder / "a.txt").unlink(), (folder / "a.txt").symlink_to("b.txt")],
    "binary": lambda folder: (folder / "a.txt").write_bytes(b"\0\1\2"),
}


@pytest.mark.parametrize("conflict", CONFLICTS)
async def test_a_conflict_leaves_every_byte_and_gives_the_merge_to_the_worktree(shop: Shop, conflict: str) -> None:
    worktree = await shop.worktree()
    EDITS["modify"](worktree.path)
    EDITS["add deep"](worktree.path)
    CONFLICTS[conflict](shop.folder)
    before, proposal = shop.contents(), await proposed(worktree)
    result = await worktree.apply(proposal.id)
    assert (result.status, result.files) == ("conflicted", ())
    assert "a.txt" in result.conflicts  # a link and a file of one name are two files in the merge
    assert shop.contents() == before
    assert await worktree.apply(proposal.id) == result  # a repeated call after a crash
    assert (worktree.path / "n/e/w/f").read_text() == "new"
    for path in result.conflicts:
        (worktree.path / path).unlink(missing_ok=True)
    (worktree.path / "a.txt").write_text("resolved\n")
    await applied(worktree)
    assert shop.read("a.txt") == "resolved\n"
    assert shop.read("n/e/w/f") == "new"


async def test_changes_of_the_worktree_after_the_proposal_are_neither_applied_nor_lost(shop: Shop) -> None:
    """What is applied is what was shown."""
    worktree = await shop.worktree()
    EDITS["modify"](worktree.path)
    shown = await proposed(worktree)
    (worktree.path / "run.sh").write_text("rm -rf /\n")
    (worktree.path / "a.txt").write_text("something else\n")
    assert (await worktree.apply(shown.id)).files == ("a.txt",)
    assert shop.read("run.sh") == "#!/bin/sh\n"
    assert "changed\n" in shop.read("a.txt")
    later = await proposed(worktree)
    assert later.id != shown.id
    assert [file.path for file in later.files] == ["a.txt", "run.sh"]


async def test_later_changes_of_the_worktree_survive_a_conflict(shop: Shop) -> None:
    worktree = await shop.worktree()
    EDITS["modify"](worktree.path)
    shown = await proposed(worktree)
    (worktree.path / "later.txt").write_text("later")
    CONFLICTS["the same line"](shop.folder)
    assert (await worktree.apply(shown.id)).status == "conflicted"
    assert (worktree.path / "later.txt").read_text() == "later"


async def test_some_files_of_a_proposal_are_applied_and_the_others_stay_pending(shop: Shop) -> None:
    worktree = await shop.worktree()
    EDITS["rename"](worktree.path)
    EDITS["dirty"](worktree.path)
    EDITS["mode off"](worktree.path)
    proposal = await proposed(worktree)
    with pytest.raises(UnknownProposal, match=r"changes no file 'c\.txt'; it changes b\.txt, dir/z\.txt, run\.sh"):
        await worktree.apply(proposal.id, ["b.txt", "c.txt"])
    result = await worktree.apply(proposal.id, ["dir/z.txt"])
    assert set(result.files) == {"a.txt", "dir/z.txt"}
    assert shop.read("b.txt") == "dirty\n"
    rest = await proposed(worktree)
    assert [file.path for file in rest.files] == ["b.txt", "run.sh"]
    await applied(worktree)
    assert shop.contents() == contents(worktree.path)
    with pytest.raises(WorkspaceError, match="applies nothing"):
        await worktree.apply(rest.id, [])


async def test_an_unknown_or_outdated_proposal_is_refused(shop: Shop) -> None:
    worktree = await shop.worktree()
    with pytest.raises(UnknownProposal, match="no proposal 'x' is open"):
        await worktree.apply("x")
    EDITS["modify"](worktree.path)
    proposal = await proposed(worktree)
    await worktree.reset()
    with pytest.raises(UnknownProposal):
        await worktree.apply(proposal.id)
    with pytest.raises(UnknownProposal):
        await (await shop.worktree("another")).apply(proposal.id)


async def test_an_apply_is_done_once(shop: Shop) -> None:
    worktree = await shop.worktree()
    EDITS["modify"](worktree.path)
    proposal = await proposed(worktree)
    result = await worktree.apply(proposal.id)
    replace(shop.folder / "a.txt", "changed\n", "line 5\n")  # a person takes it back
    assert await worktree.apply(proposal.id) == result
    assert await (await shop.worktree()).apply(proposal.id) == result
    assert "line 5\n" in shop.read("a.txt")


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
async def test_two_threads_see_nothing_of_each_other_until_one_is_applied(shop: Shop, order: tuple[str, str]) -> None:
    trees = {name: await shop.worktree(name) for name in ("one", "two")}
    replace(trees["one"].path / "a.txt", "line 2\n", "by one\n")
    replace(trees["two"].path / "a.txt", "line 17\n", "by two\n")
    (trees["one"].path / "one.txt").write_text("one")
    assert not (trees["two"].path / "one.txt").exists()
    ids = {name: (await proposed(tree)).id for name, tree in trees.items()}
    for name in order:
        assert (await trees[name].apply(ids[name])).status == "applied"
    assert "by one\n" in shop.read("a.txt")
    assert "by two\n" in shop.read("a.txt")
    again = await shop.worktree(order[0])
    assert contents(again.path) == shop.contents()


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
async def test_the_second_of_two_threads_that_change_one_line_gets_the_conflict(
    shop: Shop, order: tuple[str, str]
) -> None:
    trees = {name: await shop.worktree(name) for name in ("one", "two")}
    ids = {}
    for name, tree in trees.items():
        replace(tree.path / "a.txt", "line 2\n", f"by {name}\n")
        ids[name] = (await proposed(tree)).id
    first, second = order
    assert (await trees[first].apply(ids[first])).status == "applied"
    assert (await trees[second].apply(ids[second])).status == "conflicted"
    assert f"by {first}\n" in shop.read("a.txt")
    text = (trees[second].path / "a.txt").read_text()
    assert f"<<<<<<< workspace\nby {first}\n=======\nby {second}\n>>>>>>> worktree\n" in text


async def test_concurrent_applies_come_one_after_the_other(shop: Shop) -> None:
    trees = [await shop.worktree(f"t{n}") for n in range(4)]
    for number, tree in enumerate(trees):
        (tree.path / f"new{number}").write_text("x" * 1000)
        replace(tree.path / "a.txt", f"line {number * 5}\n", f"by {number}\n")
    ids = [(await proposed(tree)).id for tree in trees]
    async with trio.open_nursery() as nursery:
        for tree, name in zip(trees, ids, strict=True):
            nursery.start_soon(tree.apply, name)
    assert all(
        f"by {number}\n" in shop.read("a.txt") and (shop.folder / f"new{number}").exists() for number in range(4)
    )


async def test_a_parent_that_is_a_link_in_the_folder_stops_the_apply(shop: Shop, tmp_path: Path) -> None:
    """The link leads out, so no worktree has it; a file of an agent below that name would be written outside."""
    (tmp_path / "outside").mkdir()
    worktree = await shop.worktree()
    (worktree.path / "lib").mkdir()
    (worktree.path / "lib/x").write_text("x")
    EDITS["modify"](worktree.path)
    proposal = await proposed(worktree)
    (shop.folder / "lib").symlink_to(tmp_path / "outside")
    before = shop.contents()
    result = await worktree.apply(proposal.id)
    assert (result.status, result.conflicts) == ("conflicted", ("lib/x",))
    assert shop.contents() == before
    assert os.listdir(tmp_path / "outside") == []


async def test_a_new_file_in_the_place_of_an_ignored_one_is_a_conflict(shop: Shop) -> None:
    shop.write(".gitignore", "secret.txt\n")
    shop.write("secret.txt", "mine\n")
    worktree = await shop.worktree()
    await worktree.files.write(".gitignore", b"")
    await worktree.files.write("secret.txt", b"theirs\n")
    result = await worktree.apply((await proposed(worktree)).id)
    assert result.conflicts == ("secret.txt",)
    assert shop.read("secret.txt") == "mine\n"


async def test_a_folder_with_files_stays_where_an_agent_wants_a_file(shop: Shop) -> None:
    shop.write(".gitignore", "cache/\n")
    shop.write("cache/x", "kept")
    worktree = await shop.worktree()
    await worktree.files.write(".gitignore", b"")
    await worktree.files.write("cache", b"a file")
    result = await worktree.apply((await proposed(worktree)).id)
    assert result.status == "conflicted"
    assert shop.read("cache/x") == "kept"
    assert shop.read(".gitignore") == "cache/\n"


async def test_no_temporary_file_stays_and_the_users_index_shows_the_change_only(shop: Shop) -> None:
    worktree = await shop.worktree()
    for edit in ("modify", "add deep", "delete a folder"):
        EDITS[edit](worktree.path)
    await applied(worktree)
    assert not list(shop.folder.glob(f"**/{TEMPORARY}*"))
    status = git(shop.folder, "status", "--short").splitlines()
    assert sorted(status) == [" D dir/x.txt", " D dir/y.txt", " M a.txt", " M b.txt", "?? n/", "?? untracked.txt"]
