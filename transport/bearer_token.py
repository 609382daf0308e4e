"""New tokens: the words with which a principal names itself to a gateway."""

from __future__ import annotations

import secrets


def new_token() -> str:
    """Return a new random token (192 bits).

    The token begins with a letter or a digit. Programs take a word that begins with - for an option: `--token -abc` has
    no value for them.
    """
    while True:
        token = secrets.token_urlsafe(24)
        if token[0].isalnum():
            return token
