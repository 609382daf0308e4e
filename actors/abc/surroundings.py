"""The port to the places where runs work: folders under a name, and what has to hold before a run uses one."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ..contract.preparation import Preparation
from ..contract.rows import RunInfo


class Surroundings(abc.ABC):
    """The workspaces of a process, for `open_runtime(workspaces=...)`.

    A *place* is where the copies of a workspace are, such as a machine and a folder: a run begins at one place
    (`RunInfo.place`), and only processes with that place work on the run. `RunInfo.workspace` is the name of a
    workspace, or a name and a path in it with a slash between: "shop", "shop/packages/web".

    All methods are called in the event loop, for any number of runs concurrently; each must return, or wait without
    keeping the loop, within a few milliseconds.
    """

    @abc.abstractmethod
    async def open(self) -> Mapping[str, str]:
        """Return the names of the workspaces, each with its place; 1 to 256 characters each, no slash in a name.

        Called once per runtime, before it opens its store. What a run needs and lacks is reported by `prepare`: an
        error here ends `open_runtime`.
        """

    def check(self, workspace: str) -> str | None:
        """Return None, or why no run may begin in this workspace, one sentence for missing and forbidden.

        Called by each start; the name is one of those of `open`. Looks at the text alone: the rest is checked by
        `prepare`, in whichever process has the place.
        """
        return None

    @abc.abstractmethod
    async def prepare(self, info: RunInfo) -> Preparation:
        """Make a run's workspace ready, in the stage preparing.

        Delivery: at least once per run: again if the process ends meanwhile. A process that has lost the run, and does
        not know it yet, may still be in it. Not called for a run that is taken up later: `of` has to do without.

        Cancellation: a cancel or the deadline of the run; ends within 5 s.

        Raises:
            PreparationError: the run cannot work here, and fails with the error's code.
        """

    async def keep_step(self, info: RunInfo, step: int) -> None:
        """Keep what the workspace has now, so that a fork of the run at the end of `step` can begin with it.

        Called before the first body of the next step whose tool has an effect other than "read", and again after a
        crash. A body does not begin before this returns; an error here fails the call.
        """
        return

    async def expire(self, is_busy: Callable[[str], Awaitable[bool]]) -> object:
        """Remove what old runs have left; called when a runtime opens, and each hour.

        Args:
            is_busy: Says whether a run of the thread with this id is not done. What the runs of such a thread need has
                to stay.
        """
        return None

    @abc.abstractmethod
    def of(self, info: RunInfo) -> object:
        """Return the workspace of a prepared run for its tools, gates and hooks."""

    @abc.abstractmethod
    def roots(self) -> Sequence[str]:
        """Return absolute paths that events, ticket views and errors must not show; called after `open`."""
