"""The private names of trio that the chaos kit uses, in one module, with a self-test that detects changes of trio.

Used: `trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING`, `trio._core._run._r`, `_autojump` of a MockClock, and
`_abort_func`, `_attempt_abort` and `_next_send_fn` of a task. No other module of this package uses them;
the cancel sweep needs only the first three.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NoReturn

import trio
import trio._core._run as trio_run
import trio.testing

Injection = Literal["statement", "aborted", "unabortable", "not-parked"]

SYSTEM_TASKS = frozenset({"<init>", "trio._core._entry_queue.EntryQueue.task", "<TrioToken.run_sync_soon task>"})
"""Names of trio's own tasks; their steps are not steps of the program."""


class TrioChangedError(AssertionError):
    """The installed trio differs from the versions that the kit supports; results of sweeps would be meaningless."""


def self_test() -> None:
    """Check that every private name exists and that the seed decides the schedule. Call this outside of `trio.run`.

    Raises:
        TrioChangedError: A name is missing or no longer has an effect.
    """
    for name in ("_ALLOW_DETERMINISTIC_SCHEDULING", "_r"):
        if not hasattr(trio_run, name):
            raise TrioChangedError(f"trio {trio.__version__} has no trio._core._run.{name}")
    for name in ("_abort_func", "_attempt_abort", "_next_send_fn"):
        if not hasattr(trio.lowlevel.Task, name):
            raise TrioChangedError(f"trio {trio.__version__} has no Task.{name}")
    if not hasattr(trio.testing.MockClock, "_autojump"):
        raise TrioChangedError(f"trio {trio.__version__} has no MockClock._autojump")
    traces = {seed: {_trace(seed) for _ in range(3)} for seed in range(8)}
    if any(len(trace) != 1 for trace in traces.values()):
        raise TrioChangedError(f"trio {trio.__version__}: one seed gives several schedules")
    if len(set.union(*traces.values())) == 1:
        raise TrioChangedError(f"trio {trio.__version__}: all seeds give the same schedule")
    trio.run(_check_injection)
    _check_idle()


def _trace(seed: int) -> str:
    steps: list[str] = []

    async def walk(name: str) -> None:
        for _ in range(3):
            steps.append(name)
            await trio.lowlevel.checkpoint()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for name in "abcd":
                nursery.start_soon(walk, name)

    with deterministic(seed):
        trio.run(main)
    return "".join(steps)


async def _check_injection() -> None:
    log: list[str] = []
    tasks: list[trio.lowlevel.Task] = []

    async def sleeper() -> None:
        tasks.append(trio.lowlevel.current_task())
        try:
            await trio.sleep_forever()
        except ZeroDivisionError:
            log.append("parked")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleeper)
        await trio.testing.wait_all_tasks_blocked()
        how = inject(tasks[0], ZeroDivisionError())
    if how != "aborted" or log != ["parked"]:
        raise TrioChangedError(f"trio {trio.__version__}: an error cannot be injected into a parked task any more")


def _check_idle() -> None:
    requests: list[bool] = []

    def may_jump() -> bool:
        requests.append(len(requests) == 2)
        return requests[-1]

    clock = trio.testing.MockClock(autojump_threshold=0)
    before_jump(clock, may_jump)
    trio.run(trio.sleep, 1, clock=clock)
    if requests != [False, False, True]:
        raise TrioChangedError(f"trio {trio.__version__}: a clock jumps without being asked")


@contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Let `seed` decide the order of runnable tasks in every `trio.run` of the block."""
    flag, source = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    trio_run._r = random.Random(seed)  # noqa: S311 - reproducible on purpose
    try:
        yield
    finally:
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = flag  # type: ignore[misc]
        trio_run._r = source


def inject(task: trio.lowlevel.Task, error: BaseException) -> Injection:
    """Raise `error` in a parked task: its operation is aborted, as by a cancellation, and has not happened.

    A task that is not parked cannot be crashed so, because its operation has happened; nor can a task whose operation
    rejects the abort.
    """

    def throw() -> NoReturn:
        raise error

    private: Any = task
    if private._next_send_fn is None and private._abort_func is not None:
        private._attempt_abort(throw)
        return "aborted" if private._next_send_fn is not None else "unabortable"
    return "not-parked"


def has_begun(task: trio.lowlevel.Task) -> bool:
    """Return True once a task has run its first step."""
    private: Any = task
    coroutine: Any = private.coro
    return getattr(coroutine, "cr_await", None) is not None


def before_jump(clock: trio.testing.MockClock, may_jump: Callable[[], bool]) -> None:
    """Call `may_jump()` each time all tasks are blocked, before `clock` jumps to the next deadline.

    False postpones the jump. MockClock cannot be subclassed, and the run loop calls this method on the instance.
    """
    jump = clock._autojump

    def autojump() -> None:
        if may_jump():
            jump()

    clock._autojump = autojump  # type: ignore[method-assign]


def is_parked(task: trio.lowlevel.Task) -> bool:
    """Return True if the task is parked and can be woken by a cancellation; False if runnable or between two steps."""
    private: Any = task
    return private._abort_func is not None
