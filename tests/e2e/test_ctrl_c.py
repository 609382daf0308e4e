"""A real SIGINT, wherever it meets the program: it ends the program, at once and in order, and no run pays for it."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

import greenroom as gr

PATIENCE = 60.0
PROGRAM = '''
import sys, threading, time, trio
import greenroom as gr
from greenroom.testing import ScriptedModel, call

def ready():
    print("ready", flush=True)

@gr.tool
async def busy() -> str:
    """The signal meets the tool's own code."""
    ready()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        pass
    return ""

@gr.tool
async def careful() -> str:
    """The tool tidies up and hands it on."""
    try:
        ready()  # in the block: the signal comes as soon as the line is read
        end = time.monotonic() + 60
        while time.monotonic() < end:
            pass
    except BaseException as error:
        print("tidied", flush=True)
        raise KeyboardInterrupt from None
    return ""

@gr.tool
async def waits() -> str:
    """The signal meets trio, which hands it to the main task."""
    ready()
    await trio.sleep(60)
    return ""

over = threading.Event()

@gr.tool(grace=0)
def in_a_thread() -> str:
    """The signal never meets a thread."""
    ready()
    over.wait(60)
    return ""

@gr.tool
async def rude() -> str:
    """No signal at all."""
    raise KeyboardInterrupt

name = sys.argv[1]
tools = {one.name: one for one in (busy, careful, waits, in_a_thread, rude)}
helper = gr.Agent("helper", model=ScriptedModel([call(name), "done"]), tools=[tools[name]])

async def main():
    async with gr.open_runtime(sys.argv[2], agents=[helper]) as runtime:
        run = await runtime.start(helper, "hi", run_id="r1")
        try:
            print((await run.result()).output, flush=True)
        finally:
            over.set()

trio.run(main)
'''


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["busy", "careful", "waits", "in_a_thread"])
def test_a_real_ctrl_c_ends_the_program_and_leaves_the_run_as_it_is(tmp_path: Path, tool: str) -> None:
    program, database = tmp_path / "program.py", tmp_path / "runs.db"
    program.write_text(PROGRAM)
    with subprocess.Popen(
        [sys.executable, str(program), tool, str(database)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
        finally:
            watchdog.cancel()
    assert process.returncode == -signal.SIGINT, err
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert out == ("tidied\n" if tool == "careful" else "")
    assert trio.run(stage_of, database) == "running"


async def stage_of(database: Path) -> str:
    async with gr.open_runtime(gr.SQLiteStore(database, read_only=True)) as runtime:
        return str((await (await runtime.get("r1")).view()).stage.value)


@pytest.mark.slow
def test_an_interrupt_that_a_tool_makes_by_hand_is_its_own_failure(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), "rude", str(tmp_path / "runs.db")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
