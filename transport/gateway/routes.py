"""Every HTTP operation of the gateway, in one table."""

from __future__ import annotations

from typing import Final

from . import console, pages
from .http import Route

ROUTES: Final[tuple[Route, ...]] = (*pages.ROUTES, *console.ROUTES)
