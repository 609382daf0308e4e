"""Codex: `codex app-server`, JSON-RPC lines without the member `jsonrpc`.

Theory of operation. `initialize`, `thread/start` (or `thread/resume`) and `turn/start` follow each other, each when the
one before is answered. The program asks about every command and patch (approval policy untrusted), about several at the
same time, with ids of its own that are counted beside ours. A question about a patch names an item; the changes came
with the item's start. A refusal has no text, so `turn/steer` brings the text to the model. Errors of items, and errors
that work follows, are notices: `turn/completed` says how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import ClassVar, Final

import attrs

from ...contract.messages import Usage
from ...contract.parts import Part
from ...contract.plain import JSONObject, JSONValue
from ...models.codecs.parts import address
from ...models.codecs.port import count, items, mapping, string
from ...permission.subject import effect_of
from ..dialect import AskAnswer, Declined, Granted, Launch, Prompt, Supplied
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
)
from ..jsonrpc import Answered, Notification, PeerRequest
from .json_lines import cut
from .rpc import RPCDialect

_QUIET: Final = frozenset(
    (
        *("turn/started", "thread/started", "thread/status/changed", "turn/diff/updated", "item/updated"),
        *("item/commandExecution/outputDelta", "item/fileChange/patchUpdated", "item/fileChange/outputDelta"),
        *("item/reasoning/summaryPartAdded", "item/plan/delta", "item/mcpToolCall/progress", "account/updated"),
        *("account/rateLimits/updated", "mcpServer/startupStatus/updated", "thread/name/updated", "thread/compacted"),
        *(
            "item/commandExecution/terminalInteraction",
            "rawResponseItem/completed",
            "skills/changed",
            "remoteControl/status/changed",
        ),
    )
)
"""Notifications that carry nothing for a run."""
_CALLS: Final = frozenset(("commandExecution", "fileChange", "mcpToolCall", "webSearch", "dynamicToolCall"))
"""Items that are calls; the others are messages and reasoning."""
_FIELDS: Final = ("command", "cwd", "commandActions", "changes", "server", "tool", "arguments", "query")
"""The fields of an item that are its arguments."""


class CodexDialect(RPCDialect):
    """One turn of a Codex thread.

    Args:
        command: The words that start the program.
        client: (name, version) that the program is told.
    """

    name: ClassVar[str] = "codex"

    def __init__(self, command: tuple[str, ...] = ("codex",), client: tuple[str, str] = ("greenroom", "0")) -> None:
        super().__init__(tagged=False)
        self._command, self._client = command, client
        self._prompt = Prompt(text="", folder="/")
        self._thread = self._turn = self._text = self._recap = ""
        self._former: JSONObject | None = None
        self._takers: Mapping[str, Callable[[JSONObject], Iterator[Item]]] = {
            "item/agentMessage/delta": _said,
            "item/reasoning/summaryTextDelta": _thought,
            "item/reasoning/textDelta": _thought,
            "item/started": self._item_started,
            "item/completed": self._completed,
            "turn/plan/updated": _planned,
            "thread/tokenUsage/updated": self._used,
            "serverRequest/resolved": self._resolved,
            "turn/completed": self._turn_ended,
            **dict.fromkeys(("error", "warning", "configWarning", "deprecationNotice"), _warned),
        }

    def begin(self, prompt: Prompt) -> Launch:
        """Return how Codex is started."""
        self._prompt = prompt
        name, version = self._client
        _, data = self._peer.request("initialize", {"clientInfo": {"name": name, "title": name, "version": version}})
        return Launch(argv=(*self._command, "app-server"), data=data)

    def interrupt(self) -> bytes:
        """Return the request to stop the turn; b"" before it has begun."""
        if not self._turn:
            return b""
        return self._peer.request("turn/interrupt", {"threadId": self._thread, "turnId": self._turn})[1]

    def takes(self, part: Part) -> bool:
        """Return True for images."""
        return part.type == "image" and part.data is not None

    def answer(self, ask_id: str, answer: AskAnswer) -> bytes:
        """Return the response to the request of a question; the text of a refusal goes before it, into the turn."""
        steer = b""
        if ask_id in self._asks and isinstance(answer, Declined) and answer.text and self._turn:
            text = [{"type": "text", "text": answer.text}]
            steer = self._peer.request(
                "turn/steer", {"threadId": self._thread, "expectedTurnId": self._turn, "input": text}
            )[1]
        return steer + super().answer(ask_id, answer)

    def answered(self, answer: Answered) -> Iterator[Item]:
        """Yield the next step of the opening, or its failure."""
        result = mapping(answer.result)
        if answer.error:
            if answer.method in ("turn/interrupt", "turn/steer"):
                yield Notice(kind="warning", text=cut(answer.error))
            elif answer.method == "thread/resume":
                why = f"the program cannot continue its session ({cut(answer.error)}); a new one begins"
                yield Notice(kind="warning", text=why)
                self._recap, self._prompt = self._prompt.recap, attrs.evolve(self._prompt, session=None)
                yield SendBytes(data=self._open_thread())
            else:
                yield from self.done(PromptDone(code="runtime_failed", detail=cut(f"{answer.method}: {answer.error}")))
            return
        match answer.method:
            case "initialize":
                yield SendBytes(data=self._peer.notify("initialized") + self._open_thread())
            case "thread/start" | "thread/resume":
                self._thread = string(mapping(result.get("thread")).get("id")) or (self._prompt.session or "")
                yield SessionKnown(session_id=self._thread)
                text = "\n\n".join(part for part in (self._recap, self._prompt.text) if part)
                images = [{"type": "image", "url": address(part)} for part in self._prompt.parts]
                turn = {"threadId": self._thread, "input": [{"type": "text", "text": text}, *images]}
                yield SendBytes(data=self._peer.request("turn/start", turn)[1])
            case "turn/start":
                self._turn = string(mapping(result.get("turn")).get("id"))
            case _:  # an interrupt, or the text of a refusal
                pass

    def _open_thread(self) -> bytes:
        prompt = self._prompt
        params: dict[str, JSONValue] = {"cwd": prompt.folder, "approvalPolicy": "untrusted"}
        params["sandbox"] = "workspace-write"
        if prompt.model:
            params["model"] = prompt.model
        if prompt.instructions:
            params["developerInstructions"] = prompt.instructions
        if prompt.session:
            return self._peer.request("thread/resume", {"threadId": prompt.session, **params})[1]
        return self._peer.request("thread/start", params)[1]

    # --- what the program asks ---

    def requested(self, request: PeerRequest) -> Iterator[Item]:
        """Yield the question of a request."""
        match request.method:
            case "item/commandExecution/requestApproval":
                yield from self._approval(request, "commandExecution")
            case "item/fileChange/requestApproval":
                yield from self._approval(request, "fileChange")
            case "item/permissions/requestApproval":  # more rights than the sandbox has are never given
                yield from self.refuse(request, lambda _: {"permissions": {}, "scope": "turn"})
            case "item/tool/requestUserInput":
                questions = tuple(map(mapping, items(request.params.get("questions"))))
                message, schema = _form(questions)
                respond = partial(_answers, [string(question.get("id")) for question in questions])
                yield from self.ask(request, respond, partial(_question, message, schema))
            case "mcpServer/elicitation/request":
                message, schema = string(request.params.get("message")), mapping(request.params.get("requestedSchema"))
                if schema:
                    yield from self.ask(request, _elicited, partial(_question, message, schema))
                else:
                    yield from self.refuse(request, _elicited)
            case _:
                yield from self.reject(request)

    def _approval(self, request: PeerRequest, tool: str) -> Iterator[Item]:
        params = request.params
        call_id = string(params.get("itemId"))
        given = {name: params[name] for name in (*_FIELDS, "grantRoot") if params.get(name) is not None}
        self.note_call(call_id, tool, given, asked=True)
        known = self.call(call_id)
        arguments = {**(known[1] if known else {}), **given}

        def item(ask_id: str) -> Item:
            effect = effect_of(tool, arguments)
            return Asked(ask_id=ask_id, call_id=call_id, tool=tool, arguments=arguments, effect=effect, editable=False)

        yield from self.ask(request, _decision, item)

    # --- what the program reports ---

    def notified(self, notification: Notification) -> Iterator[Item]:
        """Yield the items of a notification."""
        taken = self._takers.get(notification.method)
        if taken is not None:
            yield from taken(notification.params)
        elif notification.method not in _QUIET:
            yield from self.unknown(notification.method)

    def _resolved(self, params: JSONObject) -> Iterator[Item]:
        yield from self.withdraw(params.get("requestId"))

    def _item_started(self, params: JSONObject) -> Iterator[Item]:
        self._started(mapping(params.get("item")))
        yield from ()

    def _started(self, item: JSONObject) -> None:
        kind, call_id = string(item.get("type")), string(item.get("id"))
        if kind in _CALLS and call_id:
            self.note_call(call_id, kind, {name: item[name] for name in _FIELDS if item.get(name) is not None})

    def _completed(self, params: JSONObject) -> Iterator[Item]:
        item = mapping(params.get("item"))
        kind, call_id = string(item.get("type")), string(item.get("id"))
        if kind == "agentMessage":
            self._text = cut(string(item.get("text")))
            yield MessageDone(text=self._text)
        elif kind == "error":
            yield Notice(kind="warning", text=cut(string(item.get("message"))))
        elif kind in _CALLS and call_id:
            self._started(item)
            failed = string(item.get("status")) in ("failed", "declined")
            output = string(item.get("aggregatedOutput"))
            text = output or f"{string(item.get('status'))} {string(mapping(item.get('error')).get('message'))}".strip()
            reads = [mapping(action) for action in items(item.get("commandActions"))]
            paths = [string(action.get("path")) for action in reads if action.get("type") == "read"]
            yield from self.call_ended(call_id, text, failed=failed, read=paths[0] if paths else "")

    def _used(self, params: JSONObject) -> Iterator[Item]:
        """Yield the tokens of this turn: the program counts those of all turns of the thread."""
        usage = mapping(params.get("tokenUsage"))
        total, last = mapping(usage.get("total")), mapping(usage.get("last"))
        if not self._turn:  # a thread that is continued says first what it has used before
            self._former = {name: count(total.get(name)) for name in total}
            return
        if self._former is None:
            self._former = {name: count(total.get(name)) - count(last.get(name)) for name in total} if last else {}
        tokens = {name: max(0, count(total.get(name)) - count(self._former.get(name))) for name in total}
        yield UsageSeen(
            usage=Usage(
                requests=1,
                input=tokens.get("inputTokens", 0),
                output=tokens.get("outputTokens", 0),
                cached=tokens.get("cachedInputTokens", 0),
                reasoning=tokens.get("reasoningOutputTokens", 0),
            )
        )

    def _turn_ended(self, params: JSONObject) -> Iterator[Item]:
        turn = mapping(params.get("turn"))
        error = mapping(turn.get("error"))
        match turn.get("status"):
            case "completed":
                yield from self.done(PromptDone(text=self._text))
            case "interrupted":
                yield from self.done(PromptDone(code="cancelled"))
            case status:
                detail = string(error.get("message")) or f"the turn ended as {status!r:.100}"
                yield from self.done(PromptDone(code="runtime_failed", detail=cut(detail)))


def _decision(answer: AskAnswer) -> JSONValue:
    return {"decision": "accept" if isinstance(answer, Granted) else "decline"}


def _elicited(answer: AskAnswer) -> JSONValue:
    return {"action": "accept", "content": answer.value} if isinstance(answer, Supplied) else {"action": "decline"}


def _answers(names: list[str], answer: AskAnswer) -> JSONValue:
    if not isinstance(answer, Supplied):
        return {"answers": {}}
    values = mapping(answer.value)
    lists = {name: values[name] for name in names if name in values}
    lists = {name: value if isinstance(value, list) else [value] for name, value in lists.items()}
    return {"answers": {name: {"answers": [str(value) for value in some]} for name, some in lists.items()}}


def _question(message: str, schema: JSONObject, ask_id: str) -> Item:
    return Question(ask_id=ask_id, message=cut(message), schema=schema)


def _form(questions: tuple[JSONObject, ...]) -> tuple[str, JSONObject]:
    properties: dict[str, JSONValue] = {}
    for question in questions:
        options = [string(mapping(option).get("label")) for option in items(question.get("options"))]
        text = string(question.get("question"))
        about = f"{text} ({' / '.join(options)})" if options else text
        properties[string(question.get("id"))] = {"type": "string", "description": about}
    message = "\n".join(string(mapping(one).get("description")) for one in properties.values())
    return message, {"type": "object", "properties": properties, "required": list(properties)}


def _said(params: JSONObject) -> Iterator[Item]:
    yield SaidText(text=cut(string(params.get("delta"))))


def _thought(params: JSONObject) -> Iterator[Item]:
    yield Reasoning(text=cut(string(params.get("delta"))))


def _planned(params: JSONObject) -> Iterator[Item]:
    steps = (mapping(step) for step in items(params.get("plan")))
    yield Plan(entries=tuple((string(step.get("step")), string(step.get("status"))) for step in steps))


def _warned(params: JSONObject) -> Iterator[Item]:
    error = mapping(params.get("error"))
    text = string(error.get("message")) or string(params.get("message")) or string(params.get("summary"))
    yield Notice(kind="warning", text=cut(text or "no message"))
