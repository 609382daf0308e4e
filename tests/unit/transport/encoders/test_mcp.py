"""MCP from events: every life of a run, read in any pieces, is a stream that the protocol allows."""

import copy
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom.actors.contract.envelope import Event
from greenroom.actors.contract.lifecycle import Termination, TerminationKind
from greenroom.actors.contract.messages import Usage
from greenroom.actors.contract.outcomes import Cancelled, Completed, Failed, Stopped
from greenroom.actors.contract.spec import MODES
from greenroom.transport.frontends.mcp import encoder as mcp
from greenroom.transport.frontends.mcp.messages import INVALID_PARAMS, McpFault
from greenroom.transport.frontends.mcp.results import ResultPart, result_of, unfinished

from ....support.ag_ui_lives import Life
from ....support.mcp_lives import DONE, told
from ....support.mcp_rules import Broken, check, check_result

FORM = {
    "mode": "form",
    "message": "pay?",
    "requestedSchema": {"type": "object", "properties": {"decision": {"type": "string"}}, "required": ["decision"]},
}
ENDED = Termination(kind=TerminationKind.NATURAL_END)
lives = st.builds(
    Life,
    seed=st.integers(0, 2**32 - 1),
    moves=st.integers(0, 120),
    mode=st.sampled_from(list(MODES)),
    hooked=st.booleans(),
    on_deny=st.sampled_from(("continue", "cancel_run")),
    on_new_input=st.sampled_from(("queue", "supersede")),
)


# --- lives -----------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(life=lives, seed=st.integers(0, 2**32 - 1), request_id=st.sampled_from([1, "1", "a"]))
def test_every_life_of_a_run_is_a_sound_stream(life, seed, request_id):
    events = life.events()
    messages = told(events, random.Random(seed), request_id=request_id)
    check(messages, request_id=request_id, modern=False, token="t", cut=events[-1].type not in DONE)


@settings(max_examples=50, deadline=None)
@given(life=lives, seed=st.integers(0, 2**32 - 1))
def test_a_client_without_a_token_hears_no_progress(life, seed):
    messages = told(life.events(), random.Random(seed), token=None)
    assert not [message for message in messages if message.get("method") == "notifications/progress"]


# --- planted faults --------------------------------------------------------------------------------------------------


def event(kind: str, sequence: int, **payload: Any) -> Event:
    return Event(
        id=f"r-{sequence}",
        sequence=sequence,
        type=kind,
        version=2,
        run_id="r",
        session_id=None,
        agent_id="a",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        payload=payload,
    )


def question(name: str) -> mcp.Elicitation:
    return mcp.Elicitation(id=f"q-{name}", ticket_id=name, params=copy.deepcopy(FORM))


def sound() -> list[dict[str, Any]]:
    """A stream with every kind of message: progress, two questions, one withdrawn, and the result."""
    completed = Completed(output={"a": 1}, usage=Usage(), termination=ENDED)
    out = list[dict[str, Any]]()
    state, more = mcp.step(mcp.begin(7, token="t"), event("run.step.started", 2, step=1))
    out += more
    state, more = mcp.beat(state, 15.0)
    out += more
    state, more = mcp.step(state, event("run.tool.progress", 3, callId="c", attempt=1, fraction=0.5))
    out += more
    state, more = mcp.ask(state, [question("t1"), question("t2")])
    out += more
    state, more = mcp.ask(state, [question("t2")])
    out += more
    _, more = mcp.end(state, result_of("r", completed, {"a": 1}))
    return [*out, *more]


def put(at: int, **fields: Any) -> Callable[[list[dict[str, Any]]], Any]:
    return lambda out: out[at].update(fields)


def param(at: int, name: str, value: Any) -> Callable[[list[dict[str, Any]]], Any]:
    return lambda out: out[at]["params"].update({name: value})


PLANTED = [
    ("jsonrpc", put(0, jsonrpc="1.0")),
    ("no nulls", put(-1, error=None)),
    ("no nulls", param(1, "message", None)),
    ("after the answer", lambda out: out.append(copy.deepcopy(out[-1]))),
    ("after the answer", lambda out: out.append(out.pop(0))),
    ("one answer", lambda out: out.pop()),
    ("the client's id", put(-1, id="7")),
    ("a result or an error", put(-1, error={"code": 1, "message": "x"})),
    ("known request", put(3, method="sampling/createMessage")),
    ("known notification", put(0, method="notifications/message")),
    ("an id is used once", put(4, id="q-t1")),
    ("the client's token", param(0, "progressToken", "u")),
    ("progress rises", param(2, "progress", 2)),
    ("progress text", param(0, "message", 5)),
    ("withdrawn is open", param(5, "requestId", "q-t3")),
    ("withdrawn is open", lambda out: out.insert(5, copy.deepcopy(out[5]))),
    ("form", param(3, "message", "")),
    ("flat form", lambda out: out[3]["params"]["requestedSchema"]["properties"].clear()),
    ("flat form", lambda out: out[3]["params"]["requestedSchema"]["properties"].update(a={"type": "object"})),
    ("result type", lambda out: out[-1]["result"].update(resultType="complete")),
    ("result", lambda out: out[-1]["result"].update(isError=None)),
    ("content", lambda out: out[-1]["result"]["content"].append({"type": "text"})),
    ("content", lambda out: out[-1]["result"]["content"].append({"type": "video"})),
    ("structured content", lambda out: out[-1]["result"].update(structuredContent=[1])),
]


def test_the_sound_stream_keeps_all_rules():
    check(sound(), request_id=7, modern=False, token="t")


@pytest.mark.parametrize(("rule", "plant"), PLANTED, ids=lambda value: value if isinstance(value, str) else "")
def test_each_planted_fault_is_found(rule, plant):
    out = copy.deepcopy(sound())
    plant(out)
    with pytest.raises(Broken) as broken:
        check(out, request_id=7, modern=False, token="t")
    assert broken.value.rule == rule


def test_a_question_in_the_modern_era_or_to_a_client_without_forms_is_found():
    for rule, options in (("a modern server asks nothing", {"modern": True}), ("the client shows no forms", {})):
        with pytest.raises(Broken) as broken:
            check(sound(), request_id=7, token="t", **{"modern": False, "forms": False, **options})
        assert broken.value.rule == rule


# --- single steps ----------------------------------------------------------------------------------------------------


def test_a_beat_rises_with_the_silence_and_never_reaches_the_next_event():
    state, numbers = mcp.begin(1, token="t", after=4), list[float]()
    for waited in (15.0, 30.0, 3_600.0, 10_000_000.0):
        state, (message,) = mcp.beat(state, waited)
        numbers.append(message["params"]["progress"])
    assert numbers == sorted(set(numbers))
    assert numbers[2] == 4.5
    assert numbers[-1] < 5
    assert mcp.beat(state, 20.0) == (state, ())


def test_a_clock_that_goes_back_makes_no_progress_fall():
    state = mcp.begin(1, token="t", after=4)
    assert mcp.beat(state, -100.0) == (state, ())


def test_an_answered_question_is_neither_withdrawn_nor_put_again():
    state, _ = mcp.ask(mcp.begin(1), [question("t1")])
    state = mcp.answered(state, "t1")
    assert mcp.ask(state, [question("t1")])[1] == ()
    assert mcp.ask(state, [])[1] == ()


def test_open_questions_are_withdrawn_before_the_answer():
    state, _ = mcp.ask(mcp.begin(1), [question("t1")])
    state, messages = mcp.end(state, McpFault(INVALID_PARAMS, "no"))
    assert [message.get("method", "answer") for message in messages] == ["notifications/cancelled", "answer"]
    assert mcp.end(state, {}) == (state, ())


# --- results ---------------------------------------------------------------------------------------------------------


def test_a_failure_names_code_message_and_remedy():
    failed = Failed(code="run_timeout", message="too late", termination=ENDED, outcome_unknown=("c1",))
    result = result_of("r", failed, None)
    check_result(result)
    assert result["isError"] is True
    (content,) = result["content"]
    assert content["text"].startswith("run_timeout: too late Start again")
    assert content["text"].endswith("The effect of these calls is unknown: c1.")


def test_a_cancelled_run_is_an_error_that_says_who_and_why():
    result = result_of("r", Cancelled(reason="no money", by="ann"), None)
    assert result["content"][0]["text"] == "cancelled: the run was cancelled by ann: no money"


def test_a_stopped_run_without_an_output_is_an_error():
    stopped = Stopped(output=None, usage=Usage(), termination=ENDED, code="max_rounds", detail="16")
    assert result_of("r", stopped, None)["isError"] is True


def test_an_output_that_misses_the_form_of_the_tool_is_an_error():
    completed = Completed(output="text", usage=Usage(), termination=ENDED)
    assert result_of("r", completed, "text", structured=True)["isError"] is True
    assert result_of("r", completed, "text")["isError"] is False


def test_images_and_files_are_content_of_their_kind_in_the_order_of_the_output():
    parts = [
        ResultPart(line="image", media_type="image/png", uri="greenroom://1", sha256="a", data=b"png"),
        ResultPart(line="file x.pdf", media_type="application/pdf", uri="greenroom://2", sha256="b"),
        ResultPart(line="sound", media_type="audio/wav", uri="greenroom://3", sha256="c", data=b"wav"),
        ResultPart(line="other", media_type="text/plain", uri="greenroom://4", sha256="d", data=b"abc"),
    ]
    output = ["two:", {"type": "image", "sha256": "a"}, {"type": "file", "sha256": "b"}, {"n": 1}]
    result = result_of("r", Completed(output=output, usage=Usage(), termination=ENDED), output, parts)
    check_result(result)
    assert [item["type"] for item in result["content"]] == ["text", "image", "text", "text", "audio", "resource"]
    assert result["content"][2]["text"] == "file x.pdf is not in this result: greenroom://2"
    assert result["content"][5]["resource"] == {"uri": "greenroom://4", "mimeType": "text/plain", "blob": "YWJj"}
    assert "structuredContent" not in result


def test_an_unfinished_run_is_no_error():
    result = unfinished("r", "works")
    check_result(result)
    assert result["isError"] is False
