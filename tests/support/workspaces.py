"""A user's folder with or without a repository, and workspaces on it, for tests."""

import os
import stat
import subprocess
from pathlib import Path

from greenroom.actors.workspaces.proposals import Proposal
from greenroom.actors.workspaces.service import Workspaces, open_workspaces
from greenroom.actors.workspaces.workspace import Workspace
from greenroom.actors.workspaces.worktree import Worktree, WorktreeState

AS_USER = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": "user" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def git(folder: Path, *words: str) -> str:
    """Run git as a user would, in a folder."""
    done = subprocess.run(["git", *words], cwd=folder, env=AS_USER, check=True, capture_output=True, text=True)
    return done.stdout


def contents(folder: Path, *, repository: bool = False) -> dict[str, tuple[int, bytes]]:
    """(mode, content or target) of everything in a folder, by path; without the folder's own `.git`."""
    result = dict[str, tuple[int, bytes]]()
    for place, folders, names in os.walk(folder):
        if not repository and Path(place) == folder and ".git" in folders:
            folders.remove(".git")
        for name in names + [one for one in folders if (Path(place) / one).is_symlink()]:
            path = Path(place) / name
            mode = stat.S_IMODE(path.lstat().st_mode)
            content = (
                os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            )
            result[str(path.relative_to(folder))] = (mode, content)
    return result


class Shop:
    """A user's folder named shop, and the state folder of workspaces beside it."""

    def __init__(self, place: Path, *, repository: bool = True) -> None:
        self.place = place.resolve()
        self.folder, self.state = self.place / "shop", self.place / "state"
        self.folder.mkdir()
        if repository:
            git(self.folder, "init", "-q")

    def write(self, path: str, text: str | bytes, *, mode: int = 0o644) -> Path:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())
        target.chmod(mode)
        return target

    def read(self, path: str) -> str:
        return (self.folder / path).read_bytes().decode()

    def commit(self) -> None:
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-qm", "work")

    def contents(self) -> dict[str, tuple[int, bytes]]:
        return contents(self.folder)

    async def open(self, **options: object) -> Workspaces:
        return await open_workspaces([Workspace("shop", self.folder, **options)], state=self.state)  # type: ignore[arg-type]

    async def begun(self, thread: str = "t") -> tuple[Worktree, WorktreeState]:
        """The worktree of a thread, as it is when a run begins."""
        worktree = (await self.open()).find("shop", thread)
        return worktree, await worktree.begin()

    async def worktree(self, thread: str = "t", **options: object) -> Worktree:
        return await (await self.open(**options)).worktree("shop", thread)


async def never_busy(_: str) -> bool:
    """No thread has a run that is not done."""
    return False


async def proposed(worktree: Worktree) -> Proposal:
    """The proposal of a worktree that has changes."""
    proposal = await worktree.propose()
    assert proposal is not None
    return proposal
