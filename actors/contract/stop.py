"""Stop conditions: declared in the agent's spec, looked at when a step ends, first in list order wins.

0 or None switches a condition off. Counters survive suspension and restart; time is active time (waiting for people is
not counted). An answer that the model has just given is never thrown away by a stop condition.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

import attrs

from ..errors import UsageError


@attrs.frozen
class MaxRounds:
    """Stop after `n` steps (default 16). A plain final text in the n-th step still ends the run naturally."""

    n: int | None = 16


@attrs.frozen
class Timeout:
    """Stop after `seconds` of active time, looked at when a step ends."""

    seconds: float | None


@attrs.frozen
class TokenBudget:
    """Stop when input and output tokens together are more than `total`."""

    total: int | None


@attrs.frozen
class ConsecutiveErrors:
    """Stop after `n` failed steps in a row: all tool calls of the step failed, or the model did.

    Each failure of the model that may pass counts as one; the run is then stopped in place of asking again. A failure
    that can not pass fails the run.
    """

    n: int | None


@attrs.frozen
class StopOnTool:
    """Stop after a step in which the tool `name` has run."""

    name: str


@lru_cache(maxsize=256)
def _linear(pattern: str) -> Callable[[str], Any]:
    """What searches a text in time proportional to its length, whatever the pattern.

    `re` would need hours for some patterns and texts, and no other code runs meanwhile: the text is a model's, the
    pattern anyone's.
    """
    import re2  # noqa: PLC0415 - 8 ms of import for those that match text

    options = re2.Options()
    options.log_errors = False
    try:
        return cast("Callable[[str], Any]", re2.compile(pattern, options=options).search)
    except re2.error as error:
        said = error.args[0] if error.args else error
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise ValueError(text) from error


def _compiles(_: object, __: object, value: str) -> None:
    try:
        re.compile(value)
    except re.error as error:
        raise UsageError(f"ContentMatch({value!r}) is not a regular expression: {error}") from error
    try:
        _linear(value)
    except ValueError as error:
        raise UsageError(
            f"ContentMatch({value!r}) can not be searched in linear time: {error}; write the pattern without"
            " back-references, look-around and counts above 1,000"
        ) from error


@attrs.frozen
class ContentMatch:
    r"""Stop when the step's text matches the regular expression `pattern` somewhere.

    The syntax is RE2's, which is that of `re` without back-references and look-around: so a text of any length is
    searched in time proportional to it. `\w`, `\d` and `\s` mean ASCII characters, and `$` without `(?m)` the very end
    of the text.

    Raises:
        ValueError: the pattern does not compile, or has what RE2 lacks; said when the condition is made, not when it is
            met.
    """

    pattern: str = attrs.field(validator=_compiles)

    def met(self, text: str) -> bool:
        """True if the pattern is somewhere in the text."""
        return _linear(self.pattern)(text.encode("utf-8", "replace").decode()) is not None


@attrs.frozen
class LoopDetection:
    """Stop when the last `window` steps were the same.

    Steps with calls are the same if they made the same tool calls with the same arguments, whatever text came with
    them. Steps without calls (answers that were asked for again, or that were not the end because of new input or
    background tasks) are the same if they said the same text. The same text beside other calls is no loop.
    """

    window: int | None = 3


StopCondition = MaxRounds | Timeout | TokenBudget | ConsecutiveErrors | StopOnTool | ContentMatch | LoopDetection
