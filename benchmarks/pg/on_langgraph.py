"""langgraph with PostgresSaver, durability "sync": each step is durable before the next one begins."""

import asyncio  # noqa: TID251 - the library knows no other loop
import operator
import os
import uuid
from typing import Annotated, Any, TypedDict

os.environ["LANGSMITH_TRACING"] = "false"

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from spending import CONTENT, COUNT, MODE, STEPS, Spent, say_steps, url


class State(TypedDict):
    """Messages that grow by one a step."""

    messages: Annotated[list[str], operator.add]
    step: int


def work(state: State) -> dict[str, Any]:
    """One step."""
    return {"messages": [CONTENT], "step": state["step"] + 1}


async def work_async(state: State) -> dict[str, Any]:
    """One step."""
    return work(state)


def graph(saver: Any, node: Any, steps: int) -> Any:
    """A graph of one node that runs so often."""
    builder = StateGraph(State)
    builder.add_node("work", node)
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda state: END if state["step"] >= steps else "work")
    return builder.compile(checkpointer=saver)


def config(steps: int) -> Any:
    """A thread of its own."""
    return {"configurable": {"thread_id": uuid.uuid4().hex}, "recursion_limit": steps + 5}


def one() -> None:
    """One thread, the synchronous saver."""
    with PostgresSaver.from_conn_string(url()) as saver:
        saver.setup()
        graph(saver, work, 5).invoke({"messages": [], "step": 0}, config(5), durability="sync")
        runnable = graph(saver, work, COUNT)
        with Spent() as cost:
            runnable.invoke({"messages": [], "step": 0}, config(COUNT), durability="sync")
    say_steps(cost, COUNT)


async def many() -> None:
    """Many threads at once, the asynchronous saver with a pool of eight connections."""
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(url(), min_size=8, max_size=8, kwargs=settings, open=False) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        runnable = graph(saver, work_async, STEPS)

        async def run() -> None:
            await runnable.ainvoke({"messages": [], "step": 0}, config(STEPS), durability="sync")

        await run()
        with Spent() as cost:
            await asyncio.gather(*(run() for _ in range(COUNT)))
    say_steps(cost, COUNT * STEPS)


if MODE == "one":
    one()
else:
    asyncio.run(many())
