"""Sealed texts: what was sealed opens, and no other text does."""

import base64
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from greenroom.transport.protocol.sealed import LONGEST, Unsealed, opened, seal

TOKEN = "a-token-for-these-tests"
DATA: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@given(data=DATA, purpose=st.text(max_size=20), token=st.text(min_size=16, max_size=60))
def test_what_was_sealed_opens(data, purpose, token):
    assume(all(not 0xD800 <= ord(letter) < 0xE000 for letter in purpose))
    assert opened(purpose, seal(purpose, data, token), token, Any) == data


@given(data=DATA, at=st.integers(0, 10_000), letter=st.sampled_from([*LETTERS, "", "=", "+", "/", " ", "\n", "é"]))
def test_no_text_with_another_letter_opens(data, at, letter):
    text = seal("p", data, TOKEN)
    at %= len(text)
    for forged in (text[:at] + letter + text[at + 1 :], text[:at] + letter + text[at:], text[: at + 1] + text[at:]):
        if forged != text:
            with pytest.raises(Unsealed):
                opened("p", forged, TOKEN, Any)


@given(text=st.text(max_size=60))
def test_no_text_of_a_stranger_opens(text):
    with pytest.raises(Unsealed):
        opened("p", text, TOKEN, Any)


@given(data=DATA)
def test_a_text_opens_for_its_purpose_and_its_token_only(data):
    text = seal("p", data, TOKEN)
    for purpose, token in (("q", TOKEN), ("p", TOKEN + "x"), ("", TOKEN)):
        with pytest.raises(Unsealed):
            opened(purpose, text, token, Any)


def test_the_bytes_of_one_mark_have_one_text():
    """base64 has several texts for the last bits, and padding: they would be other names of one event."""
    text = seal("p", [12], TOKEN)
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    others = [text[:-1] + letter for letter in LETTERS if letter != text[-1]]
    same = [other for other in others if base64.urlsafe_b64decode(other + "=" * (-len(other) % 4)) == data]
    assert same
    for other in [*same, text + "=" * (-len(text) % 4 or 4), text + "\n"]:
        with pytest.raises(Unsealed):
            opened("p", other, TOKEN, Any)


@pytest.mark.parametrize("text", [None, 7, b"x", ["x"], "", "A" * (LONGEST + 1), "A" * LONGEST, "\ud800"])
def test_what_is_not_a_sealed_text_does_not_open(text):
    with pytest.raises(Unsealed):
        opened("p", text, TOKEN, Any)


def test_the_token_is_not_in_the_text():
    text = seal("p", {"a": 1}, TOKEN)
    assert TOKEN.encode() not in base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@pytest.mark.parametrize("data", [None, 5, {}, ["a"], ["a", "1"], ["a", 1, 2], [["a"], 1]])
def test_data_of_another_form_do_not_open(data):
    """The owner of a token can seal what it likes."""
    with pytest.raises(Unsealed):
        opened("p", seal("p", data, TOKEN), TOKEN, tuple[str, int])
