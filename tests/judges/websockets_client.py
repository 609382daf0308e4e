"""The `websockets` library against a gateway: tests/e2e/test_judge_websockets.py runs it in a process of its own.

    python websockets_client.py URL TOKEN SCENARIO

prints what it has seen as one JSON object. That library is built on asyncio, which the project itself does not use.
"""

import asyncio  # noqa: TID251 - the judge's own loop, in a process of its own
import json
import sys
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

SUBPROTOCOL = "greenroom.v1"
PATIENCE = 120.0
"""Seconds for a scenario."""


def dial(url: str, token: str | None, **options: Any) -> connect:
    """A connection as the library makes it by default: it also offers compression."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    more = {"subprotocols": [SUBPROTOCOL], "additional_headers": headers | options.pop("headers", {}), "proxy": None}
    return connect(url, **(more | options))


async def hear(ws: ClientConnection, kind: str) -> list[dict[str, Any]]:
    """All frames up to the first one of this type."""
    frames = [json.loads(await ws.recv(decode=True))]
    while frames[-1]["type"] != kind:
        frames.append(json.loads(await ws.recv(decode=True)))
    return frames


async def say(ws: ClientConnection, kind: str, **fields: Any) -> None:
    """One frame."""
    await ws.send(json.dumps({"type": kind, **fields}))


async def life(url: str, token: str) -> dict[str, Any]:
    """Start a run, follow it, lose the connection, come back with the cursor, decide, follow it to its end."""
    seen = []
    async with dial(url, token) as ws:
        welcome = json.loads(await ws.recv())
        await say(ws, "start", id="s1", agent="clerk", text="hi")
        run = (await hear(ws, "gw.ack"))[-1]["run"]
        await say(ws, "subscribe", run=run)
        seen += await hear(ws, "run.waiting")
        ws.transport.abort()
    events = [frame for frame in seen if not frame["type"].startswith("gw.")]
    kept = events[:-3]  # as if the last ones had not been applied before the connection was lost
    ticket = next(event["payload"] for event in events if event["type"] == "run.approval.requested")
    async with dial(url, None) as ws:  # as a page does: the token in the first frame
        await say(ws, "hello", token=token, client="websockets")
        await hear(ws, "gw.welcome")
        await say(ws, "subscribe", run=run, after=kept[-1]["sequence"], epoch=welcome["epoch"])
        again = await hear(ws, "gw.live")
        decide = {"id": "d1", "run": run, "target": ticket["ticketId"], "action": "resume"}
        await say(ws, "decide", **decide, fingerprint=ticket["fingerprint"])
        again += await hear(ws, "gw.unsubscribed")
        await say(ws, "decide", **decide, fingerprint=ticket["fingerprint"])
        duplicate = (await hear(ws, "gw.ack"))[-1]
    return {
        "subprotocol": ws.subprotocol,
        "extensions": [type(extension).__name__ for extension in ws.protocol.extensions],
        "welcome": welcome,
        "events": kept + [frame for frame in again if not frame["type"].startswith("gw.")],
        "told": [frame["type"] for frame in again if frame["type"].startswith("gw.")],
        "duplicate": duplicate["status"],
        "closed": [ws.close_code, ws.close_reason],
    }


async def closing(ws: ClientConnection, *messages: str | bytes) -> list[Any]:
    """Say these, then listen until the gateway closes: its code, and the type of the last frame before."""
    last = None
    try:
        for message in messages:
            await ws.send(message)
        while True:
            last = json.loads(await ws.recv(decode=True))["type"]
    except ConnectionClosed:
        return [ws.close_code, last]


async def codes(url: str, token: str) -> dict[str, Any]:
    """How the gateway closes, each time for another reason."""
    hello = json.dumps({"type": "hello", "token": token})
    ping = json.dumps({"type": "ping"})
    cases: dict[str, tuple[dict[str, Any], tuple[str | bytes, ...]]] = {
        "another subprotocol": ({"subprotocols": ["other.v1"]}, ()),
        "no subprotocol": ({"subprotocols": None}, ()),
        "wrong token": ({}, (json.dumps({"type": "hello", "token": "nobody's"}),)),
        "no hello first": ({}, (ping,)),
        "says nothing": ({}, ()),
        "no json": ({}, (hello, "{")),
        "no object": ({}, (hello, "[]")),
        "binary": ({}, (hello, ping.encode())),
        "too big": ({}, (hello, json.dumps({"type": "ping", "id": "x" * 70_000}))),
        "too fast": ({}, (hello, *[ping] * 300)),
    }
    found = {}
    for name, (options, messages) in cases.items():
        async with dial(url, None, **options) as ws:
            found[name] = await closing(ws, *messages)
    async with dial(url, None) as ws:
        await ws.send(hello)
        await hear(ws, "gw.welcome")
    found["the client closes"] = [ws.close_code, None]
    return found


async def handshakes(url: str, token: str) -> dict[str, Any]:
    """The status of upgrades that are refused."""
    cases = {
        "another origin": (url, token, {"origin": "https://evil.example"}),
        "two hosts": (url, token, {"headers": {"Host": "evil.example"}}),
        "another path": (url + "/x", token, {}),
        "a wrong header": (url, "nobody's", {}),
    }
    found = {}
    for name, (where, who, options) in cases.items():
        try:
            async with dial(where, who, **options):
                found[name] = 101
        except InvalidStatus as error:
            found[name] = error.response.status_code
    return found


async def main(url: str, token: str, scenario: str) -> None:
    """Play it and print what was seen."""
    play = {"life": life, "codes": codes, "handshakes": handshakes}[scenario]
    async with asyncio.timeout(PATIENCE):
        print(json.dumps(await play(url, token)))  # noqa: T201 - the answer to the caller that started us


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
