"""Count private helpers that are used exactly once: hand-overs that a reader follows without a second caller.

    python scripts/helpers.py                  the table of all packages
    python scripts/helpers.py actors/run -v    the helpers of one folder, with their places
    python scripts/helpers.py --json

A helper is a function or method whose name begins with one underscore. Equal names in a folder count as one helper. A
use is a name or an attribute in the folder's code that reads like the helper, wherever the helper is defined. The count
says nothing about one helper: a name can be worth more than a call. Of h11 0.16 the count is 6 of 15, 40 %.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = (
    *(f"actors/{room}" for room in ("contract", "engine", "services", "user_code", "run", "runtime")),
    *("actors", "supervision", "transport"),
)


@attrs.frozen
class Helpers:
    """The private helpers of a folder.

    Attributes:
        places: `file:line` of each definition, by name.
        once: the names that are used exactly once.
    """

    places: dict[str, list[str]]
    once: frozenset[str]

    @property
    def share(self) -> float:
        """The part of the helpers that is used exactly once, from 0 to 1; 0 for a folder without helpers."""
        return len(self.once) / len(self.places) if self.places else 0.0


def helpers(*folders: Path) -> Helpers:
    """Count the helpers of folders and their subfolders, as if the folders were one."""
    places: dict[str, list[str]] = {}
    uses = Counter[str]()
    for folder, path in ((top, path) for top in folders for path in sorted(top.rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if is_private(name):
                    places.setdefault(name, []).append(f"{path.relative_to(folder)}:{node.lineno}")
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    uses[name] += 1
    return Helpers(places, frozenset(name for name in places if uses[name] == 1))


def is_private(name: str) -> bool:
    """Return True if a name has one leading underscore."""
    return name.startswith("_") and not name.startswith("__")


def lines(folder: str, counts: Helpers, *, verbose: bool) -> Iterator[str]:
    """Yield the row of a folder, then its helpers that are used once."""
    yield f"| {folder} | {len(counts.places)} | {len(counts.once)} | {counts.share:.0%} |"
    for name in sorted(counts.once, key=lambda name: counts.places[name]) if verbose else ():
        yield f"    {', '.join(counts.places[name])} {name}"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", default=FOLDERS, help=f"default: {', '.join(FOLDERS)}")
    parser.add_argument("-v", "--verbose", action="store_true", help="the helpers that are used once")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    by_folder = {folder: helpers(ROOT / folder) for folder in options.folders}
    if options.json:
        rows = {
            name: {"helpers": len(counts.places), "once": len(counts.once), "share": round(counts.share, 3)}
            for name, counts in by_folder.items()
        }
        print(json.dumps(rows, indent=2))
        return
    print("| folder | private helpers | used once | share |\n|---|---|---|---|")
    for folder, counts in by_folder.items():
        print("\n".join(lines(folder, counts, verbose=options.verbose)))


if __name__ == "__main__":
    main()
