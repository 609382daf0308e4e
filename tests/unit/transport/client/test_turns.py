"""What goes out first when there is much to send."""

import json

import pytest

from greenroom.transport.client.endpoint import Endpoint
from greenroom.transport.client.link import ClientLink
from greenroom.transport.client.pending_requests import PendingAnswer
from greenroom.transport.client.timing import ConnectionTiming
from greenroom.transport.client.unread_events import UnreadEvents


@pytest.fixture
def link() -> ClientLink:
    link = ClientLink(
        Endpoint(host="h", port=1), token=None, program="test/1", pace=ConnectionTiming(), poke=lambda: None
    )
    link.runs.connected("e")
    return link


def test_many_requests_and_many_subscriptions_take_turns(link: ClientLink) -> None:
    for number in range(3):
        link.calls._open[f"c{number}"] = PendingAnswer(f"c{number}", json.dumps({"type": "send", "id": f"c{number}"}))
        run = f"r{number}"
        link.runs.join(run, UnreadEvents(run, after=0, epoch=None, on_reset="raise", poke=link.poke))
    sent = []
    while (text := link._next(0.0)) is not None:
        sent.append(json.loads(text)["type"])
    assert sent == ["send", "subscribe"] * 3
