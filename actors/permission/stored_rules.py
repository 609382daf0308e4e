"""Remembered rules as stored values: written once, read at each question, revoked but kept."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from datetime import datetime
from string import hexdigits
from typing import Final, Protocol

import attrs

from ..abc import ValueStore
from ..contract import codec
from ..contract.codec import SchemaError
from ..errors import StoreError
from ..stored_values import StoredValue, ValueWrite
from .remembered import Holder, RememberedRule

SPACE: Final = "rules"
"""The space of the stored values; the name of a rule is its id."""
LIST_LIMIT: Final = 10_000
"""Rules of a list without a page."""
PAGE: Final = 200
"""Rules that are read together; decoding them takes some milliseconds."""
HOLDER_LIMIT: Final = 200
"""Rules of one run, thread or workspace, revoked ones included: each question of the gate reads them all."""


class ReadValues(Protocol):
    """A read of stored values, as `ValueStore.values`."""

    def __call__(self, space: str, *, after: str = "", limit: int = 100) -> Awaitable[Sequence[StoredValue]]:
        """Return a page of the values of a space."""


async def rules_of_holder(read: ReadValues, holder: Holder) -> list[RememberedRule]:
    """Return the rules of a run, thread or workspace, by id; one that cannot be read covers nothing and is left out."""
    rules = [rule for value in await _values_of(read, holder) if (rule := _readable(value)) is not None]
    return [rule for rule in rules if (rule.scope, rule.holder) == (holder.scope, holder.name)]


async def _values_of(read: ReadValues, holder: Holder) -> list[StoredValue]:
    values: list[StoredValue] = []
    after = holder.prefix
    while len(values) < HOLDER_LIMIT:
        page = await read(SPACE, after=after, limit=HOLDER_LIMIT - len(values))
        values += [value for value in page if value.name.startswith(holder.prefix)]
        if not page or not page[-1].name.startswith(holder.prefix):
            break
        after = page[-1].name
    return values


def _readable(value: StoredValue) -> RememberedRule | None:
    try:
        return codec.load(RememberedRule, value.value)
    except SchemaError:
        return None


@attrs.frozen
class StoredRules:
    """The remembered rules of a store, for those who make, list and revoke them.

    Errors: StoreUnavailable and StoreDown, as of `RunStore`.
    """

    _store: ValueStore

    async def is_full(self, holder: Holder) -> bool:
        """Return True if a holder has as many rules as it may have."""
        return len(await _values_of(self._store.values, holder)) >= HOLDER_LIMIT

    async def of(self, holder: Holder) -> list[RememberedRule]:
        """Return the rules of a holder, as the gate reads them; see `rules_of_holder`."""
        return await rules_of_holder(self._store.values, holder)

    async def add(self, rule: RememberedRule) -> None:
        """Write a rule; one with the same id stays as it is, also if it was revoked meanwhile."""
        await self._store.set_values([ValueWrite(SPACE, rule.rule_id, codec.dump(rule))])

    async def all(self) -> list[RememberedRule]:
        """Return the rules of all holders, by id, at most `LIST_LIMIT`.

        Raises:
            StoreError: A rule cannot be read.
        """
        rules: list[RememberedRule] = []
        while page := await self.page(rules[-1].rule_id if rules else "", PAGE):
            rules += page
            if len(rules) >= LIST_LIMIT:
                break
        return rules

    async def page(self, after: str = "", limit: int = PAGE) -> Sequence[RememberedRule]:
        """Return a page of the rules of all holders whose id is greater than `after`, by id; empty at the end.

        Raises:
            StoreError: A rule cannot be read.
        """
        return [_rule(value) for value in await self._store.values(SPACE, after=after, limit=limit)]

    async def find(self, rule_id: str) -> RememberedRule | None:
        """Return the rule with this id; None if there is none.

        Raises:
            StoreError: The rule cannot be read.
        """
        value = await self._value(rule_id)
        return None if value is None else _rule(value)

    async def _value(self, rule_id: str) -> StoredValue | None:
        # ids end in a hex digit, so few values are behind the rest of an id
        page = await self._store.values(SPACE, after=rule_id[:-1], limit=len(hexdigits))
        return next((value for value in page if value.name == rule_id), None)

    async def revoke(self, rule_id: str, *, at: datetime, by: str) -> RememberedRule | None:
        """Revoke a rule, durable on return, and return it; None if no rule has this id. Twice is once.

        Raises:
            StoreError: The rule cannot be read.
        """
        while True:  # a write that is refused has met another revocation, which is read next
            value = await self._value(rule_id)
            if value is None:
                return None
            rule = _rule(value)
            if rule.revoked_at is not None:
                return rule
            rule = attrs.evolve(rule, revoked_at=at, revoked_by=by)
            if await self._store.set_values([ValueWrite(SPACE, rule_id, codec.dump(rule), value.revision)]):
                return rule


def newest_first(rules: Iterable[RememberedRule]) -> list[RememberedRule]:
    """Return rules in the order in which people read them."""
    return sorted(rules, key=lambda rule: (rule.at, rule.rule_id), reverse=True)


def _rule(value: StoredValue) -> RememberedRule:
    try:
        return codec.load(RememberedRule, value.value)
    except SchemaError as error:
        raise StoreError(f"the remembered rule {value.name} cannot be read: {error}") from error
