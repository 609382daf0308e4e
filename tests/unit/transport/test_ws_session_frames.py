"""Any message to a session: one answer with the id of the message, or the end of the connection; no error of Python."""

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.transport.wire_reader import WireReader

from greenroom.actors.contract.casing import camel
from greenroom.transport import Limits
from greenroom.transport.gateway.access import TokenTable
from greenroom.transport.protocol import ws_actions as act
from greenroom.transport.protocol.codes import SUBPROTOCOL, UNAUTHENTICATED, Refused
from greenroom.transport.protocol.up import UP
from greenroom.transport.protocol.ws_session import Identity, ServerInfo, SessionPhase, WebSocketSession

NAMES = {field.name for cls in UP.values() for field in attrs.fields(cls)}
FIELDS = sorted(NAMES | set(map(camel, NAMES)))
"""The fields of all frames, in both casings."""
ANN = Identity(name="ann", scopes=())
VALUES = [
    "r",
    "now",
    "after_step",
    "approve",
    "queue",
    "newest",
    "",
    "x" * 200,
    "\x00",
    -1,
    2**53,
    2**64,
    1e300,
]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
"""Without surrogates, which have no form in UTF-8 and end the connection."""
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(0, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.sampled_from(VALUES)
)
DATA = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | TEXTS, inner),
    max_leaves=6,
)
FRAMES = st.builds(
    lambda kind, fields: fields | {"type": kind},
    st.sampled_from([*UP, "nothing", "gw.ack", None, 7]),
    st.dictionaries(st.sampled_from(FIELDS), DATA, max_size=6),
)


def session(kind=WebSocketSession, identity=None):
    made = kind(ServerInfo(connection="c", server="s", epoch="e"), Limits(), 0.0)
    made.opened(SUBPROTOCOL, identity)
    made.output.take_frames()
    return made


def check(made, value):
    """One message, the refusal of what it asks for, and all that the client reads."""
    actions = made.received(json.dumps(value), 0.0)
    if actions == (act.Close(),):
        assert not isinstance(value, dict)
        assert [type(one) for one in WireReader().read(made.last_words())] == [dict, int]
        return
    assert actions[0] == act.CountFrame(value.get("type"))
    for action in actions[1:]:
        if isinstance(action, act.ReadHeads):
            made.heads_read({}, requested=action.requested)
        else:
            made.refused(Refused("busy", "m"))
    (answer,) = WireReader().read(made.output.take_frames())
    assert answer["type"] in ("gw.error", "gw.tick")
    assert answer.get("id") == (value.get("id") if isinstance(value.get("id"), str) else None)
    assert made.received('{"type": "ping"}', 0.0)[1:] == (act.ReadHeads(requested=True),), "the next message is taken"


@given(FRAMES | DATA)
def test_any_json_has_one_answer_with_its_id(value):
    check(session(identity=ANN), value)


@given(FRAMES | DATA)
def test_any_first_frame_is_a_hello_or_the_end(value):
    made = session()
    (action,) = made.received(json.dumps(value), 0.0)
    if isinstance(action, act.Authenticate):
        assert value["type"] == "hello"
        assert TokenTable([]).find(action.token) is None, "any text can be looked up"
        action = made.rejected(UNAUTHENTICATED, "the token is unknown")[0]
    assert action == act.Close()
    assert [type(one) for one in WireReader().read(made.last_words())] == [dict, int]


@given(st.text(max_size=50) | st.binary(max_size=50))
def test_anything_that_is_no_json_object_is_the_end(message):
    made = session(identity=ANN)
    made.received(message, 0.0)
    assert (made.phase is SessionPhase.CLOSED) == (not is_object(message))


def is_object(message):
    try:
        return isinstance(message, str) and isinstance(json.loads(message), dict)
    except ValueError:
        return False


class Mute(WebSocketSession):
    def refused(self, refused):
        self._answer(None)
        return ()


class Nameless(WebSocketSession):
    def _failed(self, code, message, *, retry, current=None):
        self._request.id = None
        return super()._failed(code, message, retry=retry, current=current)


@pytest.mark.parametrize("fault", [Mute, Nameless])
@pytest.mark.parametrize("frame", [{"type": "nothing", "id": "i"}, {"type": "cancel", "run": "r", "id": "i"}])
def test_a_planted_fault_is_found(fault, frame):
    check(session(identity=ANN), frame)
    with pytest.raises((AssertionError, ValueError)):
        check(session(fault, ANN), frame)
