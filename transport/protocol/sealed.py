"""Sealed texts: data that a client carries for the gateway and cannot change.

A sealed text is base64url of a mark and JSON. The mark is 96 bits of HMAC-SHA256; its key is the HMAC of the client's
own bearer token over a purpose. So no secret is made, stored or shared: each process that accepts the token opens the
text, at any later time, and a changed token makes the text void. Forging a text takes the token, and gains nothing that
the token's owner may not request anyway: a decision in a sealed text is judged like any other.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Any, Final

import msgspec

MARK: Final = 12
"""Bytes of the mark: 16 characters of base64url, so the mark and the JSON do not share a character."""
LONGEST: Final = 65_536
"""Most characters of a sealed text that is opened; a client could send a longer one, the gateway makes none."""

_encode = msgspec.json.Encoder().encode


class Unsealed(Exception):
    """A text is not one that was sealed for this purpose with this token."""


def seal(purpose: str, data: object, token: str) -> str:
    """Return a sealed text.

    Args:
        purpose: What the text is for; a text opens for its own purpose only.
        data: JSON data; readable for the client.
        token: The bearer token of the client.
    """
    body = _encode(data)
    return base64.urlsafe_b64encode(_mark(purpose, body, token) + body).rstrip(b"=").decode()


def opened(purpose: str, text: object, token: str, form: Any) -> Any:
    """Return the data of a sealed text. The cost is linear in its length, at most `LONGEST`.

    Args:
        purpose: The purpose for which the text was sealed.
        text: What the client has sent.
        token: The bearer token of the client.
        form: The type of the data, as msgspec takes it.

    Raises:
        Unsealed: `seal` does not return this text for this purpose and token, or the data have another form: the owner
            of the token can seal what it likes.
    """
    if not isinstance(text, str) or len(text) > LONGEST:
        raise Unsealed("the text is not a sealed one")
    try:
        data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise Unsealed("the text is not base64url") from error
    mark, body = data[:MARK], data[MARK:]
    # base64 has several texts for some data: only the one that `seal` makes is good
    canonical = base64.urlsafe_b64encode(data).rstrip(b"=").decode() == text
    if not canonical or not hmac.compare_digest(mark, _mark(purpose, body, token)):
        raise Unsealed("the text is forged, or was sealed for another purpose or with another token")
    try:
        return msgspec.json.decode(body, type=form)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:  # a misfit is a DecodeError, too
        raise Unsealed("the data of the text have another form") from error


def _mark(purpose: str, body: bytes, token: str) -> bytes:
    key = hmac.digest(token.encode(errors="surrogatepass"), purpose.encode(), "sha256")
    return hmac.digest(key, body, "sha256")[:MARK]
