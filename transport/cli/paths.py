"""Where things are when nobody says: the demo's database, and who is sitting here."""

from __future__ import annotations

import getpass
import os
import shutil
import sys
from pathlib import Path

from greenroom.actors.errors import StoreOpenError


def demo_database() -> Path:
    """The demo's database: in the folder for programs' state (XDG), so that `--resume` finds it from everywhere.

    It is not in the folder that the census is about: the report is the only file that comes into that one.

    Raises:
        StoreOpenError: the user has no home folder.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):
        return Path(state) / "greenroom" / "demo.db"
    try:
        home = Path.home()
    except RuntimeError as error:
        raise StoreOpenError("this user has no home folder for the demo's database; name a file with --db") from error
    return home / ".local" / "state" / "greenroom" / "demo.db"


def database(given: Path | None) -> Path:
    """The database that is meant: the given one, else the demo's.

    Raises:
        StoreOpenError: it is a folder, or there is no place for the demo's.
    """
    if given is None:
        return demo_database()
    if given.is_dir():
        raise StoreOpenError(f"{given} is a folder; name a file in it, as in {given / 'runs.db'}")
    return given


def made(path: Path) -> Path:
    """The same path, with its folder made (0700) if it was not there.

    Raises:
        StoreOpenError: the folder can not be made.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreOpenError(
            f"{path.parent} can not be made: {error.strerror}; name another place with --db"
        ) from error
    return path


def program() -> str:
    """What to type for this program: its name if the shell finds it, else the path that it was started by."""
    started_by = sys.argv[0]
    known = Path(started_by).name != "greenroom" or shutil.which("greenroom") is not None
    return "greenroom" if known else started_by


def user() -> str:
    """Who decides: the login name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may know its user by number only
        return f"uid-{os.getuid()}"
