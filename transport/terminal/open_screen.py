"""`open_screen`: the screen for standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from greenroom.actors.contract.spans import Finder, spellings

from .screen import HidingScreen, JsonScreen, Screen


def open_screen(*, machine: bool = False, secrets: Iterable[str] = ()) -> Screen:
    """The screen that fits where standard output goes; it never shows one of the `secrets`.

    With `machine` it is JSON lines, and what tools print goes to standard error from now on.
    """
    forms = {form for secret in secrets for form in spellings(secret)}
    screen = _open(machine=machine)
    return HidingScreen(screen, Finder(forms, shapes=False).masked) if forms else screen


def _open(*, machine: bool) -> Screen:
    if machine:
        out, sys.stdout = sys.stdout, sys.stderr
        return JsonScreen(out)
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from .rich_screen import RichScreen  # noqa: PLC0415 - a pipe does without rich and its import time

        return RichScreen()
    return Screen()
