"""The smallest run: an agent with one tool, in memory.

    python examples/hello.py
    greenroom run examples/hello.py "hello"

The same file is a program and something that the command line can run.
"""

import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call


@gr.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# A scripted model plays its answers one after the other: no network, no key, the same every time.
agent = gr.Agent("adder", tools=[add], model=ScriptedModel([call("add", a=19, b=23), "It is 42."]))


async def main() -> None:
    """Run the agent once and print what it came to."""
    outcome = await gr.run(agent, "How much is 19 and 23?")
    print(outcome.output)


if __name__ == "__main__":
    trio.run(main)
