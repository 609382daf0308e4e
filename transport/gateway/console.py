"""The console's files: static, small, read once, served with a policy that allows no other source."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Final

from ..protocol.codes import Refused
from .gateway import Gateway
from .http import Request, Response, Route

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "connect-src 'self' ws: wss:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""The Content-Security-Policy: the page's own files and its own gateway; no inline script, no frame around the page.

`blob:`: pictures that the page has read with its token, as artifacts."""

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


@cache
def _assets() -> dict[str, tuple[bytes, str, str]]:
    """Return name -> content, type and ETag of every file."""
    assets = {}
    for entry in files("greenroom.transport.console").iterdir():
        kind = _TYPES.get(PurePosixPath(entry.name).suffix)
        if kind is not None:
            content = entry.read_bytes()
            assets[entry.name] = content, kind, f'"{sha256(content).hexdigest()[:16]}"'
    return assets


async def page(_: Gateway, request: Request) -> Response:
    """Serve the console's page."""
    return _asset("index.html", request)


async def asset(_: Gateway, request: Request) -> Response:
    """Serve a file of the console."""
    return _asset(request.params["name"], request)


async def icon(_: Gateway, request: Request) -> Response:
    """Serve the icon, which browsers request without a link."""
    return _asset("favicon.svg", request)


def _asset(name: str, request: Request) -> Response:
    file = _assets().get(name)
    if file is None:
        raise Refused("not_found", f"the console has no file {name!r:.100}")
    content, kind, tag = file
    headers = [("content-security-policy", POLICY), ("etag", tag), ("cache-control", "no-cache")]
    if request.headers.get("if-none-match") == tag:
        return Response(status=304, content_type=kind, headers=headers)
    return Response(body=content, content_type=kind, headers=headers)


ROUTES: Final[tuple[Route[Gateway], ...]] = (
    Route(
        method="GET", template="/", handler=page, scope=None, tag="console",
        summary="The console", responses={200: ("A page.", "text/html")},
    ),
    Route(
        method="GET", template="/console/{name}", handler=asset, scope=None, tag="console",
        summary="A file of the console",
        responses={200: ("The file.", ("text/html", "text/javascript", "text/css", "image/svg+xml"))},
    ),
    Route(
        method="GET", template="/favicon.ico", handler=icon, scope=None, tag="console",
        summary="The console's icon", responses={200: ("A picture.", "image/svg+xml")},
    ),
)  # fmt: skip
