"""Decide whether a caller may read a thread. Every road into a thread asks, such as start, fork and send.

Theory of operation. A model reads the whole thread of its run and may repeat any of it. So a caller who brings words
into a thread, or copies it, needs the right to see each run that wrote a message there; `may_join` says whether the
caller may see a run. Those runs are the members of the thread and, in the thread of a fork, the runs whose messages the
fork has copied, which are members of other threads.

Runs work on a thread one after the other. So the messages before the end of a run are of its thread's members up to
this run, and no member comes between later: the answer about a run does not change. The answer about a thread as a
whole is of `ThreadInfo.runs` members (`starting.py`).

Of a pruned run whose messages remain, a member stands for all runs with the same facts. A pruned run of another thread
leaves no facts: what a fork has copied from it is open to the owner of the fork's thread, who was asked when the fork
was made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import trio

from ..abc import Store
from ..contract.messages import Message
from ..contract.rows import RunInfo, ThreadInfo

MayJoin = Callable[[RunInfo], bool]
MEMBERS: Final = 256
"""Runs that are asked about before other tasks run again."""


async def open_to(
    store: Store,
    thread: ThreadInfo,
    by: str,
    may_join: MayJoin,
    *,
    up_to: str | None = None,
    copied: Sequence[Message] | None = None,
) -> bool:
    """Return True if a principal may read a thread, or owns a thread that is empty now.

    Args:
        store: has the thread.
        thread: its facts.
        by: the principal.
        may_join: says whether the principal may see a run.
        up_to: The run at whose end the question stops; None: the whole thread.
        copied: the messages, if only some are to be read; None: those of the thread.
    """
    if not thread.members:
        return thread.owner == by
    names = [member.run_id for member in thread.members]
    members = thread.members[: names.index(up_to) + 1] if up_to in names else thread.members
    for at in range(0, len(members) if thread.owner else 0, MEMBERS):
        await trio.lowlevel.checkpoint()
        if not all(map(may_join, members[at : at + MEMBERS])):
            return False
    if not thread.owner:
        return False
    is_fork = any(member.forked_from for member in members)
    if copied is None and not is_fork:
        return True  # every message is of a member
    history = await store.messages(thread.thread_id) if copied is None else copied
    run_ids, any_pruned = {member.run_id for member in members}, False
    for run_id in {None if message.producer is None else message.producer.run_id for message in history} - run_ids:
        outline = None if run_id is None else await store.outline(run_id)
        if outline is None:
            any_pruned = True
        elif not may_join(outline.info):
            return False
    return not (any_pruned and is_fork) or thread.owner == by
