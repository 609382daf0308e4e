"""The binary forms of arrays and times, read again by the driver's own loaders."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

psycopg = pytest.importorskip("psycopg", reason="greenroom[postgres] is not installed")

from greenroom.actors.stores.postgres._values import Bigints, Blobs, Moment, Moments, Texts, adapt  # noqa: E402 - as above

BINARY = psycopg.pq.Format.BINARY
NUMBERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
MOMENTS = st.integers(0, 4_102_444_800_000)
"""Milliseconds: from 1970 to 2100."""


@pytest.fixture(scope="module")
def form() -> Any:
    adapters = psycopg.adapt.AdaptersMap(psycopg.adapters)

    class Context:
        """What a connection has, without a server."""

        connection = None

    Context.adapters = adapters  # type: ignore[attr-defined]
    adapt(Context)  # type: ignore[arg-type]
    return psycopg.adapt.Transformer(Context)  # type: ignore[arg-type]


def again(form: Any, value: Any) -> Any:
    """Return what the driver reads from a value's binary form."""
    (data,) = form.dump_sequence([value], [psycopg.adapt.PyFormat.AUTO])
    return psycopg.adapt.Transformer().get_loader(form.types[0], BINARY).load(bytes(data))


def moment(number: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=number)


@given(numbers=st.lists(NUMBERS, max_size=40))
def test_numbers(form: Any, numbers: list[int]) -> None:
    assert again(form, Bigints(numbers)) == numbers


@pytest.mark.parametrize("count", [0, 1, 2, 999, 20_000])
def test_numbers_of_any_count(form: Any, count: int) -> None:
    assert again(form, Bigints(range(count))) == [*range(count)]


@given(texts=st.lists(st.none() | TEXTS, max_size=20))
def test_texts(form: Any, texts: list[str | None]) -> None:
    assert again(form, Texts(texts)) == texts


@given(blobs=st.lists(st.none() | st.binary(), max_size=20))
def test_blobs(form: Any, blobs: list[bytes | None]) -> None:
    assert again(form, Blobs(blobs)) == blobs


@given(moments=st.lists(st.none() | MOMENTS, max_size=20))
def test_moments(form: Any, moments: list[int | None]) -> None:
    assert again(form, Moments(moments)) == [None if number is None else moment(number) for number in moments]


@given(number=MOMENTS)
def test_a_moment(form: Any, number: int) -> None:
    assert again(form, Moment(number)) == moment(number)


@pytest.mark.parametrize("numbers", [[2**63], [0, -(2**63) - 1]])
def test_a_number_that_is_too_large_is_refused(form: Any, numbers: list[int]) -> None:
    with pytest.raises(Exception, match=r"range|too large|format"):
        again(form, Bigints(numbers))
