"""Rules of the history: each call has one tool message, always; what the model is sent is valid for every provider.

Every scene of this suite is held to that: after every request and every end the histories are read as a provider would.
Here stand the ways in which a call can end, what its message says then, and that the check can fail.
"""

from itertools import count
from typing import Any

import attrs
import pytest
from msgspec.structs import replace

import greenroom as gr
from greenroom.testing import call, delay, fail, refuse, text

from ..support.promises import broken_history, broken_promises
from ..support.scenes import after, approve, cancel, decide, deny, pause, restart, send

C = call("look", id="C")
EDITED = {"edited_arguments": {"cents": 5}}


@attrs.frozen(kw_only=True)
class Way:
    """A way for call X to end: the call, what is done, and what the model reads. C is beside it."""

    call: Any
    do: tuple[Any, ...] = ()
    text: str
    status: str = "succeeded"


WAYS = {
    "it returns": Way(call=call("note", id="X"), text="noted X"),
    "it fails": Way(call=call("fails", id="X"), text="no luck", status="failed"),
    "it takes too long": Way(call=call("hangs", id="X"), text="30 s", status="failed"),
    "it is unknown": Way(call=call("nothing", id="X"), text="There is no tool named 'nothing'", status="failed"),
    "its arguments are wrong": Way(call=call("pay", cents="x", id="X"), text="cents", status="failed"),
    "it is approved": Way(call=call("pay", id="X"), do=(approve("X"),), text="paid 1"),
    "it is approved with other arguments": Way(
        call=call("pay", id="X"), do=(approve("X", **EDITED),), text="arguments were changed to {'cents': 5}"
    ),
    "it is denied": Way(call=call("pay", id="X"), do=(deny("X"),), text="denied", status="cancelled"),
    "it is denied for a reason": Way(
        call=call("pay", id="X"), do=(deny("X", "too dear"),), text="denied this call: too dear", status="cancelled"
    ),
    "it expires": Way(call=call("ask", expires=30, id="X"), do=(pause(60),), text="expired", status="cancelled"),
    "it expires with a result": Way(call=call("ask", expires=30, default="no", id="X"), do=(pause(60),), text="no"),
    "it is superseded": Way(call=call("pay", id="X"), do=(send("no"),), text="superseded", status="cancelled"),
    "its decision is its result": Way(
        call=call("ask", mode="use_decision_as_tool_result", id="X"), do=(approve("X", [1, 2]),), text="[1,2]"
    ),
    "it suspends three times": Way(
        call=call("ask", times=3, id="X"), do=(approve("X"), approve("X"), approve("X", "yes")), text="told yes"
    ),
    "nobody knows, and it runs again": Way(
        call=call("note", id="X"), do=(after(5.5, restart), approve("X")), text="noted X"
    ),
    "nobody knows, and somebody says": Way(
        call=call("note", id="X"), do=(after(5.5, restart), approve("X", "it is there")), text="it is there"
    ),
}


@pytest.mark.rule("L-17")
@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
async def test_however_a_call_ends_it_has_one_tool_message_that_says_so(play, autojump_clock, way):
    options = {"on_new_input": "supersede"} if way.text == "superseded" else {}
    life = await play([text("both"), way.call, C], "done", do=way.do, **options)
    assert way.text in life.tool_texts["X"]
    assert life.calls["X"].split()[-1] == way.status
    assert life.tool_texts["C"] == "saw C"
    assert [message.role for message in life.requests[-1].messages[:4]] == ["user", "assistant", "tool", "tool"]
    assert [message.call_id for message in life.requests[-1].messages[2:4]] == ["X", "C"]


ENDS = {
    "cancelled": ([after(5, cancel())], {}),
    "cancelled after the step": ([after(5, cancel(mode="after_step"))], {}),
    "cancelled at rest": ([pause(1), cancel()], {}),
    "at its deadline": ([pause(100)], {"start": {"deadline": 50}}),
    "denied": ([deny("B"), decide("D", "cancel")], {"on_deny": "cancel_run"}),
    "cancelled in another process": ([after(5, restart), after(0, cancel())], {}),
}


@pytest.mark.parametrize("end", ENDS)
async def test_however_a_run_ends_each_call_of_its_last_step_has_its_message(play, autojump_clock, end):
    acts, options = ENDS[end]
    step = [call("look", id="C"), call("sign", id="B"), call("ask", id="D"), call("note", id="N", seconds=2)]
    life = await play(step, do=acts, **options)
    assert life.view.status == "done"
    assert list(life.tool_texts) == ["C", "B", "D", "N"]
    assert life.history[1] == "assistant: (C, B, D, N)"


# --- what no model is sent -------------------------------------------------------------------------------------------


@pytest.mark.rule("L-17")
async def test_a_waiting_call_has_no_message_that_says_so(play, autojump_clock):
    """What waits has no answer yet; a placeholder would be a second answer later."""
    life = await play([call("pay", id="A"), C])
    assert life.tool_texts == {"C": "saw C"}
    assert not any("suspend" in line or "wait" in line for line in life.history)


async def test_an_answer_that_broke_is_not_in_the_history(play, autojump_clock):
    life = await play([text("almost"), delay(1), fail("overloaded")], "done", plugins=[gr.Recovery(times=0)])
    assert life.history == ["user: hi", "assistant: done"]
    assert len(life.payloads("message.discarded")) == 1


async def test_a_refusal_is_not_in_the_history(play, autojump_clock):
    assert (await play(refuse("no"))).history == ["user: hi"]


async def test_an_answer_of_the_wrong_form_is_and_so_is_what_was_said_to_it(play, autojump_clock):
    life = await play("one", "1", output_type=int)
    assert [message.role for message in life.view.messages] == ["user", "assistant", "user", "assistant"]
    assert life.outcome.output == 1


async def test_the_same_call_twice_in_one_answer_is_one_call(play, autojump_clock):
    life = await play([C, C], "done")
    assert (list(life.tool_texts), life.effects) == (["C"], ["C"])


# --- that the checks can fail ----------------------------------------------------------------------------------------


NUMBERS = count(1)


def message(role: str, *calls: str, of: str | None = None) -> gr.Message:
    """A message that asks for calls, or answers one."""
    requests = tuple(gr.CallRequest(call_id=name, tool="look", arguments={}) for name in calls)
    return gr.Message(id=f"m{next(NUMBERS)}", role=role, content="", calls=requests, call_id=of)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("history", "fault"),
    [
        ([message("assistant", "A")], "are never answered"),
        ([message("assistant", "A"), message("user")], "user speaks before ['A'] are answered"),
        ([message("assistant", "A"), message("tool", of="A"), message("tool", of="A")], "of 'A', but [] are owed"),
        ([message("assistant", "A", "B"), message("tool", of="B")], "of 'B', but ['A', 'B'] are owed"),
        ([message("user"), message("tool", of="A")], "of 'A', but [] are owed"),
        ([message("user")] * 2, "message ids come twice"),
    ],
)
def test_a_history_that_no_provider_takes_is_found(history, fault):
    assert any(fault in sentence for sentence in broken_history(history, "it"))


async def test_a_life_that_breaks_its_promises_is_found(play, autojump_clock):
    life = await play([call("pay", id="A"), C], "done", do=[approve("A")])
    frames, record, log = life.frames, life.record, life.log

    def broken(frames: Any = frames, record: Any = record, log: Any = log) -> str:
        return "\n".join(broken_promises(frames, record, log))

    assert broken() == ""
    assert "has the sequence" in broken(frames=[*frames[:5], *frames[6:]])
    assert "cannot be" in broken(frames=[frame.replace(b'"from":"running"', b'"from":"planned"') for frame in frames])
    assert "the rows" in broken(record=attrs.evolve(record, row=replace(record.row, stage=gr.Stage.RUNNING)))
    assert "a commit follows" in broken(log=log[1:])
    late = [commit for commit in log if commit.row.stage is gr.Stage.NEEDS_APPROVAL]
    wrong = replace(late[0], row=replace(late[0].row, stage=gr.Stage.RUNNING))
    assert "the run is running, its calls are" in broken(log=[wrong if commit is late[0] else commit for commit in log])
