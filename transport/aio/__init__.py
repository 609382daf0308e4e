"""Greenroom for programs on asyncio; docs/asyncio.md is the guide."""

from .asgi import asgi_app
from .connect import connect
from .in_host import in_host
from .open_runtime import open_runtime, run
from .runtime import Run, RunReader, Runtime
from .serving import serve

__all__ = ["Run", "RunReader", "Runtime", "asgi_app", "connect", "in_host", "open_runtime", "run", "serve"]
