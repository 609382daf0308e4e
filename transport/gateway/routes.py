"""The table of all HTTP operations of the gateway."""

from __future__ import annotations

from typing import Final

from . import ag_ui, ai_sdk, console, documents, run_routes
from .gateway import Gateway
from .http import Route

ROUTES: Final[tuple[Route[Gateway], ...]] = (
    *run_routes.ROUTES,
    *documents.ROUTES,
    *ag_ui.ROUTES,
    *ai_sdk.ROUTES,
    *console.ROUTES,
)
