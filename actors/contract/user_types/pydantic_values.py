"""Objects of pydantic's types as JSON data. Imports pydantic, which is an extra."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter


@lru_cache(maxsize=256)
def _writer(cls: type) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def dumped(value: object) -> Any:
    """Return an object of a type of pydantic, such as a SecretStr, as JSON data: masked, if the type masks it.

    Raises:
        BaseException: raised by the type.
    """
    kind: Any = type(value)
    return _writer(kind).dump_python(value, mode="json", by_alias=True)
