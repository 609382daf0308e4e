"""kill -9 and SIGSTOP of a process whose run lets a program work: no program is left, and nothing happens twice."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.actors.backends.process import MARK

from .program_life import coder, place_of

LIFE = Path(__file__).with_name("program_life.py")
ASKS = [["ask", "make"], ["say", "Done."]]
WORKS = [["run", "start"], ["sleep", 60], ["say", "Done."]]
GONE = 4.0
"""Seconds after the end of a process until no program of it is left."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(200),
    pytest.mark.no_cover,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc"),
]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the runs are: a file, or the URL of a schema."""
    return str(tmp_path / "runs.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@contextmanager
def life(folder: Path, place: str, form: str, script: Any) -> Iterator["subprocess.Popen[str]"]:
    """A process, which is killed at the end of the block."""
    command = [sys.executable, str(LIFE), str(folder), place, form, json.dumps(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
            if process.stdout is not None:
                process.stdout.close()


def word(process: "subprocess.Popen[str]", expected: str) -> str:
    """Read until the process says a word; return what stands behind it."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(expected):
            return line.removeprefix(expected).strip()
    raise AssertionError(f"the process has ended and not said {expected!r}")


def programs(folder: Path) -> list[int]:
    """The living programs that work in a folder."""
    found = []
    for name in os.listdir("/proc"):
        try:
            marked = f"{MARK}=".encode() in Path("/proc", name, "environ").read_bytes()
            stat = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
            if name.isdigit() and marked and stat[0] != "Z" and os.readlink(f"/proc/{name}/cwd") == str(folder):
                found.append(int(name))
        except OSError:
            continue
    return found


async def gone(folder: Path) -> bool:
    """Whether all programs of a folder end in time."""
    for _ in range(int(GONE / 0.05)):
        if not programs(folder):
            return True
        await trio.sleep(0.05)
    return False


def effects(folder: Path) -> list[str]:
    path = folder / "effects.txt"
    return path.read_text().split() if path.exists() else []


def killed(folder: Path, place: str, form: str, script: Any, when: str) -> str:
    """One life that is killed while its program asks, or works; returns the ticket."""
    ticket = ""
    with life(folder, place, form, script) as process:
        if when == "asks":
            ticket = word(process, "waits")
        else:
            word(process, "ready")
            trio.run(until, lambda: bool(effects(folder)))
        assert programs(folder)
        process.kill()
        process.wait()
    assert trio.run(gone, folder), programs(folder)
    return ticket


async def until(condition: Any) -> None:
    with trio.fail_after(30):
        while not condition():  # noqa: ASYNC110 - another process makes it true
            await trio.sleep(0.02)


async def lost_call(run: Any) -> gr.Ticket:
    """The question that the next owner asks about the call."""
    with trio.fail_after(60):
        while True:
            outcome = await run.wait()
            if isinstance(outcome, gr.Waiting) and outcome.tickets[0].reason == "outcome_unknown":
                assert len(outcome.tickets) == 1
                ticket: gr.Ticket = outcome.tickets[0]
                return ticket
            await trio.sleep(0.05)


@pytest.mark.parametrize("form", ["acp", "claude"])
def test_a_program_that_asks_ends_with_its_process_and_its_question_is_withdrawn(tmp_path, place, form):
    late = killed(tmp_path, place, form, ASKS, "asks")

    async def next_life() -> None:
        async with gr.open_runtime(place_of(place), agents=[coder(tmp_path, form)]) as runtime:
            run = await runtime.get("r")
            ticket = await lost_call(run)
            assert (await run.decide(gr.Decision(target=late, action="resume"))).code == "already_decided"
            async with run.events(until="rest") as events:
                resolved = [one.payload async for one in events if one.type == "run.approval.resolved"]
            (withdrawn,) = resolved
            assert (withdrawn["resolution"], withdrawn["reason"].partition(":")[0]) == ("withdrawn", "owner_lost")
            assert effects(tmp_path) == []
            await run.decide(ticket.approve(by="ada"))  # again
            (ticket,) = (await run.wait()).tickets
            assert (ticket.reason, ticket.live) == ("tool_permission", True)
            await run.decide(ticket.approve(by="ada"))
            assert (await run.result()).output == "Done."
            assert effects(tmp_path) == ["make"]

    trio.run(next_life)
    assert programs(tmp_path) == []


@pytest.mark.parametrize("answer", ["result", "cancel"])
def test_a_program_that_works_ends_with_its_process_and_people_say_what_came_of_it(tmp_path, place, answer):
    killed(tmp_path, place, "acp", WORKS, "works")

    async def next_life() -> None:
        async with gr.open_runtime(place_of(place), agents=[coder(tmp_path, "acp")]) as runtime:
            run = await runtime.get("r")
            ticket = await lost_call(run)
            if answer == "result":
                await run.decide(ticket.approve({"text": "It was done.", "proposal": None}, by="ada"))
                assert (await run.result()).output == "It was done."
            else:
                await run.decide(ticket.deny("no", by="ada"))
                assert isinstance(await run.result(), gr.Cancelled)

    trio.run(next_life)
    assert (effects(tmp_path), programs(tmp_path)) == (["start"], [])


@pytest.mark.parametrize(("form", "continued"), [("keeper", True), ("acp", False)])
def test_a_repeated_call_continues_the_session_of_a_program_that_keeps_unfinished_ones(tmp_path, form, continued):
    place = str(tmp_path / "runs.db")
    killed(tmp_path, place, form, [["ask", "make"], ["prompt"], ["session"]], "asks")

    async def next_life() -> None:
        async with gr.open_runtime(place_of(place), agents=[coder(tmp_path, form)]) as runtime:
            run = await runtime.get("r")
            await run.decide((await lost_call(run)).approve(by="ada"))
            (ticket,) = (await run.wait()).tickets
            await run.decide(ticket.approve(by="ada"))
            assert (await run.result()).output.startswith("continued session-") is continued
            async with run.events() as events:
                said = [one.payload["text"] async for one in events if one.type == "run.message.completed"]
            assert said[0].startswith("An earlier attempt at this was cut off")

    trio.run(next_life)


def test_a_frozen_owner_starts_nothing_again_and_its_program_ends_before_the_next_begins(tmp_path, postgres_url):
    with life(tmp_path, postgres_url, "acp", ASKS) as process:
        word(process, "waits")
        (former,) = programs(tmp_path)
        process.send_signal(signal.SIGSTOP)

        async def next_life() -> None:
            async with gr.open_runtime(place_of(postgres_url), agents=[coder(tmp_path, "acp")]) as runtime:
                run = await runtime.get("r")
                ticket = await lost_call(run)
                assert programs(tmp_path) == [former]
                await run.decide(ticket.approve(by="ada"))
                (ticket,) = (await run.wait()).tickets
                (newer,) = programs(tmp_path)
                assert newer != former
                process.send_signal(signal.SIGCONT)
                await trio.sleep(3)
                assert programs(tmp_path) == [newer]
                await run.decide(ticket.approve(by="ada"))
                assert (await run.result()).output == "Done."

        trio.run(next_life)
        assert effects(tmp_path) == ["make"]


def test_the_prompt_and_the_environment_are_in_no_list_of_processes(tmp_path):
    script = [["ask", "canary-command"], ["say", "Done."]]
    with life(tmp_path, str(tmp_path / "runs.db"), "acp", script) as process:
        word(process, "waits")
        for pid in programs(tmp_path):
            assert not re.search(b"canary", Path(f"/proc/{pid}/cmdline").read_bytes())
