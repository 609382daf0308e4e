"""The Agent Client Protocol, version 1: JSON-RPC lines; the program is the agent, and this is its client.

Theory of operation. `initialize`, `session/new` (or `session/load`) and `session/prompt` follow each other. A question
of the program is answered once and never "always": with the option allow_once or reject_once, else with outcome
cancelled. The state of a call comes in parts, and a part may be the first to be seen; a question has the parts so far.
`session/load` replays the history as updates before it is answered; these are skipped.

A refusal has no text in this protocol. A program that ends its turn with the refusal (OpenCode) gets the text as
another prompt; one that goes on (Gemini) knows only that the call did not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import ClassVar, Final
from urllib.parse import quote

import msgspec

from ...contract.messages import Usage
from ...contract.parts import Part
from ...contract.plain import JSONObject, JSONValue
from ...models.codecs.parts import base64_of, name_of
from ...models.codecs.port import count, items, mapping, string
from ...permission.subject import ACP_EFFECTS, effect_of
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
from .json_lines import TEXT_LIMIT, cut
from .rpc import RPCDialect

VERSION: Final = 1
_QUIET: Final = frozenset(
    (
        *("user_message_chunk", "available_commands_update", "current_mode_update", "config_option_update"),
        *("session_info_update", "usage_update", "compaction_update", "compaction_summary_chunk"),
    )
)
"""Updates that carry nothing for a run."""
_LOGIN: Final = -32000
"""The code of the error that says that the program is not logged in."""
_BUDGETS: Final = ("max_tokens", "max_turn_requests")
_KINDS: Final = frozenset((*ACP_EFFECTS, "switch_mode", "other"))
_EMPTY: Final[tuple[JSONValue, ...]] = ("", [], {})
"""Values that take nothing away from a call: a question of OpenCode names the file in no part but an earlier one."""
_NOT_OFFERED: Final = frozenset(
    (
        *("fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/output"),
        *("terminal/wait_for_exit", "terminal/kill", "terminal/release"),
    )
)
"""Requests that the capabilities of this client do not offer. OpenCode makes one all the same, and can do without."""
_REFUSED: Final = "The call was not allowed, and did not run. The reason: {}\nGo on with the task."


class ACPDialect(RPCDialect):
    """One prompt of a session.

    Args:
        command: The words that start the program.
        client: (name, version) that the program is told.
    """

    name: ClassVar[str] = "acp"

    def __init__(self, command: tuple[str, ...], client: tuple[str, str] = ("greenroom", "0")) -> None:
        super().__init__(tagged=True)
        self._command, self._client = command, client
        self._prompt = Prompt(text="", folder="/")
        self._session = self._recap = ""
        self._replaying = False
        self._message: list[str] = []
        self._size = 0
        self._text = ""
        self._refusals: list[str] = []
        self._tokens = Usage()

    def begin(self, prompt: Prompt) -> Launch:
        """Return how the program is started."""
        self._prompt = prompt
        name, version = self._client
        capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        params = {
            "protocolVersion": VERSION,
            "clientCapabilities": capabilities,
            "clientInfo": {"name": name, "version": version},
        }
        return Launch(argv=self._command, data=self._peer.request("initialize", params)[1])

    def takes(self, part: Part) -> bool:
        """Return True if the part has bytes; the program says only after its start which kinds it takes."""
        return part.data is not None

    def interrupt(self) -> bytes:
        """Return the notification to stop, and the answers to open questions, which the protocol demands with it."""
        if not self._session:
            return b""
        data = self._peer.notify("session/cancel", {"sessionId": self._session})
        for request, _ in tuple(self._asks.values()):
            permission = request.method == "session/request_permission"
            data += self._peer.respond(request.request_id, _CANCELLED if permission else {"action": "cancel"})
        self._asks.clear()
        return data

    def answer(self, ask_id: str, answer: AskAnswer) -> bytes:
        """Return the response to the request of a question; keep the text of a refusal."""
        if ask_id in self._asks and isinstance(answer, Declined) and answer.text:
            self._refusals.append(answer.text)
        return super().answer(ask_id, answer)

    def answered(self, answer: Answered) -> Iterator[Item]:
        """Yield the next step of the opening, or the end of the prompt."""
        result = mapping(answer.result)
        if answer.error and answer.method == "session/load" and answer.code != _LOGIN:
            yield from self._anew(f"the program cannot continue its session ({cut(answer.error)})")
            return
        if answer.error:
            code = "runtime_unavailable" if answer.code == _LOGIN else "runtime_failed"
            detail = f"{answer.method}: {answer.error} ({answer.code})"
            yield from self._spoken()
            yield from self.done(PromptDone(code=code, detail=cut(detail)))
            return
        match answer.method:
            case "initialize":
                yield from self._initialized(result)
            case "session/new" | "session/load":
                self._replaying = False
                self._session = string(result.get("sessionId")) or (self._prompt.session or "")
                yield SessionKnown(session_id=self._session)
                texts = (self._prompt.instructions, self._recap, self._prompt.text)
                yield self._ask_for("\n\n".join(text for text in texts if text), *map(_block, self._prompt.parts))
            case _:  # session/prompt
                yield from self._prompted(result)

    def _initialized(self, result: JSONObject) -> Iterator[Item]:
        version = result.get("protocolVersion")
        session = self._prompt.session
        if version != VERSION:
            detail = f"it speaks version {version!r:.40} of the protocol, and this client {VERSION}"
            yield from self.done(PromptDone(code="runtime_unavailable", detail=detail))
            return
        capabilities = mapping(mapping(result.get("agentCapabilities")).get("promptCapabilities"))
        for part in self._prompt.parts:
            if capabilities.get("image" if part.type == "image" else "embeddedContext") is not True:
                yield from self.done(PromptDone(code="runtime_failed", detail=f"the program takes no {part.type}s"))
                return
        opening: JSONObject = {"cwd": self._prompt.folder, "mcpServers": []}
        if session and mapping(result.get("agentCapabilities")).get("loadSession") is True:
            self._replaying = True
            yield SendBytes(data=self._peer.request("session/load", {"sessionId": session, **opening})[1])
            return
        if session:
            yield from self._anew("the program keeps no sessions")
        else:
            yield SendBytes(data=self._peer.request("session/new", opening)[1])

    def _anew(self, why: str) -> Iterator[Item]:
        """Begin a new session in place of the one that was to be continued."""
        self._replaying, self._recap = False, self._prompt.recap
        yield Notice(kind="warning", text=f"{why}; a new one begins")
        opening: JSONObject = {"cwd": self._prompt.folder, "mcpServers": []}
        yield SendBytes(data=self._peer.request("session/new", opening)[1])

    def _ask_for(self, text: str, *blocks: JSONObject) -> SendBytes:
        prompt = {"sessionId": self._session, "prompt": [{"type": "text", "text": text}, *blocks]}
        return SendBytes(data=self._peer.request("session/prompt", prompt)[1])

    def _prompted(self, result: JSONObject) -> Iterator[Item]:
        yield from self._spoken()
        yield from self._used(result)
        match result.get("stopReason"):
            case "end_turn" if self._refusals:
                text = "\n".join(self._refusals)
                self._refusals.clear()
                yield self._ask_for(_REFUSED.format(text))
            case "end_turn":
                yield from self.done(PromptDone(text=self._text))
            case "cancelled":
                yield from self.done(PromptDone(code="cancelled"))
            case str() as reason if reason in _BUDGETS:
                yield from self.done(PromptDone(code="budget_exhausted", detail=reason))
            case "refusal":
                yield from self.done(PromptDone(code="runtime_failed", detail="the model refused"))
            case reason:
                detail = f"the prompt ended as {reason!r:.100}"
                yield from self.done(PromptDone(code="schema_validation_failed", detail=detail))

    # --- what the program asks ---

    def requested(self, request: PeerRequest) -> Iterator[Item]:
        """Yield the question of a request."""
        match request.method:
            case "session/request_permission":
                yield from self._spoken()
                yield from self._permission(request)
            case "elicitation/create":
                message, schema = string(request.params.get("message")), mapping(request.params.get("requestedSchema"))
                if schema:
                    yield from self.ask(request, _elicited, partial(_question, message, schema))
                else:  # an address to be opened
                    yield from self.refuse(request, _elicited)
            case method if method in _NOT_OFFERED:
                yield from self.reject(request, known=True)
            case _:
                yield from self.reject(request)

    def _permission(self, request: PeerRequest) -> Iterator[Item]:
        parts = mapping(request.params.get("toolCall"))
        call_id = string(parts.get("toolCallId"))
        options = {
            string(mapping(option).get("kind")): string(mapping(option).get("optionId"))
            for option in reversed(items(request.params.get("options")))
        }
        respond = partial(_outcome, options)
        if not call_id or "allow_once" not in options:
            yield from self.refuse(request, respond)
            return
        tool, arguments = self._merged(call_id, parts, asked=True)

        def item(ask_id: str) -> Item:
            effect = effect_of(tool, arguments)
            return Asked(ask_id=ask_id, call_id=call_id, tool=tool, arguments=arguments, effect=effect, editable=False)

        yield from self.ask(request, respond, item)

    def _merged(self, call_id: str, parts: JSONObject, *, asked: bool = False) -> tuple[str, JSONObject]:
        """Note parts of a call and return its kind and all parts so far."""
        known = self.call(call_id)
        kind = string(parts.get("kind")) or (known[0] if known else "other")
        before = known[1] if known else {}
        fields = {
            name: parts[name]
            for name in dict.fromkeys(("title", *parts))  # people read the title first
            if name not in _STATE and parts.get(name) is not None and (parts[name] not in _EMPTY or name not in before)
        }
        self.note_call(call_id, kind if kind in _KINDS else "other", fields, asked=asked)
        tool, arguments, _ = self.call(call_id) or (kind, fields, asked)
        return tool, arguments

    # --- what the program reports ---

    def notified(self, notification: Notification) -> Iterator[Item]:
        """Yield the items of a notification."""
        if notification.method == "session/update":
            if not self._replaying:
                yield from self._update(mapping(notification.params.get("update")))
        elif notification.method == "$/cancel_request":
            yield from self.withdraw(notification.params.get("requestId"))
        else:
            yield from self.unknown(notification.method)

    def _update(self, update: JSONObject) -> Iterator[Item]:
        kind, text = string(update.get("sessionUpdate")), string(mapping(update.get("content")).get("text"))
        if kind != "agent_message_chunk":
            yield from self._spoken()
        if kind == "agent_message_chunk":
            yield from self._chunk(text)
        elif kind == "agent_thought_chunk":
            yield Reasoning(text=cut(text))
        elif kind in ("tool_call", "tool_call_update"):
            yield from self._call(update)
        elif kind == "plan":
            entries = (mapping(entry) for entry in items(update.get("entries")))
            pairs = tuple((string(entry.get("content")), string(entry.get("status"))) for entry in entries)
            yield Plan(entries=pairs)
        elif kind == "notice":
            yield Notice(kind="warning", text=cut(text or string(update.get("message"))))
        elif not kind:
            yield from self.unparsed("an update without its kind")
        elif kind not in _QUIET:
            yield from self.unknown(kind)

    def _chunk(self, text: str) -> Iterator[Item]:
        if text:
            self._refusals.clear()  # the program goes on
            if self._size <= TEXT_LIMIT:
                self._message.append(text)
            self._size += len(text)
            yield SaidText(text=cut(text))

    def _call(self, update: JSONObject) -> Iterator[Item]:
        call_id = string(update.get("toolCallId"))
        if not call_id:
            yield from self.unparsed("a call without its id")
            return
        if self.call(call_id) is None:
            self._refusals.clear()
        tool, arguments = self._merged(call_id, update)
        if (status := update.get("status")) in ("completed", "failed"):
            locations = [string(mapping(one).get("path")) for one in items(arguments.get("locations"))]
            read = next(filter(None, locations), "") if tool == "read" else ""
            yield from self.call_ended(call_id, _content(update), failed=status == "failed", read=read)

    def _used(self, result: JSONObject) -> Iterator[Item]:
        """Yield the tokens of a prompt, where the program counts: in `usage`, or as Gemini does."""
        usage = mapping(result.get("usage"))
        quota = mapping(mapping(mapping(result.get("_meta")).get("quota")).get("token_count"))
        if not usage and not quota:
            return
        cached_tokens, stored_tokens = count(usage.get("cachedReadTokens")), count(usage.get("cachedWriteTokens"))
        from_prompt = count(usage.get("inputTokens")) + count(quota.get("input_tokens"))
        self._tokens += Usage(
            requests=1,
            input=from_prompt + cached_tokens + stored_tokens,
            output=count(usage.get("outputTokens")) + count(quota.get("output_tokens")),
            cached=cached_tokens,
            reasoning=count(usage.get("thoughtTokens")),
            stored=stored_tokens or msgspec.UNSET,
        )
        yield UsageSeen(usage=self._tokens)

    def _spoken(self) -> Iterator[Item]:
        """Yield the message that its pieces have made, when something else follows them."""
        if self._message:
            self._text = cut("".join(self._message))
            self._message, self._size = [], 0
            yield MessageDone(text=self._text)


_STATE: Final = frozenset(("sessionUpdate", "status"))
"""Parts of a call that are no arguments."""
_CANCELLED: Final[JSONObject] = {"outcome": {"outcome": "cancelled"}}


def _block(part: Part) -> JSONObject:
    """Return an image or a file as a block of a prompt."""
    if part.type == "image":
        return {"type": "image", "mimeType": part.media_type, "data": base64_of(part)}
    uri = f"attachment:///{quote(name_of(part))}"
    return {"type": "resource", "resource": {"uri": uri, "mimeType": part.media_type, "blob": base64_of(part)}}


def _outcome(options: dict[str, str], answer: AskAnswer) -> JSONValue:
    kind = "allow_once" if isinstance(answer, Granted) else "reject_once"
    if kind not in options:
        return _CANCELLED
    return {"outcome": {"outcome": "selected", "optionId": options[kind]}}


def _elicited(answer: AskAnswer) -> JSONValue:
    match answer:
        case Supplied(value=value):
            return {"action": "accept", "content": value}
        case Granted() | Declined():
            return {"action": "decline"}


def _question(message: str, schema: JSONObject, ask_id: str) -> Item:
    return Question(ask_id=ask_id, message=cut(message), schema=schema)


def _content(update: JSONObject) -> str:
    """Return the text of a call's end: its content, or its raw output."""
    parts = (mapping(mapping(part).get("content")) for part in items(update.get("content")))
    text = "\n".join(string(part.get("text")) for part in parts if part.get("text"))
    raw = update.get("rawOutput")
    return text or (raw if isinstance(raw, str) else string(mapping(raw).get("output")))
