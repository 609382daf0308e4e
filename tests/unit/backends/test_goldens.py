"""Goldens: sessions of each program, the items that its dialect reads, and the verdict."""

import json
from typing import Any

import pytest

from greenroom.actors.backends.dialect import Declined, Dialect, Granted, ProgramExit, Prompt, Supplied
from greenroom.actors.backends.dialects.acp import ACPDialect
from greenroom.actors.backends.dialects.claude import ClaudeDialect
from greenroom.actors.backends.dialects.codex import CodexDialect
from greenroom.actors.backends.dialects.plain import PlainDialect
from greenroom.actors.backends.items import Asked, Item, Notice, Question, SendBytes, UsageSeen
from greenroom.actors.testing import check_dialect

from ...support.dialect_lines import Acp, Claude, Codex, lines

PROMPT = Prompt(text="Do it.", folder="/srv/shop")
OPEN: dict[str, Any] = {
    "claude": ClaudeDialect,
    "codex": CodexDialect,
    "acp": lambda: ACPDialect(("agent", "--acp")),
    "plain": lambda: PlainDialect(("aider",)),
}
S, F = ProgramExit(status=0), ProgramExit(status=1, stderr="it broke")


def told(item: Item) -> str:
    """An item in short."""
    name = type(item).__name__
    fields = {field: getattr(item, field) for field in item.__struct_fields__}
    match item:
        case SendBytes(data=data):
            sent = [json.loads(line) for line in data.splitlines()]
            return "Send " + " ".join(
                str(one.get("method") or one.get("result") or one.get("type") or one) for one in sent
            )
        case Asked():
            return f"Asked {item.ask_id} {item.call_id} {item.tool} {item.effect}"
        case Question():
            return f"Question {item.ask_id} {item.message}"
        case Notice():
            return f"Notice {item.kind}: {item.text}"
    return " ".join(
        [name, *(str(value) for field, value in fields.items() if field not in ("usage", "sample", "arguments"))]
    )


def read(dialect: Dialect, output: bytes, prompt: Prompt = PROMPT) -> list[str]:
    dialect.begin(prompt)
    return [told(item) for item in [*dialect.feed(output), *dialect.end()]]


LS = {"command": "ls", "cwd": "/srv/shop", "commandActions": [{"type": "read", "path": "a", "command": "ls"}]}
LOGIN = "Not logged in · Please run /login"
BROKEN = b'{"type": "result", "subty'
GOLDENS: dict[str, tuple[str, bytes, list[str], ProgramExit, tuple[str, str]]] = {
    "claude simple": (
        "claude",
        lines(Claude.ready, Claude.init, Claude.delta("Do"), Claude.delta("hm", "thinking"), Claude.says("Done."),
              Claude.end()),
        ["SessionKnown s-1", "SaidText Do", "Reasoning hm", "MessageDone Done.", "UsageSeen", "PromptDone Done.  "],
        S, ("completed", ""),
    ),
    "claude with tools": (
        "claude",
        lines(Claude.init, Claude.says("Now.", Claude.use("Read", "t1", file_path="/srv/shop/a")),
              Claude.hook("h1", "Read", "t1", file_path="/srv/shop/a"),
              Claude.hook("h2", "Bash", "t2", command="ls"),
              Claude.result_of("t1", [{"type": "text", "text": "line 1"}, {"type": "image"}]),
              Claude.result_of("t2", "no", error=True), Claude.result_of("t2", "again"), Claude.result_of("t9", "x"),
              Claude.end()),
        ["SessionKnown s-1", "MessageDone Now.", "Asked h1 t1 Read read", "Asked h2 t2 Bash shell",
         "FileRead t1 /srv/shop/a", "CallEnded t1 line 1 False", "CallEnded t2 no True", "UsageSeen"],
        S, ("failed", "schema_validation_failed"),  # two questions are open: the result line is no end
    ),
    "claude sub-agent after the result": (
        "claude",
        lines(Claude.init, Claude.says(Claude.use("Agent", "t1", prompt="x")), Claude.tasks("a"), Claude.end("First."),
              Claude.says("secret thoughts", parent="t1"), Claude.delta("sub", parent="t1"),
              Claude.says(Claude.use("Grep", "t2", pattern="x"), parent="t1"), Claude.result_of("t2", "found"),
              Claude.tasks(), Claude.init, Claude.end("Second.")),
        ["SessionKnown s-1", "UsageSeen", "Seen t2 Grep read", "CallEnded t2 found False", "UsageSeen",
         "PromptDone Second.  "],
        S, ("completed", ""),
    ),
    "claude idle after its tasks": (
        "claude",
        lines(Claude.init, Claude.tasks("a"), Claude.end("First."), Claude.tasks(),
              {"type": "system", "subtype": "session_state_changed", "state": "running"},
              {"type": "system", "subtype": "session_state_changed", "state": "idle"}),
        ["SessionKnown s-1", "UsageSeen", "PromptDone First.  "],
        S, ("completed", ""),
    ),
    "claude question": (
        "claude",
        lines(Claude.init, Claude.says(Claude.use("AskUserQuestion", "t1")), Claude.result_of("t1", "early"),
              Claude.hook("h1", "AskUserQuestion", "t1", questions=[]),
              Claude.may("p1", "AskUserQuestion", "t1", questions=[
                  {"question": "Which?", "options": [{"label": "Red"}, {"label": "Blue"}]}])),
        ["SessionKnown s-1",
         "Send control_response",
         "Question p1 Which? (Red / Blue)"],
        F, ("failed", "runtime_failed"),
    ),
    "claude unknown and withdrawn": (
        "claude",
        lines(Claude.init, {"type": "confetti"}, {"type": "confetti"}, {"type": "system", "subtype": "new_thing"},
              {"type": "control_request", "request_id": "x", "request": {"subtype": "mcp_message"}},
              Claude.hook("h1", "Bash", "t1", command="ls"), {"type": "control_cancel_request", "request_id": "h1"},
              {"type": "control_cancel_request", "request_id": "h1"}, {"no": "type"}, [], Claude.end()),
        ["SessionKnown s-1", "Notice unknown: confetti", "Notice unknown: system/new_thing",
         "Send control_response",
         "Notice unknown: control_request/mcp_message", "Asked h1 t1 Bash shell", "Withdrawn h1",
         "Unparsed 9 the line has no type", "Unparsed 10 the line is not a JSON object", "UsageSeen",
         "PromptDone Done.  "],
        S, ("completed", ""),
    ),
    "claude not logged in": (
        "claude", lines(Claude.init, Claude.says(LOGIN), Claude.end(LOGIN, is_error=True)),
        ["SessionKnown s-1", f"MessageDone {LOGIN}", "UsageSeen", f"PromptDone  runtime_failed {LOGIN}"],
        F, ("failed", "runtime_unavailable"),
    ),
    "claude out of turns": (
        "claude", lines(Claude.init, Claude.end("", subtype="error_max_turns", errors=["Reached maximum (3)"])),
        ["SessionKnown s-1", "UsageSeen", "PromptDone  budget_exhausted Reached maximum (3)"],
        F, ("failed", "budget_exhausted"),
    ),
    "claude truncated": (
        "claude", lines(Claude.init, BROKEN), ["SessionKnown s-1", "Unparsed 2 the line is not JSON"],
        S, ("failed", "schema_validation_failed"),
    ),
    "claude garbage before": (
        "claude", b"bash: warning\r\n\r\n" + lines(Claude.init, Claude.end()).removesuffix(b"\n"),
        ["Notice not_json: bash: warning\r".strip(), "SessionKnown s-1", "UsageSeen", "PromptDone Done.  "],
        S, ("completed", ""),
    ),
    "claude success that exits with 1": (
        "claude", lines(Claude.init, Claude.end()), ["SessionKnown s-1", "UsageSeen", "PromptDone Done.  "],
        F, ("failed", "schema_validation_failed"),
    ),
    "codex simple": (
        "codex",
        lines(*Codex.opened, Codex.note("item/agentMessage/delta", delta="Do"), Codex.note("turn/started"),
              Codex.note("item/reasoning/textDelta", delta="hm"),
              Codex.note("thread/tokenUsage/updated", tokenUsage={"total": {"inputTokens": 5, "outputTokens": 2}}),
              Codex.note("turn/plan/updated", plan=[{"step": "one", "status": "pending"}]),
              Codex.item("completed", "agentMessage", "m", text="Done."), Codex.end()),
        ["Send initialized thread/start", "SessionKnown th-1", "Send turn/start", "SaidText Do", "Reasoning hm",
         "UsageSeen", "Plan (('one', 'pending'),)", "MessageDone Done.", "PromptDone Done.  "],
        S, ("completed", ""),
    ),
    "codex asks with ids of ours": (
        "codex",
        lines(*Codex.opened, Codex.item("started", "commandExecution", "c1", **LS),
              Codex.item("started", "fileChange", "c2", changes=[{"path": "/srv/shop/a", "kind": {"type": "add"}}]),
              Codex.asks(2, "commandExecution", "c1", **LS), Codex.asks("2", "fileChange", "c2"),
              Codex.asks(0, "commandExecution", "c3", command="rm x"),
              Codex.note("serverRequest/resolved", requestId=0),
              Codex.item("completed", "commandExecution", "c1", **LS, aggregatedOutput="a\n", status="completed"),
              Codex.item("completed", "fileChange", "c2", status="declined"),
              Codex.item("completed", "commandExecution", "c4", command="id", status="completed"),
              Codex.end("interrupted")),
        ["Send initialized thread/start", "SessionKnown th-1", "Send turn/start",
         "Asked i2 c1 commandExecution shell", "Asked s2 c2 fileChange patch", "Asked i0 c3 commandExecution shell",
         "Withdrawn i0", "FileRead c1 a", "CallEnded c1 a\n False", "CallEnded c2 declined True",
         "Seen c4 commandExecution shell", "CallEnded c4 completed False", "PromptDone  cancelled "],
        S, ("cancelled", ""),
    ),
    "codex more rights and questions": (
        "codex",
        lines(*Codex.opened, Codex.asks(0, "permissions", "c1"), {"id": 1, "method": "other/thing", "params": {}},
              {"id": 5, "method": "item/tool/requestUserInput", "params": {"questions": [
                  {"id": "q", "question": "Which?", "options": [{"label": "A"}]}]}},
              {"id": 6, "method": "mcpServer/elicitation/request", "params": {
                  "message": "Name?", "requestedSchema": {"type": "object"}}},
              {"id": 7, "method": "mcpServer/elicitation/request", "params": {"message": "Open", "url": "x"}}),
        ["Send initialized thread/start", "SessionKnown th-1", "Send turn/start",
         "Send {'permissions': {}, 'scope': 'turn'}", "Notice refused: item/permissions/requestApproval",
         "Send {'id': 1, 'error': {'code': -32601, 'message': 'other/thing is not supported'}}",
         "Notice unknown: other/thing", "Question i5 Which? (A)", "Question i6 Name?", "Send {'action': 'decline'}",
         "Notice refused: mcpServer/elicitation/request"],
        F, ("failed", "runtime_failed"),
    ),
    "codex transient error, then done": (
        "codex",
        lines(*Codex.opened, Codex.note("error", error={"message": "Reconnecting... 1/5"}, willRetry=True),
              Codex.item("completed", "error", "e", message="no metadata"), Codex.note("brand/new"), Codex.end()),
        ["Send initialized thread/start", "SessionKnown th-1", "Send turn/start", "Notice warning: Reconnecting... 1/5",
         "Notice warning: no metadata", "Notice unknown: brand/new", "PromptDone   "],
        S, ("completed", ""),
    ),
    "codex failed turn": (
        "codex", lines(*Codex.opened, Codex.end("failed", error={"message": "unexpected status 401 Unauthorized"})),
        ["Send initialized thread/start", "SessionKnown th-1", "Send turn/start",
         "PromptDone  runtime_failed unexpected status 401 Unauthorized"],
        S, ("failed", "runtime_unavailable"),
    ),
    "codex refuses the thread": (
        "codex",
        lines(Codex.opened[0], {"id": 2, "error": {"code": -32600, "message": "no such model"}},
              {"id": 9, "result": 1}),
        ["Send initialized thread/start", "PromptDone  runtime_failed thread/start: no such model",
         "Unparsed 3 an answer to no request (9)"],
        S, ("failed", "runtime_failed"),
    ),
    "acp simple": (
        "acp",
        lines(*Acp.opened, Acp.says("Do"), Acp.says("ne."), Acp.says("hm", "thought"), Acp.says("Bye."),
              Acp.update("plan", entries=[{"content": "one", "status": "pending", "priority": "low"}]),
              Acp.update("usage_update", used=1, size=2),
              Acp.end(_meta={"quota": {"token_count": {"input_tokens": 7, "output_tokens": 3}}})),
        ["Send session/new", "SessionKnown se-1", "Send session/prompt", "SaidText Do", "SaidText ne.",
         "MessageDone Done.", "Reasoning hm", "SaidText Bye.", "MessageDone Bye.", "Plan (('one', 'pending'),)",
         "UsageSeen", "PromptDone Bye.  "],
        S, ("completed", ""),
    ),
    "acp asks": (
        "acp",
        lines(*Acp.opened, Acp.says("Now."),
              Acp.update("tool_call", toolCallId="c1", title="Write", kind="edit", status="pending"),
              Acp.asks("a", "c1", content=[{"type": "diff", "path": "/srv/shop/a", "newText": "x"}]),
              Acp.asks(0, "c2", kind="execute", title="ls"), Acp.asks(1, "c3", options=Acp.options[:1], kind="execute"),
              Acp.update("tool_call_update", toolCallId="c1", status="completed",
                         content=[{"type": "content", "content": {"type": "text", "text": "ok"}}]),
              Acp.update("tool_call_update", toolCallId="c4", kind="read", status="completed",
                         locations=[{"path": "/srv/shop/b"}], rawOutput={"output": "text"}),
              Acp.update("tool_call_update", toolCallId="c2", status="failed"), Acp.end("cancelled")),
        ["Send session/new", "SessionKnown se-1", "Send session/prompt", "SaidText Now.", "MessageDone Now.",
         "Asked sa c1 edit write", "Asked i0 c2 execute shell", "Send {'outcome': {'outcome': 'cancelled'}}",
         "Notice refused: session/request_permission", "CallEnded c1 ok False", "Seen c4 read read",
         "FileRead c4 /srv/shop/b", "CallEnded c4 text False", "CallEnded c2  True", "PromptDone  cancelled "],
        S, ("cancelled", ""),
    ),
    "acp not logged in": (
        "acp", lines(Acp.opened[0], {"jsonrpc": "2.0", "id": 2, "error": {"code": -32000, "message": "Log in"}}),
        ["Send session/new", "PromptDone  runtime_unavailable session/new: Log in (-32000)"],
        S, ("failed", "runtime_unavailable"),
    ),
    "acp of another version": (
        "acp", lines({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 2}}),
        ["PromptDone  runtime_unavailable it speaks version 2 of the protocol, and this client 1"],
        S, ("failed", "runtime_unavailable"),
    ),
    "acp unknown and broken": (
        "acp",
        lines(*Acp.opened, Acp.update("fireworks"), Acp.update(""), Acp.update("tool_call"),
              {"jsonrpc": "2.0", "id": 4, "method": "fs/read_text_file", "params": {"path": "/etc/passwd"}},
              {"jsonrpc": "2.0", "method": "_x/y"}, {"jsonrpc": "2.0"}, {"id": 5, "method": "a", "params": []},
              {"id": None, "method": "a"}, Acp.end("max_turn_requests"), Acp.end()),
        ["Send session/new", "SessionKnown se-1", "Send session/prompt", "Notice unknown: fireworks",
         "Unparsed 4 an update without its kind", "Unparsed 5 a call without its id",
         "Send {'jsonrpc': '2.0', 'id': 4, 'error': {'code': -32601, 'message': 'fs/read_text_file is not supported'}}",
         "Notice unknown: _x/y",
         "Unparsed 8 the message has neither a method nor an id", "Unparsed 9 the params of a are not an object",
         "Unparsed 10 the id of the request a is not a text or a whole number",
         "PromptDone  budget_exhausted max_turn_requests", "Unparsed 12 an answer to no request (3)"],
        S, ("failed", "budget_exhausted"),
    ),
    "plain": ("plain", "Fäll\nin\n".encode(), ["SaidText Fäll\nin\n"], S, ("completed", "")),
    "plain that fails": ("plain", b"oh", ["SaidText oh"], F, ("failed", "runtime_failed")),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDENS)
def test_a_session_has_the_items_and_the_verdict_of_its_golden(name):
    kind, output, items, ended, (outcome, code) = GOLDENS[name]
    dialect = OPEN[kind]()
    assert read(dialect, output) == items
    verdict = dialect.ended(ended)
    assert (verdict.outcome, verdict.code) == (outcome, code)
    assert repr(dialect).startswith(f"<{type(dialect).__name__}")


@pytest.mark.slow
@pytest.mark.parametrize("name", GOLDENS)
def test_a_dialect_keeps_the_promises_of_the_port(name):
    kind, output, *_ = GOLDENS[name]
    check_dialect(OPEN[kind], [output], lines=kind != "plain")


def sent(data: bytes) -> Any:
    (line,) = data.splitlines()
    return json.loads(line)


def test_claude_is_answered_as_its_hooks_and_permissions_ask():
    dialect = ClaudeDialect()
    dialect.begin(PROMPT)
    dialect.feed(lines(Claude.hook("h1", "Bash", "t1", command="ls"), Claude.hook("h2", "Bash", "t2", command="id")))
    dialect.feed(lines(Claude.hook("h3", "Bash", "t3", command="x"), Claude.may("p4", "Bash", "t4", command="y")))
    output = sent(dialect.answer("h1", Granted()))["response"]
    assert output["request_id"] == "h1"
    assert output["response"]["hookSpecificOutput"]["permissionDecision"] == "allow"
    assert "updatedInput" not in output["response"]["hookSpecificOutput"]
    edited = sent(dialect.answer("h2", Granted(arguments={"command": "id -u"})))["response"]["response"]
    assert edited["hookSpecificOutput"]["updatedInput"] == {"command": "id -u"}
    refused = sent(dialect.answer("h3", Declined(text="not today")))["response"]["response"]["hookSpecificOutput"]
    assert (refused["permissionDecision"], refused["permissionDecisionReason"]) == ("deny", "not today")
    asked = sent(dialect.answer("p4", Granted()))["response"]["response"]
    assert asked == {"behavior": "allow", "updatedInput": {"command": "y"}}
    # a call that the hook has let pass is not asked about again
    (item,) = dialect.feed(lines(Claude.may("p1", "Bash", "t1", command="ls")))
    assert sent(item.data)["response"]["response"]["behavior"] == "allow"
    (item,) = dialect.feed(lines(Claude.may("p2", "Bash", "t1", command="rm x")))
    assert told(item) == "Asked p2 t1 Bash shell"
    dialect.feed(
        lines(Claude.may("q", "AskUserQuestion", "t5", questions=[{"question": "Which?", "multiSelect": True}]))
    )
    answered = sent(dialect.answer("q", Supplied(value={"Which?": ["Red", "Blue"]})))["response"]["response"]
    assert answered["updatedInput"]["answers"] == {"Which?": "Red, Blue"}
    assert sent(dialect.interrupt())["request"] == {"subtype": "interrupt"}


def test_codex_and_acp_are_answered_once_and_never_with_always():
    codex = CodexDialect()
    codex.begin(PROMPT)
    codex.feed(lines(*Codex.opened, Codex.asks(0, "commandExecution", "c1"), Codex.asks(1, "fileChange", "c2")))
    assert sent(codex.answer("i1", Declined())) == {"id": 1, "result": {"decision": "decline"}}
    assert sent(codex.answer("i0", Granted())) == {"id": 0, "result": {"decision": "accept"}}
    question = {
        "id": 2,
        "method": "item/tool/requestUserInput",
        "params": {"questions": [{"id": "q", "question": "?"}]},
    }
    codex.feed(lines(question))
    assert sent(codex.answer("i2", Supplied(value={"q": "yes"})))["result"] == {"answers": {"q": {"answers": ["yes"]}}}
    assert sent(codex.interrupt())["params"] == {"threadId": "th-1", "turnId": "tu-1"}
    acp = ACPDialect(("agent",))
    assert acp.interrupt() == b""
    acp.begin(PROMPT)
    acp.feed(lines(*Acp.opened, *(Acp.asks(n, f"c{n}", kind="execute", title="ls") for n in range(4))))
    assert sent(acp.answer("i0", Granted()))["result"]["outcome"] == {"outcome": "selected", "optionId": "once"}
    assert sent(acp.answer("i1", Declined()))["result"]["outcome"] == {"outcome": "selected", "optionId": "no"}
    stop, *answers = [json.loads(line) for line in acp.interrupt().splitlines()]
    assert (stop["method"], stop["params"]) == ("session/cancel", {"sessionId": "se-1"})
    assert [(one["id"], one["result"]["outcome"]["outcome"]) for one in answers] == [(2, "cancelled"), (3, "cancelled")]
    assert acp.answer("i2", Granted()) == b""


def test_a_session_is_continued_as_each_program_can():
    prompt = Prompt(text="More.", folder="/srv/shop", session="old", instructions="Be brief.", model="small-1")
    launch = ClaudeDialect().begin(prompt)
    assert launch.argv[-4:] == ("--model", "small-1", "--resume", "old")
    begin, user = (json.loads(line) for line in launch.data.splitlines())
    assert begin["request"]["appendSystemPrompt"] == "Be brief."
    assert user["message"] == {"role": "user", "content": "More."}
    codex = CodexDialect()
    assert read(codex, lines(Codex.opened[0]), prompt) == ["Send initialized thread/resume"]
    acp = ACPDialect(("agent",))
    replayed = [Acp.says("old words"), {"jsonrpc": "2.0", "id": 2, "result": {}}, Acp.says("new")]
    assert read(acp, lines(Acp.opened[0], *replayed), prompt) == [
        *("Send session/load", "SessionKnown old", "Send session/prompt", "SaidText new"),
    ]
    none = {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 1}}
    assert read(ACPDialect(("agent",)), lines(none), prompt)[-1] == "Send session/new"


@pytest.mark.parametrize("kind", OPEN)
def test_the_prompt_and_the_instructions_are_never_words_of_the_command(kind):
    launch = OPEN[kind]().begin(Prompt(text="canary-1", folder="/srv/canary-3", instructions="canary-2"))
    assert not any("canary" in word for word in launch.argv)
    assert not any("bypass" in word or "dangerous" in word or "yolo" in word for word in launch.argv)


@pytest.mark.parametrize(
    ("ended", "outcome", "code"),
    [
        (ProgramExit(status=None, error="ENOENT"), "failed", "runtime_unavailable"),
        (ProgramExit(status=127), "failed", "runtime_unavailable"),
        (ProgramExit(status=41), "failed", "runtime_unavailable"),
        (ProgramExit(status=1, stderr="Error: 401 Unauthorized"), "failed", "runtime_unavailable"),
        (ProgramExit(status=1, stderr="segfault"), "failed", "runtime_failed"),
        (ProgramExit(status=-9), "failed", "runtime_failed"),
        (ProgramExit(status=0), "failed", "schema_validation_failed"),
        (ProgramExit(status=-15, stopped="cancelled"), "cancelled", ""),
        (ProgramExit(status=-15, stopped="run_timeout"), "failed", "run_timeout"),
    ],
)
def test_the_verdict_about_a_program_that_said_nothing(ended, outcome, code):
    dialect = ClaudeDialect()
    read(dialect, b"")
    verdict = dialect.ended(ended)
    assert (verdict.outcome, verdict.code) == (outcome, code)
    assert not verdict.detail or verdict.detail.startswith("claude: ")


def test_a_program_that_does_not_end_by_itself_after_its_work_has_done_it():
    dialect = ClaudeDialect()
    read(dialect, lines(Claude.init, Claude.end("All done.")))
    verdict = dialect.ended(ProgramExit(status=-15, stopped="finished"))
    assert (verdict.outcome, verdict.text) == ("completed", "All done.")


@pytest.mark.parametrize(("garbage", "code"), [(4, ""), (5, "schema_validation_failed")])
def test_five_unparsed_lines_in_a_row_are_another_format(garbage, code):
    dialect = ClaudeDialect()
    items = read(dialect, lines(Claude.init, *[b"oops\n"] * garbage, Claude.end()))
    assert sum(item.startswith("Unparsed") for item in items) == garbage
    assert dialect.ended(S).code == code


@pytest.mark.parametrize(("garbage", "code"), [(20, ""), (21, "schema_validation_failed")])
def test_more_than_twenty_unparsed_lines_are_another_format(garbage, code):
    dialect = ClaudeDialect()
    read(
        dialect,
        lines(Claude.init, *[b"oops\n", json.dumps({"type": "keep_alive"}).encode() + b"\n"] * garbage, Claude.end()),
    )
    assert dialect.ended(S).code == code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "said"), [(9 * 1024 * 1024, "MessageDone"), (11 * 1024 * 1024, "Unparsed")], ids=["9 MiB", "11 MiB"]
)
def test_a_line_of_ten_mebibytes_is_read_and_a_longer_one_is_dropped(size, said):
    dialect = ClaudeDialect()
    items = read(dialect, lines(Claude.init, Claude.says("x" * size), Claude.end()))
    assert items[1].startswith(said)
    assert len(items[1]) < 300_000
    assert items[-1] == "PromptDone Done.  "


def test_a_line_of_very_many_values_is_not_decoded():
    (item,) = read(ClaudeDialect(), b'{"type": "x"}\n' + b"[" + b"1," * 200_001 + b"1]\n")[1:]
    assert item == "Unparsed 2 the line has more than 200,000 values"


def test_half_of_a_surrogate_pair_in_a_line_is_replaced():
    half = json.dumps(Claude.says("a\ud83d b")).encode() + b"\n"
    assert read(ClaudeDialect(), lines(Claude.init, half))[1] == "MessageDone a\ufffd b"


def test_more_questions_than_a_program_may_have_open_are_refused():
    asks = [Claude.hook(f"h{n}", "Bash", f"t{n}", command="ls") for n in range(300)]
    items = read(ClaudeDialect(), lines(*asks))
    assert sum(item.startswith("Asked") for item in items) == 256
    assert items.count("Notice refused: Bash: more than 256 questions are open") == 44
    acp = read(ACPDialect(("a",)), lines(*Acp.opened, *(Acp.asks(n, f"c{n}", kind="execute") for n in range(300))))
    assert sum(item.startswith("Asked") for item in acp) == 256
    assert sum("reject" in item or "'no'" in item for item in acp) == 44


RESUMED = Prompt(text="Do it.", folder="/srv/shop", session="old", recap="Before:")


def sent_texts(dialect: Dialect, output: bytes, prompt: Prompt) -> list[str]:
    """The texts of prompts that a dialect sends by itself."""
    dialect.begin(prompt)
    sent = [
        json.loads(line)
        for item in dialect.feed(output)
        if isinstance(item, SendBytes)
        for line in item.data.splitlines()
    ]
    params = [one.get("params", {}) for one in sent]
    return [part["text"] for one in params for part in (*one.get("prompt", ()), *one.get("input", ()))]


def test_an_acp_program_that_does_not_know_its_session_begins_a_new_one_with_the_recap():
    failed = {"jsonrpc": "2.0", "id": 2, "error": {"code": -32603, "message": "Internal error"}}
    output = lines(Acp.opened[0], failed, {"jsonrpc": "2.0", "id": 3, "result": {"sessionId": "se-2"}})
    assert read(OPEN["acp"](), output, RESUMED) == [
        "Send session/load",
        "Notice warning: the program cannot continue its session (Internal error); a new one begins",
        "Send session/new",
        "SessionKnown se-2",
        "Send session/prompt",
    ]
    assert sent_texts(OPEN["acp"](), output, RESUMED) == ["Before:\n\nDo it."]


def test_a_known_session_needs_no_recap():
    output = lines(Acp.opened[0], {"jsonrpc": "2.0", "id": 2, "result": {}})
    assert sent_texts(OPEN["acp"](), output, RESUMED) == ["Do it."]


def test_codex_without_its_thread_begins_a_new_one_with_the_recap():
    failed = {"id": 2, "error": {"code": -32600, "message": "no rollout found"}}
    output = lines(Codex.opened[0], failed, {"id": 3, "result": {"thread": {"id": "th-2"}}})
    assert sent_texts(CodexDialect(), output, RESUMED) == ["Before:\n\nDo it."]


def test_claude_without_its_session_is_to_be_started_again():
    errors = ["No conversation found with session ID: old"]
    output = lines(Claude.end("", subtype="error_during_execution", is_error=True, errors=errors))
    for prompt, code in ((RESUMED, "session_gone"), (PROMPT, "runtime_failed")):
        dialect = ClaudeDialect()
        read(dialect, output, prompt)
        assert dialect.ended(F).code == code


def test_codex_counts_the_tokens_of_this_turn_only():
    def used(total: int, last: int) -> Any:
        return Codex.note(
            "thread/tokenUsage/updated", tokenUsage={"total": {"inputTokens": total}, "last": {"inputTokens": last}}
        )

    dialect = CodexDialect()
    dialect.begin(PROMPT)
    items = dialect.feed(lines(*Codex.opened, used(100, 10), used(130, 30)))
    assert [item.usage.input for item in items if isinstance(item, UsageSeen)] == [10, 40]
    dialect = CodexDialect()
    dialect.begin(RESUMED)
    items = dialect.feed(lines(*Codex.opened[:2], used(100, 10), Codex.opened[2], used(130, 30)))
    assert [item.usage.input for item in items if isinstance(item, UsageSeen)] == [30]
