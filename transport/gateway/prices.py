"""The prices of models, by which a page shows what a run costs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import attrs
import msgspec

import greenroom as gr
from greenroom.actors.contract.casing import wire_of

from .gateway import Gateway
from .http import Request, Response, Route, json_response

NONE: Final[Mapping[str, gr.Price]] = MappingProxyType({})
MOST: Final = 1_000
"""Most prices; a page gets all of them."""
FILE_BYTES: Final = 262_144
"""Most bytes of a file of prices."""
_WAY: Final = "give the names of models, such as 'openai:gpt-5-mini', and a gr.Price for each"


class _Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: float
    output: float
    cached: float | None = None
    stored: float | None = None


def checked_prices(prices: Mapping[str, gr.Price] | None) -> Mapping[str, gr.Price]:
    """Return the prices of an option.

    Raises:
        UsageError: It is something else, or has more than `MOST` prices.
    """
    table: object = prices
    if table is None:
        return NONE
    if not isinstance(table, Mapping) or len(table) > MOST:
        raise gr.UsageError(f"prices={table!r:.100}: {_WAY}, at most {MOST:,}")
    for name, price in table.items():
        if not isinstance(name, str) or not isinstance(price, gr.Price):
            raise gr.UsageError(f"prices={{{name!r:.100}: {price!r:.100}}}: {_WAY}")
    return MappingProxyType(dict(table))


def read_prices(file: Path) -> Mapping[str, gr.Price]:
    """Read a JSON file: model name -> {"input", "output", "cached", "stored"}, each per million tokens.

    Raises:
        UsageError: The file cannot be read, or has another form.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES + 1)
    except OSError as error:
        raise gr.UsageError(f"the prices cannot be read: {error}") from error
    if len(data) > FILE_BYTES:
        raise gr.UsageError(f"the file of prices {file} has more than {FILE_BYTES:,} bytes")
    try:
        table = msgspec.json.decode(data, type=dict[str, _Price])
    except msgspec.DecodeError as error:
        form = '{"openai:gpt-5-mini": {"input": 0.25, "output": 2.0}}, per million tokens'
        raise gr.UsageError(f"the file of prices {file}: {error}; write {form}") from error
    return checked_prices({name: gr.Price(**msgspec.structs.asdict(price)) for name, price in table.items()})


async def prices(gateway: Gateway, _: Request) -> Response:
    """List the prices of models."""
    fields = [field.name for field in attrs.fields(gr.Price)]
    return json_response({"prices": {name: wire_of(price, fields) for name, price in gateway.prices.items()}})


ROUTES: Final[tuple[Route[Gateway], ...]] = (
    Route(
        method="GET", template="/v1/prices", handler=prices, scope="follow",
        summary="The prices of models, per million tokens",
        responses={200: ("By the names of models.", "PriceList")},
    ),
)  # fmt: skip
