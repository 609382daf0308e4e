"""People whom nginx and an OpenID Connect proxy sign in, with the configuration and the program of docs/sign-in.md."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import h11
import httpx
import pytest
import trio
import trio_websocket
from tests.e2e.test_gateway_access import clerk
from tests.e2e.test_judge_kept_connections import reachable
from tests.support.gateway import Talk, gateway
from tests.support.judges import need_program
from tests.support.ports import free_port

import greenroom as gr
from greenroom.transport import trusted_proxy
from greenroom.transport.protocol.codes import PATH, SUBPROTOCOL

pytestmark = [pytest.mark.judge, pytest.mark.slow]

PAGE = Path("docs/sign-in.md")
SECRET = "the same secret as in the program"
GROUPS = {"ann": "support", "eva": "support,leads", "bob": "sales"}
AROUND = """
daemon off; pid {folder}/pid; events {{}}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  {server}
}}
"""


async def oauth2_proxy(stream: trio.SocketStream) -> None:
    """Answer as oauth2-proxy does behind `auth_request`: by the cookie, 202 with the person's headers, or 401."""
    connection = h11.Connection(h11.SERVER)
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await stream.receive_some())
    assert isinstance(event, h11.Request)
    cookie = dict(event.headers).get(b"cookie", b"").decode()
    name = cookie.removeprefix("session=")
    headers = [("content-length", "0"), ("connection", "close")]
    if name in GROUPS and event.target == b"/oauth2/auth":
        email = f"{name}@example.org"
        headers += [("x-auth-request-email", email), ("x-auth-request-groups", GROUPS[name])]
        response = h11.Response(status_code=202, headers=headers)
    else:
        response = h11.Response(status_code=401, headers=headers)
    await stream.send_all(connection.send(response) + connection.send(h11.EndOfMessage()))
    await stream.aclose()


def part_of_page(pattern: str) -> str:
    match = re.search(pattern, PAGE.read_text(), re.DOTALL)
    assert match
    return match[1]


@contextmanager
def nginx(folder: Path, server: str) -> Iterator[None]:
    conf = folder / "nginx.conf"
    conf.write_text(AROUND.format(folder=folder, server=server))
    command = [need_program("nginx"), "-p", str(folder), "-c", str(conf), "-e", str(folder / "errors")]
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            process.terminate()


@asynccontextmanager
async def proxied(folder: Path) -> Any:
    """The gateway of the page, oauth2-proxy, and nginx in front of both: its address, the gateway's, the runtime."""
    own = free_port()
    names: dict[str, Any] = {}
    exec(part_of_page(r"```python\n# proxied.py\n(.*?)```"), names)  # noqa: S102 - a page of ours
    server = part_of_page(r"```nginx\n(.*?)```").replace("listen 443 ssl", f"listen 127.0.0.1:{own}")
    async with gr.open_runtime(agents=[clerk()]) as runtime, trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, oauth2_proxy, 0)
        people = trusted_proxy("X-Forwarded-Email", proxies=["127.0.0.1"], secret=SECRET, principal=names["principal"])
        hosts = [f"runs.example.org:{own}", f"127.0.0.1:{own}"]
        async with gateway(runtime, authenticate=people, token=None, hosts=hosts) as address:
            server = server.replace("4180", str(listeners[0].socket.getsockname()[1])).replace(
                "8765", str(address.port)
            )
            with nginx(folder, server):
                await reachable(f"http://127.0.0.1:{own}")
                yield own, address, runtime
        nursery.cancel_scope.cancel()


async def test_people_come_by_the_proxy_and_nobody_else_comes_by_its_headers(tmp_path: Path) -> None:
    async with proxied(tmp_path) as (own, address, runtime):
        here = {"host": f"runs.example.org:{own}"}
        start = {"agent": "clerk", "text": "hi"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{own}", headers=here, trust_env=False) as client:
            reply = await client.post("/v1/runs", json=start, headers={"cookie": "session=ann"})
            assert reply.status_code == 201, reply.text
            assert (await runtime.reader.info(reply.json()["run"])).by == "ann@example.org"
            assert (await client.get("/metrics", headers={"cookie": "session=ann"})).status_code == 403
            assert (await client.get("/metrics", headers={"cookie": "session=eva"})).status_code == 200
            reply = await client.get("/v1/runs", headers={"cookie": "session=bob"})
            assert (reply.status_code, reply.json()["error"]["message"]) == (
                403, "bob@example.org is not in the group support",
            )  # fmt: skip
            assert (await client.get("/v1/runs")).status_code == 401
            assert (await client.get("/v1/me", headers={"cookie": "session=ann"})).json()[
                "principal"
            ] == "ann@example.org"
            forged = {"X-Forwarded-Email": "eva@example.org", "X-Forwarded-Groups": "support,leads"}
            assert (await client.get("/metrics", headers=forged | {"cookie": "session=ann"})).status_code == 403
            crossing = {"cookie": "session=ann", "origin": "https://evil.example.org"}
            assert (await client.post("/v1/runs", json=start, headers=crossing)).status_code == 403
        async with httpx.AsyncClient(base_url=address.url, trust_env=False) as client:
            for proof in ({}, {"X-Greenroom-Proxy": "guessed"}):
                reply = await client.get("/v1/runs", headers=forged | proof)
                assert reply.status_code == 403
                assert "accepted from the proxy only" in reply.json()["error"]["message"]
        url = f"ws://127.0.0.1:{own}{PATH}"
        extra = [(b"cookie", b"session=ann"), (b"origin", f"https://127.0.0.1:{own}".encode())]
        async with trio_websocket.open_websocket_url(url, subprotocols=[SUBPROTOCOL], extra_headers=extra) as ws:
            assert (await Talk(ws).hear())["principal"] == "ann@example.org"
