"""Programs as real processes: what they write, how they end, and that nothing of them is left, whoever dies."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom.actors.backends import process as rooms
from greenroom.actors.backends.process import (
    ProcessExit,
    ProgramCommand,
    ProgramEnded,
    ProgramGroup,
    ProgramNotStarted,
    ProgramProcess,
    end_group,
    environment,
    members_of,
    open_program,
)

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


FLOOD = "head -c 300000 /dev/zero | tr '\\0'"


def shell(text: str, folder: Path, **variables: str) -> ProgramCommand:
    """A program that is a shell script."""
    return ProgramCommand(argv=("/bin/sh", "-c", text), folder=folder, environment=environment(**variables))


async def settled(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether a condition about processes becomes true in time."""
    for _ in range(int(seconds / 0.05)):
        if condition():
            return True
        await trio.sleep(0.05)
    return condition()


async def all_of(program: ProgramProcess) -> bytes:
    """Standard output to its end."""
    out = b""
    while data := await program.receive():
        out += data
    return out


async def played(command: ProgramCommand) -> tuple[bytes, ProcessExit]:
    """The output of a program, and its exit."""
    async with open_program(command) as program:
        return await all_of(program), await program.wait()


@pytest.fixture
def impatient(monkeypatch: Any) -> None:
    """Graces of tenths of a second."""
    for name in ("INTERRUPT_GRACE", "TERM_GRACE", "DRAINING"):
        monkeypatch.setattr(rooms, name, 0.2)


@pytest.mark.parametrize(
    ("script", "code", "number", "out", "errors"),
    [
        ("echo hi; echo no >&2", 0, None, b"hi\n", "no\n"),
        ("exit 41", 41, None, b"", ""),
        ("kill -KILL $$", None, signal.SIGKILL, b"", ""),
        ("printf a; sleep 0.1; printf b", 0, None, b"ab", ""),
        (f"{FLOOD} x; {FLOOD} y >&2", 0, None, b"x" * 300_000, None),
    ],
)
async def test_a_program_that_ends_by_itself(tmp_path, script, code, number, out, errors):
    output, end = await played(shell(script, tmp_path))
    assert (output, end.code, end.signal, end.stopped) == (out, code, number, False)
    assert end.errors == ("y" * rooms.TAIL if errors is None else errors)


async def test_a_program_that_is_not_found_ends_with_127_and_one_that_is_no_program_with_126(tmp_path):
    (tmp_path / "text").write_text("hi")
    for name, code in (("missing-program", 127), (str(tmp_path / "text"), 126)):
        command = ProgramCommand(argv=(name,), folder=tmp_path, environment=environment())
        output, end = await played(command)
        assert (output, end.code) == (b"", code)
        assert name in end.errors


async def test_a_folder_that_is_not_there_is_an_error_that_names_it(tmp_path):
    with pytest.raises(ProgramNotStarted, match="nowhere"):
        await played(shell("true", tmp_path / "nowhere"))


async def test_a_program_reads_what_is_sent_and_nothing_of_the_gate(tmp_path):
    async with open_program(shell("cat", tmp_path)) as program:
        await program.send(b"one\n")
        await program.send(b"two\n")
        await program.close_input()
        assert await all_of(program) == b"one\ntwo\n"
        assert (await program.wait()).code == 0


async def test_what_two_tasks_send_is_not_mixed(tmp_path):
    lines = [bytes([letter]) * 200_000 + b"\n" for letter in b"abc"]
    async with open_program(shell("cat", tmp_path)) as program, trio.open_nursery() as nursery:
        for line in lines:
            nursery.start_soon(program.send, line)
        out = b""
        while len(out) < sum(map(len, lines)):
            out += await program.receive()
    assert sorted(out.splitlines(keepends=True)) == lines


async def test_a_program_that_reads_no_more_is_named(tmp_path):
    async with open_program(shell("exec 0<&-; echo closed; sleep 20", tmp_path)) as program:
        await program.receive()
        with pytest.raises(ProgramEnded):
            await program.send(b"x" * 1_000_000)


async def test_the_environment_is_an_allow_list(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "canary")
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("MINE", "1")
    command = ProgramCommand(argv=("env",), folder=tmp_path, environment=environment(["MINE", "ABSENT"], OWN="2"))
    names = {line.partition(b"=")[0].decode() for line in (await played(command))[0].splitlines()}
    assert {"PATH", "HOME", "LC_ALL", "MINE", "OWN", rooms.MARK} <= names
    assert names <= {*rooms.PASSED, "LC_ALL", "MINE", "OWN", rooms.MARK, "PWD", "OLDPWD", "SHLVL", "_"} | {
        name for name in names if name.startswith("LC_")
    }


async def test_leaving_the_block_ends_the_program_with_what_it_started(tmp_path):
    script = "sleep 30 & setsid sleep 31 & sh -c 'sleep 32 & exec sleep 33' & echo ready; wait"
    async with open_program(shell(script, tmp_path)) as program:
        await program.receive()
        await trio.sleep(0.1)
        assert len(members_of(program.group)) >= 5
        began = trio.current_time()
    assert trio.current_time() - began < 3
    assert members_of(program.group) == []


async def test_descendants_of_a_program_that_has_ended_end_with_the_block(tmp_path, impatient):
    async with open_program(shell("setsid sleep 30 & exit 0", tmp_path)) as program:
        assert await all_of(program) == b""  # the descendant holds the stream, the reader does not wait for it
        assert (await program.wait()).code == 0
        assert members_of(program.group) != []
    assert members_of(program.group) == []


async def test_a_program_that_ignores_sigterm_is_killed(tmp_path, impatient):
    async with open_program(shell("trap '' TERM INT; echo ready; while :; do sleep 0.05; done", tmp_path)) as program:
        await program.receive()
        end = await program.stop()
        assert (end.signal, end.stopped, end.survivors) == (signal.SIGKILL, True, ())
    assert members_of(program.group) == []


async def test_an_interrupt_by_the_protocol_comes_first(tmp_path):
    script = "echo ready; read word; echo got $word >&2; exit 3"
    async with open_program(shell(script, tmp_path), interrupt=b"stop\n") as program:
        await program.receive()
        end = await program.stop(b"stop\n")
    assert (end.code, end.errors, end.stopped) == (3, "got stop\n", False)


async def test_a_torn_message_is_not_followed_by_an_interrupt(tmp_path):
    async with open_program(shell("echo ready; sleep 30", tmp_path)) as program:
        await program.receive()
        with trio.move_on_after(0.1) as scope:
            await program.send(b"x" * 10_000_000)
        assert scope.cancelled_caught
        began = trio.current_time()
        assert (await program.stop(b"stop\n")).signal == signal.SIGTERM
        assert trio.current_time() - began < 2


async def test_a_cancel_ends_the_program(tmp_path):
    with trio.move_on_after(0.3) as scope:
        async with open_program(shell("sleep 30", tmp_path)) as program:
            group = program.group
            await all_of(program)
    assert scope.cancelled_caught
    assert members_of(group) == []


async def test_an_error_of_the_block_passes_bare(tmp_path):
    with pytest.raises(ValueError, match="mine"):
        async with open_program(shell("sleep 30", tmp_path)):
            raise ValueError("mine")


OWNER = """
import sys, trio
from pathlib import Path
from greenroom.actors.backends.process import ProgramCommand, environment, open_program
async def main():
    script = "trap '' HUP; setsid sleep 40 & echo ready; while :; do sleep 0.1; done"
    command = ProgramCommand(argv=("/bin/sh", "-c", script), folder=Path("."), environment=environment())
    async with open_program(command) as program:
        await program.receive()
        print(program.group.pid, program.group.mark, flush=True)
        await trio.sleep_forever()
trio.run(main)
"""


@pytest.fixture
def owner(tmp_path: Path) -> Any:
    """A process with a program, and the program's identity."""
    process = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, cwd=tmp_path)
    assert process.stdout is not None
    pid, mark = process.stdout.readline().decode().split()
    yield process, (group := ProgramGroup(pid=int(pid), mark=mark))
    process.kill()
    process.wait()
    process.stdout.close()
    for member in members_of(group):
        os.kill(member, signal.SIGKILL)


@pytest.mark.slow
async def test_the_watchdog_ends_the_program_of_a_process_that_is_killed(owner):
    process, group = owner
    assert members_of(group) != []
    process.kill()
    assert await settled(lambda: members_of(group) == [], seconds=6)


@pytest.mark.slow
async def test_a_program_of_a_frozen_process_is_ended_by_another_one(owner):
    process, group = owner
    process.send_signal(signal.SIGSTOP)
    assert await end_group(group) == ()
    assert members_of(group) == []
    process.send_signal(signal.SIGCONT)


async def test_end_group_ends_no_program_with_another_mark(tmp_path):
    async with open_program(shell("echo ready; sleep 30", tmp_path)) as program:
        await program.receive()
        assert await end_group(ProgramGroup(pid=program.group.pid, mark="other")) == ()
        assert members_of(program.group) != []


async def test_a_program_whose_watchdog_does_not_start_is_ended(tmp_path, monkeypatch):
    async def failing(argv: list[str], **options: Any) -> trio.Process:
        if rooms.WATCHDOG in argv:
            raise OSError("no more processes")
        process = await trio.lowlevel.open_process(argv, **options)
        pids.append(process.pid)
        return process

    pids: list[int] = []
    monkeypatch.setattr(rooms, "open_process", failing)
    with pytest.raises(ProgramNotStarted, match="no more processes"):
        await played(shell("touch ran", tmp_path))
    assert not (tmp_path / "ran").exists()
    assert members_of(ProgramGroup(pid=pids[0], mark="-")) == []


async def test_no_descriptor_and_no_process_is_left(tmp_path):
    async def life() -> None:
        await played(shell("echo hi", tmp_path))

    await life()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await life()
    assert len(os.listdir("/proc/self/fd")) == before
