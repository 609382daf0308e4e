"""The rules of an AI SDK client in Python, and those that it does not check itself.

`check_part` is the client's schema, `Chat` what it does with parts (its errors are `Broken`), `check_stream` what no
client checks: one start, one finish, balanced steps, closed blocks. `check_message` says whether a message may be kept:
what `validateUIMessages` says about tool parts. The judge in tests/judges holds all of it against the real thing.
"""

import copy
import json
import re
from collections.abc import Iterable
from typing import Any, Literal

Part = dict[str, Any]
Version = Literal["v6", "v7"]

META = {"providerMetadata": dict}
TOOL = {"providerExecuted": bool, "dynamic": bool, "title": str, "toolMetadata": dict, **META}
REASONS = ("stop", "length", "content-filter", "tool-calls", "error", "other")

SCHEMA: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "start": ({}, {"messageId": str}),
    "start-step": ({}, {}),
    "finish-step": ({}, {}),
    "finish": ({}, {"finishReason": REASONS}),
    "abort": ({}, {"reason": str}),
    "error": ({"errorText": str}, {}),
    "text-start": ({"id": str}, META),
    "text-delta": ({"id": str, "delta": str}, META),
    "text-end": ({"id": str}, META),
    "reasoning-start": ({"id": str}, META),
    "reasoning-delta": ({"id": str, "delta": str}, META),
    "reasoning-end": ({"id": str}, META),
    "tool-input-start": ({"toolCallId": str, "toolName": str}, TOOL),
    "tool-input-delta": ({"toolCallId": str, "inputTextDelta": str}, {}),
    "tool-input-available": ({"toolCallId": str, "toolName": str, "input": object}, TOOL),
    "tool-approval-request": ({"approvalId": str, "toolCallId": str}, {"signature": str}),
    "tool-output-available": ({"toolCallId": str, "output": object}, {"preliminary": bool, **TOOL}),
    "tool-output-error": ({"toolCallId": str, "errorText": str}, TOOL),
    "tool-output-denied": ({"toolCallId": str}, {}),
}
"""Type -> (required, optional) fields with their kinds; a tuple is a choice. What we do not send is left out."""
ONLY_V7: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "reset-step": ({}, {}),
    "tool-approval-request": (
        {"approvalId": str, "toolCallId": str},
        {"signature": str, "reason": str, "isAutomatic": bool},
    ),
    "tool-approval-response": ({"approvalId": str, "approved": bool}, {"reason": str, "providerExecuted": bool}),
}
DATA = ({"data": object}, {"id": str, "transient": bool})
ASKS_AGAIN = "This call asks again, below."
"""What a part says that another one of its call replaces."""
FINAL = ("output-available", "output-error", "output-denied")


class Broken(AssertionError):
    """A rule is broken."""


def demand(holds: object, what: str) -> None:
    if not holds:
        raise Broken(what)


# --- the schema ------------------------------------------------------------------------------------------------------


def check_part(part: Part, version: Version) -> None:
    """The part is one that a client of this version accepts; we also keep to the fields that it knows."""
    kind = part.get("type")
    demand(isinstance(kind, str), f"no type: {part}")
    schema = {**SCHEMA, **(ONLY_V7 if version == "v7" else {})}
    known = DATA if kind.startswith("data-") else schema.get(kind)
    demand(known is not None, f"{version} does not know {kind}")
    assert known is not None
    needed, optional = known
    for name in needed:
        demand(name in part, f"{kind} without {name}")
    for name, value in part.items():
        want = str if name == "type" else {**needed, **optional}.get(name)
        demand(want is not None, f"{kind} has a field {name}")
        fits = value in want if isinstance(want, tuple) else isinstance(value, want)
        demand(fits or want is object, f"{kind}.{name} is {value!r}")
        demand(value is not None or want is object, f"{kind}.{name} is null")


# --- the client's state machine --------------------------------------------------------------------------------------


class Chat:
    """One assistant message at a client, through any number of streams; what the user does to it; what is sent back."""

    def __init__(self, version: Version, message: Part | None = None) -> None:
        self.version = version
        self.message: Part = message or {"id": "made-by-the-client", "role": "assistant", "parts": []}
        self.text: dict[str, Part] = {}
        self.reasoning: dict[str, Part] = {}
        self.transient: list[Part] = []
        self.tool_calls: list[str] = []
        self.reason: str | None = None
        self.error: str | None = None

    @property
    def parts(self) -> list[Part]:
        parts: list[Part] = self.message["parts"]
        return parts

    def stream(self, parts: Iterable[Part]) -> "Chat":
        """A response: the blocks that an earlier one left open are none of it."""
        self.text, self.reasoning, self.reason, self.error = {}, {}, None, None
        for part in parts:
            check_part(part, self.version)
            if self.error is None:  # a client reads no further
                self.take(part)
        return self

    def take(self, part: Part) -> None:
        kind = part["type"]
        if kind.startswith("data-"):
            self._data(part)
        elif kind.startswith(("text-", "reasoning-")):
            self._block(*kind.split("-"), part)
        elif kind.startswith("tool-"):
            self._tool(kind, part)
        elif kind == "start":
            self.message["id"] = part.get("messageId", self.message["id"])
        elif kind == "start-step":
            self.parts.append({"type": "step-start"})
        elif kind == "finish-step" and self.version == "v6":
            self.text, self.reasoning = {}, {}
        elif kind == "reset-step":
            self.text, self.reasoning = {}, {}
            del self.parts[len(self.parts) - len(self.step()) :]
        elif kind == "finish":
            self.reason = part.get("finishReason", self.reason)
        elif kind == "error":
            self.error = part["errorText"]

    def step(self) -> list[Part]:
        """The parts since the step began."""
        starts = [index for index, part in enumerate(self.parts) if part["type"] == "step-start"]
        return self.parts[starts[-1] + 1 if starts else 0 :]

    def _block(self, name: str, verb: str, part: Part) -> None:
        active = self.text if name == "text" else self.reasoning
        if verb == "start":
            block = {"type": name, "text": "", "state": "streaming", "providerMetadata": part.get("providerMetadata")}
            active[part["id"]] = block
            self.parts.append(block)
            return
        demand(part["id"] in active, f"{name}-{verb} for missing {name} part {part['id']}")
        if verb == "delta":
            active[part["id"]]["text"] += part["delta"]
        else:
            active.pop(part["id"])["state"] = "done"

    def _data(self, part: Part) -> None:
        if part.get("transient"):
            self.transient.append(part)
            return
        known = [one for one in self.parts if one["type"] == part["type"] and one.get("id") == part.get("id")]
        if known and "id" in part:
            known[0]["data"] = part["data"]
        else:
            self.parts.append(copy.deepcopy(part))

    def _tool(self, kind: str, part: Part) -> None:
        if kind == "tool-input-available":
            self._update(part, self._in_step(part["toolCallId"]), state="input-available", input=part["input"])
            if not part.get("providerExecuted"):
                self.tool_calls.append(part["toolCallId"])
        elif kind == "tool-approval-response":
            mine = [tool for tool in self.tools() if tool.get("approval", {}).get("id") == part["approvalId"]]
            demand(mine, f"no tool part has the approval {part['approvalId']}")
            mine[0]["state"] = "approval-responded"
            fields = {name: part[name] for name in ("approved", "reason") if name in part}
            mine[0]["approval"] = {**mine[0]["approval"], **fields}
        else:
            self._settle(kind, part, self.tool(part["toolCallId"]))

    def _settle(self, kind: str, part: Part, tool: Part) -> None:
        if kind == "tool-approval-request":
            automatic = {"isAutomatic": True} if part.get("isAutomatic") else {}
            tool["state"], tool["approval"] = "approval-requested", {"id": part["approvalId"], **automatic}
        elif kind == "tool-output-denied":
            tool["state"] = "output-denied"
        elif kind == "tool-output-available":
            changes = {"output": part["output"], "preliminary": part.get("preliminary")}
            self._update(part, tool, state="output-available", input=tool.get("input"), **changes)
        elif kind == "tool-output-error":
            text = part["errorText"]
            self._update(part, tool, state="output-error", input=tool.get("input"), errorText=text)

    def _update(self, part: Part, tool: Part | None, **fields: Any) -> None:
        """What all input and output parts do: everything that they do not say is forgotten."""
        if tool is None:
            tool = {"type": f"tool-{part['toolName']}", "toolCallId": part["toolCallId"]}
            self.parts.append(tool)
        for name in ("state", "input", "output", "errorText", "preliminary"):
            tool[name] = fields.get(name)
        tool["providerExecuted"] = part.get("providerExecuted", tool.get("providerExecuted"))
        if "providerMetadata" in part and fields["state"].startswith("input-"):
            tool["callProviderMetadata"] = part["providerMetadata"]

    def _in_step(self, call_id: str) -> Part | None:
        return next((part for part in self.step() if part.get("toolCallId") == call_id), None)

    def tools(self) -> list[Part]:
        return [part for part in self.parts if part["type"].startswith("tool-") or part["type"] == "dynamic-tool"]

    def tool(self, call_id: str) -> Part:
        here = [one for one in reversed(self.tools()) if one["toolCallId"] == call_id]
        found = self._in_step(call_id) or (here[0] if here else None)
        demand(found is not None, f"no tool part for the call {call_id}")
        assert found is not None
        return found

    # --- what the user does, and what is sent by itself --------------------------------------------------------------

    def respond(self, approval_id: str, approved: bool, reason: str | None = None) -> None:
        """addToolApprovalResponse."""
        for tool in self.tools():
            if tool["state"] == "approval-requested" and tool["approval"]["id"] == approval_id:
                reported = {} if reason is None else {"reason": reason}
                tool["state"], tool["approval"] = (
                    "approval-responded",
                    {**tool["approval"], "approved": approved, **reported},
                )

    def output(self, call_id: str, output: Any = None, *, error: str | None = None) -> None:
        """addToolOutput."""
        for tool in self.tools():
            if tool["toolCallId"] == call_id:
                tool["state"] = "output-available" if error is None else "output-error"
                tool["output"], tool["errorText"] = output, error

    def answered(self) -> bool:
        """lastAssistantMessageIsCompleteWithApprovalResponses."""
        states = [part["state"] for part in self.step() if "toolCallId" in part]
        return "approval-responded" in states and all(state in (*FINAL, "approval-responded") for state in states)

    def completed(self) -> bool:
        """lastAssistantMessageIsCompleteWithToolCalls."""
        own = [part for part in self.step() if "toolCallId" in part and not part.get("providerExecuted")]
        return bool(own) and all(part["state"] in FINAL[:2] and not part.get("preliminary") for part in own)

    def sent(self) -> Part:
        """The message as it is sent back: JSON, so what is undefined is not there."""

        def clean(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: clean(one) for name, one in value.items() if one is not None or name == "data"}
            return [clean(one) for one in value] if isinstance(value, list) else value

        message: Part = json.loads(json.dumps(clean(self.message)))
        return message

    def texts(self) -> str:
        """All text of the message that is not said to be discarded."""
        removed = {block for part in self.parts if part["type"] == "data-discarded" for block in part["data"]["blocks"]}
        shown = [part for part in self.parts if part["type"] == "text"]
        return "".join(
            part["text"] for part in shown if part["providerMetadata"]["greenroom"]["blockId"] not in removed
        )


# --- what no client checks -------------------------------------------------------------------------------------------


def check_stream(parts: list[Part], version: Version, *, message_id: str) -> None:
    """One whole stream."""
    kinds = [part["type"] for part in parts]
    for part in parts:
        check_part(part, version)
    demand(kinds[:1] == ["start"] and kinds.count("start") == 1, f"start: {kinds}")
    demand(parts[0].get("messageId") == message_id, f"the message has another id than {message_id}")
    demand(kinds[-1:] == ["finish"] and kinds.count("finish") == 1, f"finish: {kinds[-5:]}")
    demand("finishReason" in parts[-1], "finish without a reason")
    ends = [index for index, kind in enumerate(kinds) if kind in ("error", "abort")]
    demand(ends in ([], [len(kinds) - 2]), f"error or abort is not the last but finish: {kinds[-5:]}")
    _check_nesting(parts)


def _check_nesting(parts: list[Part]) -> None:
    in_step, blocks, used = False, set[str](), set[str]()
    for part in parts:
        kind = part["type"]
        if kind == "start-step":
            demand(not in_step, "start-step within a step")
            in_step = True
        elif kind == "finish-step":
            demand(in_step, "finish-step without start-step")
            in_step = False
        elif re.fullmatch(r"(text|reasoning)-start", kind):
            demand(part["id"] not in used, f"the block id {part['id']} is used twice")
            used.add(part["id"])
            blocks.add(part["id"])
        elif re.fullmatch(r"(text|reasoning)-end", kind):
            demand(part["id"] in blocks, f"{kind} without its start")
            blocks.remove(part["id"])
        elif kind == "tool-output-available":
            demand(not part.get("preliminary"), "a preliminary output has another type than the output")
        if kind in ("start-step", "finish-step", "reset-step", "finish", "error", "abort"):
            demand(not blocks, f"{kind} while {sorted(blocks)} is open")
    demand(not in_step, "the last step is not finished")


def check_message(message: Part, *, ended: bool, reported: bool = True) -> None:
    """The message may be kept: its tool parts are legal, and none is in flight.

    Args:
        message: as its client has it.
        ended: the run is done, so that nothing may be asked any more.
        reported: all answers were given at this client, or it is one that can be informed of others.
    """
    for part in message["parts"]:
        if part["type"] in ("text", "reasoning"):
            demand(part["state"] == "done", f"{part['type']} is still streaming")
        if "toolCallId" in part:
            _check_tool(part, reported)
            demand(part["state"] in FINAL or not ended, f"{part['toolCallId']} is {part['state']} for ever")
    newest = dict[str, Part]()
    for part in message["parts"]:
        if "toolCallId" in part:
            before = newest.get(part["toolCallId"])
            demand(before is None or before.get("errorText") == ASKS_AGAIN, f"{part['toolCallId']} has two parts")
            newest[part["toolCallId"]] = part


def _check_tool(part: Part, reported: bool) -> None:
    """The approval and the output that a state may have (validateUIMessages)."""
    state, approval = part["state"], part.get("approval")
    approved = None if approval is None else approval.get("approved")
    if state in FINAL and not reported:
        return
    legal = {
        "input-available": approval is None,
        "approval-requested": approval is not None and approved is None,
        "approval-responded": approved is not None,
        "output-available": approval is None or approved is True,
        "output-error": approval is None or approved is True,
        "output-denied": approved is False,
    }
    demand(legal.get(state), f"{part['toolCallId']} is {state} with the approval {approval}")
    if state not in FINAL[:2]:
        demand(part.get("output") is None, f"{part['toolCallId']} is {state} and has an output")


def read_sse(body: str) -> list[Part]:
    """The parts of a response's body: data lines, and [DONE] as the last."""
    frames = body.split("\n\n")
    demand(frames.pop() == "", "the body does not end with an empty line")
    data = []
    for frame in frames:
        lines = [line for line in frame.split("\n") if not line.startswith(":")]
        demand(all(line.startswith(("data: ", "id: ")) for line in lines), f"a line of another kind: {lines}")
        data += [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    demand(data[-1:] == ["[DONE]"] and data.count("[DONE]") == 1, f"[DONE] is not the end: {data[-2:]}")
    return [json.loads(one) for one in data[:-1]]
