"""What goes out first when there is much to send."""

import json

import pytest

from greenroom.transport.client.connection import Connection
from greenroom.transport.client.endpoint import Endpoint
from greenroom.transport.client.event_iterator import EventIterator
from greenroom.transport.client.pending_requests import PendingAnswer
from greenroom.transport.client.timing import ConnectionTiming


@pytest.fixture
def link() -> Connection:
    link = Connection(Endpoint(host="h", port=1), token=None, pace=ConnectionTiming())
    link.runs.connected("e")
    return link


async def test_many_requests_and_many_subscriptions_take_turns(link: Connection) -> None:
    for number in range(3):
        link.calls._open[f"c{number}"] = PendingAnswer(f"c{number}", json.dumps({"type": "send", "id": f"c{number}"}))
        run = f"r{number}"
        link.runs.join(run, EventIterator(run, after=0, epoch=None, on_reset="raise", poke=link.poke))
    sent = []
    while (text := link._next()) is not None:
        sent.append(json.loads(text)["type"])
    assert sent == ["send", "subscribe"] * 3
