"""Clients that keep their connections lose no request, also right behind a stream; nginx in front loses none, either.

`make test` plays 200 requests with each, `make chaos` 10,000. Half of them are streams, half of the others are POST,
which no client repeats by itself: a connection that the gateway closes without notice is a lost request.
"""

import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager

import pytest
import trio

import greenroom as gr
from greenroom.testing import FunctionModel

from ..support.gateway import TOKEN, gateway
from ..support.judges import FOLDER, need_program
from ..support.ports import free_port

pytestmark = [pytest.mark.judge, pytest.mark.slow, pytest.mark.no_cover]

REQUESTS = 10_000 if os.environ.get("GREENROOM_CHAOS") == "full" else 200
NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/errors warn;
events {{ worker_connections 256; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream gateway {{ server {host}:{port}; keepalive 8; }}
  server {{
    listen 127.0.0.1:{own};
    location / {{
      proxy_pass http://gateway; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; proxy_next_upstream off; proxy_set_header Host {host}:{port};
    }}
  }}
}}
"""


def answer(request):
    """A short answer."""
    return "hi, " * 20


@asynccontextmanager
async def serving(**options):
    """A gateway with a run `done` and the agent `echo`."""
    echo = gr.Agent("echo", model=FunctionModel(answer))
    async with gr.open_runtime(agents=[echo]) as runtime:
        await (await runtime.start("echo", "hi", run_id="done")).result()
        async with gateway(runtime, **options) as address:
            yield address


async def lost_by(client, url, count=REQUESTS):
    """What a client has lost of the requests, in a process of its own."""
    node = client in ("fetch", "agent")
    command = [need_program("node"), str(FOLDER / "kept_connections.mjs")] if node else [sys.executable]
    command += [] if node else [str(FOLDER / "kept_connections.py")]
    done = await trio.run_process(
        [*command, client, url, TOKEN, str(count)], capture_stdout=True, capture_stderr=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)


@contextmanager
def nginx(address, folder):
    """nginx in front of a gateway, as docs/gateway.md sets it; its own address."""
    own, conf = free_port(), folder / "nginx.conf"
    conf.write_text(NGINX.format(folder=folder, host=address.host, port=address.port, own=own))
    errors = folder / "errors"
    with subprocess.Popen([need_program("nginx"), "-p", str(folder), "-c", str(conf), "-e", str(errors)]) as process:
        try:
            yield f"http://127.0.0.1:{own}", errors
        finally:
            process.terminate()


async def reachable(url):
    """Wait until a server listens."""
    host, _, port = url.removeprefix("http://").partition(":")
    with trio.fail_after(30):
        while True:
            try:
                await (await trio.open_tcp_stream(host, int(port))).aclose()
            except OSError:
                await trio.sleep(0.05)
            else:
                return


@pytest.mark.parametrize("client", ["aiohttp", "httpx", "requests", "fetch", "agent"])
async def test_a_client_that_keeps_its_connections_loses_no_request(client):
    if client in ("aiohttp", "requests"):
        pytest.importorskip(client, reason=f"the client {client} is missing: pip install {client}")
    async with serving() as address:
        assert await lost_by(client, address.url) == {"lost": 0, "some": []}


@pytest.mark.parametrize("client", ["httpx", "agent"])
async def test_a_proxy_that_keeps_its_connections_loses_no_request(client, tmp_path):
    async with serving() as address:
        with nginx(address, tmp_path) as (url, errors):
            await reachable(url)
            assert await lost_by(client, url) == {"lost": 0, "some": []}
            assert "upstream" not in errors.read_text()
