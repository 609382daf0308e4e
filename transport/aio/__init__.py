"""Greenroom for programs on asyncio; docs/asyncio.md is the guide."""

from .asgi import asgi_app
from .in_host import in_host
from .open_runtime import open_runtime, run
from .runtime import Run, RunReader, Runtime

__all__ = ["Run", "RunReader", "Runtime", "asgi_app", "in_host", "open_runtime", "run"]
