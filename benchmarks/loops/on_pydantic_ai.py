"""pydantic-ai with a model that costs nothing."""

import asyncio  # noqa: TID251 - these libraries know no other loop

from measuring import measure
from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


async def quiet(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool, then be done."""
    await asyncio.sleep(0)
    if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart("add", {"a": 1, "b": 2}, tool_call_id="c1")])


agent = Agent(FunctionModel(quiet))


@agent.tool_plain
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    await asyncio.sleep(0)
    return a + b


async def run_once() -> object:
    """One run to its output."""
    return (await agent.run("hi")).output


measure(run_once)
