"""Holding back the end of a text that is still coming, so that no secret is shown in pieces."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.contract.secrets.named_secrets import LONGEST
from greenroom.actors.contract.secrets.redaction import MASK, Redactor
from greenroom.actors.services.delta_buffers import BUFFER_LIMIT, DeltaBuffer
from greenroom.actors.services.stream_redaction import StreamRedactor

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


def streamed(pieces: list[str], hold: StreamRedactor, redactor: Redactor) -> list[str]:
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
    hold, redactor = StreamRedactor(Redactor(SECRETS)), Redactor(SECRETS)
    text = " ".join(words)
    assert "".join(streamed(cut_up(text, places), hold, redactor)) == redactor.text(text)


@pytest.mark.no_cover
@given(st.text(max_size=80), st.lists(st.integers(0, 80), max_size=8))
def test_stream_redaction_keeps_all_text_in_order(text, places):
    hold, redactor = StreamRedactor(Redactor(SECRETS)), Redactor(SECRETS)
    assert "".join(streamed(cut_up(text, places), hold, redactor)) == redactor.text(text)


@pytest.mark.parametrize("secret", [*SECRETS, *KEYS])
def test_every_beginning_of_a_secret_is_held_back(secret):
    hold = StreamRedactor(Redactor(SECRETS))
    first = re.match(r"(?:https)?", secret).end()  # a URL's scheme is no secret
    for length in range(first + 1, len(secret)):
        assert hold.settled("see " + secret[:length]) <= 4 + first, secret[:length]


@pytest.mark.parametrize("text", ["", "an ordinary sentence.", "progress ....", "ends with a space ", "sk-: no key\n"])
def test_ordinary_text_is_shown_at_once(text):
    assert StreamRedactor(Redactor(["canary-7f3a9"])).settled(text) == len(text)


def test_the_held_back_text_is_bounded():
    hold = StreamRedactor(Redactor(["z" * 16_000]))
    for text in ("z" * 90_000, "sk-" + "a" * 90_000, "-----BEGIN KEY-----" + "a\n" * 50_000):
        assert len(text) - hold.settled(text) <= LONGEST


# --- secrets that are longer than what may be held back -------------------------------------

BODY = "".join(f"q7{n:04x}Zx" for n in range(3_000))  # 24,000 characters, each place of its own
LONG = {
    "pem": ("-----BEGIN PRIVATE KEY-----\n", BODY, "\n-----END PRIVATE KEY-----"),
    "quoted": ('{"password": "', BODY, '"}'),
    "escaped": ('{"password": "', BODY.replace("Zx", r"Z\""), '"}'),
    "inside": (r'"{\"password\": \"', BODY, r'\"}"'),
    "brackets": ('{"password": ', '[{"a": "' + BODY.replace("Zx", '"}, {"b": "]') + '"}]', "}"),
    "backslashes": ('{"password": "', '\\"' * 12_000, '"}'),
    "setting": ("API_KEY=", BODY, "\n"),
    "bearer": ("Authorization: Bearer ", BODY, "\n"),
    "token": ("see sk-", BODY, " "),
    "jwt": ("eyJhbGciOiJI.eyJ", BODY, ".abc "),
}


def followed(pieces: list[str], redactor: Redactor) -> str:
    """What a follower sees of a stream that comes in pieces, each delta redacted by itself."""
    stream, seen = DeltaBuffer(lambda: None, StreamRedactor(redactor).split), []
    for piece in pieces:
        stream.add(piece)
        while stream:
            seen.append(redactor.text(stream.take()))
        assert stream.waiting <= LONGEST
    while text := stream.take(last=True):
        seen.append(redactor.text(text))
    return "".join(seen)


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.parametrize("kind", LONG)
def test_a_secret_longer_than_the_held_back_text_is_masked_at_every_cut(kind, sampled):
    before, body, behind = LONG[kind]
    redactor, text = Redactor(SECRETS), f"so {before}{body}{behind} and on"
    whole = redactor.text(text)
    assert MASK in whole
    assert body[5_000:5_020] not in whole
    start, end = 3 + len(before), 3 + len(before) + len(body)
    edges = [*range(1, start + 12), *range(LONGEST - 6, LONGEST + 6), *range(end - 12, len(text), 2)]
    for cut in sampled(edges, 15):
        assert followed([text[:cut], text[cut:]], redactor) == whole, cut
    for size in (997, 4_096, 16_384):
        assert followed([text[at : at + size] for at in range(0, len(text), size)], redactor) == whole, size


@pytest.mark.slow
@pytest.mark.parametrize("kind", LONG)
def test_a_secret_longer_than_a_piece_is_masked(kind):
    before, body, behind = LONG[kind]
    body = body if kind == "brackets" else body * 8
    redactor, text = Redactor(SECRETS), f"so {before}{body}{behind} and on"
    for size in (BUFFER_LIMIT, 300_000):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert followed(pieces, redactor) == redactor.text(text), size


def test_text_that_is_held_back_and_is_no_secret_keeps_its_middle():
    redactor = Redactor(["canary-" + "z" * 16_000])
    for text in (
        "password=" + "a" * 90_000 + " end",
        "canary-" + "z" * 15_999 + "y end",
        "so eyJ" + "a" * 50_000 + " end",
    ):
        assert followed([text[at : at + 5_000] for at in range(0, len(text), 5_000)], redactor) == text


def test_a_stream_holds_back_the_beginning_of_a_secret_that_was_learned_meanwhile():
    redactor = Redactor()
    streams = [StreamRedactor(redactor), StreamRedactor(redactor).within("/srv/work")]
    assert [stream.settled("it is zu") for stream in streams] == [8, 8]
    for _ in redactor.learn_steps(["zuglast-quartz"]):
        pass
    assert [stream.settled("it is zu") for stream in streams] == [6, 6]
