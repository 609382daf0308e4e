"""The desk that commits: queued commits of all runs become few statements, each written once whatever happens to it.

Theory of operation. Commits of one run under one claim that follow each other are folded into one entry. A batch
becomes rounds, each of at most one entry for each claim, and each round is one statement. A statement may be repeated
after an unknown outcome, since each entry has a number under its claim, and the fence admits each number once. An entry
that the statement does not return is looked up: the row says whether this entry was written before, or what is in its
way. A data error of one request makes the whole statement fail; then each commit of the round becomes a separate
statement, so that the error affects its run only.

A batch that is executed again after an outage is the same list of requests: results that are known by then are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
from msgspec.structs import replace

from ...abc import StoreStatistics
from ...contract.commits import Receipt
from ..common._commit_rules import RunFacts, admit, fault, lease_lost, unwritable
from ..common._encoding import EncodedRows, encode_again
from ..common._requests import CommitRequest
from ..common.faults import Faults, InjectedCrash, Outage, meet
from ._connect import Link, NoMemory
from ._driver import psycopg
from ._sql import BatchEntry, Piece, commit_statement
from ._values import Bigints

MOST: Final = 200
"""Most requests per statement, because the first waits for the last."""
LARGEST: Final = 8 * 2**20
"""Bytes of one statement beyond which nothing is added."""

_LOOK: Final = (
    "SELECT number, commits, thread, token, last_seq, posted, consumed, ended_at IS NOT NULL FROM {s}.runs"
    " WHERE number = ANY(%s::bigint[])"
)
_FIND: Final = "SELECT number, token, commits FROM {s}.runs WHERE run_id = %s"


@attrs.define
class OwnClaim:
    """A claim that this process holds.

    Attributes:
        number: The number of the run.
        token: the fencing token.
        nth: number of the newest commit under the claim.
        broken: a commit could not be written; later ones fail.
    """

    number: int
    token: int
    nth: int = 0
    broken: bool = False


class ClaimBook:
    """The newest claims of this process, by run. Each operation is one of a dict, so any thread may call it."""

    def __init__(self) -> None:
        self._claims: dict[str, OwnClaim] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def note(self, run_id: str, number: int, token: int) -> None:
        """Note a new claim."""
        self._claims[run_id] = OwnClaim(number, token)

    def add(self, run_id: str, claim: OwnClaim) -> OwnClaim:
        """Note a claim that was looked up, and return it."""
        self._claims[run_id] = claim
        return claim

    def find(self, run_id: str) -> OwnClaim | None:
        """Return the newest claim of a run."""
        return self._claims.get(run_id)

    def forget(self, run_id: str, token: int) -> None:
        """Forget a claim that is of no more use; a newer one stays."""
        claim = self._claims.get(run_id)
        if claim is not None and claim.token <= token:
            self._claims.pop(run_id, None)

    def tokens(self) -> Mapping[str, int]:
        """Return run id -> token."""
        return {run_id: claim.token for run_id, claim in list(self._claims.items())}


@attrs.define(eq=False)
class _Group:
    """An entry with the places of its requests in the batch."""

    claim: OwnClaim
    entry: BatchEntry
    places: list[int] = attrs.field(factory=list)
    closed: bool = False

    def takes(self, request: CommitRequest) -> bool:
        """Return True if the request follows the newest commit of this entry."""
        return not self.closed and request.commit.expected_last == self.entry.last.last

    def add(self, place: int, request: CommitRequest, rows: EncodedRows) -> None:
        """Append a commit."""
        self.entry.pieces.append(Piece(request.commit, request.frames, rows))
        self.places.append(place)
        self.closed = self.entry.ends


@attrs.frozen
class _Found:
    """A run as it was looked up.

    Attributes:
        commits: number of the newest commit under the newest claim.
        thread: number of its thread.
        run: The facts of the run, for `admit`.
    """

    commits: int
    thread: int
    run: RunFacts


FollowUp = Callable[[Sequence[int]], Mapping[int, tuple[int, str]]]
"""Lets the oldest open run of each of these threads work; returns thread -> number and id of that run, if it is own."""


class CommitWriter:
    """Executes batches of commits over one connection. Used by one thread at a time.

    Attributes:
        statistics: counts of what was written; `transactions` are statements that wrote.
        repeated: batches that were executed again after an outage that left their outcome unknown.
    """

    def __init__(
        self,
        link: Link,
        book: ClaimBook,
        *,
        free_threads: FollowUp,
        wrote: Callable[[Sequence[tuple[int, int]]], None],
        faults: Faults | None = None,
    ) -> None:
        """Begin.

        Args:
            link: the connection for commits.
            book: the claims of this process.
            free_threads: see `FollowUp`.
            wrote: called with (number, newest sequence) of the runs that a statement has written.
            faults: see `faults.POINTS`.
        """
        self._link, self._book, self._faults = link, book, faults
        self._free_threads, self._wrote = free_threads, wrote
        self._batch: Sequence[CommitRequest] = ()
        self._results: list[Receipt | None] = []
        self._ends: dict[int, tuple[int, int]] = {}
        self._claims: dict[tuple[str, int], OwnClaim] = {}  # of the batch: a turn forgets those of runs that have ended
        self._doubtful = False
        self.statistics = StoreStatistics()
        self.repeated = 0

    def execute(self, batch: Sequence[CommitRequest]) -> Sequence[Receipt]:
        """Write a batch; returns one receipt per request, in order.

        Raises:
            Outage: the server is unavailable; execute the same batch again.
            StoreDown: a table or a right is missing.
            InjectedCrash: a fault was injected.
        """
        if self._batch is not batch:
            self._batch, self._results, self._ends = batch, [None] * len(batch), {}
            self._claims = {}
            self._doubtful = False
        try:
            while groups := self._next_round():
                self._write_round(groups)
            self._free()
        except Outage:
            self._doubtful = self._doubtful or self._link.unknown
            raise
        self.repeated += self._doubtful
        receipts = [receipt for receipt in self._results if receipt is not None]
        self._batch, self._results, self._claims = (), [], {}
        return receipts

    # --- rounds ------------------------------------------------------------------------------------------------------

    def _next_round(self) -> list[_Group]:
        """Return the entries of the next statement; requests that need none get their results."""
        groups: dict[tuple[str, int], _Group] = {}
        blocked: set[tuple[str, int]] = set()
        count = size = 0
        for place, request in enumerate(self._batch):
            key = (request.commit.run_id, request.claim.token)
            if self._results[place] is not None or key in blocked:
                continue
            if count >= MOST or size >= LARGEST:
                break
            group = groups.get(key)
            if group is not None and not group.takes(request):
                blocked.add(key)
                continue
            admitted = self._admitted(place, request, alone=group is None)
            if admitted is None:
                if self._results[place] is None:
                    blocked.add(key)
                continue
            claim, rows = admitted
            if group is None:
                group = groups[key] = _Group(claim, BatchEntry(claim.number, claim.token, claim.nth + 1))
            group.add(place, request, rows)
            count, size = count + 1, size + rows.size
        return list(groups.values())

    def _admitted(self, place: int, request: CommitRequest, *, alone: bool) -> tuple[OwnClaim, EncodedRows] | None:
        """Return claim and rows of a request that can be written, else set its receipt.

        `alone`: no other commit of the claim is in this round. A commit that is invalid in itself needs to be: whether
        it is in order depends on those before it.
        """
        commit, claim = request.commit, self._claim(request)
        if claim is None:
            self._results[place] = lease_lost(commit, request.claim)
            return None
        if isinstance(request.error, MemoryError):  # encoding ran out of memory: there may be enough now
            request.blobs, request.error = encode_again(commit, request.frames)
        wrong: Exception | None = request.error or fault(commit, request.frames)
        if wrong is None and isinstance(request.blobs, EncodedRows):
            return claim, request.blobs
        if alone:
            self._results[place] = self._failed(request, claim, wrong or TypeError("no rows"))
        return None

    def _claim(self, request: CommitRequest) -> OwnClaim | None:
        """Return the claim of a request, if it may be the newest one and no commit of it has failed."""
        run_id, token = request.commit.run_id, request.claim.token
        if request.claim.run_id != run_id:
            return None
        claim_of_run = self._book.find(run_id) or self._claims.get((run_id, token))
        if claim_of_run is None:
            rows = self._link.persistent(_FIND, (run_id,))
            if not rows or rows[0][1] != token:
                return None
            claim_of_run = self._book.add(run_id, OwnClaim(*rows[0]))
        if claim_of_run.token != token or claim_of_run.broken:
            return None
        self._claims[run_id, token] = claim_of_run
        return claim_of_run

    # --- a statement -------------------------------------------------------------------------------------------------

    def _write_round(self, groups: Sequence[_Group]) -> None:
        try:
            self._write(groups)
        except (psycopg.Error, UnicodeEncodeError, _RequestFault):
            self._write_singly(groups)
        except NoMemory:
            if len(groups) == 1:
                raise
            self._write_singly(groups)

    def _write(self, groups: Sequence[_Group]) -> None:
        """Write entries with one statement, and note the receipts.

        Raises:
            psycopg.Error, UnicodeEncodeError, _RequestFault: a request's own error; nothing was written.
        """
        meet(self._faults, "begin")
        for _ in groups:
            self._check_fault()
        text, parameters = self._statement(groups)
        meet(self._faults, "before_commit")
        self._link.carries = sum(piece.rows.size for group in groups for piece in group.entry.pieces)
        try:
            rows = self._link.twice(lambda: self._link.prompt(text, parameters))
        finally:
            self._link.carries = 0
        answers = {row[0]: row[1:] for row in rows}
        meet(self._faults, "after_commit")
        missing = [group.entry.number for i, group in enumerate(groups, 1) if i not in answers]
        runs = self._look(missing) if missing else {}
        self._count(groups, answers)
        for i, group in enumerate(groups, 1):
            if i in answers:
                self._written(group, *answers[i])
            else:
                self._not_returned(group, runs.get(group.entry.number))
        self._wrote([(group.entry.number, group.entry.last.last) for i, group in enumerate(groups, 1) if i in answers])

    @staticmethod
    def _statement(groups: Sequence[_Group]) -> tuple[str, list[Any]]:
        """Return the statement for entries, and its parameters.

        Raises:
            Outage: the memory does not suffice for them.
            _RequestFault: a value has no form in a parameter.
        """
        try:
            return commit_statement([group.entry for group in groups])
        except MemoryError as error:
            raise Outage(error) from error
        except Exception as error:  # of one request's values: the others are written
            raise _RequestFault(error) from error

    def _check_fault(self) -> None:
        """Raise what a test injects for one request."""
        if self._faults is None:
            return
        try:
            self._faults("write")
        except (InjectedCrash, Outage):
            raise
        except Exception as error:  # of this request alone: the others are written
            raise _RequestFault(error) from error

    def _write_singly(self, groups: Sequence[_Group]) -> None:
        """Write each commit with a separate statement; one that cannot be written breaks its claim.

        So does one for which the server has no memory, if it has enough for others.

        Raises:
            Outage: the server is unavailable, or has memory for none.
        """
        refused: list[tuple[_Group, int, NoMemory]] = []
        before = self.statistics.transactions
        for group in groups:
            for place, piece in zip(group.places, group.entry.pieces, strict=True):
                if self._results[place] is not None:
                    continue
                request, claim = self._batch[place], group.claim
                if claim.broken:
                    self._results[place] = lease_lost(request.commit, request.claim)
                    continue
                entry = BatchEntry(claim.number, claim.token, claim.nth + 1, [piece])
                try:
                    self._write([_Group(claim, entry, [place], True)])
                except NoMemory as error:
                    refused.append((group, place, error))
                    break  # the later commits of the claim follow this one
                except (psycopg.Error, UnicodeEncodeError, _RequestFault) as error:
                    cause = error.error if isinstance(error, _RequestFault) else error
                    self._results[place] = self._failed(request, claim, cause)
        for group, place, refusal in refused:
            if self.statistics.transactions == before:
                raise refusal
            self._results[place] = self._failed(self._batch[place], group.claim, refusal.error)

    def _count(self, groups: Sequence[_Group], answers: Mapping[int, object]) -> None:
        written = [group for i, group in enumerate(groups, 1) if i in answers]
        pieces = [piece for group in written for piece in group.entry.pieces]
        before = self.statistics
        self.statistics = StoreStatistics(
            commits=before.commits + len(pieces),
            transactions=before.transactions + 1,
            events=before.events + sum(len(piece.frames) for piece in pieces),
            bytes_written=before.bytes_written + sum(piece.rows.size for piece in pieces),
        )

    # --- receipts ----------------------------------------------------------------------------------------------------

    def _written(self, group: _Group, posted: int, thread: int, opened: int | None, late: int | None) -> None:
        """Note that an entry is durable. `opened`, `late`: of its thread; None: unknown, or no run has ended."""
        claim, entry = group.claim, group.entry
        claim.nth = entry.nth
        for place in group.places:
            last = self._batch[place].commit.last
            self._results[place] = Receipt(kind="committed", last=last, posted=posted)
        if entry.ends:
            self._book.forget(entry.last.run_id, entry.token)
            if opened is None or opened > 0 or (late or 0) > 0:
                self._ends[thread] = (entry.number, group.places[-1])

    def _not_returned(self, group: _Group, run: _Found | None) -> None:
        """Note the receipts of an entry that the statement did not write."""
        entry = group.entry
        if run is not None and run.run.token == entry.token:
            if run.commits == entry.nth:  # written before; its answer was lost
                self._written(group, run.run.posted, run.thread, None, None)
                return
            first = self._batch[group.places[0]]
            if len(group.places) > 1 and admit(run.run, first.claim, first.commit) is None:
                self._write_singly([group])  # only the terminal commit is refused
                return
        for place in group.places:
            request = self._batch[place]
            receipt = admit(None if run is None else run.run, request.claim, request.commit)
            # a commit that would fit follows one of this entry that does not
            self._results[place] = receipt or lease_lost(request.commit, request.claim)

    def _look(self, numbers: Sequence[int]) -> dict[int, _Found]:
        rows = self._link.persistent(_LOOK, (Bigints(numbers),))
        return {number: _Found(commits, thread, RunFacts(*run)) for number, commits, thread, *run in rows}

    def _failed(self, request: CommitRequest, claim: OwnClaim, error: Exception) -> Receipt:
        """Return the receipt of a commit with a fault, and fail the later ones under its claim if it was its turn."""
        run = self._look([claim.number]).get(claim.number)
        fault = unwritable(request.commit.run_id, error, self._link.target.hidden(str(error)))
        receipt = admit(None if run is None else run.run, request.claim, request.commit, fault)
        assert receipt is not None  # noqa: S101 - there is a fault
        claim.broken = claim.broken or receipt.kind == "failed"
        return receipt

    def _free(self) -> None:
        """Let the next runs of the threads work in which runs have ended."""
        if not self._ends:
            return
        freed = self._free_threads(sorted(self._ends))
        for thread, (number, place) in self._ends.items():
            after, run_id = freed.get(thread, (0, ""))
            receipt = self._results[place]
            if after > number and receipt is not None:
                self._results[place] = replace(receipt, next_in_thread=run_id)
        self._ends = {}


class _RequestFault(Exception):
    """The values of one request cannot be sent, or a test injects a fault for it."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error
