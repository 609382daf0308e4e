"""A command: read the facts, judge, and write if the facts have not changed. No lock is held while the judge thinks.

`runs.facts` counts the changes of what a judge looks at; `posted` orders the commands. A statement that was judged on
older facts writes nothing, and the command is judged again. After an unknown outcome the command is found by its nonce.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from ...contract import codec
from ...contract.codec import NewerSchema, SchemaError
from ...contract.decisions import Command, CommandResult, InboxItem, Ticket
from ...contract.lifecycle import Stage
from ...contract.pending_input import waiting
from ...contract.rows import CallRow, CommandContext, JudgedRow
from ...errors import NewerRelease, StoreError, UnknownRun
from ..common import _commit_rules
from ..common._encoding import encode_parts
from ..common._requests import PostRequest
from ._connect import Link
from ._driver import psycopg
from ._schema import LEVEL
from ._values import Blobs, Texts

ATTEMPTS: Final = 20
"""How often a command is judged again because its run has changed; then it is refused as busy."""

_READ: Final = """SELECT r.number, r.owner, r.agent, r.stage, r.posted, r.consumed, r.facts, r.level,
  CASE WHEN %(row)s THEN r.row END, k.position, k.body, k.answer, k.nonce, t.body, c.body, p.body, e.position, e.body,
  CASE WHEN %(send)s THEN (SELECT array_agg(u.body ORDER BY u.position) FROM {s}.inbox u
    WHERE u.run = r.number AND u.position > r.consumed AND u.kind = 'send') END
FROM {s}.runs r
LEFT JOIN {s}.inbox k ON k.run = r.number AND k.command_id = %(command)s
LEFT JOIN LATERAL (SELECT o.ticket_id, o.call_id, o.body FROM {s}.tickets o
  WHERE o.run = r.number AND (o.ticket_id = %(target)s OR o.call_id = %(target)s)
  ORDER BY o.ticket_id = %(target)s DESC, o.number DESC LIMIT 1) t ON %(target)s::text IS NOT NULL
LEFT JOIN {s}.calls c ON c.run = r.number
  AND c.call_id = CASE WHEN t.ticket_id IS NULL THEN %(target)s ELSE t.call_id END
LEFT JOIN {s}.inbox p ON p.run = r.number
  AND p.target_key = CASE WHEN t.ticket_id IS NULL THEN 'call:' || c.call_id ELSE 'ticket:' || t.ticket_id END
LEFT JOIN {s}.inbox e ON e.run = r.number AND e.target_key = 'call:' || c.call_id AND t.ticket_id IS NOT NULL
WHERE r.run_id = %(run)s"""

# The command is a row of this release, so an older one cannot work on the run any more.
_WRITE: Final = f"""WITH r AS (UPDATE {{s}}.runs SET posted = posted + 1, level = greatest(level, {LEVEL})
  WHERE number = %s AND facts = %s AND posted = %s AND ended_at IS NULL
  RETURNING number, thread, posted, owner, agent, place),
i AS (INSERT INTO {{s}}.inbox(run, position, command_id, kind, target_key, nonce, body, answer)
  SELECT number, posted, %s, %s, %s, %s, %s, %s FROM r),
f AS (INSERT INTO {{s}}.parts(thread, sha256, body) SELECT r.thread, x.sha256, x.body
  FROM r, unnest(%s::text[], %s::bytea[]) AS x(sha256, body) WHERE x.body IS NOT NULL
  ON CONFLICT (thread, sha256) DO NOTHING)
SELECT number, owner, agent, place FROM r"""
_OWNER: Final = "SELECT number, owner, agent, place FROM {s}.runs WHERE number = %s"


@attrs.frozen
class Posted:
    """A judged command.

    Attributes:
        item: the journaled command; None if it was not accepted.
        number: The number of the run.
        owner: number of the process that owns the run; None if no process owns it.
        agent: key of the run's agent.
        place: where its workspace is; None for a run without one.
        hinted: number of the process to which a hint went with the command; None: there was none.
    """

    result: CommandResult
    item: InboxItem | None = None
    number: int = 0
    owner: int | None = None
    agent: str = ""
    place: str | None = None
    hinted: int | None = None


Hint = Callable[[int | None, int], tuple[str, Sequence[Any]] | None]
"""Returns the statement that sends a hint to the owner (given by number) of a run; None if no hint is to be sent."""


@attrs.frozen
class _Facts:
    """The facts on which a command is judged.

    Attributes:
        mine: the row of this very command, written before an answer was lost.
        owner: number of the process that owns the run; None if no process owns it.
    """

    number: int
    posted: int
    facts: int
    context: CommandContext
    mine: InboxItem | None = None
    owner: int | None = None


class CommandPoster:
    """Executes one post, until its answer arrives."""

    def __init__(self, link: Link, request: PostRequest, nonce: int, hint: Hint = lambda owner, number: None) -> None:
        """Prepare.

        Args:
            link: the connection.
            request: the command.
            nonce: tells this post's row from the same command by another sender.
            hint: the hint is sent with the command, and executed by the server after the command's commit.
        """
        self._link, self._request, self._nonce, self._hint = link, request, nonce, hint
        self.sent = False
        """The statement was sent, and may have journaled the command."""

    def __call__(self) -> Posted:
        """Judge the command and journal it if accepted.

        Raises:
            UnknownRun: no run has this id.
            StoreError: a row of the run cannot be read.
            Exception: the judge raised it.
        """
        request = self._request
        command = request.command
        for _ in range(ATTEMPTS):
            try:
                facts = self._read(command)
            except NewerSchema as error:
                raise NewerRelease(f"run {request.run_id} was written by a newer release; upgrade Greenroom") from error
            except SchemaError as error:
                raise StoreError(f"a row of run {request.run_id} cannot be read: {error}") from error
            context = facts.context
            if facts.mine is not None and context.known is not None:
                rows = self._link.persistent(_OWNER, (facts.number,))
                return Posted(context.known[1], facts.mine, *(rows[0] if rows else (facts.number,)))
            result = _commit_rules.judged(request.judge, context, command)
            if result.status != "accepted":
                return Posted(result)
            journaled = _commit_rules.journaled(context, command, result)
            values = self._values(facts, command, journaled, result)
            hint = self._hint(facts.owner, facts.number)
            self.sent = True
            try:
                rows = self._link.prompt(_WRITE, values, by=hint)
            except psycopg.errors.UniqueViolation:
                continue  # another command was faster
            if rows:
                hinted = None if hint is None else facts.owner
                item = InboxItem(position=facts.posted + 1, command=journaled)
                number, owner, agent, place = rows[0]
                return Posted(result, item, number, owner, agent, place, hinted)
        text = "the run changes too fast for a judgement; send the command again"
        return Posted(CommandResult(status="rejected", code="busy", detail=text, command_id=command.command_id))

    def _values(self, facts: _Facts, command: Command, journaled: Command, result: CommandResult) -> Sequence[Any]:
        parts = encode_parts(command.parts)
        return (
            facts.number,
            facts.facts,
            facts.posted,
            journaled.command_id,
            journaled.kind,
            _commit_rules.target_key(facts.context, command),
            self._nonce,
            codec.dump(journaled),
            codec.dump(result),
            Texts([digest for digest, _ in parts]),
            Blobs([data for _, data in parts]),
        )

    def _read(self, command: Command) -> _Facts:
        """Return the facts, from one snapshot."""
        target = None if command.decision is None else command.decision.target
        values = {
            "run": self._request.run_id,
            "command": command.command_id,
            "target": target,
            "row": target is not None or command.kind in ("pause", "send"),
            "send": command.kind == "send",
        }
        rows = self._link.prompt(_READ, values)
        if not rows:
            raise UnknownRun(self._request.run_id)
        number, owner, agent, stage, posted, consumed, count, level, blob, *rest = rows[0]
        if level > LEVEL:
            raise NewerRelease(f"run {self._request.run_id} was written by a newer release; upgrade Greenroom")
        position, body, answer, nonce, ticket, call, prior, early_at, early, unread = rest
        row = None if blob is None else codec.glance(JudgedRow, blob)
        earlier = None if body is None else (codec.load(Command, body), codec.load(CommandResult, answer))
        context = CommandContext(
            stage=Stage(stage),
            pending=posted - consumed,
            known=earlier,
            ticket=None if ticket is None else codec.load(Ticket, ticket),
            call=None if call is None else codec.load(CallRow, call),
            prior=None if prior is None else codec.load(Command, prior),
            agent=agent,
            active_agent=None if row is None or command.decision is None else row.agent,
            leaving=command.kind == "pause" and row is not None and row.position.rule.leaving,
        )
        if command.kind == "send" and row is not None:
            inputs, size = waiting(row, [codec.load(Command, text) for text in unread or ()])
            context = attrs.evolve(context, inputs=inputs, input_bytes=size)
        if early is not None and context.prior is None:
            # until it is used, an early decision for the call counts for its ticket, too
            call_id = "" if context.call is None else context.call.call_id
            if early_at > consumed or (row is not None and call_id in row.early):
                context = attrs.evolve(context, prior=codec.load(Command, early))
        mine = earlier is not None and nonce == self._nonce
        item = InboxItem(position=position, command=earlier[0]) if mine and earlier is not None else None
        return _Facts(number, posted, count, context, item, owner)
