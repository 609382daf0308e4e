"""File descriptors: how many connections a process has room for.

A connection takes one descriptor of the process, and so does all else that it opens: the store's files, pipes and
files of tools, connections to models. Once they are used up each of these fails. So connections get a part of
RLIMIT_NOFILE, and the rest stays free, whatever comes from outside.
"""

from __future__ import annotations

import resource
from typing import Final

RESERVE: Final = 4
"""One part of this many of the descriptors is left to everything that is no connection."""
LEAST_RESERVE: Final = 64
"""Descriptors of that part at least: a store, its readers, a few tools."""


def room(limit: int | None) -> int | None:
    """Connections that fit under a limit of descriptors, one at least; None: there is no limit."""
    return None if limit is None else max(1, limit - max(LEAST_RESERVE, limit // RESERVE))


def soft_limit() -> int | None:
    """Descriptors that this process may have open now (the soft RLIMIT_NOFILE); None: no limit is known."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def raise_soft_limit(connections: int) -> None:
    """Ask for as many descriptors as `connections` need, as far as the hard limit goes; no error if that is refused.

    For programs, not for libraries: the limit belongs to the whole process, and children inherit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections * RESERVE // (RESERVE - 1) + LEAST_RESERVE
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return  # macOS refuses more than kern.maxfilesperproc, whatever the hard limit says
