"""No text takes more than its length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.unit.contract import test_growth as table

from .core import Dice, Violation

READERS: Final[tuple[Callable[[str], object], ...]] = (
    table.PLAIN.text,
    table.WITH_NAMED.text,
    table.WITH_NAMED.within("/srv/aaaa").text,
    table.HOLD.settled,
    table.HOLD_WITH_NAMED.settled,
)


def texts(dice: Dice) -> None:
    """A text of the grammar of some patterns takes time in proportion to its length, up to 1 MiB."""
    bits = [*table.FRAGMENTS, *"-_.=:/\\'\"{}[]\n\t \0é", "aaaaaaaa", "A" * 33, "eyJ" + "a" * 9, "\\" * 9]
    for name in dice.sample(sorted(table.WORST), 2):
        bits += [dice.choice(table.WORST[name])(dice.choice((8, 40, 400)))] * 8
    unit = "".join(dice.choices(bits, k=dice.randint(1, 7)))
    make = table.again(unit, dice.choice(bits), dice.choice((*bits, "")))
    work = dice.choice(READERS)
    sizes = table.HELD_SIZES if work in READERS[3:] else (65_536, 1_048_576)
    try:
        table.assert_linear(work, make, sizes)
    except AssertionError as error:
        raise Violation(f"{error}; the unit is {unit!r:.300}") from error
