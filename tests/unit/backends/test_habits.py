"""Habits of the real programs, each as a short session; tests/judges/programs shows them with the programs."""

import json
from typing import Any

from greenroom.actors.backends.dialect import Declined, Granted, ProgramExit, Prompt
from greenroom.actors.backends.dialects.acp import ACPDialect
from greenroom.actors.backends.dialects.codex import CodexDialect
from greenroom.actors.backends.items import Asked, Item, Notice, PromptDone, SendBytes, UsageSeen

from ...support.dialect_lines import Acp, Codex, lines

PROMPT = Prompt(text="Do it.", folder="/srv/shop")


def sent(items: list[Item]) -> list[Any]:
    """The messages of ours among the items."""
    return [json.loads(line) for item in items if isinstance(item, SendBytes) for line in item.data.splitlines()]


def acp() -> ACPDialect:
    dialect = ACPDialect(("agent",))
    dialect.begin(PROMPT)
    dialect.feed(lines(*Acp.opened))
    return dialect


def prompted(number: int, reason: str = "end_turn", **more: Any) -> bytes:
    return lines({"jsonrpc": "2.0", "id": number, "result": {"stopReason": reason, **more}})


def test_a_question_without_the_file_has_that_of_the_part_before():
    """OpenCode asks about a read with empty values, so no rule about the file would hold."""
    dialect = acp()
    known = {"locations": [{"path": "/srv/shop/.env"}], "rawInput": {"filePath": "/srv/shop/.env"}}
    dialect.feed(lines(Acp.update("tool_call", toolCallId="c1", kind="read", locations=[], rawInput={})))
    dialect.feed(lines(Acp.update("tool_call_update", toolCallId="c1", status="in_progress", **known)))
    (asked,) = dialect.feed(lines(Acp.asks(0, "c1", kind="read", title="read", locations=[], rawInput={})))
    assert isinstance(asked, Asked)
    assert {name: asked.arguments[name] for name in known} == known


def test_a_program_that_ends_its_turn_with_a_refusal_gets_the_text_as_a_prompt():
    dialect = acp()
    dialect.feed(lines(Acp.says("I write."), Acp.asks(0, "c1", kind="edit"), Acp.asks(1, "c2", kind="edit")))
    dialect.answer("i0", Declined(text="not here"))
    dialect.answer("i1", Declined(text="nor there"))
    items = dialect.feed(lines(Acp.update("tool_call_update", toolCallId="c1", status="failed")) + prompted(3))
    assert not [item for item in items if isinstance(item, PromptDone)]
    (again,) = sent(items)
    assert again["method"] == "session/prompt"
    assert "The reason: not here\nnor there\n" in again["params"]["prompt"][0]["text"]
    items = dialect.feed(lines(Acp.says("Well.")) + prompted(4))
    assert PromptDone(text="Well.") in items
    assert dialect.ended(ProgramExit(status=0)).text == "Well."


def test_a_program_that_goes_on_after_a_refusal_is_not_prompted_again():
    for follows in (Acp.says("Then not."), Acp.update("tool_call", toolCallId="c2", kind="read")):
        dialect = acp()
        dialect.feed(lines(Acp.asks(0, "c1", kind="edit")))
        dialect.answer("i0", Declined(text="not here"))
        items = dialect.feed(lines(follows) + prompted(3))
        assert sent(items) == []
        assert [item for item in items if isinstance(item, PromptDone)]


def test_a_refusal_without_a_text_is_no_prompt():
    dialect = acp()
    dialect.feed(lines(Acp.asks(0, "c1", kind="edit")))
    dialect.answer("i0", Declined())
    assert sent(dialect.feed(prompted(3))) == []


def test_the_tokens_of_all_prompts_are_counted():
    dialect = acp()
    dialect.feed(lines(Acp.asks(0, "c1", kind="edit")))
    dialect.answer("i0", Declined(text="not here"))
    usage = {"inputTokens": 24, "outputTokens": 5, "totalTokens": 40, "thoughtTokens": 4, "cachedReadTokens": 7}
    seen = [*dialect.feed(prompted(3, usage=usage)), *dialect.feed(prompted(4, usage=usage))]
    counts = [item.usage for item in seen if isinstance(item, UsageSeen)]
    assert [(one.requests, one.input, one.output, one.cached, one.reasoning) for one in counts] == [
        (1, 31, 5, 7, 4),
        (2, 62, 10, 14, 8),
    ]


def test_the_tokens_that_a_program_put_into_a_cache_are_a_part_of_the_input():
    dialect = acp()
    dialect.feed(lines(Acp.asks(0, "c1", kind="edit")))
    dialect.answer("i0", Declined())
    seen = dialect.feed(prompted(3, usage={"inputTokens": 1, "cachedReadTokens": 2, "cachedWriteTokens": 9}))
    (usage,) = (item.usage for item in seen if isinstance(item, UsageSeen))
    assert (usage.input, usage.cached, usage.stored) == (12, 2, 9)


def test_a_request_for_what_the_client_does_not_offer_is_refused_without_a_notice():
    dialect = acp()
    items = dialect.feed(lines({"jsonrpc": "2.0", "id": 7, "method": "fs/write_text_file", "params": {"path": "a"}}))
    assert [message["error"]["code"] for message in sent(items)] == [-32601]
    assert not [item for item in items if isinstance(item, Notice)]


def test_the_text_of_a_refusal_goes_into_the_turn_of_codex():
    dialect = CodexDialect()
    dialect.begin(PROMPT)
    dialect.feed(lines(*Codex.opened, Codex.asks(0, "commandExecution", "c1"), Codex.asks(1, "fileChange", "c2")))
    steer, response = (json.loads(line) for line in dialect.answer("i0", Declined(text="not here")).splitlines())
    text = [{"type": "text", "text": "not here"}]
    params = {"threadId": "th-1", "expectedTurnId": "tu-1", "input": text}
    assert (steer["method"], steer["params"]) == ("turn/steer", params)
    assert response == {"id": 0, "result": {"decision": "decline"}}
    (response,) = (json.loads(line) for line in dialect.answer("i1", Granted()).splitlines())
    assert response == {"id": 1, "result": {"decision": "accept"}}
    (notice,) = dialect.feed(lines({"id": steer["id"], "error": {"code": -32600, "message": "no active turn"}}))
    assert (notice.kind, notice.text) == ("warning", "no active turn")
    assert PromptDone(text="") in dialect.feed(lines(Codex.end()))
