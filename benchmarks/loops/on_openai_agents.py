"""The OpenAI Agents SDK with a model that costs nothing."""

import asyncio  # noqa: TID251 - these libraries know no other loop
import os
from typing import Any

os.environ.setdefault("OPENAI_API_KEY", "unused")

from agents import Agent, RunConfig, Runner, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from measuring import measure
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

CALL = ResponseFunctionToolCall(type="function_call", call_id="c1", name="add", arguments='{"a": 1, "b": 2}')
TEXT = ResponseOutputText(type="output_text", text="done", annotations=[])
DONE = ResponseOutputMessage(id="m1", type="message", role="assistant", status="completed", content=[TEXT])


class QuietModel(Model):
    """Calls the tool, then is done."""

    async def get_response(self, system_instructions: Any, *args: Any, **options: Any) -> ModelResponse:
        await asyncio.sleep(0)
        items = options.get("input", args[0] if args else None)
        last = items[-1] if isinstance(items, list) else {}
        output = DONE if last.get("type") == "function_call_output" else CALL
        return ModelResponse(output=[output], usage=Usage(requests=1), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError


@function_tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    await asyncio.sleep(0)
    return a + b


set_tracing_disabled(True)
agent = Agent(name="adding", model=QuietModel(), tools=[add])
config = RunConfig(tracing_disabled=True)


async def run_once() -> object:
    """One run to its final output."""
    return (await Runner.run(agent, "hi", run_config=config)).final_output


measure(run_once)
