"""What a WebSocket session asks of its connection: a closed union. And the sources that its turns are about.

The session decides without I/O; the connection performs one action after the other and calls the method that the
docstring of the action names, with the result. That method returns the next actions. `ws_session.py` has the theory.
"""

from __future__ import annotations

import msgspec

from . import up


class Source:
    """Something that the session writes in turns, one write at a time.

    Attributes:
        queued: it waits in the line for its turn.
        writing: it has its turn, which ends when what was read has been written: nothing else may write of it.
        over: the connection writes nothing more of it.
    """

    __slots__ = ("over", "queued", "writing")

    def __init__(self) -> None:
        self.queued = self.writing = self.over = False


class RunSource(Source):
    """The events of a run that the client follows.

    Attributes:
        run: the run's id.
        after: sequence of the last event that was handed to the connection for writing.
        live: the events that were there at the beginning were written, and gw.live was.
    """

    __slots__ = ("after", "live", "run")

    def __init__(self, run: str, after: int) -> None:
        super().__init__()
        self.run = run
        self.after = after
        self.live = False

    def __repr__(self) -> str:
        return f"<RunSource {self.run} after {self.after}>"


class ListSource(Source):
    """The changes of a list of runs that the client watches.

    Attributes:
        name: the client's name of the list.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __repr__(self) -> str:
        return f"<ListSource {self.name}>"


AnySource = RunSource | ListSource


class Action(msgspec.Struct, frozen=True):
    """One request of the session to its connection."""


# --- of the requests of the client: their answers are facts for the session -------------------------------------------


class Authenticate(Action, frozen=True):
    """Find the principal of a token and count the connection for it: `welcomed`, or `rejected`."""

    token: str

    def __repr__(self) -> str:
        return "Authenticate(...)"  # a token appears in no log


class CountFrame(Action, frozen=True):
    """Count a frame of the client; `kind` is its type as it came. No result."""

    kind: object


class FindHead(Action, frozen=True):
    """Look up the newest sequence of a run that the client may see: `head_found`, `refused` or `store_failed`."""

    run: str


class TakeSnapshot(Action, frozen=True):
    """Read a run that the client may see: `snapshot_taken`, `refused` or `store_failed`."""

    run: str


class ExecuteCommand(Action, frozen=True):
    """Judge and journal a command: `executed`, `refused` or `store_failed`."""

    command: up.Start | up.Fork | up.RunCommand


class OpenWatch(Action, frozen=True):
    """Check a query and serve its list, in place of the one of this name: `watch_opened` or `refused`."""

    frame: up.Watch


class CloseWatch(Action, frozen=True):
    """Serve a list no more. No result."""

    name: str


class FollowRun(Action, frozen=True):
    """Open a follower of `source.run` after `source.after`, and report its news with `touch`. No result."""

    source: RunSource


class UnfollowRun(Action, frozen=True):
    """Close the follower of a source, if there is one; also for the writer, at the end of a run. No result."""

    source: RunSource


class ReadHeads(Action, frozen=True):
    """Look up the newest sequence of each followed run, in memory: `heads_read`. `asked`: for the answer of a ping."""

    asked: bool


# --- of the writer: what it does next ---------------------------------------------------------------------------------


class WriteFrames(Action, frozen=True):
    """Write these whole frames, of which the last is a ping if `pinging`: `frames_written`."""

    data: bytes
    pinging: bool


class FetchEvents(Action, frozen=True):
    """Read the next events of a source: `events_read`, `nothing_read`, `run_ended` or `fetch_failed`."""

    source: RunSource


class CheckEnd(Action, frozen=True):
    """Look whether events of a source can still come: `nothing_yet`, `run_ended` or `fetch_failed`."""

    source: RunSource


class TakeRows(Action, frozen=True):
    """Take the changes of a list that wait: `rows_taken`."""

    source: ListSource


class WriteTurn(Action, frozen=True):
    """Write these whole frames of a source: `turn_written`."""

    source: AnySource
    data: bytes


class RetryLater(Action, frozen=True):
    """Pause, because the store does not answer: `turn_written`."""

    source: RunSource


# --- the end ----------------------------------------------------------------------------------------------------------


class Close(Action, frozen=True):
    """Stop reading, write `last_words` and close. No result."""


class Cut(Action, frozen=True):
    """Tear the connection down without a close frame: the peer is gone. No result."""


ApiAction = Authenticate | FindHead | TakeSnapshot | ExecuteCommand | OpenWatch
WriterAction = WriteFrames | FetchEvents | CheckEnd | TakeRows | WriteTurn | RetryLater | UnfollowRun
Immediate = CountFrame | FollowRun | UnfollowRun | CloseWatch | ReadHeads | Close | Cut
Actions = tuple[ApiAction | Immediate, ...]
