"""The prices that a gateway is started with: as values, and as a file."""

from pathlib import Path

import pytest

import greenroom as gr
from greenroom.transport.gateway.prices import FILE_BYTES, MOST, checked_prices, read_prices


def test_a_file_has_the_prices_of_models(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_text(
        '{"openai:gpt-5-mini": {"input": 0.25, "output": 2.0, "cached": 0.025}, "scripted": {"input": 1, "output": 2}}'
    )
    assert read_prices(file) == {
        "openai:gpt-5-mini": gr.Price(0.25, 2.0, cached=0.025),
        "scripted": gr.Price(1.0, 2.0),
    }


@pytest.mark.parametrize(
    "text", ["", "[]", '{"a": 1}', '{"a": {"input": 1}}', '{"a": {"input": 1, "output": 2, "x": 3}}']
)
def test_a_file_of_another_form_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prices.json"
    file.write_text(text)
    with pytest.raises(gr.UsageError, match=r"prices\.json: .*; write \{"):
        read_prices(file)


def test_a_file_that_is_missing_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(gr.UsageError, match="cannot be read"):
        read_prices(tmp_path / "none.json")
    (tmp_path / "large.json").write_bytes(b" " * (FILE_BYTES + 1))
    with pytest.raises(gr.UsageError, match="more than 262,144 bytes"):
        read_prices(tmp_path / "large.json")


@pytest.mark.parametrize(
    "prices", [7, {"a": 1}, {1: gr.Price(1, 2)}, {str(n): gr.Price(1, 2) for n in range(MOST + 1)}]
)
def test_other_values_are_refused(prices: object) -> None:
    with pytest.raises(gr.UsageError, match="prices="):
        checked_prices(prices)  # type: ignore[arg-type]
