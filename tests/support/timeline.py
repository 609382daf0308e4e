"""The timeline: three calls of one step, two of which need an approval. What must be seen of it, as tables.

Tests play it (`tests/conformance/test_timeline.py`); the picture in the documents is drawn from the same tables.
A row is a moment: when it is (seconds since the run was created), what happens, the status of each call then, and the
status that the run has when that moment is durable. Rows of one second are one commit, unless a decision is between.
"""

from collections.abc import Mapping
from typing import NamedTuple

AT_ONCE = """
t0   0  the model asks for three calls | new        new        new        running
t1   0  the gate of A wants a decision | suspended  new        new        running
t1   0  so does the gate of B          | suspended  suspended  new        running
t2   0  C may run                      | suspended  suspended  running    running
t3  10  C ends, and nothing moves      | suspended  suspended  succeeded  waiting
t4  20  A is approved                  | resuming   suspended  succeeded  running
t4  20  its body runs                  | running    suspended  succeeded  running
t5  30  A ends                         | succeeded  suspended  succeeded  waiting
t6  40  B is approved                  | succeeded  resuming   succeeded  running
t6  40  its body runs                  | succeeded  running    succeeded  running
t7  55  B ends; the model answers      | succeeded  succeeded  succeeded  running
"""

AS_A_BATCH = """
t0   0  the model asks for three calls | new        new        new        running
t1   0  the gate of A wants a decision | suspended  new        new        running
t1   0  so does the gate of B          | suspended  suspended  new        running
t2   0  C may run                      | suspended  suspended  running    running
t3  10  C ends, and nothing moves      | suspended  suspended  succeeded  waiting
t4  40  B is approved, after A at 20   | resuming   suspended  succeeded  running
t4  40  both go on                     | resuming   resuming   succeeded  running
t4  40  the body of A runs             | running    resuming   succeeded  running
t5  40  and so does that of B          | running    running    succeeded  running
t6  50  A ends                         | succeeded  running    succeeded  running
t7  55  B ends; the model answers      | succeeded  succeeded  succeeded  running
"""

CALLS = ("A", "B", "C")
DECISIONS = ((20, "A"), (40, "B"))
"""When who is approved, in seconds since the run was created."""
SECONDS = {"A": 10, "B": 15, "C": 10}
"""How long the bodies take."""
END = 55
"""When the run is done: the model answers at once."""


class Moment(NamedTuple):
    """One row: its name, when it is, what happens, the status of each call, and of the run."""

    name: str
    at: int
    what: str
    calls: tuple[str, ...]
    run: str


def moments(table: str) -> tuple[Moment, ...]:
    """The rows of a table."""
    out = []
    for line in table.strip().splitlines():
        left, right = line.split("|")
        name, at, what = left.split(maxsplit=2)
        *calls, run = right.split()
        out.append(Moment(name, int(at), what.strip(), tuple(calls), run))
    return tuple(out)


TIMELINES: Mapping[str, tuple[Moment, ...]] = {
    "sequential": moments(AT_ONCE),
    "parallel_streaming": moments(AT_ONCE),
    "parallel_batch_approval": moments(AS_A_BATCH),
}
"""Mode of execution -> what must be seen."""
