"""One life of a process whose run lets a program work, for `test_program_kills.py`.

    python program_life.py FOLDER PLACE FORM SCRIPT

Opens the runtime on PLACE (a file, or the URL of a PostgreSQL schema) and starts the run. Says "ready", and "waits
TICKET" when the run waits; then goes on until it is killed.
"""

import os
import sys
from pathlib import Path
from typing import Any

import trio

import greenroom as gr
from greenroom.actors.stores.postgres.store import PostgresStore

LEASE: dict[str, float] = {"lease": 4.0, "turn": 0.5, "margin": 1.5}
PROGRAM = str(Path(__file__).parents[1] / "support" / "scripted_program.py")


def place_of(name: str) -> Any:
    """The store of a place."""
    return PostgresStore(name, **LEASE) if "://" in name else name


class Keeper(gr.backends.Acp):
    """A program that can continue a session whose first prompt is not finished, as Codex can."""

    keeps_unfinished = True


def coder(folder: Path, form: str) -> gr.Agent[Any]:
    """The agent, whose program counts what it does in a file."""
    command = (sys.executable, "-SE", PROGRAM, "acp" if form == "keeper" else form, str(folder / "effects.txt"))
    make: Any = {"acp": gr.backends.Acp, "claude": gr.backends.Claude, "keeper": Keeper}[form]
    return gr.backends.agent("coder", make(command=command, folder=folder))


def say(text: str) -> None:
    """Print a line for the test, unbuffered."""
    os.write(1, f"{text}\n".encode())


async def main() -> None:
    """Run one life."""
    folder, place, form, script = Path(sys.argv[1]), *sys.argv[2:]
    async with gr.open_runtime(place_of(place), agents=[coder(folder, form)]) as runtime:
        run = await runtime.start("coder", script, run_id="r")
        say("ready")
        outcome = await run.wait()
        say(f"waits {outcome.tickets[0].ticket_id}" if isinstance(outcome, gr.Waiting) else "done")
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(main)
