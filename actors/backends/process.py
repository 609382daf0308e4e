"""Programs as processes: each starts behind a gate, has a watchdog, and ends with every process that descends from it.

Three processes take part, and the order of their starts leaves no moment in which the end of this process (SIGKILL
included) leaves a program behind:

1. The *gate*, a shell in a session of its own, waits for one line on its standard input and then becomes the program.
   If this process ends before the line, the gate reads the end of its input and exits.
2. The *watchdog*, a second shell in another session, waits on a pipe whose other end only this process has. A word on
   the pipe dismisses the watchdog; the end of the pipe without a word means that this process is gone, and the
   watchdog ends the program: SIGTERM, `WATCHDOG_GRACE` seconds, SIGKILL.
3. The line opens the gate.

A program and its descendants are known by their session and by a mark in their environment (`MARK`), so that a command
which a program has put into a session of its own is found, too. The mark is looked for in /proc, which only Linux has;
elsewhere the process group alone is ended.
"""

import os
import secrets
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, cast

import attrs
import trio
from trio.lowlevel import FdStream, open_process

from ...supervision.nursery import open_collapsing_nursery
from ..errors import GreenroomError

PASSED: Final = ("PATH", "HOME", "LANG", "TERM", "TMPDIR", "TZ", "USER")
"""Variables of this process that a program gets; besides, all that begin with `LC_`."""
MARK: Final = "GREENROOM_PROGRAM"
"""Environment variable that marks a program and its descendants."""
INTERRUPT_GRACE: Final = 5.0
"""Seconds that a program has to end after an interrupt by its protocol."""
TERM_GRACE: Final = 5.0
"""Seconds between SIGTERM and SIGKILL."""
WATCHDOG_GRACE: Final = 3
"""The same, if the watchdog ends the program: no reader of its output is left."""
DRAINING: Final = 2.0
"""Seconds after a program's exit in which its streams are read to their ends. A descendant that keeps them open would
keep the reader waiting for good."""
LAST_LOOK: Final = 1.0
"""Seconds after SIGKILL until what is still there counts as a survivor: in an uninterruptible call of the kernel."""
STOPPING: Final = INTERRUPT_GRACE + TERM_GRACE + 3 * LAST_LOOK
"""Seconds that `ProgramProcess.stop` takes at worst, and one more."""
TAIL: Final = 8 * 1024
"""Bytes of a program's standard error that are kept, the last ones."""
CHUNK: Final = 64 * 1024

GATE: Final = 'read -r word && exec "$@"'
WATCHDOG: Final = rf"""
end() {{
    kill "-$1" "-$2"
    for file in $(grep -slz "^{MARK}=$3\$" /proc/[0-9]*/environ); do
        pid=${{file#/proc/}} && kill "-$1" "${{pid%/environ}}"
    done
}}
read -r word || {{ end TERM "$@"; sleep {WATCHDOG_GRACE}; end KILL "$@"; }} 2>/dev/null
"""


class ProgramNotStarted(GreenroomError):
    """The operating system did not start a program: no such folder, too long a command, or no more processes."""


class ProgramEnded(GreenroomError):
    """A program reads no more: its process has ended, or has closed its standard input."""


@attrs.frozen(kw_only=True)
class ProgramCommand:
    """How a program is started.

    Attributes:
        argv: The program and its arguments, which every user of the machine can read: no prompt and no secret.
        folder: Its working directory.
        environment: All its variables, as `environment` makes them.
    """

    argv: tuple[str, ...]
    folder: Path
    environment: Mapping[str, str] = attrs.field(factory=dict, repr=False)


@attrs.frozen(kw_only=True)
class ProcessExit:
    """How a program has ended, after both of its streams were read to their ends.

    Attributes:
        code: The exit code; 127 if the program was not found, 126 if the file is not executable. None after a signal.
        signal: The number of the signal that ended the program; None after an exit.
        errors: The last `TAIL` bytes of standard error, as the program wrote them: not redacted.
        stopped: `ProgramProcess.stop` has sent a signal: the end says nothing about the program's work.
        survivors: Process ids of descendants that SIGKILL has not ended within `LAST_LOOK` seconds.
    """

    code: int | None
    signal: int | None
    errors: str = attrs.field(default="", repr=False)
    stopped: bool = False
    survivors: tuple[int, ...] = ()


@attrs.frozen(kw_only=True)
class ProgramGroup:
    """The identity of a program, for the owner that takes over its run while the program may live (`end_group`).

    Attributes:
        pid: The process id of the program, which is its process group and its session, too.
        mark: The value of `MARK` in its environment; no two starts have the same.
    """

    pid: int
    mark: str


def environment(pass_env: Iterable[str] = (), **variables: str) -> dict[str, str]:
    """Return the variables of a program: those of `PASSED` and `pass_env` that this process has, and `variables`."""
    names = {*PASSED, *pass_env, *(name for name in os.environ if name.startswith("LC_"))}
    return {name: os.environ[name] for name in sorted(names) if name in os.environ} | variables


@attrs.define(eq=False, repr=False, kw_only=True)
class ProgramProcess:
    """A program that runs. `open_program` makes them.

    One task calls `receive`; any task may call `send`.

    Attributes:
        group: Its identity.
        heard_at: trio's time of the last bytes on standard output.
    """

    group: ProgramGroup
    heard_at: float
    _process: trio.Process
    _stdin: FdStream
    _stdout: FdStream
    _stderr: FdStream
    _sending: trio.Lock = attrs.field(factory=trio.Lock)
    _tending: trio.CancelScope = attrs.field(factory=lambda: trio.CancelScope(shield=True))
    _torn: bool = False
    _signalled: bool = False
    _heed_errors: Callable[[bytes], None] | None = None
    _errors: bytearray = attrs.field(factory=bytearray)
    _exited: trio.Event = attrs.field(factory=trio.Event)
    _errors_ended: trio.Event = attrs.field(factory=trio.Event)

    def __repr__(self) -> str:
        state = "running" if self._process.returncode is None else f"ended with {self._process.returncode}"
        return f"<ProgramProcess {self.group.pid}: {state}>"

    async def receive(self) -> bytes:
        """Return the next bytes of standard output; b"" at the end of the stream, and `DRAINING` s after the exit."""
        try:
            data = await self._stdout.receive_some(CHUNK)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            return b""
        if data:
            self.heard_at = trio.current_time()
        return bytes(data)

    async def send(self, data: bytes) -> None:
        """Write to standard input, whole: what two tasks send is never mixed. Waits while the program does not read.

        A cancel in the middle leaves a torn message in the program's input. `stop` knows and sends no interrupt then.

        Raises:
            ProgramEnded: The program has ended, or has closed its input.
        """
        async with self._sending:
            await self._write(data)

    async def _write(self, data: bytes) -> None:
        whole = False
        try:
            await self._stdin.send_all(data)
            whole = True
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            whole = True
            raise ProgramEnded("the program reads no more") from error
        finally:
            self._torn |= not whole

    async def close_input(self) -> None:
        """Close standard input. Most programs end then, some never do: wait with a limit, then `stop`."""
        async with self._sending:
            await self._stdin.aclose()

    async def wait(self) -> ProcessExit:
        """Wait for the exit, and for the end of standard error. Read standard output to its end before."""
        await self._exited.wait()
        await self._errors_ended.wait()
        return self._exit(())

    async def stop(self, interrupt: bytes = b"") -> ProcessExit:
        """End the program and all its descendants, and return how. Bounded: about 11 s at worst, and shielded.

        In order: `interrupt` to its input and `INTERRUPT_GRACE` seconds, if there is one; SIGTERM to all its processes
        and `TERM_GRACE` seconds; SIGKILL. A program that has ended is looked after, too: its descendants end.
        """
        survivors: tuple[int, ...] = ()
        with trio.CancelScope(shield=True):
            if interrupt and self._process.returncode is None and not self._torn:
                with trio.move_on_after(INTERRUPT_GRACE):
                    with suppress(ProgramEnded):
                        await self.send(interrupt)
                    await self._exited.wait()
            self._signalled |= self._process.returncode is None
            survivors = await _end_all(self.group)
            with trio.move_on_after(LAST_LOOK):
                await self._exited.wait()
                await self._errors_ended.wait()
        return self._exit(survivors)

    def _exit(self, survivors: tuple[int, ...]) -> ProcessExit:
        code = self._process.returncode
        return ProcessExit(
            code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            errors=self._errors.decode(errors="replace"),
            stopped=self._signalled,
            survivors=survivors,
        )

    async def _tend(self) -> None:
        """Look after the exit and the streams, through the cancels that `stop` outlives, too."""
        try:
            with self._tending:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch)
                    nursery.start_soon(self._read_errors)
        finally:
            for stream in (self._stdin, self._stdout, self._stderr):
                stream.close()

    async def _watch(self) -> None:
        """Note the exit; close streams that a descendant keeps open for longer than `DRAINING`."""
        await self._process.wait()
        self._exited.set()
        await trio.sleep(DRAINING)
        await self._stdout.aclose()
        await self._stderr.aclose()

    async def _read_errors(self) -> None:
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            async for data in self._stderr:
                if self._heed_errors is not None:
                    self._heed_errors(bytes(data))
                self._errors += data
                del self._errors[:-TAIL]
        self._errors_ended.set()


@asynccontextmanager
async def open_program(
    command: ProgramCommand,
    *,
    interrupt: bytes = b"",
    mark: str | None = None,
    heed_errors: Callable[[bytes], None] | None = None,
) -> AsyncIterator[ProgramProcess]:
    """Start a program; leaving the block ends the program with all its descendants (`ProgramProcess.stop`).

    Args:
        command: What to start.
        interrupt: What the program's protocol says for "stop", for a block that is left before the program has ended.
        mark: The mark of the program, which no other start has had; None: a new one.
        heed_errors: Called with each piece of its standard error; must not raise.

    Raises:
        ProgramNotStarted: The operating system refused. A program that is not found or not executable is no error
            here: its gate ends with 127 or 126, as a shell does.
    """
    mark = mark or secrets.token_hex(16)
    with _starting():
        process = await open_process(
            ["/bin/sh", "-c", GATE, "sh", *command.argv],
            cwd=command.folder,
            env={**command.environment, MARK: mark},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    program = ProgramProcess(
        group=ProgramGroup(pid=process.pid, mark=mark),
        heard_at=trio.current_time(),
        process=process,
        stdin=cast("FdStream", process.stdin),  # trio's type allows for processes without pipes
        stdout=cast("FdStream", process.stdout),
        stderr=cast("FdStream", process.stderr),
        heed_errors=heed_errors,
    )
    async with open_collapsing_nursery() as nursery:
        nursery.start_soon(program._tend)
        try:
            async with _watchdog(program.group):
                try:
                    with suppress(ProgramEnded):
                        await program.send(b"go\n")
                    yield program
                finally:
                    with trio.move_on_after(STOPPING, shield=True):
                        await program.stop(interrupt)
        finally:
            with trio.move_on_after(STOPPING, shield=True):
                await program.stop()  # the watchdog did not start; else nothing is left to stop
            program._tending.cancel()


@asynccontextmanager
async def _watchdog(group: ProgramGroup) -> AsyncIterator[None]:
    """A watchdog over a program, which is dismissed at the end of the block.

    A process that this one forks without exec (multiprocessing with "fork") inherits the pipe, and the watchdog waits
    for the end of that process, too. Nothing here can help that.
    """
    read_end, write_end = os.pipe()
    try:
        with _starting():
            dog = await open_process(
                ["/bin/sh", "-c", WATCHDOG, "sh", str(group.pid), group.mark],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
    except BaseException:  # passed on: without a watchdog the other end has no reader
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            os.write(write_end, b"done\n")
        os.close(write_end)
        with trio.move_on_after(LAST_LOOK, shield=True):
            await dog.wait()


@contextmanager
def _starting() -> Iterator[None]:
    """Name a refusal of the operating system `ProgramNotStarted`."""
    try:
        yield
    except OSError as error:
        raise ProgramNotStarted(f"the program was not started: {error}") from error


async def end_group(group: ProgramGroup) -> tuple[int, ...]:
    """End a program that another process of Greenroom has started and can no longer end: it is gone, or frozen.

    A process id may be another program's by now; the mark in the environment says what belongs to the program.
    Without /proc nothing is ended.

    Returns:
        The process ids that SIGKILL has not ended.
    """
    return await _end_all(group, by_mark=True)


async def _end_all(group: ProgramGroup, *, by_mark: bool = False) -> tuple[int, ...]:
    """SIGTERM, `TERM_GRACE` seconds, SIGKILL, `LAST_LOOK` seconds; returns at the first look that finds no process."""
    with trio.CancelScope(shield=True):
        members = await _signal_all(group, by_mark=by_mark)
    return tuple(members)


async def _signal_all(group: ProgramGroup, *, by_mark: bool) -> list[int]:
    members: list[int] = []
    for number, patience in ((signal.SIGTERM, TERM_GRACE), (signal.SIGKILL, LAST_LOOK)):
        deadline, pause = trio.current_time() + patience, 0.01
        signalled = set[
            int
        ]()  # a process that cleans up is not interrupted again; one that has just begun is told, too
        while members := await _look(group, by_mark=by_mark):
            for pid in members:
                if pid not in signalled:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
            signalled.update(members)
            if trio.current_time() >= deadline:
                break
            await trio.sleep(pause)
            pause = min(2 * pause, 0.2)
        else:
            break
    return members


async def _look(group: ProgramGroup, *, by_mark: bool) -> list[int]:
    """`members_of` in a thread, for a machine has tens of thousands of processes; here, if there is no thread left."""
    try:
        return await trio.to_thread.run_sync(partial(members_of, group, by_mark=by_mark), limiter=_LOOKS)
    except RuntimeError:
        return members_of(group, by_mark=by_mark)


_LOOKS: Final = trio.CapacityLimiter(2)


def members_of(group: ProgramGroup, *, by_mark: bool = False) -> list[int]:
    """Return the living processes of a program: those of its session, and those that carry its mark.

    Without /proc the program's process group stands for all of them, as the negative number that `os.kill` takes.

    Args:
        group: The program.
        by_mark: A process must carry the mark, because the session may be another program's by now.
    """
    if not Path("/proc/self/environ").exists():
        return [] if by_mark or not _group_lives(group.pid) else [-group.pid]
    mark = f"{MARK}={group.mark}".encode()
    return [
        int(name)
        for name in os.listdir("/proc")
        if name.isdigit() and _belongs(Path("/proc", name), None if by_mark else group.pid, mark)
    ]


def _belongs(folder: Path, session: int | None, mark: bytes) -> bool:
    """Whether the process of a folder in /proc lives, and is of the session or carries the mark."""
    try:
        # a program's name stands in parentheses and may hold anything: the numbers follow the last one
        state, _, _, own_session, *_ = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        if state in (b"Z", b"X"):
            return False
        return int(own_session) == session or mark in (folder / "environ").read_bytes().split(b"\0")
    except OSError:  # the process has just ended, or is another user's
        return False


def _group_lives(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
