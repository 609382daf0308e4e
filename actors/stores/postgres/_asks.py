"""The desk that is asked: new runs, claims, commands, slices of a prune; each is few statements of its own.

In an outage a request is refused immediately if it has written nothing, or may be repeated by its sender without harm.
Only new runs, claims, commands and sets of values whose statement was on its way wait for the end of the outage: they
are executed again by the same action, which finds what it wrote before.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import attrs

from ...abc import StoreStatistics
from ...contract.claims import Claim
from ...contract.commits import Created
from ...errors import NewerRelease, StoreDown
from ...processes import Taken
from ..common import _commit_rules
from ..common._outages import no_answer
from ..common._requests import (
    ClaimRequest,
    CommitRequest,
    CreateRequest,
    DueRequest,
    PostRequest,
    PostResult,
    PruneRequest,
    ReadyRequest,
    Request,
    Result,
    SetValuesRequest,
)
from ..common.faults import Faults, InjectedCrash, Outage, meet
from ._claims import ClaimDue, ClaimReady, random_bits
from ._connect import Link
from ._create import RunCreator
from ._driver import psycopg
from ._peers import BuryRequest, PgPeers
from ._post import CommandPoster
from ._prune import sweep
from ._schema import LEVEL
from ._stored_values import SetValues
from ._write import ClaimBook

T = TypeVar("T")

AskRequest = Request | BuryRequest
Action = Callable[[], Any]
"""Executes one request; may be called again after an Outage."""

_CLAIM: Final = f"""UPDATE {{s}}.runs SET owner = %s, commits = 0, token = ((token >> 31) + 1 << 31) + %s::bigint
WHERE run_id = %s AND ended_at IS NULL AND (owner IS NULL OR owner = %s) AND level <= {LEVEL}
RETURNING number, token, held"""
_OWNER: Final = """SELECT coalesce(p.name, 'process ' || r.owner), r.level FROM {s}.runs r LEFT JOIN {s}.processes p
  ON p.number = r.owner WHERE r.run_id = %s AND r.ended_at IS NULL"""


@attrs.define(eq=False)
class _ClaimById:
    """A claim of one run, to be executed until its answer arrives; `sent`: the run may be claimed already."""

    run_id: str
    nonce: int = attrs.field(factory=random_bits)
    sent: bool = False


_Sender = RunCreator | CommandPoster | ClaimReady | ClaimDue | _ClaimById | SetValues
"""Executes a request whose outcome must not stay unknown."""


class AskWriter:
    """Executes batches of requests over one connection. Used by one thread at a time.

    Attributes:
        statistics: `posts` are accepted commands, `transactions` requests that were executed.
        repeated: requests that were executed again after an outage that left their outcome unknown.
    """

    def __init__(
        self,
        link: Link,
        book: ClaimBook,
        *,
        peers: PgPeers,
        faults: Faults | None = None,
    ) -> None:
        """Begin.

        Args:
            link: the connection.
            book: the claims of this process.
            peers: this process among the others; it executes the requests about owners, and sends the hints.
            faults: see `faults.POINTS`.
        """
        self._link, self._book, self._faults = link, book, faults
        self._peers = peers
        self._actions: dict[AskRequest, Action] = {}
        self._senders: dict[AskRequest, _Sender] = {}
        self._unknown: set[AskRequest] = set()
        self.statistics = StoreStatistics()
        self.repeated = 0

    def execute(self, batch: Sequence[AskRequest]) -> Sequence[Result[Any]]:
        """Execute a batch; returns one result per request, in order. An empty batch looks whether the server answers.

        Raises:
            Outage: the server is unavailable; execute the requests again that it does not settle.
            StoreDown: a table or a right is missing.
            InjectedCrash: a fault was injected.
        """
        if not batch:
            self._link.persistent("SELECT 1")
        results: dict[AskRequest, Result[Any]] = {}
        try:
            for request in batch:
                results[request] = self._result(self._actions.get(request) or self._begun(request), request.size)
        except Outage as outage:
            request = batch[len(results)]
            sender = self._senders.get(request)
            if sender is not None and sender.sent and self._link.unknown:
                self._unknown.add(request)
            unavailable = no_answer(outage.error)
            refused = [other for other in batch if other not in results and other not in self._unknown]
            results.update(dict.fromkeys(refused, Result(error=unavailable)))
            raise Outage(outage.error, results) from outage
        self._actions.clear()
        self._senders.clear()
        self.repeated += len(self._unknown)
        self._unknown.clear()
        return [results[request] for request in batch]

    def _begun(self, request: AskRequest) -> Action:
        action = self._actions[request] = self._action(request)
        return action

    def _result(self, action: Action, size: int) -> Result[Any]:
        """Execute one request of so many bytes; its own error is its result."""
        self._link.unknown = False  # that was of the request before; a lock that this one waits for leaves it unwritten
        meet(self._faults, "begin")
        try:
            if self._faults is not None:
                self._faults("write")
            self._link.carries = size
            value = self._link.twice(action)
        except (InjectedCrash, Outage, StoreDown):
            raise
        except (psycopg.Error, UnicodeEncodeError) as error:
            text = self._link.target.hidden(str(error))
            invalid = _commit_rules.InvalidCommit(f"it cannot be written: {text}")
            invalid.__cause__ = error
            return Result(error=invalid)
        except Exception as error:  # noqa: BLE001 - a judge may raise anything: only the caller of its post gets the exception
            return Result(error=error)
        finally:
            self._link.carries = 0
        self._link.unknown = True  # to a fault that comes now
        meet(self._faults, "after_commit")
        self.statistics = attrs.evolve(self.statistics, transactions=self.statistics.transactions + 1)
        return Result(value)

    def _action(self, request: AskRequest) -> Action:
        match request:
            case CreateRequest():
                owner = self._peers.process
                creator = RunCreator(self._link, self._book, request, owner=owner, bits=secrets.randbits(31))
                self._senders[request] = creator
                return lambda: self._create(creator, request)
            case ClaimRequest(run_id=run_id):
                claim = self._senders[request] = _ClaimById(run_id)
                return lambda: self._claim(claim)
            case PostRequest():
                poster = CommandPoster(self._link, request, secrets.randbits(62), self._peers.command_hint)
                self._senders[request] = poster
                return lambda: self._post(poster)
            case PruneRequest(before=before):
                return lambda: sweep(self._link, before)
            case SetValuesRequest(writes=writes):
                values = self._senders[request] = SetValues(writes)
                return lambda: values(self._link)
            case CommitRequest():
                raise TypeError("commits are executed by the other desk")
            case ReadyRequest(room=room, ability=ability, now=now):
                ready = self._senders[request] = ClaimReady(room, ability, now, self._peers.level)
                return lambda: self._peers.claim(self._link, ready)
            case DueRequest(now=now, ability=ability, limit=limit):
                due = self._senders[request] = ClaimDue(limit, ability, now, self._peers.level)
                return lambda: self._peers.claim(self._link, due)
            case _:
                return self._peers.action(self._link, request)

    def _create(self, creator: RunCreator, request: CreateRequest) -> Created:
        if request.claimed and not creator.sent:
            self._peers.lease.check()
        created = creator()
        if created.unclaimed:
            self._peers.created(request.new.info)
        elif created.claim is not None:
            self._peers.claimed(request.new.info.run_id, held=created.held)
        return created

    def _claim(self, claim: _ClaimById) -> Claim | Taken | None:
        if not claim.sent:
            self._peers.lease.check()
        claim.sent = True
        me, run_id = self._peers.process, claim.run_id
        rows = self._link.persistent(_CLAIM, (me, claim.nonce, run_id, me))
        if rows:
            number, token, held = rows[0]
            self._book.note(run_id, number, token)
            self._peers.claimed(run_id, held=held)
            return Claim(run_id=run_id, token=token)
        owner, level = next(iter(self._link.persistent(_OWNER, (run_id,))), (None, 0))
        if owner is None and level > LEVEL:
            raise NewerRelease(f"run {run_id} was written by a newer release; upgrade Greenroom")
        return None if owner is None else Taken(process=owner)

    def _post(self, poster: CommandPoster) -> PostResult:
        posted = poster()
        if posted.item is None:
            return PostResult(posted.result)
        self.statistics = attrs.evolve(self.statistics, posts=self.statistics.posts + 1)
        if posted.owner is None or posted.owner != posted.hinted:
            self._peers.posted(posted)
        elsewhere = posted.owner not in (None, self._peers.process)
        return PostResult(posted.result, posted.item, elsewhere)
