"""Worktrees: what a thread gets of a folder, what it keeps, and what of it a proposal has."""

import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
import trio
from tests.support.workspaces import Shop, contents, git, never_busy, proposed

from greenroom.actors.errors import UsageError
from greenroom.actors.workspaces.errors import (
    GitFailed,
    GitUnavailable,
    OutsideWorkspace,
    WorkspaceBusy,
    WorkspaceError,
    WorkspaceTooLarge,
)
from greenroom.actors.workspaces.git import find_git
from greenroom.actors.workspaces.records import Move, locked
from greenroom.actors.workspaces.service import open_workspaces
from greenroom.actors.workspaces.snapshots import check_limits
from greenroom.actors.workspaces.workspace import Workspace

pytestmark = pytest.mark.slow


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.write("a.txt", "one\ntwo\n")
    made.write("src/run.sh", "#!/bin/sh\n", mode=0o755)
    made.commit()
    return made


async def test_a_worktree_has_the_folder_as_people_see_it(shop: Shop) -> None:
    """Changed and new files are in; ignored ones, secrets and the settings of agents are not."""
    shop.write(".gitignore", "build/\n*.log\n")
    shop.write("forced.log", "tracked all the same")
    git(shop.folder, "add", "-f", "forced.log")
    shop.write("a.txt", "dirty\n")
    shop.write("new.txt", "untracked\r\nno newline")
    shop.write("build/x", "ignored")
    shop.write("debug.log", "ignored")
    shop.write(".git/info/exclude", "mine.txt\n")
    shop.write("mine.txt", "ignored by the repository's own list")
    shop.write(".env", "KEY=secret")
    shop.write("web/.claude/settings.json", "{}")
    shop.write("CLAUDE.md", "read this")
    (shop.folder / "link").symlink_to("src/run.sh")
    worktree, state = await shop.begun()
    files = contents(worktree.path)
    assert sorted(files) == [".gitignore", "CLAUDE.md", "a.txt", "forced.log", "link", "new.txt", "src/run.sh"]
    assert files["a.txt"] == (0o644, b"dirty\n")
    assert files["new.txt"][1] == b"untracked\r\nno newline"
    assert files["src/run.sh"][0] == 0o755
    assert [one.path for one in state.withheld] == [".env", "web/.claude/settings.json"]
    assert not state.pending
    assert await worktree.propose() is None


async def test_a_folder_without_a_repository_works_as_well(tmp_path: Path) -> None:
    shop = Shop(tmp_path, repository=False)
    shop.write("a.txt", "one\n")
    worktree = await shop.worktree()
    await worktree.files.write("a.txt", b"two\n")
    proposal = await proposed(worktree)
    assert (await worktree.apply(proposal.id)).status == "applied"
    assert shop.read("a.txt") == "two\n"
    assert not (shop.folder / ".git").exists()


async def test_the_names_and_contents_of_the_users_repository_never_change(shop: Shop) -> None:
    before = contents(shop.folder / ".git", repository=True)
    worktree = await shop.worktree()
    await worktree.files.write("a.txt", b"changed\n")
    await worktree.apply((await proposed(worktree)).id)
    await worktree.begin()
    assert contents(shop.folder / ".git", repository=True) == before
    assert git(shop.folder, "status", "--short") == " M a.txt\n"


async def test_a_program_in_the_worktree_finds_a_repository_with_the_history(shop: Shop) -> None:
    worktree = await shop.worktree()
    await worktree.files.write("a.txt", b"changed\n")
    assert git(worktree.path, "status", "--short") == " M a.txt\n"
    assert git(worktree.path, "log", "--format=%s").split() == ["greenroom", "work"]
    git(worktree.path, "commit", "-qam", "an agent commits")
    assert [file.path for file in (await proposed(worktree)).files] == ["a.txt"]


async def test_a_proposal_names_each_change_with_its_kind_mode_and_lines(shop: Shop) -> None:
    shop.write("old.txt", "".join(f"line {n}\n" for n in range(20)))
    shop.write("gone.txt", "bye\n")
    worktree = await shop.worktree()
    tree = worktree.path
    (tree / "old.txt").rename(tree / "named.txt")
    (tree / "gone.txt").unlink()
    (tree / "src/run.sh").chmod(0o644)
    (tree / "picture").write_bytes(bytes(range(256)))
    (tree / "a.txt").write_bytes(b"one\r\ntwo")
    files = {file.path: file for file in (await proposed(worktree)).files}
    assert {path: file.change for path, file in files.items()} == {
        "a.txt": "modified",
        "gone.txt": "deleted",
        "named.txt": "renamed",
        "picture": "added",
        "src/run.sh": "modified",
    }
    assert files["named.txt"].from_path == "old.txt"
    assert files["picture"].binary
    assert files["src/run.sh"].mode == "100644"
    assert (files["a.txt"].added, files["a.txt"].removed) == (2, 2)


async def test_the_same_changes_are_the_same_proposal(shop: Shop) -> None:
    """Also in another thread, and after a crash: the id is a digest of the files."""
    first, second = await shop.worktree("one"), await shop.worktree("two")
    for worktree in (first, second):
        await worktree.files.write("a.txt", b"changed\n")
    assert (await proposed(first)).id == (await proposed(second)).id == (await proposed(first)).id
    await second.files.write("a.txt", b"changed again\n")
    assert (await proposed(first)).id != (await proposed(second)).id


async def test_the_text_of_a_difference_is_redacted_and_has_a_limit(shop: Shop) -> None:
    worktree = await shop.worktree()
    await worktree.files.write("a.txt", b"password = hunter2hunter2\n")
    proposal = await proposed(worktree)
    assert "hunter2" not in proposal.text
    assert "+++ b/a.txt" in proposal.text
    await worktree.files.write("big.txt", b"many words\n" * 200_000)
    proposal = await proposed(worktree)
    assert proposal.truncated
    assert len(proposal.text) <= 1024 * 1024
    assert {file.path: file.added for file in proposal.files}["big.txt"] == 200_000


async def test_what_leads_out_of_the_workspace_is_no_part_of_a_proposal(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("canary")
    worktree = await shop.worktree()
    tree = worktree.path
    (tree / "absolute").symlink_to("/etc/passwd")
    (tree / "up").symlink_to("../../../../secret")
    (tree / "hidden").symlink_to(".env")
    (tree / "through").symlink_to("src/../../../x")
    (tree / "inside").symlink_to("src/run.sh")
    (tree / "linked").hardlink_to(tmp_path / "secret")
    (tree / ".env").write_text("KEY=planted")
    (tree / "new\nline").write_text("odd")
    (tree / os.fsdecode(b"not\xffutf8")).write_text("odd")
    os.mkfifo(tree / "pipe")
    (tree / "/".join(["d"] * 70)).mkdir(parents=True)
    proposal = await proposed(worktree)
    assert [file.path for file in proposal.files] == ["inside"]
    reasons = {one.path: one.reason for one in proposal.left_out}
    depth = next(path for path, reason in reasons.items() if reason == "depth")
    assert depth == "/".join(["d"] * 64)
    assert reasons == {
        "absolute": "link", "up": "link", "hidden": "link", "through": "link", "linked": "hard_link",
        ".env": "withheld", "new\\nline": "name", "not\\udcffutf8": "name", "pipe": "device", depth: "depth",
    }  # fmt: skip
    assert "canary" not in proposal.text


async def test_nested_repositories_are_files_and_their_git_folders_are_not(shop: Shop) -> None:
    """`git add -A` would fail for the one without a commit, and make a link of the other one."""
    worktree = await shop.worktree()
    for name, commits in (("empty", False), ("full", True)):
        inner = worktree.path / name
        inner.mkdir()
        git(inner, "init", "-q")
        (inner / "inner.txt").write_text("hidden?\n")
        if commits:
            git(inner, "add", "-A")
            git(inner, "commit", "-qm", "inner")
    proposal = await proposed(worktree)
    assert [file.path for file in proposal.files] == ["empty/inner.txt", "full/inner.txt"]
    await worktree.apply(proposal.id)
    assert (shop.folder / "full/inner.txt").read_text() == "hidden?\n"
    assert not (shop.folder / "full/.git").exists()


async def test_an_ignore_file_of_an_agent_hides_no_file_of_the_base(shop: Shop) -> None:
    """Otherwise a line in .gitignore would propose to delete what it names."""
    worktree = await shop.worktree()
    await worktree.files.write(".gitignore", b"*.txt\nsrc/\n")
    await worktree.files.write("other.txt", b"ignored from now on")
    assert [file.path for file in (await proposed(worktree)).files] == [".gitignore"]


async def test_a_copied_folder_is_in_the_worktree_and_in_no_proposal(shop: Shop) -> None:
    shop.write(".gitignore", "node_modules/\n")
    shop.write("node_modules/pack/index.js", "code", mode=0o755)
    shop.write("node_modules/.npmrc", "token")
    (shop.folder / "node_modules/bin").symlink_to("pack/index.js")
    (shop.folder / "node_modules/out").symlink_to("/etc/passwd")
    worktree = await shop.worktree(copy=("node_modules", "missing"))
    modules = contents(worktree.path / "node_modules")
    assert modules == {"pack/index.js": (0o755, b"code"), "bin": (0o777, b"pack/index.js")}
    (worktree.path / "node_modules/pack/index.js").write_text("changed")
    assert shop.read("node_modules/pack/index.js") == "code"
    assert await worktree.propose() is None


async def test_a_thread_with_nothing_pending_follows_the_folder_and_keeps_ignored_files(shop: Shop) -> None:
    shop.write(".gitignore", "cache/\n")
    worktree = await shop.worktree()
    (worktree.path / "cache").mkdir()
    (worktree.path / "cache/x").write_text("kept")
    shop.write("a.txt", "by a person\n")
    (shop.folder / "src/run.sh").unlink()
    again, state = await shop.begun()
    assert again.path == worktree.path
    assert not state.pending
    assert sorted(contents(again.path)) == [".gitignore", "a.txt", "cache/x"]
    assert (again.path / "a.txt").read_text() == "by a person\n"
    assert git(again.path, "status", "--short") == ""


async def test_a_thread_with_changes_pending_keeps_them_and_their_base(shop: Shop) -> None:
    worktree = await shop.worktree()
    await worktree.files.write("a.txt", b"pending\n")
    shop.write("a.txt", "by a person\n")
    again, state = await shop.begun()
    assert state.pending
    assert (again.path / "a.txt").read_text() == "pending\n"
    await again.reset()
    assert (again.path / "a.txt").read_text() == "by a person\n"
    assert await again.propose() is None


async def test_a_worktree_whose_change_of_base_was_cut_short_is_completed(shop: Shop) -> None:
    """The process ended when the record said what would happen, and half of the files were there."""
    worktree = await shop.worktree()
    await worktree.files.write("a.txt", b"theirs\n")
    proposal = await proposed(worktree)
    shop.write("a.txt", "ours\n")
    shop.write("src/run.sh", "#!/bin/bash\n", mode=0o755)
    before = contents(worktree.path)
    await worktree.apply(proposal.id)
    merged, thread = contents(worktree.path), worktree._thread
    record = thread.load()
    assert record is not None
    tree = await worktree._shadow.of_tree(thread, record.base)
    thread.save(attrs.evolve(record, move=Move(old=proposal.target, new=tree.tree)))
    (worktree.path / "src/run.sh").write_bytes(before["src/run.sh"][1])
    again, state = await shop.begun()
    assert contents(again.path) == merged
    assert state.pending


async def test_a_race_for_a_folder_brings_nothing_from_outside_into_a_snapshot(shop: Shop) -> None:
    """A program exchanges a folder for a link to a folder outside and back, while the worktree is read."""
    outside = shop.place / "outside"
    outside.mkdir()
    for number in range(20):
        (outside / f"f{number}").write_text(f"canary {number}\n")
    worktree, done = await shop.worktree(), threading.Event()
    tree = worktree.path
    (tree / "d").mkdir()
    for number in range(20):
        (tree / f"d/f{number}").write_text(f"inside {number}\n")
    (tree / "link").symlink_to(outside)

    def exchange() -> None:
        while not done.is_set():
            os.rename(tree / "d", tree / "real")
            os.rename(tree / "link", tree / "d")
            os.rename(tree / "d", tree / "link")
            os.rename(tree / "real", tree / "d")

    thread = threading.Thread(target=exchange)
    thread.start()
    texts = []
    try:
        for _ in range(15):
            with suppress(GitFailed):  # git itself may find a link where the walk has found a folder
                proposal = await worktree.propose()
                texts.append(proposal.text if proposal else "")
    finally:
        done.set()
        thread.join()
    assert texts
    assert not [text for text in texts if "canary" in text]


async def test_withheld_names_are_removed_before_a_run_begins_also_from_ignored_folders(shop: Shop) -> None:
    shop.write(".gitignore", "build/\n.claude/\n")
    worktree = await shop.worktree()
    for path in (".claude/settings.json", "build/.mcp.json", ".codex/deep/config.toml", "src/.env"):
        (worktree.path / path).parent.mkdir(parents=True, exist_ok=True)
        (worktree.path / path).write_text("planted")
    (worktree.path / ".opencode").symlink_to(shop.place)
    again, state = await shop.begun()
    assert sorted(state.removed) == [
        ".claude/settings.json",
        ".codex",
        ".opencode",
        "build/.mcp.json",
        "src/.env",
    ]
    assert not any(path.endswith(("settings.json", "mcp.json", "toml", ".env")) for path in contents(again.path))
    assert shop.place.exists()


async def test_a_fork_begins_with_the_files_of_its_step(shop: Shop) -> None:
    worktree = await shop.worktree()
    await worktree.files.write("a.txt", b"step one\n")
    step = await proposed(worktree)
    await worktree.files.write("a.txt", b"step two\n")
    fork = (await shop.open()).find("shop", "fork")
    assert (await fork.begin(at=step.target)).pending
    assert (fork.path / "a.txt").read_text() == "step one\n"
    assert (await proposed(fork)).id == step.id
    assert (await fork.apply(step.id)).status == "applied"
    assert shop.read("a.txt") == "step one\n"


async def test_a_run_may_work_in_a_folder_of_the_workspace(shop: Shop) -> None:
    workspaces = await shop.open()
    worktree = await workspaces.worktree("shop/src", "t")
    assert await worktree.files.names() == ["run.sh"]
    assert worktree.path.name == "src"
    for where in ("shop/nothing", "shop/a.txt", "shop/../x", "other", "shop2"):
        with pytest.raises(OutsideWorkspace):
            await workspaces.worktree(where, "t")


async def test_folders_that_cannot_be_workspaces_are_refused_when_they_are_opened(shop: Shop, tmp_path: Path) -> None:
    for folder in ("nothing", "shop/a.txt"):
        with pytest.raises(OutsideWorkspace):
            await open_workspaces([Workspace("x", tmp_path / folder)], state=tmp_path / "state")
    with pytest.raises(UsageError, match="must not hold each other"):
        await open_workspaces([Workspace("x", shop.folder)], state=shop.folder / "state")
    with pytest.raises(UsageError, match="must not hold each other"):
        await open_workspaces([Workspace("x", shop.folder)], state=shop.place)
    with pytest.raises(UsageError, match="two workspaces have the name 'x'"):
        await open_workspaces([Workspace("x", shop.folder)] * 2, state=tmp_path / "state")


async def test_a_workspace_whose_folder_has_become_a_link_is_refused(shop: Shop) -> None:
    workspaces = await shop.open()
    shop.folder.rename(shop.place / "moved")
    shop.folder.symlink_to(shop.place / "moved")
    with pytest.raises(OutsideWorkspace):
        await workspaces.worktree("shop", "t")


@pytest.mark.parametrize(
    ("files", "size", "names", "text"),
    [
        (50_001, 0, 0, "50,001 files or more; the limit is 50,000"),
        (0, 2 * 1024**3 + 1, 0, "2,147,483,649 bytes or more; the limit is 2,147,483,648"),
        (0, 0, 250_001, "250,001 names or more; the limit is 250,000"),
    ],
)
def test_a_folder_over_a_limit_is_refused_with_both_sizes(files: int, size: int, names: int, text: str) -> None:
    check_limits(files=50_000, size=2 * 1024**3, names=250_000)
    with pytest.raises(WorkspaceTooLarge, match=text):
        check_limits(files=files, size=size, names=names)


async def test_a_folder_with_a_sparse_file_over_the_limit_is_refused_before_it_is_read(shop: Shop) -> None:
    with shop.write("huge", "").open("r+b") as file:
        file.truncate(3 * 1024**3)
    with pytest.raises(WorkspaceTooLarge, match="the limit is 2,147,483,648"):
        await shop.worktree()


async def test_without_a_git_or_with_an_old_one_workspaces_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(GitUnavailable, match="runtime_unavailable \\(missing\\)") as missing:
        await find_git(tmp_path)
    assert missing.value.reason == "missing"
    old = programs / "git"
    old.write_text("#!/bin/sh\necho git version 2.37.9\n")
    old.chmod(0o755)
    with pytest.raises(GitUnavailable, match=r"2\.37\.9.*need git 2\.38") as caught:
        await find_git(tmp_path)
    assert caught.value.reason == "incompatible"
    old.write_text("#!/bin/sh\necho git version 3.0\n")
    assert (await find_git(tmp_path)).version == (3, 0)


async def test_a_failure_of_git_is_named_with_its_command(shop: Shop) -> None:
    worktree = await shop.worktree()
    for folder in worktree._shadow.git.folder.glob("objects/??"):
        shutil.rmtree(folder)
    with pytest.raises(WorkspaceError, match="git ls-tree ended with exit code 128: fatal"):
        await worktree.propose()


async def test_two_operations_on_a_workspace_wait_for_each_other(shop: Shop) -> None:
    lock = shop.place / "lock"
    async with locked(lock):
        with pytest.raises(WorkspaceBusy, match="for 0 s"):
            async with locked(lock, patience=0.05):
                pass
    async with locked(lock, patience=0.05):
        pass
    workspaces = await shop.open()
    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(workspaces.worktree, "shop", f"t{number}")
    assert len(list(next(shop.state.glob("shop-*")).glob("threads/*"))) == 4


async def test_old_worktrees_are_removed_and_those_in_use_stay(shop: Shop) -> None:
    workspaces = await shop.open()
    first = await workspaces.worktree("shop", "one")
    await first.files.write("a.txt", b"pending\n")
    proposal = await proposed(first)
    await workspaces.worktree("shop", "two")

    async def is_busy(thread_id: str) -> bool:
        return thread_id == "one"

    assert await workspaces.expire(never_busy) == ()
    assert await workspaces.expire(is_busy, age=-1) == ("two",)
    assert (await first.apply(proposal.id)).status == "applied"
    await workspaces.worktree("shop", "three")
    assert set(await workspaces.expire(never_busy, most=0)) == {"one", "three"}
    with pytest.raises(WorkspaceError, match="was removed; begin it again"):
        await first.propose()
    await first.begin()
    assert (first.path / "a.txt").read_text() == "pending\n"


async def test_a_worktree_that_is_used_while_it_is_looked_at_stays(shop: Shop) -> None:
    workspaces = await shop.open()
    worktree = await workspaces.worktree("shop", "one")

    async def is_busy(_: str) -> bool:
        await worktree.begin()
        return False

    assert await workspaces.expire(is_busy, age=-1) == ()
    assert worktree.path.exists()


async def test_a_state_folder_has_one_place_and_another_one_has_another(shop: Shop, tmp_path: Path) -> None:
    first, again = await shop.open(), await shop.open()
    other = await open_workspaces([], state=tmp_path / "other")
    assert first.place == again.place != other.place
    assert first.names == ("shop",)


async def test_a_state_folder_that_is_gone_is_named_and_shows_no_path(shop: Shop) -> None:
    workspaces = await shop.open()
    worktree = await workspaces.worktree("shop", "t")
    shutil.rmtree(shop.state)
    with pytest.raises(
        WorkspaceError, match="the state folder of the workspaces cannot be used: No such file"
    ) as error:
        await worktree.propose()
    assert str(shop.state) not in str(error.value)


async def test_a_lock_file_of_a_git_that_was_killed_holds_up_nothing(shop: Shop) -> None:
    await shop.worktree()
    (shadow,) = shop.state.glob("shop-*/shadow.git")
    ref = next(path for path in shadow.glob("refs/greenroom/**/*") if path.is_file())
    for path in (shadow / "HEAD.lock", shadow / "config.lock", ref.with_name(f"{ref.name}.lock")):
        path.touch()
    worktree = await shop.worktree()
    await worktree.files.write("a.txt", b"two")
    assert await worktree.propose() is not None
    assert not [*shadow.rglob("*.lock")]
