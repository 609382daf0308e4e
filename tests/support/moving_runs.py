"""Runs that move between processes in many ways, and what the processes keep of them."""

from datetime import timedelta

import trio

import greenroom as gr
from greenroom.testing import call

from .kept import kept, sizes
from .runs import agent

STAY = {
    "MemoryTables.pruned",  # the ids of pruned runs stay taken
    "MemoryTables.threads",  # and their threads keep id and owner
    "Link._texts",  # statements of the program
    "PreparedStatements._names",  # of these at most a hundred for each connection
    "ReadLinks._all",  # four connections at most
    "ReadLinks._idle",
    "ProcessMachine._dead_since",  # dead processes, for ten minutes
}
"""What may grow: its size has a limit, or the storage needs it."""


@gr.tool(needs_approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@gr.tool
async def whoami(ctx: gr.ToolContext) -> str:
    """Tell."""
    return str(ctx.deps)


@gr.tool
async def hold(ctx: gr.ToolContext) -> str | gr.Suspend:
    """Wait for an answer, for some minutes at most."""
    return gr.Suspend(expires_after=400.0, on_expiry=gr.SetResult("no answer came"))


@gr.tool(replay="safe")
async def stubborn(ctx: gr.ToolContext) -> str:
    """In one of the processes, ignore the cancel for long."""
    with trio.CancelScope(shield=True):
        await trio.sleep(300.0 if ctx.deps == "ada" else 0.0)
    return "ended"


def agents():
    payer = agent(call("pay", cents=5, id="c1"), "done", key="payer", tools=[pay], description="Pays.")
    return (
        payer,
        agent(call("whoami", id="c1"), "done", key="helper", tools=[whoami]),
        agent(call("hold", id="c1"), "done", key="waiter", tools=[hold]),
        agent(call("stubborn", id="c1"), "done", key="stubborn", tools=[stubborn]),
        agent(call("payer", input="pay", id="c1"), "done", key="boss", tools=[payer.as_tool()]),
    )


AGENTS = {"degraded": "helper", "failing": "helper", "timer": "waiter", "overran": "stubborn", "child": "boss"}
"""By way; else the payer works."""


def broken(info):
    """A provider of deps that has none for some runs, and fails for others."""
    if info.agent == "helper":
        raise LookupError("not here") if info.run_id.startswith("degraded") else OSError("the provider is away")
    return "ada"


async def start(here, there, run_id):
    """Start a run in its way."""
    way, _, number = run_id.partition("-")
    thread = f"{number[0]}.{int(number[1:]) // 2}" if way in ("held", "late") else None
    deadline = there.clock.now() + timedelta(days=30) if way in ("degraded", "failing") else None
    process = there if way == "followed" else here
    await process.start(AGENTS.get(way, "payer"), "hi", run_id=run_id, thread_id=thread, deadline=deadline)


async def end(runtime, run_id):
    """Wait for a run's end in its way; its questions are answered here."""
    run = await runtime.get(run_id)
    cancels = run_id.startswith(("cancelled", "late"))
    if cancels:
        await run.cancel()
    while isinstance(outcome := await run.wait(), gr.Waiting):
        if run_id.startswith("timer"):
            break
        for ticket in outcome.tickets:
            await run.decide(ticket.approve())
        await trio.sleep(0.1)
    assert isinstance(await run.result(), gr.Cancelled if cancels else gr.Completed), run_id


def named_in(runtime, ids):
    """The containers of a process that name one of the runs."""
    return {*kept([runtime, runtime.store], ids, not_in=(gr.Agent,))} - STAY


def counted(runtime):
    """How many entries the containers of a process have; agents are of the program."""
    return sizes([runtime, runtime.store], not_in=(gr.Agent,))


def grown(before, after):
    return {name: (before[name], size) for name, size in after.items() if size > before[name] and name not in STAY}
