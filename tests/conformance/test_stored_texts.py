"""Texts that PostgreSQL takes in no column, or in no index, have the same answers on every store.

No text of PostgreSQL has a NUL character, and a value in an index has at most 2,704 bytes.
"""

import secrets
from typing import Any

import pytest
import trio

import greenroom as gr
from greenroom.testing import call

from ..support.runs import agent

LONG = secrets.token_hex(2_000)
"""Random, because PostgreSQL compresses a value before it measures it."""
WRONG = {"nul": "a\0b", "long": LONG}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return gr.MemoryStore() if request.param == "memory" else gr.SQLiteStore(tmp_path / "runs.db")


@gr.tool(needs_approval=True)
async def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


@pytest.mark.slow
@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
async def test_a_model_may_give_its_calls_any_id(store: Any, text: str) -> None:
    """Some services write a signature of thousands of characters into the id of a call."""
    payer = agent([call("pay", n=1, id=text), call("pay", n=2, id=f"{text}.")], "done", tools=[pay])
    async with gr.open_runtime(store, agents=[payer]) as runtime:
        run = await runtime.start(payer, "pay")
        waiting = await run.wait()
        assert len(waiting.tickets) == 2
        for ticket in waiting.tickets:
            assert ticket.call_id.startswith("call.")
            assert (await run.decide(ticket.approve())).ok
        assert (await run.result()).output == "done"
        assert (await runtime.replay(run.id)).equal


@pytest.mark.slow
@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
async def test_names_that_no_index_holds_are_refused(store: Any, text: str) -> None:
    payer = agent(call("pay", n=1), "done", tools=[pay])
    async with gr.open_runtime(store, agents=[payer]) as runtime:
        run = await runtime.start(payer, "pay")
        await run.wait()
        for refused in (
            runtime.start(payer, "pay", by=text),
            runtime.fork(run.id, step=0, by=text),
            runtime.commands.send(run.id, "more", command_id=text),
            runtime.commands.cancel(run.id, command_id=text),
        ):
            with pytest.raises(gr.UsageError, match="at most 2,048 bytes, and no NUL"):
                await refused


@pytest.mark.slow
async def test_ids_with_nul_are_unknown(store: Any) -> None:
    payer = agent(call("pay", n=1), "done", tools=[pay])
    async with gr.open_runtime(store, agents=[payer]) as runtime:
        run = await runtime.start(payer, "pay")
        await run.wait()
        for unknown in (
            runtime.get("a\0b"),
            runtime.resume("a\0b"),
            runtime.replay("a\0b"),
            runtime.fork("a\0b", step=0),
            runtime.reader.view("a\0b"),
            runtime.commands.cancel("a\0b"),
        ):
            with pytest.raises(gr.UnknownRun, match="no run has the id"):
                await unknown
        assert await runtime.reader.info("a\0b") is None
        assert (await runtime.reader.summaries(["a\0b"])).runs == ()
        assert await runtime.reader.ticket(run.id, "a\0b") is None
        with pytest.raises(gr.UsageError, match="no image or file"):
            await run.part("a\0b")
        for name in ("prefix", "agent", "thread_id", "by", "text"):
            with pytest.raises(gr.UsageError, match="NUL"):
                await runtime.runs(**{name: "a\0b"})
        with pytest.raises(gr.UsageError, match="NUL"):
            await run.decide(gr.Decision(target="a\0b", action="approve"))


@pytest.mark.slow
@pytest.mark.parametrize("length", [256, 257, 512, 600])
async def test_a_child_run_of_a_call_with_a_long_id_is_cancelled_with_its_parent(store: Any, length: int) -> None:
    """The command that cancels the child run has the call's id in its own."""
    name = secrets.token_hex(length)[:length]
    child = agent(call("pay", n=1), "paid", key="teller", tools=[pay])
    parent = agent(call("teller", input="pay", id=name), "done", key="helper", tools=[child.as_tool()])
    async with gr.open_runtime(store, agents=[parent, child]) as runtime:
        run = await runtime.start(parent, "pay", run_id="r" * 128)
        await run.wait()
        assert (await run.cancel(reason="no")).ok
        with trio.fail_after(10):
            assert isinstance(await run.result(), gr.Cancelled)
            page = await runtime.runs(agent="teller")
            while not all(line.row.status is gr.RunStatus.DONE for line in page.runs):
                await trio.sleep(0.05)
                page = await runtime.runs(agent="teller")
