"""Every HTTP operation of the gateway, in one table."""

from __future__ import annotations

from typing import Final

from . import console, documents, pages
from .http import Route

ROUTES: Final[tuple[Route, ...]] = (*pages.ROUTES, *documents.ROUTES, *console.ROUTES)
