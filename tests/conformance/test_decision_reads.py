"""A decision about a run that lives in another process, or in none, is judged on one read: the facts of its post."""

from typing import Any

import pytest

import greenroom as gr
from greenroom.testing import call

from ..support.runs import agent, home

READS = ("outline", "load", "ticket", "summaries", "runs", "thread", "messages", "events")


@gr.tool(needs_approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    return f"paid {cents}"


@gr.tool(needs_approval=True)
async def pay_more(cents: int) -> str:
    """Pay in the other department."""
    return f"paid more than {cents}"


class Noting:
    """A handle of a shared memory store that notes what is read through it."""

    def __init__(self, store: Any) -> None:
        self.store, self.reads = store, list[str]()
        for name in READS:
            setattr(store, name, self._noting(name, getattr(store, name)))

    def _noting(self, name: str, read: Any) -> Any:
        async def noting(*args: Any, **options: Any) -> Any:
            self.reads.append(name)
            return await read(*args, **options)

        return noting


def asking() -> gr.Agent[Any]:
    """An agent that hands its run over to one that asks."""
    teller = agent(call("pay_more", cents=5), "done", key="teller", tools=[pay_more])
    return agent(call("transfer_to_teller"), key="clerk", tools=[pay], handoffs=[teller])


@pytest.mark.parametrize("handed_over", [False, True])
async def test_a_decision_in_another_process_reads_nothing_before_it_is_posted(handed_over, autojump_clock):
    owner = gr.MemoryStore()
    other = Noting(owner.peer())

    def made() -> gr.Agent[Any]:
        return asking() if handed_over else agent(call("pay", cents=5), "done", key="clerk", tools=[pay])

    async with home(owner) as theirs, gr.open_runtime(other.store, agents=[made()]) as ours:
        run = await theirs.start(made(), "hi")
        waiting = await run.wait()
        assert isinstance(waiting, gr.Waiting)
        del other.reads[:]
        assert (await ours.commands.decide(run.id, waiting.tickets[0].approve())).status == "accepted"
        assert other.reads == []
        assert isinstance(await run.result(), gr.Completed)


async def test_only_edited_arguments_are_compared_with_the_ticket(autojump_clock):
    owner = gr.MemoryStore()
    other = Noting(owner.peer())

    def made() -> gr.Agent[Any]:
        return asking()

    async with home(owner) as theirs, gr.open_runtime(other.store, agents=[made()]) as ours:
        run = await theirs.start(made(), "hi")
        waiting = await run.wait()
        assert isinstance(waiting, gr.Waiting)
        del other.reads[:]
        (ticket,) = waiting.tickets
        refused = await ours.commands.decide(run.id, ticket.approve(edited_arguments={"cents": "many"}))
        assert (refused.status, refused.code) == ("rejected", "invalid_arguments")  # by the tool of the active agent
        assert sorted(set(other.reads)) == ["outline", "ticket"]
        assert (await ours.commands.decide(run.id, ticket.approve(edited_arguments={"cents": 7}))).status == "accepted"
        assert isinstance(await run.result(), gr.Completed)
