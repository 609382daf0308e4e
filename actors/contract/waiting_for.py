"""The reason why a run waits, for people and programs."""

from __future__ import annotations

from typing import Literal

import attrs

WaitKind = Literal["thread", "queue", "slot", "people", "tasks", "agent", "place", "deps", "owner"]


@attrs.frozen(kw_only=True)
class WaitingFor:
    """The reason why a run waits.

    Attributes:
        kind: the reason.
            thread: another run works on the thread; this run begins when that run is done.
            queue: no process has taken the run yet; it waits in a queue of the store.
            slot: as many runs work as `max_running` allows.
            people: open tickets need a decision.
            tasks: background tasks of the run are alive, and it has nothing else to do.
            agent: no agent of this runtime has the key, or it has no model, or its state keys do not fit.
            place: the place of its workspace is not here; in a shared store, no live process has both that and the
                agent.
            deps: the dependencies of the run are missing, or their provider has not answered yet.
            owner: the run was given up, or is a dead letter, because its owner crashed again and again.
        detail: a sentence for people; names no other run.
        run_id: for thread: the run that works on the thread; None if unknown.
    """

    kind: WaitKind
    detail: str
    run_id: str | None = None
