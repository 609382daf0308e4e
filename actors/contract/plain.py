"""Names for JSON data in annotations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

JSONValue: TypeAlias = Any
"""A value with a form in JSON: dict, list, str, int, float, bool or None.

Any for the type checker instead of a recursive union: only user code knows the form of its data, and casts at each
access would add no information.
"""

JSONObject: TypeAlias = Mapping[str, JSONValue]
"""A JSON object."""
