"""Names for JSON data in annotations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

JSONValue: TypeAlias = Any
"""What JSON has a form for: dict, list, str, int, float, bool or None.

To a type checker it is Any, and not the recursive union that it stands for: what user code reads from it has a form
that only user code knows, and a cast at each step into it would say no more.
"""

JSONObject: TypeAlias = Mapping[str, JSONValue]
"""A JSON object."""
