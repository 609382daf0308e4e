"""Holding back the end of a text that is still coming, so that no secret is shown in pieces."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.contract.redaction import Redactor
from greenroom.actors.run.holdback import LONGEST, HoldBack

SECRETS = ("canary-7f3a9", "correct horse battery", 'quo"ted\\secret', "schlüssel/geheim")
KEYS = (
    "sk-" + "a1B2" * 8,
    "ghp_" + "x" * 30,
    "AKIA" + "Q" * 16,
    "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2QT4",
    "Bearer abcdefghijklmnopqrstuvwxyz",
    "https://user:hunter2@",
    "-----BEGIN PRIVATE KEY-----\nMIIB\nAgE=\n-----END PRIVATE KEY-----",
)


def streamed(pieces: list[str], hold: HoldBack, redactor: Redactor) -> list[str]:
    """What a follower would see: each delta redacted by itself."""
    waits, out = "", []
    for piece in pieces:
        waits += piece
        cut = hold.settled(waits)
        if cut:
            out.append(redactor.text(waits[:cut]))
            waits = waits[cut:]
    return [*out, redactor.text(waits)]


def cut_up(text: str, places: list[int]) -> list[str]:
    bounds = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[a:b] for a, b in pairwise(bounds)]


@given(
    st.lists(
        st.sampled_from([*SECRETS, *KEYS, " ", "\n", "a", "can", "canary", ".", "correct horse", "-----", "sk"]),
        max_size=8,
    ),
    st.lists(st.integers(0, 500), max_size=12),
)
def test_a_secret_is_masked_wherever_the_text_is_cut(words, places):
    hold, redactor = HoldBack(SECRETS), Redactor(SECRETS)
    text = " ".join(words)
    assert "".join(streamed(cut_up(text, places), hold, redactor)) == redactor.text(text)


@given(st.text(max_size=80), st.lists(st.integers(0, 80), max_size=8))
def test_nothing_is_lost_and_nothing_changes_its_place(text, places):
    hold, redactor = HoldBack(SECRETS), Redactor(SECRETS)
    assert "".join(streamed(cut_up(text, places), hold, redactor)) == redactor.text(text)


@pytest.mark.parametrize("secret", [*SECRETS, *KEYS])
def test_every_beginning_of_a_secret_is_held_back(secret):
    hold = HoldBack(SECRETS)
    first = re.match(r"(?:https)?", secret).end()  # a URL's scheme is no secret
    for length in range(first + 1, len(secret)):
        assert hold.settled("see " + secret[:length]) <= 4 + first, secret[:length]


@pytest.mark.parametrize("text", ["", "an ordinary sentence.", "progress ....", "ends with a space ", "sk-: no key\n"])
def test_ordinary_text_is_shown_at_once(text):
    assert HoldBack(["canary-7f3a9"]).settled(text) == len(text)


def test_what_is_held_back_is_bounded():
    hold = HoldBack(["z" * 100_000])
    for text in ("z" * 90_000, "sk-" + "a" * 90_000, "-----BEGIN KEY-----" + "a\n" * 50_000):
        assert len(text) - hold.settled(text) <= LONGEST
