"""Attacks on Greenroom, drawn by lot: each family combines what the tests have in tables, in ways no table has.

    python -m scripts.attack                           all families, half a minute each
    python -m scripts.attack routes --seed 7           one family, from another seed
    python -m scripts.attack doors --seed 7 --only 12  one try again, by the number that a violation was printed with

Each try has a dice of its own, made of the family, the seed and the number of the try. Prints `tries N, violations M`
for each family; the exit status is 1 if any M is not 0.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from typing import Final

from scripts.attacks.clocks import clocks
from scripts.attacks.core import Dice
from scripts.attacks.disks import disks
from scripts.attacks.doors import doors
from scripts.attacks.growth import growth
from scripts.attacks.odds import odds
from scripts.attacks.principals import principals
from scripts.attacks.roles import roles
from scripts.attacks.routes import routes
from scripts.attacks.secrets import secrets
from scripts.attacks.sizes import sizes
from scripts.attacks.streams import streams
from scripts.attacks.texts import texts

from greenroom.supervision.border import is_interrupt
from greenroom.supervision.reporting import traceback_text

FAMILIES: Final[dict[str, Callable[[Dice], None]]] = {
    family.__name__: family
    for family in (doors, texts, secrets, disks, clocks, routes, odds, roles, sizes, principals, growth, streams)
}


def attacked(name: str, seed: int, number: int) -> str | None:
    """Play one try; why it is a violation, or None."""
    try:
        FAMILIES[name](Dice(f"{name} {seed} {number}"))
    except BaseException as error:  # noqa: ASYNC103 - the border has raised what passes
        if is_interrupt(error):
            raise
        return traceback_text(error)[-6_000:]  # noqa: ASYNC104 - the border has raised what passes
    return None


def attack(name: str, seed: int, seconds: float, most: int) -> int:
    """Play a family; how many violations there were, each of which is printed."""
    ends, tries, violations = time.monotonic() + seconds, 0, 0
    while tries < most and (time.monotonic() < ends or not tries):
        why = attacked(name, seed, tries)
        if why is not None:
            violations += 1
            print(f"--- {name} --seed {seed} --only {tries}\n{why}", flush=True)
        tries += 1
    print(f"{name}: tries {tries}, violations {violations}", flush=True)
    return violations


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Attack Greenroom with combinations that are drawn by lot.")
    parser.add_argument("families", nargs="*", metavar="family", help=f"some of {', '.join(FAMILIES)} (default: all)")
    parser.add_argument("--seed", type=int, default=20_011)
    parser.add_argument("--seconds", type=float, default=30.0, help="for each family (default: %(default)s)")
    parser.add_argument("--tries", type=int, default=1_000_000, help="at most, for each family")
    parser.add_argument("--only", type=int, help="one try again, by its number")
    options = parser.parse_args()
    unknown = set(options.families) - set(FAMILIES)
    if unknown:
        parser.error(f"there is no family {sorted(unknown)[0]!r}; use some of {', '.join(FAMILIES)}")
    logging.getLogger("greenroom").addHandler(logging.NullHandler())
    logging.getLogger("trio").addHandler(logging.NullHandler())
    names = options.families or list(FAMILIES)
    if options.only is not None:
        reasons = [why for name in names if (why := attacked(name, options.seed, options.only)) is not None]
        print("\n".join(reasons) or "no violation")
        return bool(reasons)
    return sum(attack(name, options.seed, options.seconds, options.tries) for name in names) > 0


if __name__ == "__main__":
    sys.exit(main())
