"""Regular expressions of users, searched in linear time.

`re` would need hours for some patterns and texts while no other code runs: the text comes from a model or a client, the
pattern from any user.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

WAY_OUT: Final = "write the pattern without back-references, look-around and counts above 1,000"
"""The remedy for a pattern that RE2 does not take."""

_UNIT: Final = re.compile(r"\\u([0-9A-Fa-f]{4})")
_ESCAPED: Final = re.compile(r"\\(?:u[0-9A-Fa-f]{4}|.)", re.DOTALL)


@lru_cache(maxsize=256)
def linear(pattern: str) -> Callable[[str], bool]:
    r"""Return a search function whose time is proportional to the text.

    The syntax is RE2's, and `\\uFFFF` as in JSON Schema. A lone surrogate of the text counts as a question mark.

    Raises:
        ValueError: the pattern is invalid, or has a feature that RE2 lacks.
    """
    search = _compiled(pattern).search
    return lambda text: search(text.encode("utf-8", "replace").decode()) is not None


def whole(pattern: str) -> Callable[[str], bool]:
    """Return a function that compares a whole text with a pattern; else as `linear`, and the pattern is not cached.

    Raises:
        ValueError: the pattern is invalid, too large, or has a feature that RE2 lacks.
    """
    match = _compiled(pattern).fullmatch

    def compare(text: str) -> bool:
        return match(text if text.isascii() else text.encode("utf-8", "replace").decode()) is not None

    return compare


def _compiled(pattern: str) -> Any:
    import re2  # noqa: PLC0415 - 8 ms of import for those that match text

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True  # whether a text matches is all that is asked, and takes less time
    source = _ESCAPED.sub(lambda match: _UNIT.sub(r"\\x{\1}", match[0]), pattern)
    try:
        return re2.compile(source, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(text) from error
