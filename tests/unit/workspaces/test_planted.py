"""What a program plants in a worktree, or a user has in the folder, makes our git run nothing and change no byte."""

import os
from pathlib import Path

import pytest
from tests.support.workspaces import Shop, git, proposed

pytestmark = pytest.mark.slow


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.write("a.txt", "one\ntwo\nthree\n")
    made.write("b.bat", b"keep\r\nthese\r\n")
    made.commit()
    return made


def plant(repository: Path, tree: Path, program: Path) -> None:
    """Name a program wherever git would look for one."""
    for name in (
        "post-checkout",
        "pre-commit",
        "post-index-change",
        "reference-transaction",
        "post-merge",
        "post-rewrite",
    ):
        (repository / "hooks").mkdir(exist_ok=True)
        hook = repository / "hooks" / name
        hook.write_text(f"#!/bin/sh\n{program} hook\n")
        hook.chmod(0o755)
    for key, value in {
        "core.fsmonitor": f"{program} fsmonitor",
        "core.hooksPath": str(repository / "hooks"),
        "core.pager": f"{program} pager",
        "core.attributesFile": str(tree / "attributes"),
        "filter.evil.clean": f"{program} clean",
        "filter.evil.smudge": f"{program} smudge",
        "filter.evil.process": f"{program} process",
        "diff.evil.command": f"{program} command",
        "diff.evil.textconv": f"{program} textconv",
        "diff.external": f"{program} external",
        "merge.evil.driver": f"{program} driver",
        "core.sshCommand": f"{program} ssh",
        "gpg.program": f"{program}",
        "commit.gpgSign": "true",
    }.items():
        git(tree, f"--git-dir={repository}", "config", key, value)
    text = "* filter=evil diff=evil merge=evil text eol=crlf ident working-tree-encoding=UTF-16\n*.txt merge=union\n"
    (tree / ".gitattributes").write_text(text)
    (tree / "attributes").write_text(text)
    (repository / "info").mkdir(exist_ok=True)
    (repository / "info/attributes").write_text(text)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that notes each start of it."""
    path = tmp_path / "evil"
    path.write_text(f"#!/bin/sh\necho $1 >> {tmp_path}/ran\ncat\n")
    path.chmod(0o755)
    return path


def runs(program: Path) -> list[str]:
    ran = program.parent / "ran"
    return ran.read_text().split() if ran.exists() else []


@pytest.mark.parametrize("where", ["worktree", "folder"])
async def test_nothing_that_is_planted_runs(shop: Shop, program: Path, where: str) -> None:
    """Snapshot, difference, apply, conflict and the next run of the thread, with all of git's doors planted."""
    worktree = await shop.worktree()
    tree = worktree.path if where == "worktree" else shop.folder
    plant(tree / ".git", tree, program)
    await worktree.files.write("a.txt", b"one $Id$\ntwo\nthree\n")
    await worktree.files.write("b.bat", b"keep\nthose\r\n")
    proposal = await proposed(worktree)
    assert (await worktree.apply(proposal.id)).status == "applied"
    assert shop.read("a.txt") == "one $Id$\ntwo\nthree\n"
    assert shop.read("b.bat") == "keep\nthose\r\n"
    await worktree.files.write("a.txt", b"theirs\ntwo\nthree\n")
    shop.write("a.txt", "ours\ntwo\nthree\n")
    result = await worktree.apply((await proposed(worktree)).id)
    assert result.conflicts == ("a.txt",)  # `merge=union` would have taken both lines
    assert (
        (worktree.path / "a.txt").read_text().startswith("<<<<<<< workspace\nours\n=======\ntheirs\n>>>>>>> worktree")
    )
    await worktree.reset()
    assert (worktree.path / "a.txt").read_text() == "ours\ntwo\nthree\n"
    assert runs(program) == []


async def test_the_planted_programs_would_have_run(shop: Shop, program: Path) -> None:
    """The test above can fail: a git without our care starts them."""
    plant(shop.folder / ".git", shop.folder, program)
    shop.write("a.txt", "changed\n")
    git(shop.folder, "status")
    git(shop.folder, "diff")
    assert {"fsmonitor", "command"} <= set(runs(program))


async def test_variables_of_the_environment_do_not_reach_git(
    shop: Shop, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "GIT_DIR": "/nowhere",
        "GIT_WORK_TREE": "/nowhere",
        "GIT_INDEX_FILE": "/nowhere/index",
        "GIT_OBJECT_DIRECTORY": "/nowhere",
        "GIT_EXTERNAL_DIFF": str(program),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": str(program),
        "GIT_CONFIG_PARAMETERS": f"'core.fsmonitor'='{program}'",
        "GIT_TRACE": "1",
        "GIT_LITERAL_PATHSPECS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    worktree = await shop.worktree()
    await worktree.files.write("a.txt", b"changed\n")
    assert (await worktree.apply((await proposed(worktree)).id)).status == "applied"
    assert shop.read("a.txt") == "changed\n"
    assert runs(program) == []


async def test_the_configuration_of_the_user_does_not_reach_git(
    shop: Shop, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(f"[core]\n fsmonitor = {program}\n excludesFile = {home}/ignore\n")
    (home / "ignore").write_text("*\n")
    monkeypatch.setenv("HOME", str(home))
    worktree = await shop.worktree()
    assert sorted(os.listdir(worktree.path)) == [".git", "a.txt", "b.bat"]
    assert runs(program) == []


async def test_a_repository_of_a_worktree_that_is_a_link_is_neither_used_nor_followed(shop: Shop) -> None:
    worktree = await shop.worktree()
    kept = shop.place / "elsewhere"
    (worktree.path / ".git").rename(kept)
    (worktree.path / ".git").symlink_to(kept)
    await worktree.files.write("a.txt", b"changed\n")
    await worktree.apply((await proposed(worktree)).id)
    await worktree.reset()
    assert (worktree.path / ".git/HEAD").is_file()
    assert not (worktree.path / ".git").is_symlink()
    assert (kept / "HEAD").is_file()


async def test_odd_names_of_files_reach_git_as_names(shop: Shop) -> None:
    """No name is an option, a pattern or a quoted text."""
    worktree = await shop.worktree()
    names = [
        "-rf",
        "--all",
        ":(glob)**",
        '"quoted"',
        "a b",
        "tab",
        "*",
        "!x",
        "#x",
        "\\back",
        "ü",
        "x'y",
        "$(touch ran)",
    ]
    for name in names:
        await worktree.files.write(f"odd/{name}", name.encode())
    proposal = await proposed(worktree)
    assert {file.path for file in proposal.files} == {f"odd/{name}" for name in names}
    assert (await worktree.apply(proposal.id)).status == "applied"
    assert {name: shop.read(f"odd/{name}") for name in names} == {name: name for name in names}
