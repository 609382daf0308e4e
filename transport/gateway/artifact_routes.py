"""The HTTP routes of a run's bytes: its artifacts, and the images and files of its own input and results."""

from __future__ import annotations

from typing import Final

from greenroom.actors.contract.parts import Part

from .api import refusals
from .downloads import BYTES, UNCHANGED
from .gateway import Gateway
from .http import Request, Response, Route


async def artifact(gateway: Gateway, request: Request) -> Response:
    """Serve the bytes of an artifact."""
    run, name = request.params["run"], request.params["artifact"]
    return await gateway.downloads.response(request, lambda: gateway.api.artifact(request.who, run, name))


async def run_part(gateway: Gateway, request: Request) -> Response:
    """Serve the bytes of an image or a file of a run."""

    async def read() -> Part:
        info = await gateway.api.info(request.who, request.params["run"])
        with refusals():
            return await gateway.runtime.reader.threads.part_of_run(info.run_id, request.params["sha256"])

    return await gateway.downloads.response(request, read)


ROUTES: Final[tuple[Route[Gateway], ...]] = (
    Route(
        method="GET", template="/v1/runs/{run}/artifacts/{artifact}", handler=artifact, scope="follow",
        summary="The bytes of an artifact, as a download", headers=UNCHANGED, responses=BYTES,
    ),
    Route(
        method="GET", template="/v1/runs/{run}/parts/{sha256}", handler=run_part, scope="follow",
        summary="The bytes of an image or a file of the run's input or results, as a download",
        headers=UNCHANGED, responses=BYTES,
    ),
)  # fmt: skip
