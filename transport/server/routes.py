"""The table of all HTTP operations of the gateway."""

from __future__ import annotations

from typing import Final

from ..frontends.ag_ui import routes as ag_ui
from ..frontends.ai_sdk import routes as ai_sdk
from ..frontends.mcp import routes as mcp
from ..gateway import artifact_routes, console, documents, rule_routes, run_routes
from ..gateway.gateway import Gateway
from ..gateway.http import Route

ROUTES: Final[tuple[Route[Gateway], ...]] = (
    *run_routes.ROUTES,
    *artifact_routes.ROUTES,
    *rule_routes.ROUTES,
    *documents.ROUTES,
    *ag_ui.ROUTES,
    *ai_sdk.ROUTES,
    *mcp.ROUTES,
    *console.ROUTES,
)
