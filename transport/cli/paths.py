"""Default places: the demo's database, and the name of the user."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from greenroom.actors.errors import StoreOpenError


def demo_database() -> Path:
    """Return the demo's database: in the user's state folder (XDG), so that `--resume` finds it from every folder.

    The database is not in the folder of the census: the report is the only file written there.

    Raises:
        StoreOpenError: The user has no home folder.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):
        return Path(state) / "greenroom" / "demo.db"
    try:
        home = Path.home()
    except RuntimeError as error:
        raise StoreOpenError("this user has no home folder for the demo's database; name a file with --db") from error
    return home / ".local" / "state" / "greenroom" / "demo.db"


def database(path: Path | None) -> Path:
    """Return the given database, or else the demo's.

    Raises:
        StoreOpenError: The path is a folder, or there is no place for the demo's database.
    """
    if path is None:
        return demo_database()
    if path.is_dir():
        raise StoreOpenError(f"{path} is a folder; name a file in it, as in {path / 'runs.db'}")
    return path


def made(path: Path) -> Path:
    """Create the folder of a path (0700) if it does not exist, and return the path.

    Raises:
        StoreOpenError: The folder cannot be created.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreOpenError(f"{path.parent} cannot be made: {error.strerror}; name another place with --db") from error
    return path


def program() -> str:
    """Return the command for this program: its name if the shell finds it, otherwise the path that started it."""
    started_by = sys.argv[0]
    in_path = Path(started_by).name != "greenroom" or shutil.which("greenroom") is not None
    return "greenroom" if in_path else started_by


def typed(*words: object) -> str:
    """Return a command of this program as it is typed in a shell."""
    return shlex.join([program(), *map(str, words)])


def flags(options: Mapping[str, object]) -> list[str]:
    """Return options with their values as they are typed; those without a value are left out."""
    return [str(word) for name, value in options.items() if value is not None for word in (name, value)]


def user() -> str:
    """Return the login name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have only a number
        return f"uid-{os.getuid()}"
