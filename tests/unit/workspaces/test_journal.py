"""An apply that ends between any two files and is begun again: once, or not at all."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import attrs
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.workspaces import Shop, contents, proposed

from greenroom.actors.workspaces.apply import merge
from greenroom.actors.workspaces.difference import Replacement
from greenroom.actors.workspaces.errors import WorkspaceError
from greenroom.actors.workspaces.journal import Contents, Journal, perform, save_journal, with_permissions
from greenroom.actors.workspaces.paths import TEMPORARY
from greenroom.actors.workspaces.records import request_of
from greenroom.actors.workspaces.worktree import Worktree

pytestmark = pytest.mark.slow


@attrs.define
class CutApply:
    """An apply whose process ended after some files: the journal and its stage, and the folder in between."""

    shop: Shop
    worktree: Worktree
    proposal: str
    ordered: Sequence[Replacement]
    before: dict[str, tuple[int, bytes]]
    contents: Contents

    async def again(self) -> str:
        """Another process takes the call up."""
        result = await (await self.shop.worktree()).apply(self.proposal)
        return result.status


async def cut_apply(tmp_path: Path, number: int | None) -> CutApply:
    """Do the first half of an apply: `number` files of it, or all and nothing after them."""
    shop = Shop(tmp_path)
    for name in ("a", "b", "c", "gone", "f"):
        shop.write(name, f"{name}\n")
    shop.write("d/x", "x\n")
    shop.commit()
    worktree = await shop.worktree()
    tree = worktree.path
    for name in ("a", "b"):
        (tree / name).write_text("changed\n")
    (tree / "gone").unlink()
    (tree / "n/e").mkdir(parents=True)
    (tree / "n/e/w").write_text("new\n")
    (tree / "f").unlink()
    (tree / "f").mkdir()
    (tree / "f/in").write_text("a file has become a folder\n")
    (tree / "d/x").unlink()
    (tree / "d").rmdir()
    (tree / "d").symlink_to("c")
    proposal, shadow, thread = await proposed(worktree), worktree._shadow, worktree._thread
    before = shop.contents()
    current = await shadow.of_folder(parent=proposal.base)
    merged, _ = await merge(shadow, current.commit, proposal.target)
    replacements = with_permissions(shop.folder, await shadow.replacements(current.commit, merged))
    journal = Journal(
        key=thread.folder.name,
        request=request_of(proposal.id, None),
        proposal=proposal.id,
        base=proposal.target,
        replacements=replacements,
    )
    save_journal(shadow.state / "journal.json", journal)
    ordered = sorted(replacements, key=lambda one: (one.new is not None, one.path))
    async with shadow.contents(replacements) as contents_of:
        assert perform(shop.folder, ordered[:number], contents_of, again=False) == ()
    return CutApply(shop, worktree, proposal.id, ordered, before, contents_of)


COUNT = 8


@pytest.mark.parametrize("number", range(COUNT + 1))
async def test_an_apply_that_ended_between_two_files_is_completed_by_the_next_process(
    tmp_path: Path, number: int
) -> None:
    cut = await cut_apply(tmp_path, number)
    assert len(cut.ordered) == COUNT
    (cut.shop.folder / "n").mkdir(exist_ok=True)
    (cut.shop.folder / TEMPORARY).write_text("half a file")  # the process ended while it wrote
    assert await cut.again() == "applied"
    assert cut.shop.contents() == contents(cut.worktree.path)
    assert not list(cut.worktree._shadow.state.glob("contents-*"))
    assert not (cut.worktree._shadow.state / "journal.json").exists()
    cut.shop.write("a", "a person goes on\n")
    assert await cut.again() == "applied"
    assert cut.shop.read("a") == "a person goes on\n"


@pytest.mark.parametrize("number", range(COUNT + 1))
async def test_a_person_who_changes_a_file_after_the_crash_gets_the_folder_of_before(
    tmp_path: Path, number: int
) -> None:
    """All is put back, the edit of the person stays, and then the merge is made again with the edit."""
    cut = await cut_apply(tmp_path, number)
    cut.shop.write("b", "by a person\n")
    expected = cut.before | {"b": (0o644, b"by a person\n")}
    assert await cut.again() == "conflicted"
    assert cut.shop.contents() == expected


async def test_another_thread_ends_the_apply_of_the_first(tmp_path: Path) -> None:
    cut = await cut_apply(tmp_path, 3)
    other = await cut.shop.worktree("another thread")
    assert contents(other.path) == cut.shop.contents() == contents(cut.worktree.path)
    assert await cut.again() == "applied"


async def test_a_failure_in_the_middle_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    """One content cannot be read; the next process reads all of them again."""
    cut = await cut_apply(tmp_path, 0)
    digest = next(one.new.digest for one in cut.ordered if one.path == "n/e/w" and one.new)
    rest = {key: content for key, content in cut.contents.texts.items() if key != digest}
    with pytest.raises(WorkspaceError, match=f"the content {digest} is gone"):
        perform(cut.shop.folder, cut.ordered, Contents(rest, tmp_path), again=False)
    assert cut.shop.contents() == cut.before
    assert await cut.again() == "applied"


async def test_a_file_that_moves_between_the_merge_and_its_replacement_stops_all(tmp_path: Path) -> None:
    cut = await cut_apply(tmp_path, 0)
    cut.shop.write("b", "by a person\n")
    assert perform(cut.shop.folder, cut.ordered, cut.contents, again=False) == ("b",)
    assert cut.shop.contents() == cut.before | {"b": (0o644, b"by a person\n")}


@pytest.mark.parametrize("milliseconds", [0, 10, 30, 60, 90, 120, 150, 200])
async def test_a_cancelled_apply_has_changed_all_or_nothing_and_can_be_repeated(
    tmp_path: Path, milliseconds: int
) -> None:
    shop = Shop(tmp_path)
    shop.write("a", "a\n")
    shop.write("b", "b\n")
    worktree = await shop.worktree()
    (worktree.path / "a").write_text("changed\n")
    (worktree.path / "b").write_text("changed\n")
    proposal, before = await proposed(worktree), shop.contents()
    with trio.move_on_after(milliseconds / 1000):
        await worktree.apply(proposal.id)
    assert shop.contents() in (before, contents(worktree.path))
    assert (await worktree.apply(proposal.id)).status == "applied"
    assert shop.contents() == contents(worktree.path)


PROGRAM = """
import sys
from pathlib import Path
import trio
from greenroom.actors.workspaces.service import open_workspaces
from greenroom.actors.workspaces.workspace import Workspace

async def main():
    workspaces = await open_workspaces([Workspace("shop", sys.argv[1])], state=sys.argv[2])
    worktree = await workspaces.worktree("shop", "t")
    print("ready", flush=True)
    print((await worktree.apply(sys.argv[3])).status, flush=True)

trio.run(main)
"""


@pytest.mark.parametrize("attempt", range(2))
async def test_a_process_that_is_killed_at_any_time_applies_once(tmp_path: Path, rng: Random, attempt: int) -> None:
    """300 files, killed after some milliseconds, again and again; the last process may finish."""
    shop = Shop(tmp_path)
    for number in range(300):
        shop.write(f"d{number % 7}/f{number}", f"{number}\n")
    worktree = await shop.worktree()
    for number in range(300):
        (worktree.path / f"d{number % 7}/f{number}").write_text(f"changed {number}\n")
    proposal = await proposed(worktree)
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), str(shop.folder), str(shop.state), proposal.id]
    killed = 0
    for round_ in range(6):
        process = await trio.to_thread.run_sync(lambda: subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert process.stdout is not None
        assert await trio.to_thread.run_sync(process.stdout.readline) == "ready\n"
        if round_ < 5:
            await trio.sleep(rng.random() * 0.5)
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        output = await trio.to_thread.run_sync(process.stdout.read)
        await trio.to_thread.run_sync(process.wait)
        process.stdout.close()
        changed = sum(content.startswith(b"changed") for _, content in shop.contents().values())
        journal = worktree._shadow.state / "journal.json"
        assert changed in {0, 300} or journal.exists()
    assert output == "applied\n"
    assert shop.contents() == contents(worktree.path)
    assert killed == 5


NAMES = ["a", "b", "d/a", "d/b", "d/e/a", "e"]
TREES = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from(["1\n", "2\n", "1\n2\n3\n", "\r\n", "x", ""]), max_size=5
)


def lay_out(folder: Path, files: dict[str, str]) -> None:
    """Make the files and no others; of a name that is a file and a folder, the one that comes first."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if ".git" not in path.parts:
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())


numbers = itertools.count()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(base=TREES, theirs=TREES, ours=TREES)
def test_an_apply_of_any_trees_is_the_merge_or_nothing(
    tmp_path: Path, base: dict[str, str], theirs: dict[str, str], ours: dict[str, str]
) -> None:
    """Files that only one side has changed are that side's; without a conflict each file is one of the three."""
    place = tmp_path / str(next(numbers))
    place.mkdir()
    trio.run(apply_any, Shop(place, repository=False), base, theirs, ours)


async def apply_any(shop: Shop, base: dict[str, str], theirs: dict[str, str], ours: dict[str, str]) -> None:
    lay_out(shop.folder, base)
    worktree = await shop.worktree()
    lay_out(worktree.path, theirs)
    lay_out(shop.folder, ours)
    proposal = await worktree.propose()
    assert (proposal is None) == (base == theirs)
    if proposal is None:
        return
    before = shop.contents()
    result = await worktree.apply(proposal.id)
    if result.status == "conflicted":
        assert shop.contents() == before
        assert result.conflicts
        return
    after = {path: content.decode() for path, (_, content) in shop.contents().items()}
    if ours == base:
        assert after == theirs
    for name in {*base, *theirs, *ours}:
        if not any(file.change == "renamed" for file in proposal.files):
            expected = theirs.get(name) if ours.get(name) == base.get(name) else ours.get(name)
            if base.get(name) in {ours.get(name), theirs.get(name)}:
                assert after.get(name) == expected, (name, result)
    assert await worktree.propose() is None
