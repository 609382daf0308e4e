"""Run git for workspaces, with a configuration of ours only. The one module of workspaces that starts programs.

Theory of operation. git runs programs that its configuration names: hooks, fsmonitor, filters, merge drivers, external
diffs, pagers. So no configuration of the user, the system or the environment is read, `GIT_DIR` is always the shadow
repository, which no agent writes, and `info/attributes` there unsets every attribute that could change bytes or
choose a driver (that file outranks each `.gitattributes`). What git needs of a worktree, it reads as data.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, cast

import attrs
import trio

from .errors import GitFailed, GitUnavailable

LEAST: Final = (2, 38)
"""The first release that has `merge-tree --write-tree`."""
_WHOLE: Final = frozenset({"init", "update-ref", "config"})
"""Commands that may leave a lock file in the repository if they are ended in the middle; all others change no ref."""
_TAIL: Final = 2_000
"""Characters of git's complaint that an error shows."""

_CONFIG: Final = {
    "core.bare": "false",
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.autocrlf": "false",
    "core.safecrlf": "false",
    "core.symlinks": "true",
    "core.fileMode": "true",
    "core.ignoreCase": "false",
    "core.precomposeUnicode": "false",
    "core.protectNTFS": "false",  # refuses whole commands for one odd name; `allowlist` refuses the name
    "core.protectHFS": "false",
    "core.quotePath": "false",
    "gc.auto": "0",
    "diff.renames": "true",
    "merge.renames": "true",
    "merge.renameLimit": "1000",
    "merge.directoryRenames": "false",  # would move files of the user into folders that the agent has renamed
    "submodule.recurse": "false",
}  # fmt: skip
ATTRIBUTES: Final = (
    "* -text -eol -crlf -ident -filter -working-tree-encoding !diff !merge !conflict-marker-size !whitespace\n"
)
"""Content of `info/attributes`: bytes are never converted, and texts are merged as texts."""
_IDENTITY: Final = {
    # Always the same, so that the same files have the same commit, and a proposal the same id after a crash.
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "greenroom"), ("EMAIL", "greenroom@localhost"), ("DATE", "@946684800 +0000"))
}


@attrs.frozen(kw_only=True)
class Git:
    """The git program and one repository.

    Attributes:
        program: The path of git.
        folder: The repository (`GIT_DIR`), which also is the working directory.
        version: The version of git.
    """

    program: str
    folder: Path
    version: tuple[int, int] = LEAST

    async def run(
        self,
        *words: str,
        data: bytes = b"",
        tree: Path | None = None,
        index: Path | None = None,
        config: Mapping[str, str] | None = None,
        accept: Sequence[int] = (0,),
    ) -> tuple[int, bytes]:
        """Run a command; return its exit code and what it prints. A cancel ends git, and waits for those of `_WHOLE`.

        Args:
            words: The command and its arguments.
            data: Given to git on its standard input.
            tree: The work tree; None for none.
            index: The index file; None for the repository's own.
            config: Further settings.
            accept: The exit codes that are no failure.

        Raises:
            GitFailed: git ended with another exit code.
        """
        with trio.CancelScope(shield=words[0] in _WHOLE):  # bounded: these take milliseconds
            result = await trio.run_process(
                self._command(words, config, tree),
                stdin=data,
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                cwd=self.folder,
                env=self._environment(index),
            )
        if result.returncode not in accept:
            raise _failed(words, result.returncode, result.stderr)
        return result.returncode, result.stdout

    async def head(self, *words: str, most: int) -> tuple[bytes, bool]:
        """Return the first `most` bytes that a command prints, and whether there is more. git is killed then."""
        chunks, size = list[bytes](), 0
        async with trio.open_nursery() as nursery:
            start = partial(
                trio.run_process,
                stdin=b"",
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                check=False,
                cwd=self.folder,
                env=self._environment(None),
            )
            process: trio.Process = await nursery.start(start, self._command(words, None, None))
            output = cast("trio.abc.ReceiveStream", process.stdout)  # there, because it is a pipe
            async for chunk in output:
                chunks.append(bytes(chunk))
                size += len(chunk)
                if size > most:
                    process.kill()
                    break
        return b"".join(chunks)[:most], size > most

    async def save_blob(self, digest: str, path: Path) -> None:
        """Write a content to a new file.

        Raises:
            GitFailed: there is no such content.
        """
        words = ("cat-file", "blob", digest)
        command, environment = self._command(words, None, None), self._environment(None)
        with await trio.to_thread.run_sync(path.open, "xb") as file:
            result = await trio.run_process(
                command, stdout=file, capture_stderr=True, check=False, cwd=self.folder, env=environment
            )
        if result.returncode:
            raise _failed(words, result.returncode, result.stderr)

    async def line(self, *words: str, data: bytes = b"", index: Path | None = None) -> str:
        """Return the one line that a command prints. Raises as `run`."""
        return (await self.run(*words, data=data, index=index))[1].decode("utf-8", "replace").strip()

    def _command(self, words: Sequence[str], config: Mapping[str, str] | None, tree: Path | None) -> list[str]:
        settings = {**_CONFIG, **(config or {})}
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        where = [f"--git-dir={self.folder}", *([f"--work-tree={tree}"] if tree else [])]
        return [self.program, "--no-pager", *options, *where, *words]

    def _environment(self, index: Path | None) -> dict[str, str]:
        return clean_environment(self.folder) | ({"GIT_INDEX_FILE": str(index)} if index else {})


def clean_environment(home: Path) -> dict[str, str]:
    """Return the environment of git: nothing of ours but PATH and the temporary folder, so no GIT_ variable either."""
    variables = {key: os.environ[key] for key in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if key in os.environ}
    return variables | _IDENTITY | {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home),
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
    }  # fmt: skip


async def find_git(home: Path) -> Git:
    """Return the git of the PATH, with `home` as its repository, which need not exist yet.

    Raises:
        GitUnavailable: there is none, or its version is below `LEAST`.
    """
    program = shutil.which("git")
    if program is None:
        raise GitUnavailable("missing", "no program named git is in the PATH; install git 2.38 or newer")
    result = await trio.run_process(
        [program, "--version"], capture_stdout=True, check=False, cwd=home, env=clean_environment(home)
    )
    text = result.stdout.decode("utf-8", "replace").strip()
    numbers = re.search(r"(\d+)\.(\d+)", text)
    version = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    if version < LEAST:
        raise GitUnavailable("incompatible", f"{program} says {text!r:.80}; workspaces need git 2.38 or newer")
    return Git(program=program, folder=home, version=version)


async def lent_by(git: Git, folder: Path) -> Lent | None:
    """Return what the user's repository of a folder lends; None if there is none that can be used.

    The repository must begin in the folder itself and have SHA-1 objects, as the shadow repository has. Its
    configuration is read, but no command of this kind runs a program of it.
    """
    words = ("rev-parse", "--path-format=absolute", "--show-toplevel", "--show-object-format",
             "--git-path", "objects", "--git-path", "index", "--git-path", "info/exclude")  # fmt: skip
    result = await _in(git, folder, *words)
    lines = os.fsdecode(result.stdout).splitlines()
    if result.returncode or len(lines) != 5 or Path(lines[0]) != folder or lines[1] != "sha1":
        return None
    head = await _in(git, folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    commit = head.stdout.decode().strip() if head.returncode == 0 else None
    return Lent(objects=Path(lines[2]), index=Path(lines[3]), exclude=Path(lines[4]), commit=commit)


@attrs.frozen(kw_only=True)
class Lent:
    """What the user's repository lends, all as data.

    Attributes:
        objects: Its objects; the shadow repository's alternates.
        index: Its index: the names in it are not ignored.
        exclude: Its `info/exclude`.
        commit: Its newest commit, the parent of a base; None before the first one.
    """

    objects: Path
    index: Path
    exclude: Path
    commit: str | None


async def init_shadow(git: Git) -> None:
    """Make the shadow repository, or complete it; there is no template, so no hook.

    The caller holds the lock of the workspace, so a lock file in the repository is of a git that was killed.
    """
    await trio.to_thread.run_sync(_remove_locks, git.folder)
    await git.run("init", "-q", "--bare", "--template=", "--object-format=sha1")
    await trio.to_thread.run_sync(_write_info, git.folder, "attributes", ATTRIBUTES)


async def lend(git: Git, objects: Iterable[Path]) -> None:
    """Let the repository read the objects of others."""
    text = "".join(f"{_quoted(path)}\n" for path in objects)
    await trio.to_thread.run_sync(_write_info, git.folder / "objects", "alternates", text)


async def init_disposable(git: Git, folder: Path, objects: Iterable[Path], commit: str) -> None:
    """Make a repository, whose branch `work` and index are at a commit: for programs in a worktree.

    git runs there now only, while no other program has written there.

    Args:
        git: The shadow repository.
        folder: A new, empty folder.
        objects: What it reads from.
        commit: Its newest commit.
    """
    own = attrs.evolve(git, folder=folder)
    await own.run("init", "-q", "--template=", "--object-format=sha1", "--initial-branch=work")
    await own.run("config", "core.bare", "false")  # `--git-dir` without a work tree made it bare
    await lend(own, objects)
    await own.run("update-ref", "refs/heads/work", commit)
    await own.run("read-tree", commit)


async def _in(git: Git, folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = [
        git.program,
        "-c",
        "core.fsmonitor=false",
        "-c",
        "safe.bareRepository=explicit",
        "-C",
        str(folder),
        *words,
    ]
    environment = clean_environment(git.folder)
    return await trio.run_process(command, env=environment, capture_stdout=True, capture_stderr=True, check=False)


def _remove_locks(folder: Path) -> None:
    for path in (*folder.glob("*.lock"), *folder.glob("refs/**/*.lock")):
        path.unlink(missing_ok=True)


def _write_info(folder: Path, name: str, text: str) -> None:
    (folder / "info").mkdir(exist_ok=True)
    (folder / "info" / name).write_text(text, encoding="utf-8", errors="surrogateescape")


def _quoted(path: Path) -> str:
    """A line of an alternates file; a path that begins with a quote or has a newline would mean another one."""
    text = str(path)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _failed(words: Sequence[str], code: int, printed: bytes) -> GitFailed:
    tail = printed.decode("utf-8", "replace")[-_TAIL:].strip()
    return GitFailed(f"git {words[0]} ended with exit code {code}: {tail or 'without a word'}")
