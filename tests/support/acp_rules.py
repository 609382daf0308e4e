"""What the updates of an ACP session must keep. Written from the protocol (version 1), without its packages.

`check_update` holds one update to the form of its kind: fields in camelCase, of the right kinds, and no nulls.
`RunAtEditor` is an editor that reads the updates of one run: it holds them to the order of the protocol, and to some
promises that no schema knows: a call begins once and ends once, an update is about a call that has begun, a message
is in one piece, a ticket is about a call that the editor knows, and nothing follows the end, at which nothing is open.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from greenroom.transport.acp.updates import Ended, Out, Rested, TicketClosed, TicketOpened, Update

TEXT, LIST, OBJECT, ANY = "text", "list", "object", "any"
_CHUNK = ({"content": OBJECT}, {"messageId": TEXT, "_meta": OBJECT})
_CALL = {
    **dict.fromkeys(("title", "name", "kind", "status"), TEXT),
    "content": LIST,
    "locations": LIST,
    "rawInput": ANY,
    "rawOutput": ANY,
    "_meta": OBJECT,
}
FIELDS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "user_message_chunk": _CHUNK,
    "agent_message_chunk": _CHUNK,
    "agent_thought_chunk": _CHUNK,
    "tool_call": ({"toolCallId": TEXT, "title": TEXT}, _CALL),
    "tool_call_update": ({"toolCallId": TEXT}, _CALL),
    "notice": ({"severity": TEXT, "title": TEXT}, {"_meta": OBJECT}),
}
"""Kind of update -> (required fields, fields that may be there). What we do not send is left out."""
VALUES = {
    "status": ("pending", "in_progress", "completed", "failed"),
    "kind": ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"),
    "severity": ("info", "warning", "error"),
}
STOPS = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
FINAL = ("completed", "failed")
_OF_KIND = {TEXT: str, LIST: list, OBJECT: Mapping, ANY: object}


class Broken(AssertionError):
    """A rule is broken."""


def demand(holds: object, rule: str) -> None:
    if not holds:
        raise Broken(rule)


def check_update(fields: Mapping[str, Any], *, notices: bool = True) -> None:
    """The form of one update."""
    kind = fields.get("sessionUpdate")
    demand(kind in FIELDS, f"known kind: {kind}")
    assert isinstance(kind, str)
    demand(kind != "notice" or notices, "no notice for an editor that shows none")
    needed, optional = FIELDS[kind]
    demand(needed.keys() <= fields.keys(), f"required field: {needed.keys() - fields.keys()}")
    for name, value in fields.items():
        if name == "sessionUpdate":
            continue
        want = {**optional, **needed}.get(name)
        demand(want is not None, f"known field: {kind}.{name}")
        assert want is not None
        demand(value is not None, f"no null: {name}")
        demand(isinstance(value, _OF_KIND[want]), f"field's kind: {name}")
        demand(name not in VALUES or value in VALUES[name], f"field's value: {name}={value}")
    if kind.endswith("_chunk"):
        _check_text(fields["content"])
    for part in fields.get("content", ()) if kind.startswith("tool_call") else ():
        demand(part.get("type") == "content", "content of a call")
        _check_text(part["content"])
    demand(kind != "notice" or fields["title"], "a notice has a title")


def _check_text(block: Mapping[str, Any]) -> None:
    demand(block.keys() == {"type", "text"} and block["type"] == "text", "a block of text")
    demand(isinstance(block["text"], str) and block["text"], "no empty text")


class RunAtEditor:
    """What an editor has of one run.

    Attributes:
        texts: message id -> its text, per kind of chunk.
        calls: call -> its last status.
        open: the open tickets.
        end: the end, once it has come.
    """

    def __init__(self, *, notices: bool = True) -> None:
        self._notices = notices
        self.texts: dict[str, dict[str, str]] = {kind: {} for kind in FIELDS if kind.endswith("_chunk")}
        self.notices: list[str] = []
        self.calls: dict[str, str] = {}
        self.results: dict[str, Any] = {}
        self.open: dict[str, TicketOpened] = {}
        self._tickets: set[str] = set()
        self.rests = 0
        self.end: Ended | None = None

    def take(self, outs: Iterable[Out]) -> "RunAtEditor":
        for out in outs:
            demand(self.end is None, "nothing after the end")
            match out:
                case Update(fields=fields):
                    self.update(fields)
                case TicketOpened(ticket=ticket):
                    demand(ticket.ticket_id not in self._tickets, "a ticket is opened once")
                    name = f"{ticket.run_id}:{ticket.call_id or ticket.ticket_id}"
                    demand(self.calls.get(name) not in (None, *FINAL), "a ticket is about a call that has begun")
                    self._tickets.add(ticket.ticket_id)
                    self.open[ticket.ticket_id] = out
                case TicketClosed(ticket_id=ticket_id):
                    demand(self.open.pop(ticket_id, None), "a ticket is closed once")
                case Rested():
                    self.rests += 1
                case Ended():
                    self._ended(out)
        return self

    def update(self, fields: Mapping[str, Any]) -> None:
        check_update(fields, notices=self._notices)
        kind = fields["sessionUpdate"]
        if kind.endswith("_chunk"):
            texts, name = self.texts[kind], fields["messageId"]
            demand(name not in texts or name == next(reversed(texts)), "a message is in one piece")
            texts[name] = texts.get(name, "") + fields["content"]["text"]
        elif kind == "notice":
            self.notices.append(fields["title"])
        else:
            self._call(kind, fields)

    def _call(self, kind: str, fields: Mapping[str, Any]) -> None:
        name, status = fields["toolCallId"], self.calls.get(fields["toolCallId"])
        if kind == "tool_call":
            demand(status is None, "a call begins once")
            demand(fields.get("status") == "pending", "a call begins as pending")
        else:
            demand(status is not None, "an update is about a call that has begun")
            demand(status not in FINAL, "nothing about a call after its end")
        self.calls[name] = fields.get("status", status)
        if self.calls[name] in FINAL:
            self.results[name] = fields.get("rawOutput")

    def _ended(self, end: Ended) -> None:
        demand(all(status in FINAL for status in self.calls.values()), "every call has ended at the end")
        demand(not self.open, "no ticket is open at the end")
        demand((end.stop in STOPS) is (end.failure is None), "a reason or a failure")
        demand(
            end.failure is None or {"code", "message", "recovery"} <= end.failure.keys(), "a failure says what to do"
        )
        self.end = end

    @property
    def said(self) -> dict[str, str]:
        """The messages of the agent that stand, without the notices among them."""
        texts = {name: text for name, text in self.texts["agent_message_chunk"].items() if not name.endswith(":notice")}
        whole = {name.removesuffix(":whole") for name in texts if name.endswith(":whole")}
        return {name.removesuffix(":whole"): text for name, text in texts.items() if name not in whole}
