"""Write what is generated from the code: docs/schemas/*.json, docs/events.md, docs/diagrams/*.md.

So are the drawings inside docs/design.md, docs/design/states.md and docs/lifecycle.md, the tables of codes inside
docs/gateway.md, the table of metrics in docs/metrics.md, and the tables of the database inside docs/postgres.md,
between `<!-- drawn: run -->` and `<!-- end of run -->`.

python scripts/generate.py            write the files that are out of date
python scripts/generate.py --check    write nothing; name them and fail
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from diagrams import DIAGRAMS  # noqa: E402 - beside this file, which need not be in a package
from postgres_tables import table as postgres_table  # noqa: E402

from greenroom.actors.contract.catalogue import CATALOGUE  # noqa: E402
from greenroom.actors.contract.schemas import described, event_schemas  # noqa: E402
from greenroom.transport.gateway.asyncapi import asyncapi  # noqa: E402
from greenroom.transport.gateway.metrics.table import metric_rows  # noqa: E402
from greenroom.transport.gateway.openapi import openapi  # noqa: E402
from greenroom.transport.protocol.schemas import close_code_table, error_code_table, gateway_schema  # noqa: E402
from greenroom.transport.server.routes import ROUTES  # noqa: E402


def documents() -> dict[str, str]:
    """Path below the repository -> what the file must hold."""
    schemas = {
        "events": event_schemas(),
        "gateway": gateway_schema(),
        "asyncapi": asyncapi(),
        "openapi": openapi(ROUTES),
    }
    diagrams = {name: draw() for name, draw in DIAGRAMS.items()}
    pictures = {name: text[text.index("```mermaid") :].strip() for name, text in diagrams.items()}
    tables = {"close-codes": f"\n{close_code_table()}\n", "error-codes": f"\n{error_code_table()}\n"}
    return {
        **{f"docs/schemas/{name}.json": _json(schema) for name, schema in schemas.items()},
        **{f"docs/diagrams/{name}.md": text for name, text in diagrams.items()},
        "docs/events.md": event_page(),
        **{
            page: with_drawings(_present(ROOT / page) or "", pictures)
            for page in ("docs/design.md", "docs/design/states.md", "docs/lifecycle.md")
        },
        "docs/gateway.md": with_drawings(_present(ROOT / "docs/gateway.md") or "", tables),
        "docs/metrics.md": with_drawings(_present(ROOT / "docs/metrics.md") or "", {"metrics": f"\n{metric_rows()}\n"}),
        "docs/postgres.md": with_drawings(
            _present(ROOT / "docs/postgres.md") or "", {"tables": f"\n{postgres_table()}\n"}
        ),
    }


def with_drawings(page: str, pictures: Mapping[str, str]) -> str:
    """The page with the drawings and tables as they are now."""
    for name, text in pictures.items():
        start, end = f"<!-- drawn: {name} -->", f"<!-- end of {name} -->"
        place = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
        page = place.sub(lambda _: f"{start}\n{text}\n{end}", page)  # noqa: B023 - called at once
    return page


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def event_page() -> str:
    """One row per event type."""
    rows = [
        "# Events",
        "",
        (
            "Generated from CATALOGUE in actors/contract/catalogue.py by `python scripts/generate.py`. "
            "JSON Schemas: [schemas/events.json](schemas/events.json)."
        ),
        "",
        (
            "Every event has the envelope `id sequence type version runId sessionId agentId timestamp payload`. "
            "`sequence` counts from 1 per run, without a gap. Fields in brackets are left out at their default."
        ),
        "",
        (
            "Fields are in camelCase, in JSON and in `event.payload`, which is the JSON object: "
            '`event.payload["ticketId"]`. What users, tools and models bring (`arguments`, `result`, `output`, '
            "`parameters`, `responseSchema`) keeps its own keys. Version 1 had snake_case; a file of that time is "
            "brought to version 2 when it is opened."
        ),
        "",
        "| type | when | payload |",
        "|---|---|---|",
    ]
    for name, cls in CATALOGUE.items():
        fields = [f.encode_name if f.required else f"[{f.encode_name}]" for f in msgspec.structs.fields(cls)]
        rows.append(f"| `{name}` | {described(cls).splitlines()[0]} | {' '.join(fields)} |")
    return "\n".join(rows) + "\n"


def stale() -> dict[str, str]:
    """Of the documents, those whose file is missing or holds something else."""
    return {name: text for name, text in documents().items() if _present(ROOT / name) != text}


def _present(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(arguments: list[str]) -> int:
    """Write or check; 1 if --check finds something out of date."""
    stale_pages = stale()
    for name, text in stale_pages.items():
        print(name)
        if "--check" not in arguments:
            path = ROOT / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if stale_pages and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
