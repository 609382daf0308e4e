"""The HTTP routes of remembered rules: what people have answered with "always"."""

from __future__ import annotations

from typing import Final

from greenroom.actors.contract.casing import wire_of
from greenroom.actors.permission.remembered import RememberedRule
from greenroom.actors.stored_values import NAME_LIMIT

from ..protocol.codes import Refused
from .gateway import Gateway
from .http import Request, Response, Route, json_response

MOST: Final = 200
"""Rules of a page, at most; also the default."""
_RULE: Final = (
    *("rule_id", "scope", "holder", "form", "tool", "about", "by", "at", "run_id", "ticket_id"),
    *("revoked_at", "revoked_by"),
)


async def rules(gateway: Gateway, request: Request) -> Response:
    """List the remembered rules."""
    run, after = request.query.get("run"), request.query.get("cursor", "")
    if run is not None:
        page, cursor = await gateway.api.rules(request.who, run), None
    elif len(after) > NAME_LIMIT:
        raise Refused("bad_message", "cursor: give the one of the page before")
    else:
        limit = request.number("limit", MOST, least=1, most=MOST)
        page, cursor = await gateway.api.rules_page(request.who, after, limit)
    return json_response({"rules": [wire_of(rule, _RULE) for rule in page], "cursor": cursor})


async def revoke_rule(gateway: Gateway, request: Request) -> Response:
    """Revoke a remembered rule."""
    rule: RememberedRule = await gateway.api.revoke_rule(request.who, request.params["rule"])
    return json_response(wire_of(rule, _RULE))


_LIST: Final = {
    "run": "a run's id: only the rules that hold for this run, the newest first, as one page",
    "limit": f"at most so many, 1 to {MOST} (default {MOST}); in the order of their ids",
    "cursor": "from the page before",
}
ROUTES: Final[tuple[Route[Gateway], ...]] = (
    Route(
        method="GET", template="/v1/rules", handler=rules, scope="follow",
        summary="The rules that people have made with always", query=_LIST,
        responses={200: ("A page.", "RuleList")},
    ),
    Route(
        method="POST", template="/v1/rules/{rule}/revoke", handler=revoke_rule, scope="decide",
        summary="Revoke a remembered rule", responses={200: ("The rule, revoked.", "RuleLine")},
    ),
)  # fmt: skip
