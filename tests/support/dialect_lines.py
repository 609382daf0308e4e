"""Sessions of coding agents as lines: made up after the programs' documents, with values of our own."""

import json
from typing import Any, ClassVar


def lines(*messages: Any) -> bytes:
    """Each message as a line; bytes as they are."""
    return b"".join(one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in messages)


class Claude:
    """Lines of Claude Code."""

    init: ClassVar[Any] = {
        "type": "system",
        "subtype": "init",
        "session_id": "s-1",
        "cwd": "/srv/shop",
        "tools": ["Bash"],
    }
    ready: ClassVar[Any] = {"type": "control_response", "response": {"subtype": "success", "request_id": "initialize"}}

    @staticmethod
    def says(*blocks: Any, parent: str | None = None) -> Any:
        content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
        message = {"id": "msg_01", "role": "assistant", "content": content, "usage": {"input_tokens": 3}}
        return {"type": "assistant", "message": message, "parent_tool_use_id": parent, "session_id": "s-1"}

    @staticmethod
    def use(name: str, number: str, **arguments: Any) -> Any:
        return {"type": "tool_use", "id": number, "name": name, "input": arguments}

    @staticmethod
    def hook(ask: str, name: str, number: str, **arguments: Any) -> Any:
        fields = {"hook_event_name": "PreToolUse", "tool_name": name, "tool_input": arguments, "tool_use_id": number}
        request = {"subtype": "hook_callback", "callback_id": "gate", "input": fields}
        return {"type": "control_request", "request_id": ask, "request": request}

    @staticmethod
    def may(ask: str, name: str, number: str, **arguments: Any) -> Any:
        request = {"subtype": "can_use_tool", "tool_name": name, "input": arguments, "tool_use_id": number}
        return {"type": "control_request", "request_id": ask, "request": request}

    @staticmethod
    def result_of(number: str, content: Any, *, error: bool = False) -> Any:
        block = {"type": "tool_result", "tool_use_id": number, "content": content, "is_error": error}
        return {"type": "user", "message": {"role": "user", "content": [block]}, "parent_tool_use_id": None}

    @staticmethod
    def delta(text: str, kind: str = "text", parent: str | None = None) -> Any:
        event = {"type": "content_block_delta", "index": 0, "delta": {"type": f"{kind}_delta", kind: text}}
        return {"type": "stream_event", "event": event, "parent_tool_use_id": parent}

    @staticmethod
    def tasks(*names: str) -> Any:
        tasks = [{"task_id": name} for name in names]
        return {"type": "system", "subtype": "background_tasks_changed", "tasks": tasks}

    @staticmethod
    def end(text: str = "Done.", **more: Any) -> Any:
        usage = {"input_tokens": 10, "output_tokens": 4, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 1}
        result = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 2, "result": text}
        return {**result, "usage": usage, "total_cost_usd": 0.01, "permission_denials": [], **more}


class Codex:
    """Lines of `codex app-server`."""

    opened = (
        {"id": 1, "result": {"userAgent": "x"}},
        {"id": 2, "result": {"thread": {"id": "th-1"}}},
        {"id": 3, "result": {"turn": {"id": "tu-1", "status": "inProgress", "items": []}}},
    )

    @staticmethod
    def note(method: str, **params: Any) -> Any:
        return {"method": method, "params": {"threadId": "th-1", "turnId": "tu-1", **params}}

    @staticmethod
    def item(state: str, kind: str, number: str, /, **fields: Any) -> Any:
        return Codex.note(f"item/{state}", item={"type": kind, "id": number, **fields})

    @staticmethod
    def asks(ask: Any, what: str, number: str, **params: Any) -> Any:
        return {"id": ask, "method": f"item/{what}/requestApproval", "params": {"itemId": number, **params}}

    @staticmethod
    def end(status: str = "completed", **more: Any) -> Any:
        return Codex.note("turn/completed", turn={"id": "tu-1", "status": status, "items": [], **more})


class Acp:
    """Lines of a program that speaks the Agent Client Protocol."""

    options = (
        {"optionId": "always", "name": "Always", "kind": "allow_always"},
        {"optionId": "once", "name": "Once", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    )
    opened = (
        {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}},
        {"jsonrpc": "2.0", "id": 2, "result": {"sessionId": "se-1"}},
    )

    @staticmethod
    def update(kind: str, /, **fields: Any) -> Any:
        params = {"sessionId": "se-1", "update": {"sessionUpdate": kind, **fields}}
        return {"jsonrpc": "2.0", "method": "session/update", "params": params}

    @staticmethod
    def says(text: str, kind: str = "message") -> Any:
        return Acp.update(f"agent_{kind}_chunk", content={"type": "text", "text": text})

    @staticmethod
    def asks(ask: Any, number: str, /, options: Any = None, **call: Any) -> Any:
        params = {"sessionId": "se-1", "toolCall": {"toolCallId": number, **call}}
        params["options"] = list(Acp.options if options is None else options)
        return {"jsonrpc": "2.0", "id": ask, "method": "session/request_permission", "params": params}

    @staticmethod
    def end(reason: str = "end_turn", **more: Any) -> Any:
        return {"jsonrpc": "2.0", "id": 3, "result": {"stopReason": reason, **more}}
