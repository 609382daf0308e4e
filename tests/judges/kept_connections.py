"""Other people's HTTP clients, which keep their connections: tests/e2e/test_judge_kept_connections.py runs each.

    python kept_connections.py CLIENT URL TOKEN REQUESTS

plays the requests, streams among them, `AT_ONCE` at a time over one session, and prints what it has lost as one JSON
object. A request is lost if the client raises, or is not answered as it should be; no request is repeated here.
"""

import asyncio  # noqa: TID251 - the judge's own loop, in a process of its own
import json
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import httpx
import requests

AT_ONCE = 4
PATIENCE = 60.0
"""Seconds for a request."""
Wanted = tuple[str, str, dict[str, str], bytes | None, bytes | None]


def wanted(number: int, token: str) -> Wanted:
    """Method, path, headers, body, and the end of the answer of a request: every second one is a stream."""
    headers = {"Authorization": f"Bearer {token}"}
    match number % 4:
        case 0:
            return "GET", "/v1/runs/done/events", headers | {"Accept": "text/event-stream"}, None, b"\n\n"
        case 2:
            said = {"id": f"m{number}", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
            body = {"id": f"chat-{number}", "trigger": "submit-message", "messages": [said]}
            data, path = json.dumps(body).encode(), "/v1/ai-sdk/v6/agents/echo/chat"
            return "POST", path, headers | {"Content-Type": "application/json"}, data, b"data: [DONE]\n\n"
        case _:
            return "POST", "/v1/runs/done/revive", headers, None, b'"revived":false}'


def judged(number: int, status: int, body: bytes, end: bytes | None) -> str | None:
    """Why an answer is none; None if it is as it should be."""
    if status == 200 and body.endswith(end or b""):
        return None
    return f"request {number}: {status} {body[-200:]!r}"


async def spread(count: int, ask: Callable[[int], Awaitable[str | None]]) -> list[str]:
    """Play the requests, `AT_ONCE` at a time."""
    lost: list[str] = []

    numbers = iter(range(count))

    async def some() -> None:
        for number in numbers:
            try:
                why = await ask(number)
            except Exception as error:  # noqa: BLE001 - whatever a client says of a lost request
                why = f"request {number}: {error!r}"
            lost.extend([] if why is None else [why])

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return lost


async def by_aiohttp(url: str, token: str, count: int) -> list[str]:
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(timeout=timeout) as session:

        async def ask(number: int) -> str | None:
            method, path, headers, body, end = wanted(number, token)
            async with session.request(method, url + path, headers=headers, data=body) as answer:
                return judged(number, answer.status, await answer.read(), end)

        return await spread(count, ask)


async def by_httpx(url: str, token: str, count: int) -> list[str]:
    async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as client:

        async def ask(number: int) -> str | None:
            method, path, headers, body, end = wanted(number, token)
            answer = await client.request(method, url + path, headers=headers, content=body)
            return judged(number, answer.status_code, answer.content, end)

        return await spread(count, ask)


def by_requests(url: str, token: str, count: int) -> list[str]:
    lost: list[str] = []
    with requests.Session() as session:
        session.trust_env = False

        numbers = iter(range(count))

        def some() -> None:
            for number in numbers:
                method, path, headers, body, end = wanted(number, token)
                try:
                    answer = session.request(method, url + path, headers=headers, data=body, timeout=PATIENCE)
                    why = judged(number, answer.status_code, answer.content, end)
                except Exception as error:  # noqa: BLE001 - whatever a client says of a lost request
                    why = f"request {number}: {error!r}"
                lost.extend([] if why is None else [why])

        threads = [threading.Thread(target=some) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return lost


CLIENTS: dict[str, Any] = {"aiohttp": by_aiohttp, "httpx": by_httpx, "requests": by_requests}


def main() -> None:
    name, url, token, count = sys.argv[1:]
    found = CLIENTS[name](url, token, int(count))
    lost = asyncio.run(found) if asyncio.iscoroutine(found) else found
    json.dump({"lost": len(lost), "some": lost[:5]}, sys.stdout)


main()
