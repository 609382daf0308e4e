"""The documents of the API: generated from tables and types at the first request."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from greenroom.actors.contract.schemas import event_schemas

from .asyncapi import asyncapi
from .http import Request, Response, Route, json_response
from .openapi import openapi

if TYPE_CHECKING:
    from .gateway import Gateway


async def schemas(_: Gateway, __: Request) -> Response:
    """Serve the JSON Schemas of all events."""
    return _schemas()


async def openapi_document(gateway: Gateway, request: Request) -> Response:
    """Serve the OpenAPI document; of a mounted gateway it names the path where that is."""
    return _openapi(tuple(gateway.routes), request.root)


async def asyncapi_document(_: Gateway, __: Request) -> Response:
    """Serve the AsyncAPI document."""
    return _asyncapi()


@cache
def _schemas() -> Response:
    return json_response(event_schemas())


@lru_cache(4)
def _openapi(routes: tuple[Route[Gateway], ...], root: str) -> Response:
    document = openapi(routes)
    return json_response(document | {"servers": [{"url": root}]} if root else document)


@cache
def _asyncapi() -> Response:
    return json_response(asyncapi())


ROUTES: Final[tuple[Route[Gateway], ...]] = (
    Route(
        method="GET", template="/v1/schemas", handler=schemas, scope=None, tag="documents",
        summary="JSON Schemas of all events", responses={200: ("Draft 2020-12.", "Document")},
    ),
    Route(
        method="GET", template="/v1/openapi.json", handler=openapi_document, scope=None, tag="documents",
        summary="This document", responses={200: ("OpenAPI 3.1.", "Document")},
    ),
    Route(
        method="GET", template="/v1/asyncapi.json", handler=asyncapi_document, scope=None, tag="documents",
        summary="The document of the WebSocket", responses={200: ("AsyncAPI 3.1.", "Document")},
    ),
)  # fmt: skip
