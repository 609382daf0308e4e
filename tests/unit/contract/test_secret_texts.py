"""Secrets in the forms in which programs write them, judged by the lists of a kept corpus."""

import json
from itertools import pairwise

import pytest
from detect_secrets.core.scan import scan_line
from detect_secrets.settings import transient_settings

from greenroom.actors.contract.secrets.redaction import MASK, Redactor
from greenroom.actors.contract.secrets.shapes import TOKENS, SecretShape
from greenroom.actors.services.stream_redaction import StreamRedactor

from ...support.secret_texts import DATA, KEY, ORDINARY, PRIVATE, TEXTS, S

PLAIN = Redactor()
KINDS = (
    *(
        "AWSKeyDetector",
        "AzureStorageKeyDetector",
        "BasicAuthDetector",
        "DiscordBotTokenDetector",
        "GitHubTokenDetector",
    ),
    *(
        "GitLabTokenDetector",
        "JwtTokenDetector",
        "KeywordDetector",
        "MailchimpDetector",
        "NpmDetector",
        "OpenAIDetector",
    ),
    *("PrivateKeyDetector", "PypiTokenDetector", "SendGridDetector", "SlackDetector", "SquareOAuthDetector"),
    *("StripeDetector", "TelegramBotTokenDetector", "TwilioKeyDetector"),
)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_secret_is_hidden_in_each_form_and_its_surroundings_stay(text: str) -> None:
    shown = PLAIN.text(text)
    assert S not in shown
    assert KEY not in shown
    assert PRIVATE[80:140] not in shown
    assert MASK in shown
    for word in ("bob", "5432", "region", "EndpointSuffix", "bye", "text/html", "root", "infinity", "Accept"):
        assert (word in shown) == (word in text.replace(f"bob:{S}@", "").replace("bob:p@", "")), shown
    assert PLAIN.text(shown) == shown


@pytest.mark.parametrize("value", DATA.values(), ids=DATA)
def test_a_secret_is_hidden_in_each_form_of_data(value: object) -> None:
    shown = PLAIN.value(value)
    assert S not in json.dumps(shown)
    assert "123456" not in json.dumps(shown)
    assert PLAIN.value(shown) == shown
    assert PLAIN.restored(shown, value) == value


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_and_data_stay(text: str) -> None:
    assert PLAIN.text(text) is text


def test_an_edit_beside_a_hidden_part_keeps_the_part() -> None:
    raw = {"env": [{"name": "DB_PASSWORD", "value": S, "note": "a"}], "argv": ["x", "--token", S]}
    shown = PLAIN.value(raw)
    shown["env"][0]["note"], shown["argv"][0] = "b", "y"
    assert PLAIN.restored(shown, raw) == {
        "env": [{"name": "DB_PASSWORD", "value": S, "note": "b"}],
        "argv": ["y", "--token", S],
    }


STREAMED = {name: text for name, text in TEXTS.items() if "turned" not in name}
"""A value whose name follows may be shown before the name has come."""


@pytest.mark.parametrize("text", STREAMED.values(), ids=STREAMED)
def test_a_stream_hides_the_secret_wherever_its_pieces_end(text: str) -> None:
    whole = PLAIN.text(text)
    for cut in range(1, len(text)):
        assert "".join(_streamed(text, [0, cut, len(text)])) == whole
    assert "".join(_streamed(text, [*range(len(text)), len(text)])) == whole


@pytest.mark.parametrize("size", [691, 700, 709, 1_000])
def test_a_stream_drops_the_middle_of_a_long_key_in_base64_wherever_its_lines_end(size: int) -> None:
    key = "\n".join([PRIVATE[:76], *(f"{line:076}" for line in range(10**70, 10**70 + 500))])
    hold, waits, out = StreamRedactor(PLAIN), "", ""
    for start in range(0, len(key), size):
        waits += key[start : start + size]
        cut, kept = hold.split(waits)
        out += PLAIN.text(waits[:cut])
        waits = kept
    assert out + PLAIN.text(waits) == MASK


@pytest.mark.parametrize("text", ORDINARY)
def test_a_stream_of_ordinary_text_stays(text: str) -> None:
    assert "".join(_streamed(text, [*range(len(text)), len(text)])) == text


def _streamed(text: str, places: list[int]) -> list[str]:
    hold, waits, out = StreamRedactor(PLAIN), "", []
    for start, end in pairwise(places):
        waits += text[start:end]
        cut = hold.settled(waits)
        out.append(PLAIN.text(waits[:cut]))
        waits = waits[cut:]
    return [*out, PLAIN.text(waits)]


def _found(text: str) -> set[str]:
    """What detect-secrets finds in a text; its own word lists and entropy filters are switched off."""
    with transient_settings({"plugins_used": [{"name": name} for name in KINDS]}):
        return {str(secret.secret_value) for line in text.splitlines() for secret in scan_line(line)}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_judge_finds_no_secret_that_is_left(text: str) -> None:
    left = {found for found in _found(PLAIN.text(text)) if MASK not in found and "redacted" not in found}
    assert not {found for found in left if found in S or S in found}


def test_the_judge_finds_secrets_where_there_are_some() -> None:
    assert sum(bool(_found(text)) for text in TEXTS.values()) >= 7
    assert sum(bool(_found(f"key {token.example} here")) for token in TOKENS.values()) >= 4


@pytest.mark.parametrize("token", TOKENS.values(), ids=TOKENS)
def test_a_judge_finds_no_token_that_is_left(token: SecretShape) -> None:
    for text in (f"key {token.example} here", f'key = "{token.example}"', token.example):
        assert not {found for found in _found(PLAIN.text(text)) if found in token.example}
