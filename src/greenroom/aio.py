"""Greenroom for programs on asyncio.

    async with greenroom.aio.open_runtime("greenroom.db", agents=[support]) as runtime:
        run = await runtime.start(support, "refund order 7")
        outcome = await run.wait()

Import this module by its name; `import greenroom` does not import asyncio.
"""

from greenroom.supervision.public import publish as _publish
from greenroom.transport.aio import Run as Run
from greenroom.transport.aio import RunReader as RunReader
from greenroom.transport.aio import Runtime as Runtime
from greenroom.transport.aio import asgi_app as asgi_app
from greenroom.transport.aio import connect as connect
from greenroom.transport.aio import in_host as in_host
from greenroom.transport.aio import open_runtime as open_runtime
from greenroom.transport.aio import run as run
from greenroom.transport.aio import serve as serve

__all__ = ["Run", "RunReader", "Runtime", "asgi_app", "connect", "in_host", "open_runtime", "run", "serve"]

_publish(__name__, globals(), __all__)
