"""Identifiers and fingerprints. All derived ids are derived here, so that a replay derives the same ids.

sequence = last + 1; event id = `<run_id>-<sequence>`; ticket, message and idempotency ids likewise. Random ids (run
ids, decision ids) are made outside the engine and come in as data.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from types import NoneType
from typing import Final

import msgspec

from .plain import base_value

_LONGEST_KEY: Final = 64
AGENT_KEYS: Final = f"use 1 to {_LONGEST_KEY} printable characters without spaces"
"""The rule for keys of agents, for messages."""

_canonical = msgspec.json.Encoder(order="sorted", enc_hook=base_value)


def message_id(run_id: str, number: int) -> str:
    """Return the id of the run's message number `number` (from 1)."""
    return f"{run_id}.m{number}"


def body_message_id(run_id: str, call_id: str, attempt: int, number: int) -> str:
    """Return the id of the message number `number` (from 1) of an attempt of a call's body."""
    return f"{run_id}/{call_id}#{attempt}.m{number}"


def ticket_id(run_id: str, number: int) -> str:
    """Return the id of the run's ticket number `number` (from 1)."""
    return f"{run_id}.t{number}"


def task_id(spawner: str, number: int) -> str:
    """Return the id of background task number `number` (from 1) of a call, or of a task that spawns others."""
    return f"{spawner}.task{number}"


def nested_id(parent: str, index: int) -> str:
    """Return the id of the nested call of a call, at this place among all calls of the step."""
    return f"{parent}.{index}"


def child_run_id(parent_run: str, call_id: str) -> str:
    """Return the id of the child run that works for a call: the same for every attempt, in every process."""
    return f"child_{content_digest([parent_run, call_id])}"


def is_reserved(run_id: str, name: str) -> bool:
    """Return True if a ticket of the run or a background task has or may get this id, so that no call may have it."""
    if not name[-1:].isdigit():
        return False
    prefixes = (ticket_id(run_id, 0)[:-1], name.rpartition(".task")[0] + ".task")
    return any(name.startswith(prefix) and name[len(prefix) :].isdigit() for prefix in prefixes)


def idempotency_key(run_id: str, call_id: str) -> str:
    """Return the key of a call, equal for all its attempts, by which an outside system can detect a repetition."""
    return f"{run_id}/{call_id}"


def error_id(run_id: str, *place: object) -> str:
    """Return the id that a failure of user code has in its event and in the log, so that each leads to the other.

    Made of the place of the failure, so that the runtime, the engine and a replay derive the same id: for a body
    `<run_id>/<call_id>#<attempt>`, for a model's answer `<run_id>/<message_id>`, for the hooks of a phase
    `<run_id>/<phase>/<step>`, with `/<call_id>` in the phases of a call.
    """
    return "/".join(map(str, (run_id, *place)))


def body_error_id(run_id: str, call_id: str, attempt: int) -> str:
    """Return the error id of an attempt of a call or background task."""
    return error_id(run_id, f"{call_id}#{attempt}")


def phase_error_id(run_id: str, phase: str, step: int, call_id: str | None = None) -> str:
    """Return the error id of the hooks of a phase, and of a tool's predicate, which runs with the gates of its call."""
    return error_id(run_id, phase, step, *(() if call_id is None else (call_id,)))


def canonical_json(value: object) -> bytes:
    """Return JSON with sorted keys and no spaces: equal values give equal bytes.

    Raises:
        TypeError: a value has no form in JSON.
        ValueError: the value contains NaN or an infinity, which would be written as null and read as None.
    """
    data = _canonical.encode(value)
    if b"null" in data and _holds_no_number(value):
        raise ValueError("NaN and infinity have no JSON form; give text or None")
    return data


def _holds_no_number(value: object) -> bool:
    match value:
        case None | str() | int():  # first, because most values are these, and the test for a Mapping is slow
            return False
        case float():
            return not math.isfinite(value)
        case list() | tuple() | set() | frozenset():
            return any(_holds_no_number(item) for item in value if type(item) not in _NUMBERLESS)
        case Mapping():
            return any(_holds_no_number(item) for item in value.values() if type(item) not in _NUMBERLESS)
        case _:
            return False


_NUMBERLESS: Final = (str, NoneType, int, bool)
"""The types of most values, which are not NaN; a subclass is looked into."""


def fingerprint(agent: str, tool: str, arguments: object, definition: str = "") -> str:
    """Return the hash of exactly one action: agent, tool, arguments and definition (sha256, first 32 hex digits).

    Args:
        agent: its key.
        tool: its name.
        arguments: JSON.
        definition: digest of the tool's definition; "" if unknown, as in rows of older releases.
    """
    action = [agent, tool, arguments, definition] if definition else [agent, tool, arguments]
    return hashlib.sha256(canonical_json(action)).hexdigest()[:32]


def content_digest(value: object) -> str:
    """Return a hash that tells a repetition from other content under the same id (sha256, first 32 hex digits)."""
    return hashlib.sha256(canonical_json(value)).hexdigest()[:32]


def is_agent_key(key: object) -> bool:
    """Return True if a value can be the key of an agent, see `AGENT_KEYS`."""
    return isinstance(key, str) and key.isprintable() and 0 < len(key) <= _LONGEST_KEY and " " not in key
