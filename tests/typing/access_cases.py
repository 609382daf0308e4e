"""A runtime and a client are both a `RunAccess`."""

from typing import assert_type

import greenroom as gr
from greenroom.transport import Client


async def read(access: gr.RunAccess) -> None:
    page = await access.runs(status="waiting", limit=3)
    assert_type([line.run_id for line in page.runs], list[str])
    assert_type(await access.view("r"), gr.RunView)
    async with access.follow("r", after=3) as events:
        async for event in events:
            assert_type(event, gr.Event)
    assert_type([rule.rule_id for rule in await access.rules("r")], list[str])
    assert_type(await access.revoke_rule("x"), gr.ext.RememberedRule | None)
    await access.runs(state="done")  # type: ignore[call-arg]


async def both(runtime: gr.Runtime, client: Client) -> None:
    await read(runtime)
    await read(runtime.as_principal("ann"))
    await read(client)
