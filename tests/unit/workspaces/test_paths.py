"""Attacks on single files: each is refused with the one code, and nothing outside changes."""

import errno
import os
import shutil
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from greenroom.actors.workspaces.errors import OutsideWorkspace, WorkspaceError, WorkspaceTooLarge
from greenroom.actors.workspaces.files import Files
from greenroom.actors.workspaces.paths import TEMPORARY, mapped, replace_text
from greenroom.actors.workspaces.withheld import Withheld


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A worktree `ws` beside a sibling `ws2` with a secret."""
    (tmp_path / "ws/sub").mkdir(parents=True)
    (tmp_path / "ws2").mkdir()
    (tmp_path / "ws2/secret").write_text("secret")
    (tmp_path / "ws/plain").write_text("plain")
    return tmp_path.resolve()


@pytest.fixture
def files(place: Path) -> Files:
    async def list_files() -> list[str]:
        return ["plain", "sub/x", "web/y"]

    return Files(place / "ws", (), Withheld(), list_files)


def bind_socket(path: Path, outside: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


PLANT: dict[str, tuple[str, Callable[[Path, Path], object]]] = {
    "link to a file": ("x", lambda x, outside: x.symlink_to(outside / "secret")),
    "link to a file inside": ("x", lambda x, outside: x.symlink_to("plain")),
    "link to a folder": ("x/secret", lambda x, outside: x.symlink_to(outside)),
    "linked folder further up": ("x/new/deep/secret", lambda x, outside: x.symlink_to(outside)),
    "dangling link": ("x", lambda x, outside: x.symlink_to(outside / "new")),
    "hard link": ("x", lambda x, outside: x.hardlink_to(outside / "secret")),
    "named pipe": ("x", lambda x, outside: os.mkfifo(x)),
    "socket": ("x", bind_socket),
    "folder": ("x", lambda x, outside: x.mkdir()),
    "file for a folder": ("plain/x", lambda x, outside: None),
}


def plant(ws: Path, attack: str) -> str:
    """Make what an attack needs, and return the path that a run would name."""
    path, make = PLANT[attack]
    make(ws / "x", ws.parent / "ws2")
    return path


@pytest.mark.parametrize("attack", PLANT)
async def test_a_read_gets_plain_files_of_the_folder_only(place: Path, files: Files, attack: str) -> None:
    """What is missing and what is forbidden has the same text."""
    path = plant(place / "ws", attack)
    with pytest.raises(OutsideWorkspace) as forbidden:
        await files.read(path)
    with pytest.raises(OutsideWorkspace) as missing:
        await files.read("nothing")
    assert str(forbidden.value).replace(path, "nothing") == str(missing.value)


@pytest.mark.parametrize("attack", PLANT)
async def test_a_write_changes_nothing_outside(place: Path, files: Files, attack: str) -> None:
    path = plant(place / "ws", attack)
    with pytest.raises(OutsideWorkspace):
        await files.write(path, b"written")
    assert (place / "ws2/secret").read_text() == "secret"
    assert sorted(os.listdir(place / "ws2")) == ["secret"]
    assert (place / "ws/plain").read_text() == "plain"
    assert not list((place / "ws").glob(f"**/{TEMPORARY}*"))


@pytest.mark.parametrize(
    "path", ["../ws2/secret", "/etc/passwd", ".git/config", ".env", "a/.codex/config.toml", ".", "sub/..", "a\nb"]
)
async def test_forbidden_names_are_refused_for_reads_writes_and_removals(place: Path, files: Files, path: str) -> None:
    before = sorted(os.listdir(place / "ws"))
    for attempt in (files.read(path), files.write(path, b"x"), files.remove(path)):
        with pytest.raises(OutsideWorkspace):
            await attempt
    assert sorted(os.listdir(place / "ws")) == before


async def test_a_folder_that_becomes_a_link_between_two_uses_is_refused(place: Path, files: Files) -> None:
    """Paths are resolved at each use, so what was checked before counts for nothing."""
    await files.write("sub/x", b"inside")
    (place / "ws/sub/x").unlink()
    (place / "ws/sub").rmdir()
    (place / "ws/sub").symlink_to(place / "ws2")
    with pytest.raises(OutsideWorkspace):
        await files.write("sub/x", b"outside")
    with pytest.raises(OutsideWorkspace):
        await files.read("sub/secret")
    assert os.listdir(place / "ws2") == ["secret"]


async def test_the_folder_itself_may_not_become_a_link(place: Path, files: Files) -> None:
    (place / "ws").rename(place / "moved")
    (place / "ws").symlink_to(place / "ws2")
    with pytest.raises(OutsideWorkspace):
        await files.read("secret")


async def test_a_race_for_a_folder_never_reads_or_writes_outside(place: Path, files: Files) -> None:
    """A thread exchanges a folder for a link to the sibling and back, while files are read and written."""
    ws, done = place / "ws", threading.Event()

    def exchange() -> None:
        while not done.is_set():
            shutil.rmtree(ws / "sub", ignore_errors=True)
            with suppress(OSError):  # a write makes the missing folder
                for link in (ws / "sub", ws / "link"):
                    link.unlink(missing_ok=True)
                (ws / "sub").mkdir()
                (ws / "sub/secret").write_text("inside")
                (ws / "link").symlink_to(place / "ws2")
                for _ in range(20):
                    os.rename(ws / "sub", ws / "real")
                    os.rename(ws / "link", ws / "sub")
                    os.rename(ws / "sub", ws / "link")
                    os.rename(ws / "real", ws / "sub")
            shutil.rmtree(ws / "real", ignore_errors=True)

    thread = threading.Thread(target=exchange)
    thread.start()
    seen = set[bytes]()
    try:
        for _ in range(200):
            try:
                seen.add(await files.read("sub/secret"))
                await files.write("sub/secret", b"inside")
            except OutsideWorkspace:
                continue
    finally:
        done.set()
        thread.join()
    assert seen <= {b"inside", b""}
    assert (place / "ws2/secret").read_text() == "secret"
    assert os.listdir(place / "ws2") == ["secret"]


async def test_a_file_over_the_limit_is_named_with_both_sizes(place: Path, files: Files) -> None:
    (place / "ws/big").write_bytes(b"x" * 1_001)
    with pytest.raises(WorkspaceTooLarge, match="'big' has 1,001 bytes; the limit is 1,000"):
        await files.read("big", most=1_000)
    with pytest.raises(WorkspaceTooLarge, match="the limit is 8,388,608"):
        await files.write("new", b"x" * (8 * 1024 * 1024 + 1))
    assert not (place / "ws/new").exists()


async def test_a_write_makes_folders_and_keeps_the_permissions_of_a_file(place: Path, files: Files) -> None:
    (place / "ws/plain").chmod(0o750)
    await files.write("plain", b"new")
    await files.write("a/b/c", b"deep")
    assert (place / "ws/plain").stat().st_mode & 0o777 == 0o750
    assert await files.read("a/b/c") == b"deep"
    await files.remove("a/b/c")
    assert not await files.has("a/b/c")
    assert await files.has_folder("a/b")


async def test_paths_are_relative_to_the_folder_of_the_run(place: Path) -> None:
    async def list_files() -> list[str]:
        return ["plain", "sub/x", "sub/y/z", "sub2/x"]

    inside = Files(place / "ws", ("sub",), Withheld(), list_files)
    await inside.write("y/z", b"deep")
    assert (place / "ws/sub/y/z").read_bytes() == b"deep"
    assert await inside.names() == ["x", "y/z"]
    assert await inside.names("y") == ["y/z"]
    with pytest.raises(OutsideWorkspace):
        await inside.read("../plain")
    with pytest.raises(OutsideWorkspace):
        await inside.names("plain")


def test_an_error_of_the_disk_is_not_reported_as_a_missing_file() -> None:
    with pytest.raises(WorkspaceError, match="No space left") as caught, mapped("x"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not isinstance(caught.value, OutsideWorkspace)


def test_a_file_of_the_state_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    replace_text(path, "first")
    replace_text(path, "second")
    assert path.read_text() == "second"
    assert os.listdir(tmp_path) == ["record.json"]
