"""Stop conditions: declared in the agent's spec, evaluated at the end of a step, first in list order wins.

0 or None switches a condition off. Counters survive suspension and restart; time is active time (waiting for people is
not counted). A stop condition never drops an answer that the model has just given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import attrs

from ..errors import UsageError
from .patterns import WAY_OUT, linear


@attrs.frozen
class MaxRounds:
    """Stop after `n` steps (default 16). A final text in the n-th step still ends the run naturally."""

    n: int | None = 16


@attrs.frozen
class Timeout:
    """Stop after `seconds` of active time, evaluated at the end of a step."""

    seconds: float | None


@attrs.frozen
class TokenBudget:
    """Stop when input and output tokens together exceed `total`."""

    total: int | None


@attrs.frozen
class ConsecutiveErrors:
    """Stop after `n` failed steps in a row: all tool calls of the step failed, or the model request did.

    Each failure of a request that may pass counts as one; the run is then stopped instead of retried. A failure that
    cannot pass fails the run.
    """

    n: int | None


@attrs.frozen
class StopOnTool:
    """Stop after a step in which the tool `name` ran."""

    name: str


def _compiles(_: object, __: object, value: str) -> None:
    try:
        re.compile(value)
    except re.error as error:
        raise UsageError(f"ContentMatch({value!r}) is not a regular expression: {error}") from error
    try:
        linear(value)
    except ValueError as error:
        raise UsageError(f"ContentMatch({value!r}) cannot be searched in linear time: {error}; {WAY_OUT}") from error


@attrs.frozen
class ContentMatch:
    r"""Stop when the step's text matches the regular expression `pattern` somewhere.

    The syntax is RE2's: that of `re` without back-references and look-around, so that the search takes time
    proportional to the text. `\w`, `\d` and `\s` mean ASCII characters, and `$` without `(?m)` the very end of the
    text.

    Raises:
        UsageError: the pattern does not compile, or has a feature that RE2 lacks; raised when the condition is created.
    """

    pattern: str = attrs.field(validator=_compiles)

    def met(self, text: str) -> bool:
        """Return True if the pattern matches somewhere in the text."""
        return linear(self.pattern)(text)


@attrs.frozen
class LoopDetection:
    """Stop when the last `window` steps were equal.

    Steps with calls are equal if they made the same tool calls with the same arguments, whatever their text. Steps
    without calls (answers that were asked for again, or that were not final because of new input or background tasks)
    are equal if their texts are. Equal texts beside different calls are not a loop.
    """

    window: int | None = 3


StopCondition = MaxRounds | Timeout | TokenBudget | ConsecutiveErrors | StopOnTool | ContentMatch | LoopDetection


def too_many_errors(conditions: Iterable[StopCondition], errors: int) -> bool:
    """Return True if this many failed steps in a row meet a ConsecutiveErrors."""
    return any(c.n and errors >= c.n for c in conditions if isinstance(c, ConsecutiveErrors))
