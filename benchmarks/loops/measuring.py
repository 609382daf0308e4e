"""What the scripts of this folder share.

python on_langgraph.py alone 300     one run after the other
python on_langgraph.py together 1000 all at once
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - these libraries know no other loop
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable

WARM = 30
"""Runs that are not counted."""


def measure(run_once: Callable[[], Awaitable[object]]) -> None:
    """Play one-tool runs as the command line says, and print what they took. Each must come to the text "done"."""
    mode, count = sys.argv[1], int(sys.argv[2])

    async def main() -> tuple[float, float]:
        for _ in range(WARM):
            assert await run_once() == "done"
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        if mode == "alone":
            outputs = [await run_once() for _ in range(count)]
        else:
            outputs = await asyncio.gather(*(run_once() for _ in range(count)))
        cost = time.perf_counter() - wall, time.process_time() - cpu
        assert outputs == ["done"] * count
        return cost

    wall, cpu = asyncio.run(main())
    print(json.dumps({"wall": wall, "cpu": cpu}))
