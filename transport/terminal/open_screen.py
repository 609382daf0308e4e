"""`open_screen`: select the screen for standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from greenroom.actors.contract.secrets.spans import Finder, spellings

from .screen import HidingScreen, JsonScreen, Screen


def open_screen(*, machine: bool = False, secrets: Iterable[str] = ()) -> Screen:
    """Return the screen for standard output; it never shows one of the `secrets`.

    With `machine`, the screen writes JSON lines, and the output of tools goes to standard error from then on.
    """
    forms = {form for secret in secrets for form in spellings(secret)}
    screen = _open(machine=machine)
    return HidingScreen(screen, Finder(forms, shapes=False).masked) if forms else screen


def _open(*, machine: bool) -> Screen:
    if machine:
        out, sys.stdout = sys.stdout, sys.stderr
        return JsonScreen(out)
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from .rich_screen import RichScreen  # noqa: PLC0415 - a pipe needs neither rich nor its import time

        return RichScreen()
    return Screen()
