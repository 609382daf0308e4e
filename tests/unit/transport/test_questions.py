"""The board of questions tells the streams of one principal and run about an answer, as long as they are open."""

from greenroom.transport import Principal
from greenroom.transport.gateway.questions import QuestionBoard

ANN, EVE = (Principal(name=name, token=f"{name}-has-a-long-token") for name in ("ann", "eve"))


def test_the_open_streams_of_a_principal_and_a_run_hear_of_an_answer():
    board, heard = QuestionBoard(), list[tuple[str, str, str | None]]()
    ends = [
        board.listen(who, run, lambda ticket, why, name=f"{who.name} {run}": heard.append((name, ticket, why)))
        for who, run in ((ANN, "r"), (ANN, "r"), (ANN, "s"), (EVE, "r"))
    ]
    board.answered(ANN, "r", "r.t1")
    assert heard == [("ann r", "r.t1", None)] * 2
    heard.clear()
    ends[0]()
    ends[0]()
    board.answered(ANN, "r", "r.t1", "dismissed")
    board.answered(EVE, "s", "s.t1")
    assert heard == [("ann r", "r.t1", "dismissed")]
    assert repr(board) == "<QuestionBoard of 3 runs>"
    for end in ends:
        end()
    assert repr(board) == "<QuestionBoard of 0 runs>"
