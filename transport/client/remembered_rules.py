"""The remembered rules of a gateway, over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import quote

from greenroom.actors.contract.casing import from_wire
from greenroom.actors.contract.codec import SchemaError, parse
from greenroom.actors.contract.plain import JSONObject
from greenroom.actors.permission.remembered import RememberedRule
from greenroom.actors.permission.stored_rules import LIST_LIMIT, newest_first

from .endpoint import Endpoint
from .errors import RequestRefused
from .http_requests import unreadable

Get = Callable[..., Awaitable[dict[str, Any]]]
"""GET, or POST of a body; see `Client._get`."""


async def list_rules(address: Endpoint, get: Get, run_id: str | None) -> Sequence[RememberedRule]:
    """Return the rules on all pages, the newest first.

    Raises:
        NotAGateway: An answer is not a list of rules.
    """
    rules: list[RememberedRule] = []
    cursor = None
    while True:
        page = await get("/v1/rules", {"run": run_id, "cursor": cursor}, run_id=run_id or "")
        try:
            rules += [_rule(line) for line in page["rules"]]
            cursor = page["cursor"]
        except (KeyError, TypeError, ValueError, SchemaError) as error:
            raise unreadable(address, "list of rules", error) from error
        if cursor is None or len(rules) >= LIST_LIMIT:
            return newest_first(rules)


async def revoke_rule(address: Endpoint, get: Get, rule_id: str) -> RememberedRule | None:
    """Revoke a rule; None if the principal sees none with this id.

    Raises:
        NotAGateway: The answer is not a rule.
    """
    try:
        line = await get(f"/v1/rules/{quote(rule_id, safe='')}/revoke", body={})
    except RequestRefused as error:
        if error.code != "unknown_rule":
            raise
        return None
    try:
        return _rule(line)
    except (TypeError, ValueError, SchemaError) as error:
        raise unreadable(address, "rule", error) from error


def _rule(line: JSONObject) -> RememberedRule:
    """Parse a rule; what it covers, as digests, does not leave the store, and is empty here."""
    return parse(RememberedRule, {"covered": "", **from_wire(RememberedRule, line)})
