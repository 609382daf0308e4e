"""The floor: the same loop by hand on trio, a nursery per turn. No validation, no events, no store."""

from __future__ import annotations

from typing import Any

import trio

CALL: dict[str, Any] = {"role": "assistant", "calls": ({"id": "c1", "tool": "add", "arguments": {"a": 1, "b": 2}},)}
DONE: dict[str, Any] = {"role": "assistant", "text": "done"}


async def _model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    await trio.lowlevel.checkpoint()
    return DONE if messages[-1]["role"] == "tool" else CALL


async def _add(a: int, b: int) -> int:
    await trio.lowlevel.checkpoint()
    return a + b


TOOLS = {"add": _add}


async def _perform(call: dict[str, Any], results: dict[str, str]) -> None:
    results[call["id"]] = str(await TOOLS[call["tool"]](**call["arguments"]))


async def raw_run() -> str:
    """Model, tool, model, text."""
    messages: list[dict[str, Any]] = [{"role": "user", "text": "hi"}]
    while True:
        answer = await _model(messages)
        messages.append(answer)
        calls = answer.get("calls")
        if not calls:
            text: str = answer["text"]
            return text
        results: dict[str, str] = {}
        async with trio.open_nursery() as nursery:
            for call in calls:
                nursery.start_soon(_perform, call, results)
        messages += [{"role": "tool", "id": call["id"], "text": results[call["id"]]} for call in calls]
