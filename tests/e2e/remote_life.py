"""One life of a process whose run lets a remote agent work, for `test_remote_agent_kills.py`.

    python remote_life.py PLACE URL TOKEN RUN TEXT

Opens the runtime on PLACE (a file, or the URL of a PostgreSQL schema), starts the run, or finds it, and answers what
the other side asks. Says "ready", then "end KIND OUTPUT", or "asks REASON" if people are to say what happened.
"""

import os
import sys
from typing import Any

import trio

import greenroom as gr
from greenroom.actors.stores.postgres.store import PostgresStore

LEASE: dict[str, float] = {"lease": 2.0, "turn": 0.3, "margin": 0.7}


def place_of(name: str) -> Any:
    """The store of a place."""
    return PostgresStore(name, **LEASE) if "://" in name else name


def far(url: str, token: str) -> gr.Agent[Any]:
    """The agent."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return gr.backends.agent("far", gr.backends.A2A(url, headers=headers, offline=60))


def say(text: str) -> None:
    """Print a line for the test, unbuffered."""
    os.write(1, f"{text}\n".encode())


async def main() -> None:
    """Run one life."""
    place, url, token, name, text = sys.argv[1:]
    async with gr.open_runtime(place_of(place), agents=[far(url, token)]) as runtime:
        run = await runtime.start("far", text, run_id=name)
        say("ready")
        outcome = await run.wait()
        while isinstance(outcome, gr.Waiting):
            ticket = outcome.tickets[0]
            if ticket.reason == "outcome_unknown":
                say("asks outcome_unknown")
                return
            plain = ticket.response_schema == {"type": "string"}
            decision = ticket.approve("order 7" if plain else {"action": "approve", "result": "order 7"}, by="ada")
            await run.decide(decision)
            outcome = await run.wait()
        say(f"end {type(outcome).__name__} {outcome.output if isinstance(outcome, gr.Completed) else outcome}")


if __name__ == "__main__":
    trio.run(main)
