"""The table of all HTTP operations of the gateway."""

from __future__ import annotations

from typing import Final

import attrs

from ..frontends.a2a import routes as a2a
from ..frontends.ag_ui import routes as ag_ui
from ..frontends.ai_sdk import routes as ai_sdk
from ..frontends.mcp import routes as mcp
from ..gateway import (
    artifact_routes,
    console,
    documents,
    prices,
    rule_routes,
    run_routes,
    thread_routes,
    throughput,
    ticket_routes,
)
from ..gateway.exposed import A2AOptions
from ..gateway.gateway import Gateway
from ..gateway.http import Route

ROUTES: Final[tuple[Route[Gateway], ...]] = (
    *run_routes.ROUTES,
    *artifact_routes.ROUTES,
    *thread_routes.ROUTES,
    *rule_routes.ROUTES,
    *throughput.ROUTES,
    *prices.ROUTES,
    *ticket_routes.ROUTES,
    *documents.ROUTES,
    *ag_ui.ROUTES,
    *ai_sdk.ROUTES,
    *a2a.ROUTES,
    *mcp.ROUTES,
    *console.ROUTES,
)


def routes_with(a2a_options: A2AOptions) -> tuple[Route[Gateway], ...]:
    """Return the operations of a gateway with these options: public cards need no token."""
    if a2a_options.cards == "private":
        return ROUTES
    return tuple(attrs.evolve(route, scope=None) if route in a2a.CARDS else route for route in ROUTES)
