"""The ids of A2A and those of runs.

An A2A task is a run, and a context is a thread. The id of the run follows from the principal, the agent and the id of
the message that starts it, so the same message starts one run. The run keeps that message id as the id of its session,
so the history of the A2A task has it: a client finds there what it has sent.
"""

from __future__ import annotations

import re
from typing import Final

from greenroom.actors.contract.ids import content_digest

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]")
_ESCAPED: Final = re.compile(r"(?::[0-9A-F]{2})+")
_LONGEST: Final = 128
"""Most characters of a session's id."""


def run_of(who: str, agent: str, message_id: str) -> str:
    """Return the id of the run that a message of a principal starts."""
    return f"run_{content_digest(['a2a', who, agent, message_id])[:16]}"


def thread_of(run_id: str) -> str:
    """Return the id of the thread of a message without a context."""
    return f"{run_id}.thread"


def session_of(message_id: str) -> str | None:
    """Return the id of the session for a message: `m.` and its own id, with :XX for other bytes; None if too long."""
    session = "m." + "".join(
        letter if _PLAIN.fullmatch(letter) else "".join(f":{byte:02X}" for byte in letter.encode("utf-8", "replace"))
        for letter in message_id
    )
    return session if len(session) <= _LONGEST else None


def message_of(who: str, agent: str, run_id: str, session: str | None) -> str | None:
    """Return the id of the message that has started a run; None if the run did not begin with one."""
    if session is None or not session.startswith("m."):
        return None
    try:
        message_id = _ESCAPED.sub(lambda found: bytes.fromhex(found[0].replace(":", "")).decode(), session[2:])
    except ValueError:
        return None
    return message_id if run_of(who, agent, message_id) == run_id else None


def decision_of(message_id: str, ticket_id: str) -> str:
    """Return the id of the decision about a ticket that a message has."""
    return content_digest([message_id, ticket_id])


def command_of(message_id: str) -> str:
    """Return the id of the command that a message is: its own id if that can be one."""
    return message_id if 0 < len(message_id) <= 128 and message_id.isprintable() else content_digest([message_id])
