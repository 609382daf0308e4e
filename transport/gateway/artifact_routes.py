"""The HTTP route of artifacts, and that of the images and files of a run's own input and results."""

from __future__ import annotations

from typing import Final

from .downloads import BYTES, UNCHANGED
from .gateway import Gateway
from .http import Request, Response, Route


async def artifact(gateway: Gateway, request: Request) -> Response:
    """Serve the bytes of an artifact."""
    run, name = request.params["run"], request.params["artifact"]
    return await gateway.downloads.response(request, lambda: gateway.api.artifact(request.who, run, name))


ROUTES: Final[tuple[Route[Gateway], ...]] = (
    Route(
        method="GET", template="/v1/runs/{run}/artifacts/{artifact}", handler=artifact, scope="follow",
        summary="The bytes of an artifact, as a download", headers=UNCHANGED, responses=BYTES,
    ),
)  # fmt: skip
