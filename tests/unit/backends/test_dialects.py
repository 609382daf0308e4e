"""Dialects under any order and any bytes: one end, no crash, no lost call, every question answered."""

import json
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import greenroom.actors.testing as kit
from greenroom.actors.backends.dialect import Declined, Dialect, Granted, Launch, ProgramExit, ProgramVerdict, Prompt
from greenroom.actors.backends.dialects.acp import ACPDialect
from greenroom.actors.backends.dialects.claude import ClaudeDialect
from greenroom.actors.backends.dialects.codex import CodexDialect
from greenroom.actors.backends.dialects.json_lines import JSONLinesDialect
from greenroom.actors.backends.dialects.plain import PlainDialect
from greenroom.actors.backends.items import Asked, CallEnded, Item, PromptDone, Question, Seen, SendBytes, Withdrawn
from greenroom.actors.contract.parts import Part, part_of

from ...support.dialect_lines import Acp, Claude, Codex, lines

PROMPT = Prompt(text="Do it.", folder="/srv/shop")
OPEN: dict[str, Any] = {"claude": ClaudeDialect, "codex": CodexDialect, "acp": lambda: ACPDialect(("agent",))}
POOLS: dict[str, list[Any]] = {
    "claude": [
        *(Claude.init, Claude.end(), Claude.end("no", is_error=True), Claude.tasks("a"), Claude.tasks()),
        *(
            Claude.says("hi", Claude.use("Bash", "t1", command="ls")),
            Claude.says(Claude.use("Read", "t2", file_path="a")),
        ),
        *(Claude.hook("h1", "Bash", "t1", command="ls"), Claude.hook("h2", "Read", "t2", file_path="a")),
        *(Claude.may("h1", "Bash", "t1", command="ls"), Claude.may("q", "AskUserQuestion", "t3", questions=[{}])),
        *(Claude.result_of("t1", "x"), Claude.result_of("t2", "y", error=True), Claude.result_of("t9", "z")),
        *({"type": "control_cancel_request", "request_id": "h1"}, {"type": "new"}, Claude.delta("x"), b"oops\n"),
    ],
    "codex": [
        *(*Codex.opened, Codex.end(), Codex.end("failed"), Codex.note("error", message="x"), b"oops\n"),
        *(Codex.item("started", "commandExecution", "c1", command="ls"), Codex.asks(0, "commandExecution", "c1")),
        *(Codex.asks(1, "fileChange", "c2"), Codex.asks("1", "fileChange", "c2"), Codex.asks(3, "permissions", "c3")),
        *(Codex.item("completed", "commandExecution", "c1", status="completed"), Codex.note("some/thing")),
        *(
            Codex.item("completed", "fileChange", "c2", status="failed"),
            Codex.note("serverRequest/resolved", requestId=1),
        ),
        {"id": 1, "error": {"code": 1, "message": "no"}},
    ],
    "acp": [
        *(*Acp.opened, Acp.end(), Acp.end("refusal"), Acp.end("nonsense"), Acp.says("x"), Acp.says("y", "thought")),
        *(Acp.update("tool_call", toolCallId="c1", kind="read", title="x"), Acp.asks(0, "c1"), Acp.asks("0", "c2")),
        *(Acp.asks(1, "c3", options=[]), Acp.update("tool_call_update", toolCallId="c1", status="completed")),
        *(Acp.update("tool_call_update", toolCallId="c2", status="failed"), Acp.update("new"), b"oops\n"),
        {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 0}},
        {"jsonrpc": "2.0", "id": 2, "error": {"code": -32000, "message": "log in"}},
    ],
}


def converse(dialect: Dialect, pool: list[Any], draw: Any) -> list[Item]:
    """Feed messages in an order that is drawn, and answer each question at some time, once."""
    dialect.begin(PROMPT)
    items, waiting = list[Item](), dict[str, Item]()
    for place in draw(st.lists(st.integers(0, len(pool) - 1), max_size=40)):
        news = dialect.feed(lines(pool[place]))
        items += news
        for item in news:
            if isinstance(item, Asked | Question):
                waiting[item.ask_id] = item
            elif isinstance(item, Withdrawn):
                del waiting[item.ask_id]
        if waiting and draw(st.booleans()):
            ask_id, _ = waiting.popitem()
            answer(dialect, ask_id, draw)
    for ask_id in waiting:
        answer(dialect, ask_id, draw)
    return items + dialect.end()


def answer(dialect: Dialect, ask_id: str, draw: Any) -> None:
    data = dialect.answer(ask_id, draw(st.sampled_from([Granted(), Declined(text="no")])))
    assert all(isinstance(json.loads(line), dict) for line in data.splitlines())
    assert data
    assert dialect.answer(ask_id, Granted()) == b""


@pytest.mark.parametrize("kind", POOLS)
def test_no_order_of_messages_loses_a_call_or_ends_twice(kind):
    @given(st.data())
    def check(data: Any) -> None:
        dialect = OPEN[kind]()
        items = converse(dialect, POOLS[kind], data.draw)
        shown = {item.call_id for item in items if isinstance(item, Asked | Seen)}
        ended = [item.call_id for item in items if isinstance(item, CallEnded)]
        assert set(ended) <= shown
        assert len(ended) == len(set(ended))
        assert sum(isinstance(item, PromptDone) for item in items) <= 1
        assert all(json.loads(line) for item in items if isinstance(item, SendBytes) for line in item.data.splitlines())
        verdict = dialect.ended(ProgramExit(status=0))
        assert (verdict.outcome == "completed") <= any(isinstance(item, PromptDone) for item in items)

    check()


WORDS = sorted(
    {
        word
        for pool in POOLS.values()
        for message in pool
        if isinstance(message, dict)
        for word in json.dumps(message).replace('"', " ").replace(",", " ").replace(":", " ").split()
        if word.isidentifier() or "/" in word
    }
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.sampled_from(WORDS), st.text()
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)),
    max_leaves=12,
)


def mutated(message: Any, draw: Any) -> Any:
    """A message in which a value, somewhere, is any other."""
    if isinstance(message, dict) and message and draw(st.integers(0, 4)):
        name = draw(st.sampled_from(sorted(message)))
        return {**message, name: mutated(message[name], draw)}
    if isinstance(message, list) and message and draw(st.integers(0, 4)):
        return [mutated(message[0], draw), *message[1:]]
    return draw(VALUES)


@pytest.mark.parametrize("kind", POOLS)
def test_no_value_in_no_place_breaks_a_dialect(kind):
    @given(st.data())
    def check(data: Any) -> None:
        dialect = OPEN[kind]()
        messages = [message for message in POOLS[kind] if isinstance(message, dict)]
        pool = [mutated(message, data.draw) for message in messages for _ in range(2)]
        converse(dialect, [*messages, *pool], data.draw)
        dialect.ended(ProgramExit(status=0))

    check()


@pytest.mark.parametrize("kind", POOLS)
@given(st.lists(st.binary()))
def test_no_bytes_break_a_dialect(kind, pieces):
    dialect = OPEN[kind]()
    dialect.begin(PROMPT)
    items = [item for piece in pieces for item in dialect.feed(piece)] + dialect.end()
    assert not any(isinstance(item, Asked | PromptDone) for item in items)
    assert dialect.ended(ProgramExit(status=0)).code == "schema_validation_failed"


# --- the kit finds a dialect that breaks a promise -------------------------------------------------------------------

OUTPUT = lines(
    Claude.init,
    Claude.hook("h1", "Bash", "t1", command="ls"),
    Claude.result_of("t1", "x"),
    {"type": "keep_alive"},
    Claude.end(),
)


class SplitsWords(ClaudeDialect):
    def feed(self, data: bytes) -> list[Item]:
        return [
            item
            for line in data.splitlines(keepends=True)
            for item in super(SplitsWords, self).feed(line.strip() + b"\n")
        ]


class AnswersTwice(ClaudeDialect):
    def answer(self, ask_id: str, answer: Any) -> bytes:
        return super().answer(ask_id, answer) or (b"again\n" if ask_id == "h1" else b"")


class AnswersAnything(ClaudeDialect):
    def answer(self, ask_id: str, answer: Any) -> bytes:
        return super().answer(ask_id, answer) or b"what\n"


class AnswersNothing(ClaudeDialect):
    def answer(self, ask_id: str, answer: Any) -> bytes:
        super().answer(ask_id, answer)
        return b""


class EndsTwice(ClaudeDialect):
    def done(self, done: PromptDone) -> Any:
        yield done
        yield done


class EndsStrangers(ClaudeDialect):
    def call_ended(self, call_id: str, text: str, *, failed: bool, read: str = "") -> Any:
        yield CallEnded(call_id="stranger", text=text, failed=failed)


class EndsCallsTwice(ClaudeDialect):
    def call_ended(self, call_id: str, text: str, *, failed: bool, read: str = "") -> Any:
        yield CallEnded(call_id=call_id, text=text, failed=failed)
        yield CallEnded(call_id=call_id, text=text, failed=failed)


class Contradicts(ClaudeDialect):
    def ended(self, ended: ProgramExit) -> ProgramVerdict:
        return ProgramVerdict(outcome="completed", code="runtime_failed")


class SendsHalves(CodexDialect):
    def feed(self, data: bytes) -> list[Item]:
        return [
            SendBytes(data=item.data.strip()) if isinstance(item, SendBytes) else item for item in super().feed(data)
        ]


class MindsCarriageReturns(JSONLinesDialect):
    name = "minds"

    def begin(self, prompt: Prompt) -> Launch:
        return Launch(argv=("x",), data=b"")

    def feed(self, data: bytes) -> list[Item]:
        return [PromptDone(text="cr")] if b"\r" in data else []

    def take(self, message: Any) -> Any: ...

    def answer(self, ask_id: str, answer: Any) -> bytes:
        return b""

    def interrupt(self) -> bytes:
        return b""


@pytest.mark.parametrize(
    ("dialect", "sentence"),
    [
        (SplitsWords, "the items differ if the bytes are split"),
        (AnswersTwice, "is answered twice"),
        (AnswersAnything, "that was never asked is answered"),
        (AnswersNothing, "is open and gets no answer"),
        (EndsTwice, "the prompt is done twice"),
        (EndsStrangers, "neither asked about nor seen"),
        (EndsCallsTwice, "ends twice"),
        (Contradicts, "contradicts itself"),
        (MindsCarriageReturns, "lines end in CR LF"),
        (SendsHalves, "no whole lines"),
    ],
)
def test_the_kit_finds_a_broken_promise(dialect, sentence):
    outputs = {SendsHalves: lines(*Codex.opened), EndsTwice: lines(Claude.init, Claude.end())}
    with pytest.raises(AssertionError, match=sentence) as caught:
        kit.check_dialect(dialect, [outputs.get(dialect, OUTPUT)], seed=3)
    assert any("output 1" in note for note in caught.value.__notes__)


def test_the_kit_needs_no_luck():
    for seed in range(3):
        kit.check_dialect(ClaudeDialect, [OUTPUT], seed=Random(seed).randrange(1000))


IMAGE = part_of("image", b"\x89PNG\r\n\x1a\n", "image/png")
TEXT = part_of("file", b"tea,cake", "text/csv", "menu.csv")
ZIP = part_of("file", b"PK", "application/zip", "menu.zip")
LINKED = Part(type="image", media_type="image/png", url="https://shop.example/tea.png")


def sent(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines()]


@pytest.mark.parametrize(
    ("form", "taken"),
    [("claude", (IMAGE, TEXT)), ("codex", (IMAGE,)), ("acp", (IMAGE, TEXT, ZIP)), ("plain", ())],
)
def test_a_dialect_says_which_attachments_a_prompt_can_bring(form, taken):
    dialect = PlainDialect(("cat",)) if form == "plain" else OPEN[form]()
    assert tuple(part for part in (IMAGE, TEXT, ZIP, LINKED) if dialect.takes(part)) == taken


def test_claude_gets_attachments_as_blocks_before_the_text():
    launch = ClaudeDialect().begin(attrs.evolve(PROMPT, parts=(IMAGE, TEXT)))
    image, document, text = sent(launch.data)[1]["message"]["content"]
    assert image["source"] == {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    assert document["source"]["data"] == "tea,cake"
    assert text == {"type": "text", "text": "Do it."}


def test_codex_gets_images_as_addresses_behind_the_text():
    dialect = CodexDialect()
    dialect.begin(attrs.evolve(PROMPT, parts=(IMAGE,)))
    items = [item for message in Codex.opened for item in dialect.feed(lines(message))]
    (turn,) = [
        one for item in items if isinstance(item, SendBytes) for one in sent(item.data) if "turn" in one["method"]
    ]
    assert turn["params"]["input"] == [
        {"type": "text", "text": "Do it."},
        {"type": "image", "url": "data:image/png;base64,iVBORw0KGgo="},
    ]


@pytest.mark.parametrize(
    ("capabilities", "part", "blocks"),
    [
        ({"image": True}, IMAGE, [{"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}]),
        (
            {"embeddedContext": True},
            TEXT,
            [
                {
                    "type": "resource",
                    "resource": {
                        "uri": "attachment:///menu.csv",
                        "mimeType": "text/csv",
                        "blob": "dGVhLGNha2U=",
                    },
                }
            ],
        ),
        ({"image": True}, TEXT, None),
        ({}, IMAGE, None),
    ],
)
def test_acp_brings_the_attachments_that_the_program_says_it_takes(capabilities, part, blocks):
    dialect = ACPDialect(("agent",))
    dialect.begin(attrs.evolve(PROMPT, parts=(part,)))
    result = {"protocolVersion": 1, "agentCapabilities": {"promptCapabilities": capabilities}}
    items = dialect.feed(lines({"jsonrpc": "2.0", "id": 1, "result": result}))
    if blocks is None:
        assert items == [PromptDone(code="runtime_failed", detail=f"the program takes no {part.type}s")]
        return
    items = dialect.feed(lines({"jsonrpc": "2.0", "id": 2, "result": {"sessionId": "s"}}))
    (prompt,) = [one for item in items if isinstance(item, SendBytes) for one in sent(item.data)]
    assert prompt["params"]["prompt"] == [{"type": "text", "text": "Do it."}, *blocks]
