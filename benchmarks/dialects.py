"""What reading one line of a coding agent costs: microseconds of CPU for a line of some 400 bytes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from greenroom.actors.backends.dialect import Dialect, Prompt
from greenroom.actors.backends.dialects.acp import ACPDialect
from greenroom.actors.backends.dialects.claude import ClaudeDialect
from greenroom.actors.backends.dialects.codex import CodexDialect

from .harness import Benchmark, Case, Figure

LINES = 2_000
TEXT = "x" * 250


def _claude(number: int) -> list[Any]:
    use = {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {"file_path": f"/srv/{TEXT[:150]}"}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": TEXT, "is_error": False}
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}}
    hook = {"subtype": "hook_callback", "callback_id": "gate"}
    question = {"tool_name": "Read", "tool_input": use["input"], "tool_use_id": f"t{number}"}
    return [
        {"type": "assistant", "message": {"id": "m", "content": [use]}, "parent_tool_use_id": None},
        {"type": "control_request", "request_id": f"h{number}", "request": {**hook, "input": question}},
        {"type": "control_cancel_request", "request_id": f"h{number}"},
        {"type": "user", "message": {"role": "user", "content": [result]}, "parent_tool_use_id": None},
        {"type": "stream_event", "event": event, "parent_tool_use_id": None},
    ]


def _codex(number: int) -> list[Any]:
    command = {"type": "commandExecution", "id": f"c{number}", "command": TEXT, "cwd": "/srv/shop"}
    return [
        {"method": "item/started", "params": {"item": command, "threadId": "t", "turnId": "u"}},
        {"id": number, "method": "item/commandExecution/requestApproval", "params": {"itemId": f"c{number}"}},
        {"method": "serverRequest/resolved", "params": {"requestId": number, "threadId": "t"}},
        {"method": "item/completed", "params": {"item": {**command, "status": "completed"}, "threadId": "t"}},
        {"method": "item/agentMessage/delta", "params": {"itemId": "m", "delta": TEXT}},
    ]


def _acp(number: int) -> list[Any]:
    def update(kind: str, /, **fields: Any) -> Any:
        return {"jsonrpc": "2.0", "method": "session/update", "params": {"update": {"sessionUpdate": kind, **fields}}}

    content = [{"type": "content", "content": {"type": "text", "text": TEXT}}]
    return [
        update("tool_call", toolCallId=f"c{number}", kind="read", title=TEXT, status="pending"),
        update("tool_call_update", toolCallId=f"c{number}", status="completed", content=content),
        update("agent_message_chunk", content={"type": "text", "text": TEXT}),
        update("agent_thought_chunk", content={"type": "text", "text": TEXT}),
    ]


def _case(key: str, open_dialect: Callable[[], Dialect], messages: Callable[[int], list[Any]]) -> Case:
    """The median of five blocks, so that a first slow one does not count."""

    def case(quick: bool) -> dict[str, float]:
        rounds = 10 if quick else LINES // len(messages(0))
        lines = [json.dumps(message).encode() + b"\n" for n in range(rounds) for message in messages(n)]
        blocks = []
        for _ in range(5):
            dialect = open_dialect()
            dialect.begin(Prompt(text="Do it.", folder="/srv/shop"))
            began = time.process_time()
            for line in lines:
                dialect.feed(line)
            blocks.append((time.process_time() - began) / len(lines) * 1e6)
        return {key: sorted(blocks)[2]}

    return case


BENCHMARK = Benchmark(
    name="dialects",
    about="reading one line, CPU time; calls, questions, results and pieces of text in equal parts",
    cases={
        "claude": _case("claude", ClaudeDialect, _claude),
        "codex": _case("codex", CodexDialect, _codex),
        "acp": _case("acp", lambda: ACPDialect(("agent",)), _acp),
    },
    figures=tuple(
        Figure(key=key, what=f"a line of {name}", unit="us", at_most=50, digits=1)
        for key, name in (("claude", "Claude Code"), ("codex", "Codex"), ("acp", "the Agent Client Protocol"))
    ),
)
