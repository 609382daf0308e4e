"""Claude Code: `claude -p` with stream-json both ways, held at each of its calls by a PreToolUse hook.

Theory of operation. `initialize` registers one hook, with which the program asks before every call, reads and calls of
its sub-agents among them; so no settings of the folder are needed, and `--setting-sources user` keeps its hooks away.
AskUserQuestion is let through the hook, and its permission request is the question. A `result` line ends the prompt
only if no background task is listed and no question is open: a sub-agent may ask after it, and then `init` and `result`
come again, or the session says that it is idle. `is_error` says whether a result is a failure; its subtype does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Final, Literal

import msgspec

from ...contract.messages import Usage
from ...contract.parts import Part
from ...contract.plain import JSONObject, JSONValue
from ...models.codecs.parts import IMAGES, PDF, anthropic, is_text
from ...models.codecs.port import count, items, mapping, string
from ...permission.subject import effect_of
from ..dialect import SESSION_GONE, AskAnswer, Declined, Granted, Launch, Prompt, Supplied
from ..items import (
    Asked,
    Item,
    MessageDone,
    Notice,
    Plan,
    PromptDone,
    Question,
    Reasoning,
    SaidText,
    SendBytes,
    SessionKnown,
    UsageSeen,
    Withdrawn,
)
from ..jsonrpc import json_line
from .json_lines import JSONLinesDialect, cut

FLAGS: Final = (
    *("-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"),
    *("--permission-prompt-tool", "stdio", "--permission-mode", "default"),
    *("--setting-sources", "user", "--strict-mcp-config", "--include-partial-messages"),
)
_HOLD: Final = 7 * 86_400
"""Seconds for which the hook may hold a call."""
_QUESTION: Final = "AskUserQuestion"
_ASKS: Final = 256
"""Most questions that are open at the same time; more are refused."""
_QUIET: Final = frozenset(
    (
        *("keep_alive", "rate_limit_event", "tool_progress", "tool_use_summary", "auth_status", "control_response"),
        *("system/status", "system/api_retry", "system/compact_boundary"),
        *("system/task_started", "system/task_progress", "system/task_notification", "system/task_updated"),
        *("system/hook_started", "system/hook_progress", "system/hook_response", "system/permission_denied"),
        *("system/thinking_tokens", "system/worker_shutting_down", "system/informational", "permission_denied"),
        *("thinking_tokens", "task_updated", "session_state_changed", "worker_shutting_down", "informational"),
    )
)
"""Kinds of lines that carry nothing for a run."""
_NO_SESSION: Final = "No conversation found"
_BUDGETS: Final = {"error_max_turns": "turns", "error_max_budget_usd": "cost"}

_Form = Literal["hook", "permission", "question"]


class ClaudeDialect(JSONLinesDialect):
    """One session of Claude Code.

    Args:
        command: The words that start the program.
    """

    name: ClassVar[str] = "claude"

    def __init__(self, command: tuple[str, ...] = ("claude",)) -> None:
        super().__init__()
        self._command = command
        self._asks: dict[str, tuple[_Form, JSONObject]] = {}
        self._granted: dict[str, JSONObject] = {}
        self._tasks = 0
        self._result: JSONObject | None = None
        self._resting = False
        self._interrupts = 0
        self._session = ""
        self._usage = Usage()
        self._continues = False
        self._takers: Mapping[str, Callable[[JSONObject], Iterator[Item]]] = {
            "control_request": self._control,
            "control_cancel_request": self._cancelled,
            "system": self._system,
            "assistant": self._assistant,
            "user": self._user,
            "stream_event": _delta,
            "result": self._ended,
        }

    def begin(self, prompt: Prompt) -> Launch:
        """Return how Claude Code is started."""
        model = ("--model", prompt.model) if prompt.model else ()
        session = ("--resume", prompt.session) if prompt.session else ()
        self._continues = bool(session)
        hook = {"matcher": None, "hookCallbackIds": ["gate"], "timeout": _HOLD}
        request: dict[str, JSONValue] = {"subtype": "initialize", "hooks": {"PreToolUse": [hook]}}
        if prompt.instructions:
            request["appendSystemPrompt"] = prompt.instructions
        blocks = [*map(anthropic, prompt.parts), {"type": "text", "text": prompt.text}]
        message = {"role": "user", "content": blocks if prompt.parts else prompt.text}
        user = {"type": "user", "message": message, "parent_tool_use_id": None, "session_id": ""}
        return Launch(
            argv=(*self._command, *FLAGS, *model, *session), data=_request("initialize", request) + json_line(user)
        )

    def takes(self, part: Part) -> bool:
        """Return True for the images and documents of Anthropic's messages."""
        return part.data is not None and (part.media_type in (*IMAGES, PDF) or is_text(part.media_type))

    def answer(self, ask_id: str, answer: AskAnswer) -> bytes:
        """Return the answer to a hook, a permission request or AskUserQuestion."""
        ask = self._asks.pop(ask_id, None)
        if ask is None:
            return b""
        form, fields = ask
        arguments = dict(mapping(fields.get("input")))
        match answer:
            case Granted() if form != "question":
                edits = None if answer.arguments is None else dict(answer.arguments)
                self._granted[string(fields.get("tool_use_id"))] = arguments if edits is None else edits
                if form == "hook":
                    more = {} if edits is None else {"updatedInput": edits}
                    return _hooked(ask_id, "allow", "allowed", **more)
                return _success(ask_id, {"behavior": "allow", "updatedInput": arguments if edits is None else edits})
            case Supplied() if form == "question":
                answers = {str(name): _answer_text(value) for name, value in mapping(answer.value).items()}
                return _success(ask_id, {"behavior": "allow", "updatedInput": {**arguments, "answers": answers}})
            case Granted() | Supplied() | Declined():
                text = (answer.text if isinstance(answer, Declined) else "") or "not allowed"
                if form == "hook":
                    return _hooked(ask_id, "deny", text)
                return _success(ask_id, {"behavior": "deny", "message": text})

    def interrupt(self) -> bytes:
        """Return the request to stop."""
        self._interrupts += 1
        return _request(f"interrupt-{self._interrupts}", {"subtype": "interrupt"})

    def take(self, message: JSONObject) -> Iterator[Item]:
        """Yield the items of one line."""
        kind = string(message.get("type"))
        taken = self._takers.get(kind)
        if taken is not None:
            yield from taken(message)
        elif not kind:
            yield from self.unparsed("the line has no type")
        elif kind not in _QUIET:
            yield from self.unknown(kind)
        yield from self._rest()

    def _cancelled(self, message: JSONObject) -> Iterator[Item]:
        ask_id = string(message.get("request_id"))
        if self._asks.pop(ask_id, None) is not None:
            yield Withdrawn(ask_id=ask_id)

    def _control(self, message: JSONObject) -> Iterator[Item]:
        ask_id, request = message.get("request_id"), mapping(message.get("request"))
        subtype, fields = string(request.get("subtype")), mapping(request.get("input"))
        if not isinstance(ask_id, str) or not ask_id or ask_id in self._asks:
            yield from self.unparsed("a control request without an id of its own")
        elif subtype == "hook_callback":
            yield from self._hook(ask_id, fields)
        elif subtype == "can_use_tool":
            yield from self._permission(ask_id, request)
        else:
            error = {"subtype": "error", "request_id": ask_id, "error": "this client does not know the request"}
            yield SendBytes(data=json_line({"type": "control_response", "response": error}))
            yield from self.unknown(f"control_request/{subtype}")

    def _hook(self, ask_id: str, fields: JSONObject) -> Iterator[Item]:
        tool, call_id = string(fields.get("tool_name")), string(fields.get("tool_use_id"))
        arguments = mapping(fields.get("tool_input"))
        if tool == _QUESTION:
            yield SendBytes(data=_hooked(ask_id, "ask", "a person answers"))
        elif not tool or not isinstance(fields.get("tool_input"), Mapping):
            yield SendBytes(data=_hooked(ask_id, "deny", "the call cannot be read"))
            yield from self.unparsed("a hook request without tool_name or tool_input")
        else:
            yield from self._ask(ask_id, "hook", call_id or ask_id, tool, arguments)

    def _permission(self, ask_id: str, request: JSONObject) -> Iterator[Item]:
        tool, call_id = string(request.get("tool_name")), string(request.get("tool_use_id"))
        arguments = mapping(request.get("input"))
        if tool == _QUESTION:
            if len(self._asks) >= _ASKS:
                yield SendBytes(data=_success(ask_id, {"behavior": "deny", "message": "too many questions"}))
                return
            self._asks[ask_id] = ("question", {"input": arguments, "tool_use_id": call_id})
            message, schema = _questions(arguments)
            yield Question(ask_id=ask_id, message=message, schema=schema)
        elif call_id and self._granted.get(call_id) == arguments:
            # the hook has let the call pass, and a rule of the user's own settings asks again
            yield SendBytes(data=_success(ask_id, {"behavior": "allow", "updatedInput": arguments}))
        else:
            yield from self._ask(ask_id, "permission", call_id or ask_id, tool, arguments)

    def _ask(self, ask_id: str, form: _Form, call_id: str, tool: str, arguments: JSONObject) -> Iterator[Item]:
        self.note_call(call_id, tool, arguments, asked=True)
        self._asks[ask_id] = (form, {"input": arguments, "tool_use_id": call_id})
        if len(self._asks) > _ASKS:
            yield SendBytes(data=self.answer(ask_id, Declined(text="too many questions are open")))
            yield Notice(kind="refused", text=f"{tool}: more than {_ASKS} questions are open")
            return
        effect = effect_of(tool, arguments)
        yield Asked(ask_id=ask_id, call_id=call_id, tool=tool, arguments=arguments, effect=effect, editable=True)

    def _system(self, message: JSONObject) -> Iterator[Item]:
        subtype = string(message.get("subtype"))
        if subtype == "init":
            session = string(message.get("session_id"))
            if session and session != self._session:
                self._session = session
                yield SessionKnown(session_id=session)
            self._result = None
        elif subtype == "session_state_changed":
            self._resting = message.get("state") == "idle" and not self._tasks
        elif subtype == "background_tasks_changed":
            self._tasks = len(items(message.get("tasks")))
        elif f"system/{subtype}" not in _QUIET:
            yield from self.unknown(f"system/{subtype}")

    def _assistant(self, message: JSONObject) -> Iterator[Item]:
        shown = message.get("parent_tool_use_id") is None  # the messages of a sub-agent are not the program's
        for block in items(mapping(message.get("message")).get("content")):
            part = mapping(block)
            text, call_id = string(part.get("text")), string(part.get("id"))
            if part.get("type") == "text" and shown and text:
                yield MessageDone(text=cut(text))
            elif part.get("type") == "tool_use" and call_id:
                tool, arguments = string(part.get("name")), mapping(part.get("input"))
                if tool != _QUESTION:  # a question is no call: its answer is all that comes of it
                    self.note_call(call_id, tool, arguments)
                if tool == "TodoWrite":
                    yield _plan(arguments)

    def _user(self, message: JSONObject) -> Iterator[Item]:
        for block in items(mapping(message.get("message")).get("content")):
            part = mapping(block)
            if part.get("type") == "tool_result":
                call_id = string(part.get("tool_use_id"))
                known = self.call(call_id)
                read = string(known[1].get("file_path")) if known is not None and known[0] == "Read" else ""
                failed = part.get("is_error") is True
                yield from self.call_ended(call_id, _result_text(part.get("content")), failed=failed, read=read)

    def _ended(self, message: JSONObject) -> Iterator[Item]:
        self._result, self._resting = message, not self._tasks
        usage = mapping(message.get("usage"))
        cache_reads = count(usage.get("cache_read_input_tokens"))
        cache_writes = count(usage.get("cache_creation_input_tokens"))
        self._usage += Usage(  # each result has the tokens since the one before
            requests=max(1, count(message.get("num_turns"))),
            input=count(usage.get("input_tokens")) + cache_reads + cache_writes,
            output=count(usage.get("output_tokens")),
            cached=cache_reads,
            stored=cache_writes or msgspec.UNSET,
        )
        yield UsageSeen(usage=self._usage)

    def _rest(self) -> Iterator[Item]:
        """Yield the end of the prompt if the newest result is one."""
        if self._result is None or not self._resting or self._asks:
            return
        result, subtype = self._result, string(self._result.get("subtype"))
        failed = result.get("is_error") is not False or subtype in _BUDGETS
        errors = "; ".join(string(error) for error in items(result.get("errors")))
        text = string(result.get("result"))
        if not failed:
            yield from self.done(PromptDone(text=cut(text)))
        elif subtype in _BUDGETS:
            detail = errors or f"its limit of {_BUDGETS[subtype]} is reached"
            yield from self.done(PromptDone(code="budget_exhausted", detail=cut(detail)))
        elif self._interrupts:
            yield from self.done(PromptDone(code="cancelled"))
        elif self._continues and _NO_SESSION in errors:
            yield from self.done(PromptDone(code=SESSION_GONE, detail=cut(errors)))
        else:
            yield from self.done(PromptDone(code="runtime_failed", detail=cut(errors or text or subtype)))


def _request(request_id: str, request: JSONObject) -> bytes:
    return json_line({"type": "control_request", "request_id": request_id, "request": request})


def _success(ask_id: str, response: JSONObject) -> bytes:
    inner = {"subtype": "success", "request_id": ask_id, "response": response}
    return json_line({"type": "control_response", "response": inner})


def _hooked(ask_id: str, decision: str, reason: str, **more: object) -> bytes:
    output = {"hookEventName": "PreToolUse", "permissionDecision": decision, "permissionDecisionReason": reason, **more}
    return _success(ask_id, {"hookSpecificOutput": output})


def _delta(message: JSONObject) -> Iterator[Item]:
    delta = mapping(mapping(message.get("event")).get("delta"))
    if message.get("parent_tool_use_id") is None:
        if text := string(delta.get("text")):
            yield SaidText(text=cut(text))
        if thinking := string(delta.get("thinking")):
            yield Reasoning(text=cut(thinking))


def _plan(arguments: JSONObject) -> Plan:
    todos = (mapping(todo) for todo in items(arguments.get("todos")))
    return Plan(entries=tuple((string(todo.get("content")), string(todo.get("status"))) for todo in todos))


def _result_text(content: JSONValue) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(string(mapping(block).get("text")) for block in items(content) if mapping(block).get("text"))


def _questions(arguments: JSONObject) -> tuple[str, JSONObject]:
    """Return the text and the schema of AskUserQuestion: a text for each question, or a list of some."""
    texts, properties = list[str](), dict[str, JSONValue]()
    for question in map(mapping, items(arguments.get("questions"))):
        text = string(question.get("question"))
        options = [string(mapping(option).get("label")) for option in items(question.get("options"))]
        texts.append(f"{text} ({' / '.join(options)})" if options else text)
        one: JSONObject = {"type": "string", "description": ", ".join(options)}
        properties[text] = {"type": "array", "items": one} if question.get("multiSelect") is True else one
    return "\n".join(texts), {"type": "object", "properties": properties, "required": list(properties)}


def _answer_text(value: JSONValue) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
