"""A failover of PostgreSQL under a gateway: its clients are reset once, and go on with the same events."""

import psycopg
import pytest
import trio

import greenroom as gr
from greenroom.testing import call
from greenroom.transport import connect

from ..support.gateway import TOKEN, gateway
from ..support.postgres import Server
from ..support.runs import agent

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str) -> str:
    """Pay back."""
    return "paid"


async def test_clients_are_reset_once_after_a_failover_with_synchronous_replication():
    helper = agent(call("refund", order="7", id="c1"), "done", tools=[refund])
    with Server(settings={"synchronous_standby_names": "*"}) as primary, primary.standby() as standby:
        url = f"postgresql://greenroom@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/postgres"
        async with gr.open_runtime(url, agents=[helper]) as runtime, gateway(runtime) as address:
            before = runtime.store.epoch
            run = await runtime.start(helper, "hi", run_id="r")
            assert isinstance(await run.wait(), gr.Waiting)
            acknowledged = (await run.view()).last_sequence
            async with (
                connect(address.url, token=TOKEN) as client,
                client.follow("r", on_reset="continue") as events,
            ):
                seen = [await anext(events) for _ in range(acknowledged)]
                await trio.to_thread.run_sync(primary.crash)
                with psycopg.connect(standby.url(), autocommit=True) as connection:
                    connection.execute("SELECT pg_promote()")
                with trio.fail_after(60):
                    while events.reset is None:  # noqa: ASYNC110 - threads of the store notice the failover
                        await trio.sleep(0.05)
                reset = events.reset
                assert runtime.store.epoch != before
                assert reset.sequence == acknowledged, "an acknowledged event is lost"
                ticket = (await run.view()).tickets[0]
                assert (await run.decide(ticket.approve())).ok
                rest = [event async for event in events]
                assert events.reset is reset, "clients are reset once"
                sequences = [event.sequence for event in [*seen, *rest]]
                assert sequences == [*range(1, len(sequences) + 1)]
                assert client.epoch == runtime.store.epoch
            assert (await run.result()).output == "done"
