"""The actions that a WebSocket session requests of its connection, as a closed union, and the sources of its turns.

The session decides without I/O. The connection performs one action after the other and passes the result to the method
that the docstring of the action names; that method returns the next actions. `ws_session.py` explains the theory.
"""

from __future__ import annotations

import msgspec

from . import up


class Source:
    """A stream of data that the session writes in turns, one write at a time.

    Attributes:
        queued: True while the source waits in line for its turn.
        writing: True during its turn, which ends after its data is written; no other task may write data of the source.
        over: True if the connection writes no more data of the source.
    """

    __slots__ = ("over", "queued", "writing")

    def __init__(self) -> None:
        self.queued = self.writing = self.over = False


class RunSource(Source):
    """The events of a run that the client follows.

    Attributes:
        run: Id of the run.
        after: Sequence of the last event passed to the connection for writing.
        live: True after the events that existed at the subscription, and gw.live, have been written.
        stale: True while `after` is of a replaced log: the next turn is gw.reset.
    """

    __slots__ = ("after", "live", "run", "stale")

    def __init__(self, run: str, after: int) -> None:
        super().__init__()
        self.run = run
        self.after = after
        self.live = self.stale = False

    def __repr__(self) -> str:
        return f"<RunSource {self.run} after {self.after}>"


class ListSource(Source):
    """The changes of a list of runs that the client watches.

    Attributes:
        name: The client's name for the list.
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


class RunAction(Action, frozen=True):
    """An action about the run with this id."""

    run: str


class SourceAction(Action, frozen=True):
    """An action about a followed run."""

    source: RunSource


# --- actions for requests of the client: their results are facts for the session --------------------------------------


class Authenticate(Action, frozen=True):
    """Find the principal of a token and count the connection for that principal: `welcomed`, or `rejected`."""

    token: str

    def __repr__(self) -> str:
        return "Authenticate(...)"  # a token appears in no log


class CountFrame(Action, frozen=True):
    """Count a frame of the client; `kind` is its type as received. No result."""

    kind: object


class FindHead(RunAction, frozen=True):
    """Look up the newest sequence of a run that the client may see: `head_found`, `refused` or `store_failed`."""


class TakeSnapshot(RunAction, frozen=True):
    """Read a run that the client may see: `snapshot_taken`, `refused` or `store_failed`."""


class ExecuteCommand(Action, frozen=True):
    """Check and journal a command: `executed`, `refused` or `store_failed`."""

    command: up.Start | up.Fork | up.RunCommand


class ReadPage(Action, frozen=True):
    """Read a page of threads or of messages: `page_read`, `refused` or `store_failed`."""

    frame: up.PageRequest


class OpenWatch(Action, frozen=True):
    """Check a query and serve its list, replacing the list with the same name: `watch_opened` or `refused`."""

    frame: up.Watch | up.WatchTickets


class CloseWatch(Action, frozen=True):
    """Stop serving a list. No result."""

    name: str


class FollowRun(SourceAction, frozen=True):
    """Open a follower of `source.run` after `source.after`, and report its news with `touch`. No result."""


class UnfollowRun(SourceAction, frozen=True):
    """Close the follower of a source, if any; the writer requests this, too, at the end of a run. No result."""


class ReadHeads(Action, frozen=True):
    """Look up the newest sequence of each followed run, in memory: `heads_read`.

    `requested`: the tick answers a ping.
    """

    requested: bool


# --- actions of the writer --------------------------------------------------------------------------------------------


class WriteFrames(Action, frozen=True):
    """Write these complete frames, the last of which is a ping if `pinging`: `frames_written`."""

    data: bytes
    pinging: bool


class FetchEvents(SourceAction, frozen=True):
    """Read the next events of a source: `events_read`, `nothing_read`, `run_ended` or `fetch_failed`."""


class CheckEnd(SourceAction, frozen=True):
    """Check whether more events of a source can follow: `nothing_yet`, `run_ended` or `fetch_failed`."""


class ReadReset(SourceAction, frozen=True):
    """Read the run of a stale source: `reset_read`, which opens its follower, or `run_ended` or `fetch_failed`."""


class TakeRows(Action, frozen=True):
    """Take the pending changes of a list: `rows_taken`."""

    source: ListSource


class WriteTurn(Action, frozen=True):
    """Write these complete frames of a source: `turn_written`."""

    source: AnySource
    data: bytes


class RetryLater(SourceAction, frozen=True):
    """Pause, because the store does not answer: `turn_written`."""


# --- the end ----------------------------------------------------------------------------------------------------------


class Close(Action, frozen=True):
    """Stop reading, write `last_words` and close. No result."""


class Cut(Action, frozen=True):
    """Abort the connection without a close frame, because the peer does not answer. No result."""


ApiAction = Authenticate | FindHead | TakeSnapshot | ExecuteCommand | ReadPage | OpenWatch
WriterAction = WriteFrames | FetchEvents | CheckEnd | ReadReset | TakeRows | WriteTurn | RetryLater | UnfollowRun
Immediate = CountFrame | FollowRun | UnfollowRun | CloseWatch | ReadHeads | Close | Cut
Actions = tuple[ApiAction | Immediate, ...]
