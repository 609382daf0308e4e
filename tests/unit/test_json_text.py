"""JSON from strangers: what is read, what is refused before it is decoded, and that texts in strings do not count."""

import msgspec
import pytest

from greenroom.actors.json_text import VALUES_LIMIT, JSONTextError, read_json, values_of

TABLE = "a,b,[c],{d}\n" * 50_000


@pytest.mark.parametrize(
    "value",
    [
        None,
        7,
        "a",
        [],
        {"a": [1, {"b": None}]},
        list(range(VALUES_LIMIT // 2)),
        TABLE,
        {"text": TABLE, "quoted": '"x",\\' * 9},
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("form", [bytes, str])
def test_what_is_written_is_read(value: object, form: type) -> None:
    text = msgspec.json.encode(value)
    assert read_json(text if form is bytes else text.decode()) == value


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"", "is not JSON: "),
        (b"\xff", "is not JSON: "),
        (b"[" * 90_000, "is not JSON: "),
        (b"[" * 200_000, "has 200,000 values; at most 100,000 are read"),
        (b"[" + b"[]," * 60_000 + b"[]]", "has 120,002 values; at most 100,000 are read"),
        (b"[" + b'"",' * 120_000 + b"1]", "has 120,001 values; at most 100,000 are read"),
        (b'["' + b'\\",' * 10 + b'",' + b"1," * 120_000 + b"1]", "has 120,002 values; at most 100,000 are read"),
    ],
)
def test_a_text_that_is_refused_says_why(text: bytes, fault: str) -> None:
    with pytest.raises(JSONTextError) as caught:
        read_json(text)
    assert str(caught.value).startswith(fault)


def test_the_marks_of_a_text_with_many_strings_count_all() -> None:
    text = msgspec.json.encode([","] * 30_000)
    assert values_of(text) == 60_000
