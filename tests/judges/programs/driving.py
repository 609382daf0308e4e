"""Drive a real program through its dialect, scene by scene, and say what has come of each as JSON.

    unshare -rn python -m tests.judges.programs.driving claude worked declined

The model is the project's own service on loopback, which is all of the network that there is then.
"""

import fcntl
import json
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio

from greenroom.actors.backends.dialect import AskAnswer, Declined, Dialect, Granted, ProgramExit, Prompt, Supplied
from greenroom.actors.backends.items import Asked, Item, PromptDone, Question, SendBytes
from greenroom.actors.backends.process import ProgramCommand, ProgramEnded, ProgramProcess, members_of, open_program
from greenroom.testing import FaultServer, call, open_fault_server

from .programs import PROGRAMS, REFUSAL, SECRET, SUBAGENT, JudgeProgram, Round, variables

PATIENCE = 100.0
"""Seconds of a scene; the slowest program takes about twenty until its first question on a busy machine."""
GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 1
"""SIOCGIFFLAGS, SIOCSIFFLAGS and IFF_UP of Linux."""
GRACE = 10.0
"""Seconds between the end of a program's input and its exit."""


@attrs.define(eq=False)
class Life:
    """One life of a program: what it has said, asked and been sent."""

    program: JudgeProgram
    dialect: Dialect
    folder: Path
    server: FaultServer
    items: list[Item] = attrs.field(factory=list)
    sent: list[str] = attrs.field(factory=list)
    lines: list[bytes] = attrs.field(factory=list)
    open: list[Asked | Question] = attrs.field(factory=list)
    most_open: int = 0
    first_question: float | None = None
    stopped: Any = ""
    process: ProgramProcess | None = None

    async def send(self, data: bytes) -> None:
        """Write to the program, and keep the frames."""
        assert self.process is not None
        if data:
            self.sent += data.decode().splitlines()
            with suppress(ProgramEnded):
                await self.process.send(data)

    async def answer(self, asked: Asked | Question, answer: AskAnswer) -> None:
        """Answer a question."""
        self.open.remove(asked)
        await self.send(self.dialect.answer(asked.ask_id, answer))

    @property
    def asked(self) -> int:
        """How many questions there were."""
        return sum(isinstance(item, Asked | Question) for item in self.items)

    def order(self, asked: Asked | Question) -> int:
        """The place of a question among all, from 0."""
        return [item for item in self.items if isinstance(item, Asked | Question)].index(asked)

    async def interrupt(self) -> None:
        """Stop the program, as a cancelled run does."""
        assert self.process is not None
        self.stopped = "cancelled"
        data = self.dialect.interrupt()
        self.sent += data.decode().splitlines()
        await self.process.stop(data)


Decide = Callable[[Life, Asked | Question], Awaitable[None]]


Rounds = Callable[[Path], list[Round]]


async def live(program: JudgeProgram, rounds: Rounds, decide: Decide, inner: Rounds = lambda _: []) -> dict[str, Any]:
    """Start the program with a prompt, let `decide` answer what it asks, and return what has come of that.

    `rounds`: what the model calls; `inner`: what that of a sub-agent does.
    """
    folder, home = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    (folder / ".env").write_text("KEY=canary-1234567\n")
    (folder / "notes.txt").write_text("hello\n")
    async with open_fault_server() as server:
        server.answer = program.answers(rounds(folder), inner(folder))
        life = Life(program, program.backend(server).dialect(), folder, server)
        began = time.monotonic()
        launch = life.dialect.begin(Prompt(text="Do it.", folder=str(folder)))
        command = ProgramCommand(argv=launch.argv, folder=folder, environment=variables(program, server, home))
        exit_ = None
        async with open_program(command) as life.process, trio.open_nursery() as nursery:
            await life.send(launch.data)
            with trio.move_on_after(PATIENCE) as patience:
                await _read(life, nursery, decide, began)
                exit_ = await life.process.wait()
            if exit_ is None:
                exit_ = await life.process.stop()
            nursery.cancel_scope.cancel()
        verdict = life.dialect.ended(
            ProgramExit(
                status=exit_.code if exit_.signal is None else -exit_.signal, stderr=exit_.errors, stopped=life.stopped
            )
        )
    return {
        "verdict": attrs.asdict(verdict),
        "argv": launch.argv,
        "seconds": round(time.monotonic() - began, 2),
        "firstQuestion": life.first_question,
        "timeout": patience.cancelled_caught,
        "exit": [exit_.code, exit_.signal],
        "errors": exit_.errors[-2_000:],
        "items": [
            [type(item).__name__, msgspec.to_builtins(item)] for item in life.items if not isinstance(item, SendBytes)
        ],
        "mostOpen": life.most_open,
        "sent": life.sent,
        "fields": fields_of(life.lines),
        "files": files_of(folder),
        "requests": [json.dumps(request.body, ensure_ascii=False) for request in server.requests],
        "paths": sorted({request.path.partition("?")[0] for request in server.requests}),
        "left": members_of(life.process.group, by_mark=True),
        "folder": str(folder),
        "lines": [line.decode() for line in life.lines],
    }


async def _read(life: Life, nursery: trio.Nursery, decide: Decide, began: float) -> None:
    """Read the program's output to its end."""
    assert life.process is not None
    buffer = b""
    while data := await life.process.receive():
        *lines, buffer = (buffer + data).split(b"\n")
        life.lines += lines
        for item in life.dialect.feed(data):
            life.items.append(item)
            match item:
                case SendBytes():
                    await life.send(item.data)
                case Asked() | Question():
                    life.first_question = life.first_question or round(time.monotonic() - began, 2)
                    life.open.append(item)
                    life.most_open = max(life.most_open, len(life.open))
                    nursery.start_soon(decide, life, item)
                case PromptDone():
                    await life.process.close_input()
                    nursery.start_soon(_end, life)
    life.items += life.dialect.end()


async def _end(life: Life) -> None:
    """End a program that does not end by itself."""
    await trio.sleep(GRACE)
    assert life.process is not None
    life.stopped = life.stopped or "finished"
    await life.process.stop()


def files_of(folder: Path) -> dict[str, str]:
    """What is in the folder now."""
    return {path.name: path.read_text() for path in sorted(folder.iterdir()) if path.is_file()}


def fields_of(lines: list[bytes]) -> dict[str, list[str]]:
    """The kinds of lines, and the names of the fields of each."""
    kinds: dict[str, set[str]] = {}
    for line in lines:
        with suppress(msgspec.DecodeError):
            data = msgspec.json.decode(line)
            if isinstance(data, dict):
                inner = data.get("params", data)
                update = inner.get("update", {}) if isinstance(inner, dict) else {}
                names = (
                    data.get("method") or data.get("type") or "answer",
                    data.get("subtype"),
                    update.get("sessionUpdate"),
                )
                kind = "/".join(str(name) for name in names if name)
                kinds.setdefault(kind, set()).update((update or inner).keys() if isinstance(inner, dict) else ())
    return {kind: sorted(names) for kind, names in sorted(kinds.items())}


# --- scenes ----------------------------------------------------------------------------------------------------------


async def grant(life: Life, asked: Asked | Question) -> None:
    """Allow everything."""
    await life.answer(asked, Granted())


async def worked(program: JudgeProgram) -> dict[str, Any]:
    """A write is allowed; a read of a secret and another write are denied with a text; a command is allowed."""

    async def decide(life: Life, asked: Asked | Question) -> None:
        text = json.dumps(msgspec.to_builtins(asked))
        refusal = REFUSAL if "c.txt" in text else SECRET if ".env" in text else ""
        await life.answer(asked, Declined(text=refusal) if refusal else Granted())

    def rounds(folder: Path) -> list[Round]:
        return [
            [program.write(folder / "a.txt", "A", "1")],
            [program.read(folder / ".env", "2")],
            [program.write(folder / "c.txt", "C", "3")],
            [program.run("echo B > b.txt", "4")],
        ]

    return await live(program, rounds, decide)


async def declined(program: JudgeProgram) -> dict[str, Any]:
    """A command is denied without a text."""

    async def decide(life: Life, asked: Asked | Question) -> None:
        await life.answer(asked, Declined())

    return await live(program, lambda _: [[program.run("echo B > b.txt", "1")]], decide)


async def cancelled(program: JudgeProgram) -> dict[str, Any]:
    """The program is stopped while it asks."""

    async def decide(life: Life, _: Asked | Question) -> None:
        await trio.sleep(0.3)
        await life.interrupt()

    return await live(program, lambda _: [[program.run("echo B > b.txt", "1")]], decide)


async def cut(program: JudgeProgram) -> dict[str, Any]:
    """The program is stopped while its command works."""

    async def decide(life: Life, asked: Asked | Question) -> None:
        await life.answer(asked, Granted())
        while not (life.folder / "begun").exists():  # noqa: ASYNC110 - the program's command makes it
            await trio.sleep(0.05)
        await life.interrupt()

    return await live(program, lambda _: [[program.run("touch begun; sleep 600; touch b.txt", "1")]], decide)


async def together(program: JudgeProgram) -> dict[str, Any]:
    """Three commands in one answer of the model are asked about together, and answered last first."""

    async def decide(life: Life, asked: Asked | Question) -> None:
        while life.asked < 3:  # noqa: ASYNC110 - the program's questions come one by one
            await trio.sleep(0.05)
        await trio.sleep(0.2 * (3 - life.order(asked)))
        await life.answer(asked, Granted())

    commands = [program.run(f"echo {name} > {name}.txt", name) for name in ("x", "y", "z")]
    return await live(program, lambda _: [commands], decide)


async def edited(program: JudgeProgram) -> dict[str, Any]:
    """A command is allowed with another text."""

    async def decide(life: Life, asked: Asked | Question) -> None:
        assert isinstance(asked, Asked)
        await life.answer(asked, Granted(arguments={**asked.arguments, "command": "echo edited > b.txt"}))

    return await live(program, lambda _: [[program.run("echo B > b.txt", "1")]], decide)


async def question(program: JudgeProgram) -> dict[str, Any]:
    """The model of Claude asks people, and gets an answer."""

    async def decide(life: Life, asked: Asked | Question) -> None:
        await life.answer(asked, Supplied(value={"Which colour?": "Blue"}))

    options = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
    asks = {"question": "Which colour?", "header": "Colour", "multiSelect": False, "options": options}
    return await live(program, lambda _: [[call("AskUserQuestion", questions=[asks], id="toolu_1")]], decide)


async def delegated(program: JudgeProgram) -> dict[str, Any]:
    """A sub-agent of Claude works in the background, and asks after the result line of the session."""
    agent = call("Agent", description="d", prompt=SUBAGENT, subagent_type="general-purpose", id="toolu_9")
    return await live(
        program, lambda _: [[agent]], grant, inner=lambda folder: [[program.write(folder / "s.txt", "S", "11")]]
    )


SCENES: dict[str, Callable[[JudgeProgram], Awaitable[dict[str, Any]]]] = {
    scene.__name__: scene for scene in (worked, declined, cancelled, cut, together, edited, question, delegated)
}


def raise_loopback() -> None:
    """Let the loopback device of a new network work, as `ip link set lo up` does; one that works stays as it is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        name, flags = struct.unpack("16sh", fcntl.ioctl(door, GET_FLAGS, struct.pack("16sh", b"lo", 0)))
        if not flags & UP:
            fcntl.ioctl(door, SET_FLAGS, struct.pack("16sh", name, flags | UP))


async def main(name: str, scenes: list[str]) -> None:
    """Play the scenes, two at a time; print one JSON object."""
    found: dict[str, Any] = {}
    limiter = trio.CapacityLimiter(2)

    async def one(scene: str) -> None:
        async with limiter:
            found[scene] = await SCENES[scene](PROGRAMS[name])

    async with trio.open_nursery() as nursery:
        for scene in scenes:
            nursery.start_soon(one, scene)
    json.dump(found, sys.stdout)


def play(main: Callable[[str, list[str]], Awaitable[None]], scenes: Iterable[str]) -> None:
    """Play what the command line names, or all scenes; the folders of the programs are gone afterwards."""
    raise_loopback()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        tempfile.tempdir = place
        trio.run(main, sys.argv[1], sys.argv[2:] or list(scenes))


if __name__ == "__main__":
    play(main, SCENES)
