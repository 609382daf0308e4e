"""What a judge needs and may be missing: programs, npm packages, frameworks. Its test is then skipped with a reason.

With GREENROOM_JUDGES=required (the CI) it fails instead; tests/conftest.py sees to that for every test marked `judge`.
"""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "judges"


def need_program(name: str) -> str:
    """The path of a program. Debian keeps servers out of the PATH of people who are not root."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        lacking(f"no program {name} here: scripts/judges.sh --programs installs it on Debian")
    return found


def need_node_modules(judge: str) -> Path:
    """The folder tests/judges/<judge>, with its npm packages as its lock file says. Node itself: need_program."""
    folder = FOLDER / judge
    # npm leaves a copy of the lock file behind when it is done
    done, lock = folder / "node_modules" / ".package-lock.json", folder / "package-lock.json"
    if not done.exists() or done.stat().st_mtime < lock.stat().st_mtime:
        lacking(f"the npm packages of tests/judges/{judge} are missing or out of date: make judges")
    return folder


def need_peers() -> Path:
    """A Python that has the frameworks of docs/coming-from.md, in an environment of their own."""
    folder = FOLDER.parent.parent / ".cache/peers/coming-from"
    stamp, wanted = folder / ".stamp", FOLDER / "peers/requirements.txt"
    if not stamp.exists() or stamp.stat().st_mtime < wanted.stat().st_mtime:
        lacking(f"the environment {folder} is missing or out of date: make judges")
    return folder / "bin/python"


def lacking(reason: str) -> NoReturn:
    """Skip, or fail where judges are required."""
    if os.environ.get("GREENROOM_JUDGES") == "required":
        pytest.fail(f"this judge is required: {reason}", pytrace=False)
    pytest.skip(reason)
