"""Stop conditions: declared in the agent's spec, looked at when a step ends, first in list order wins.

0 or None switches a condition off. Counters survive suspension and restart; time is active time (waiting for people is
not counted). An answer that the model has just given is never thrown away by a stop condition.
"""

from __future__ import annotations

import re

import attrs


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


def _compiles(_: object, __: object, value: str) -> None:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"ContentMatch({value!r}) is not a regular expression: {error}") from error


@attrs.frozen
class ContentMatch:
    """Stop when the step's text matches the regular expression `pattern` somewhere.

    Raises:
        ValueError: the pattern does not compile; said when the condition is made, not when it is met.
    """

    pattern: str = attrs.field(validator=_compiles)


@attrs.frozen
class LoopDetection:
    """Stop when the last `window` steps made the same tool calls with the same arguments, or said the same text."""

    window: int | None = 3


StopCondition = MaxRounds | Timeout | TokenBudget | ConsecutiveErrors | StopOnTool | ContentMatch | LoopDetection
