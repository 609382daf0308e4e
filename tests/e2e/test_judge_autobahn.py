"""The Autobahn cases (kosoku's runner) against an echo on the gateway's own front, stream wrapper and text frames.

Left out are 12 and 13: compression, which is not offered. A verdict may be NON-STRICT, for example when an echo is lost
because an illegal frame came with the message: RFC 6455 leaves that open.
"""

import json
import sys
from functools import partial

import h11
import pytest
import trio
from trio_websocket import ConnectionClosed

import greenroom as gr
from greenroom.transport import Limits
from greenroom.transport.gateway.access import OriginPolicy, TokenTable
from greenroom.transport.gateway.gateway import Gateway
from greenroom.transport.gateway.http_connection import HttpConnection
from greenroom.transport.gateway.shared_stream import SharedStream
from greenroom.transport.protocol.codes import PATH
from greenroom.transport.protocol.framing import text_frame

from ..support.judges import FOLDER

pytest.importorskip("kosoku", reason="the Autobahn cases are missing: pip install kosoku")
pytestmark = [pytest.mark.judge, pytest.mark.slow, pytest.mark.no_cover]

LIMITS = Limits(message_bytes=32 * 1024 * 1024)
"""9.* sends messages of up to 16 MiB."""


SIZES = (6, 6, 9, 9, 6, 6, 6, 6)
"""Cases of each family 9.1 to 9.8."""


class EchoDoor(HttpConnection):
    """A connection as the gateway has them, but what is said is said back."""

    frame = staticmethod(text_frame)

    async def _converse(self, ws, head, who):
        while True:
            message = await ws.get_message()
            if isinstance(message, str):
                await self.stream.send_all(self.frame(message.encode()))
            else:
                await ws.send_message(message)


async def echo(gateway, stream):
    shared = SharedStream(stream, b"", stall_seconds=60)
    try:
        await EchoDoor(gateway, shared, h11.Connection(h11.SERVER)).serve()
    except (ConnectionClosed, trio.BrokenResourceError):
        pass
    finally:
        await trio.aclose_forcefully(shared)


async def judged(*cases):
    """Case -> verdict."""
    async with gr.open_runtime() as runtime, trio.open_nursery() as nursery:
        gateway = Gateway(
            runtime=runtime, keyring=TokenTable([]), doorway=OriginPolicy(hosts=None), limits=LIMITS, routes=()
        )
        (listener,) = await nursery.start(partial(trio.serve_tcp, partial(echo, gateway), 0, host="127.0.0.1"))
        url = f"ws://127.0.0.1:{listener.socket.getsockname()[1]}{PATH}"
        command = [sys.executable, str(FOLDER / "autobahn_client.py"), url, *cases]
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
        nursery.cancel_scope.cancel()
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


async def test_no_autobahn_case_fails():
    verdicts = await judged("1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*")
    assert [case for case, (_, _, passed) in verdicts.items() if not passed] == []
    assert len(verdicts) == 247
    assert sum(messages == "OK" for messages, _, _ in verdicts.values()) > 230


async def test_no_autobahn_case_with_large_messages_fails(sampled):
    """Eight families of six or nine sizes: of messages, of their parts, or of what is written at once."""
    cases = sampled([f"9.{family}.{size}" for family, sizes in enumerate(SIZES, 1) for size in range(1, sizes + 1)], 12)
    verdicts = await judged(*cases)
    assert {case: verdict for case, verdict in verdicts.items() if verdict != ["OK", "OK", True]} == {}
    assert sorted(verdicts) == sorted(cases)


async def test_the_judge_sees_an_echo_that_is_wrong(monkeypatch):
    """A frame that is not what was said fails the case: the verdicts above mean something."""
    monkeypatch.setattr(EchoDoor, "frame", staticmethod(lambda payload: text_frame(payload + b"!")))
    verdicts = await judged("1.1.2")
    assert [passed for _, _, passed in verdicts.values()] == [False]
