"""Greenroom for programs on asyncio; docs/asyncio.md is the guide."""

from .asgi import asgi_app
from .open_runtime import open_runtime, run
from .runtime import Run, RunReader, Runtime

__all__ = ["Run", "RunReader", "Runtime", "asgi_app", "open_runtime", "run"]
