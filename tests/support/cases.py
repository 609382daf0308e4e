"""Names of parametrized cases."""

import re

LONGEST = 60
"""Characters of a name."""


def case(value: object) -> str:
    """A value's text without addresses and in a fixed order: a test has one name, in every process and session."""
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(repr, value)))}}}"
    text = value if isinstance(value, str) else repr(value)
    return re.sub(r" at 0x[0-9a-f]+", "", text)[:LONGEST]
