"""Write what is generated from the code: docs/schemas/events.json and docs/diagrams/*.md.

python scripts/generate.py            write the files that are out of date
python scripts/generate.py --check    write nothing; name them and fail
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from diagrams import DIAGRAMS  # noqa: E402 - beside this file, which need not be in a package

from greenroom.actors.contract.schemas import event_schemas  # noqa: E402


def documents() -> dict[str, str]:
    """Path below the repository -> what the file must hold."""
    schemas = json.dumps(event_schemas(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    return {"docs/schemas/events.json": schemas} | {f"docs/diagrams/{n}.md": draw() for n, draw in DIAGRAMS.items()}


def stale() -> dict[str, str]:
    """Of the documents, those whose file is missing or holds something else."""
    return {name: text for name, text in documents().items() if _present(ROOT / name) != text}


def _present(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(arguments: list[str]) -> int:
    """Write or check; 1 if --check finds something out of date."""
    found = stale()
    for name, text in found.items():
        print(name)
        if "--check" not in arguments:
            path = ROOT / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if found and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
