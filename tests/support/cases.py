"""Names of parametrized cases."""

import re


def case(value: object) -> str:
    """A value's text without addresses: a test has one name, in every process and every session."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))
