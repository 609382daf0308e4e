"""What a rejected decision costs does not depend on how many calls its run has had."""

from typing import Any

import pytest

import greenroom as gr
from greenroom.testing import call
from greenroom.transport import Principal
from greenroom.transport.gateway.api import Api
from greenroom.transport.protocol.codes import Refused
from greenroom.transport.protocol.up import Decide

from ..support.runs import agent, home

OPERATOR = Principal(name="operator", token="t" * 20)


@gr.tool
async def look(number: int) -> int:
    """Look."""
    return number


@gr.tool(needs_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


class Weighed(gr.SQLiteStore):
    """A store that counts the steps of SQLite's machine that its reads and transactions take."""

    steps = 0

    def weigh(self) -> None:
        """Count from now on."""
        self.steps = 0
        for connection in self._connections():
            connection.set_progress_handler(self._count, 10)

    def _connections(self) -> list[Any]:
        assert self._readers is not None
        assert self._transactor is not None
        return [*self._readers._idle, self._transactor._connection]

    def _count(self) -> int:
        self.steps += 10
        return 0


async def cost(path: Any, calls: int) -> int:
    """Steps of SQLite for a decision about a ticket that has been decided, in a run of so many calls."""
    script = [call("look", number=number, id=f"c{number}") for number in range(calls)]
    helper = agent(
        *script, call("pay", id="p1"), call("pay", id="p2"), "done", tools=[look, pay], stop=[gr.stop.MaxRounds(0)]
    )
    store = Weighed(path, writer="inline")
    async with home(store) as runtime:
        run = await runtime.start(helper, "hi")
        waiting = await run.wait()
        assert isinstance(waiting, gr.Waiting)
        first = waiting.tickets[0]
        await run.decide(first.approve())
        assert isinstance(await run.wait(), gr.Waiting)
        late = Decide(id="late", run=run.id, target=first.ticket_id, action="cancel")
        with pytest.raises(Refused):  # the connections are opened by the first reads
            await Api(runtime).command(OPERATOR, late)
        store.weigh()
        with pytest.raises(Refused) as refused:
            await Api(runtime).command(OPERATOR, late)
        assert refused.value.error.code == "already_decided"
        assert refused.value.current is not None
        return store.steps


@pytest.mark.slow
async def test_a_rejected_decision_costs_the_same_after_four_calls_and_after_two_hundred(tmp_path, autojump_clock):
    few, many = await cost(tmp_path / "few.db", 4), await cost(tmp_path / "many.db", 200)
    assert few > 0
    assert many < 1.5 * few + 100


async def size_of_row(path: Any, calls: int) -> int:
    """Bytes of the row of a run whose step has so many calls that wait for decisions."""
    script = [call("pay", id=f"c{number}") for number in range(calls)]
    store = gr.SQLiteStore(path, writer="inline")
    async with home(store) as runtime:
        run = await runtime.start(agent(script, "done", tools=[pay]), "hi", execution="parallel_streaming")
        assert isinstance(await run.wait(), gr.Waiting)
        view = await run.view()
        assert [len(message.calls) for message in view.messages if message.role == "assistant"] == [calls]
        assert store._transactor is not None
        ((size,),) = store._transactor._connection.execute("SELECT length(row) FROM runs").fetchall()
        return int(size)


async def test_the_row_that_a_decision_is_judged_on_is_as_large_with_four_hundred_calls(tmp_path, autojump_clock):
    few, many = await size_of_row(tmp_path / "few.db", 4), await size_of_row(tmp_path / "many.db", 400)
    assert many < few + 50, "numbers grow"
