"""langgraph, a model node and a ToolNode, with a model that costs nothing.

With a third argument `saver` an InMemorySaver keeps a checkpoint of each step, every run in a thread of its own.
"""

import asyncio  # noqa: TID251 - these libraries know no other loop
import os
import sys
import uuid
from typing import Any

os.environ["LANGSMITH_TRACING"] = "false"

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from measuring import measure

CALL = {"name": "add", "args": {"a": 1, "b": 2}, "id": "c1", "type": "tool_call"}


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    await asyncio.sleep(0)
    return a + b


async def model(state: MessagesState) -> dict[str, Any]:
    """Call the tool, then be done."""
    await asyncio.sleep(0)
    if isinstance(state["messages"][-1], ToolMessage):
        return {"messages": [AIMessage("done")]}
    return {"messages": [AIMessage("", tool_calls=[CALL])]}


def chosen(state: MessagesState) -> str:
    """Where the graph goes after the model."""
    return "tools" if state["messages"][-1].tool_calls else END


graph = StateGraph(MessagesState)
graph.add_node("model", model)
graph.add_node("tools", ToolNode([add]))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", chosen, ["tools", END])
graph.add_edge("tools", "model")
saves = sys.argv[3:] == ["saver"]
runnable = graph.compile(checkpointer=InMemorySaver() if saves else None)


async def run_once() -> object:
    """One run to its last message."""
    config: Any = {"configurable": {"thread_id": uuid.uuid4().hex}} if saves else None
    state = await runnable.ainvoke({"messages": [HumanMessage("hi")]}, config)
    return state["messages"][-1].content


measure(run_once)
