"""The HTTP route of artifacts: bytes of strangers, served so that no browser executes them.

Theory of operation. An artifact may be a page with scripts. So it is a download (`attachment`), its type is the
declared one (`nosniff`, as of every response), and a page that a browser opens all the same has a separate origin and
no scripts (`sandbox`). The console fetches the bytes with its token and decides itself what to show.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final
from urllib.parse import quote

import greenroom as gr

from .gateway import Gateway
from .http import Request, Response, Route

POLICY: Final = "default-src 'none'; sandbox"
"""The Content-Security-Policy of an artifact: no script, no form, no source, a separate origin."""
ANY: Final = "*/*"
"""The media type in the document: that of the artifact."""


async def artifact(gateway: Gateway, request: Request) -> Response:
    """Serve the bytes of an artifact."""
    who = request.who
    gateway.downloads.begin(who)
    with ExitStack() as stack:
        stack.callback(gateway.downloads.end, who)
        published = await gateway.api.artifact(who, request.params["run"], request.params["artifact"])
        end = stack.pop_all().close  # now the response ends the download
    tag = f'"{published.sha256}"'
    headers = [
        ("content-disposition", _download(published.name)),
        ("content-security-policy", POLICY),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "private, no-cache"),
        ("etag", tag),
    ]
    if request.headers.get("if-none-match") == tag:
        return Response(status=304, headers=headers, sent=end)
    return Response(body=published.data or b"", content_type=_type(published), headers=headers, sent=end)


def _type(published: gr.Artifact) -> str:
    kind = published.media_type
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def _download(name: str) -> str:
    """Return the header that makes browsers save a file under a name (RFC 6266), which may have any letters."""
    plain = "".join(letter if letter.isascii() and letter not in '"\\%' else "_" for letter in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


ROUTES: Final[tuple[Route[Gateway], ...]] = (
    Route(
        method="GET", template="/v1/runs/{run}/artifacts/{artifact}", handler=artifact, scope="follow",
        summary="The bytes of an artifact, as a download",
        headers={"If-None-Match": "the ETag of an earlier response: 304 if the bytes are the same"},
        responses={200: ("The bytes, under their media type.", ANY), 304: ("The bytes are the same.", None)},
    ),
)  # fmt: skip
