"""Rows of version 2 had other names for some fields; version 3 has the words of the glossary.

The tables are those of the release that wrote version 2, and never change. They name the fields of Greenroom's own
classes only: arguments, results and state are user data and stay as they are. A record is upgraded, too, because its
first entry carries a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_Fields = dict[str, Any]
_Entry = list[Any]

_CALL: Final = {
    "asked": "body_question",
    "lost": "unknown_cause",
    "told": "body_decision",
    "weighed": "settled_at_gate",
}
_RUN: Final = {"begun": "hooks_started", "holds": "run_tickets", "unheard": "unread_input_by"}
_TASK: Final = {"lost": "unknown_cause"}
_COUNTERS: Final = {"answers": "model_attempts"}
_PHASE_DONE: Final = {"holds": "ticket_requests"}


def renamed(name: str, data: Any) -> Any:
    """Upgrade the data of a blob from version 2 to version 3.

    Args:
        name: The name of the class; "list" for the entries of a record.
        data: as decoded. Data without the form of its class comes back unchanged, because its reader will refuse it.
    """
    try:
        match name:
            case "RunRow":
                return _run(data)
            case "CallRow":
                return _with(data, _CALL) | ({"at": "decided"} if data.get("at") == "held" else {})
            case "list":
                return [_entry(entry) for entry in data]
            case _:
                return data
    except (AttributeError, LookupError, TypeError, ValueError):
        return data


def _run(data: _Fields) -> _Fields:
    row = _with(data, _RUN)
    if "counters" in row:
        row["counters"] = _with(row["counters"], _COUNTERS)
    if "tasks" in row:
        row["tasks"] = [_with(task, _TASK) for task in row["tasks"]]
    return row


def _entry(entry: _Entry) -> _Entry:
    at, kind, fields, *rest = entry
    if kind == "Born":
        fields = fields | {"row": _run(fields["row"])}
    elif kind == "PhaseDone":
        fields = _with(fields, _PHASE_DONE)
    return [at, kind, fields, *rest]


def _with(data: _Fields, names: Mapping[str, str]) -> _Fields:
    return {names.get(name, name): value for name, value in data.items()}
