"""Where things are when nobody says: the demo's database, and who is sitting here."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from greenroom.actors.errors import StoreOpenError


def demo_database() -> Path:
    """The demo's database: in the folder for programs' state (XDG), so that `--resume` finds it from everywhere.

    It is not in the folder that the census is about: the report is the only file that comes into that one.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return base / "greenroom" / "demo.db"


def made(database: Path) -> Path:
    """The same path, with its folder made (0700) if it was not there.

    Raises:
        StoreOpenError: the folder can not be made.
    """
    try:
        database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreOpenError(
            f"{database.parent} can not be made: {error.strerror}; name another place with --db"
        ) from error
    return database


def user() -> str:
    """Who decides: the login name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may know its user by number only
        return f"uid-{os.getuid()}"
