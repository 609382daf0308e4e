"""What goes out first when there is much to send."""

import json

import pytest

from greenroom.transport.client.endpoint import Endpoint
from greenroom.transport.client.event_buffer import EventBuffer
from greenroom.transport.client.link import Link
from greenroom.transport.client.pending_requests import PendingAnswer
from greenroom.transport.client.timing import ConnectionTiming


@pytest.fixture
def link() -> Link:
    link = Link(Endpoint(host="h", port=1), token=None, program="test/1", pace=ConnectionTiming(), poke=lambda: None)
    link.runs.connected("e")
    return link


def test_many_requests_and_many_subscriptions_take_turns(link: Link) -> None:
    for number in range(3):
        link.calls._open[f"c{number}"] = PendingAnswer(f"c{number}", json.dumps({"type": "send", "id": f"c{number}"}))
        run = f"r{number}"
        link.runs.join(run, EventBuffer(run, after=0, epoch=None, on_reset="raise", poke=link.poke))
    sent = []
    while (text := link._next(0.0)) is not None:
        sent.append(json.loads(text)["type"])
    assert sent == ["send", "subscribe"] * 3
