"""File descriptors: the number of connections that a process has room for.

A connection needs one descriptor of the process, and so do the store's files, pipes and files of tools, and connections
to models. When no descriptor is left, all of these fail. Therefore connections may use only a part of RLIMIT_NOFILE;
the rest stays free under any load from outside.
"""

from __future__ import annotations

import resource
from typing import Final

RESERVE: Final = 4
"""One part in this many of the descriptors is reserved for everything except connections."""
LEAST_RESERVE: Final = 64
"""Minimum size of the reserve: a store, its readers, a few tools."""


def room(limit: int | None) -> int | None:
    """Return the connections that fit under a limit of descriptors, at least one; None for no limit."""
    return None if limit is None else max(1, limit - max(LEAST_RESERVE, limit // RESERVE))


def soft_limit() -> int | None:
    """Return the number of descriptors that this process may have open (the soft RLIMIT_NOFILE); None if unlimited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def raise_soft_limit(connections: int) -> None:
    """Raise the soft limit to what `connections` need, up to the hard limit. A refusal is not an error.

    For programs, not for libraries: the limit belongs to the whole process and is inherited by children.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = connections * RESERVE // (RESERVE - 1) + LEAST_RESERVE
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    if soft == resource.RLIM_INFINITY or soft >= limit:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    except (OSError, ValueError):
        return  # macOS refuses more than kern.maxfilesperproc, even below the hard limit
