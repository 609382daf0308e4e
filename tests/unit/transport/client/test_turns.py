"""What goes out first when there is much to send."""

import json

import pytest

from greenroom.transport.client.address import Address
from greenroom.transport.client.calls import Call
from greenroom.transport.client.following import Following
from greenroom.transport.client.link import Link
from greenroom.transport.client.pace import Pace


@pytest.fixture
def link() -> Link:
    link = Link(Address(host="h", port=1), token=None, pace=Pace())
    link.runs.connected("e")
    return link


async def test_many_requests_and_many_subscriptions_take_turns(link: Link) -> None:
    for number in range(3):
        link.calls._open[f"c{number}"] = Call(f"c{number}", json.dumps({"type": "send", "id": f"c{number}"}))
        run = f"r{number}"
        link.runs.join(run, Following(run, after=0, epoch=None, on_reset="raise", poke=link.poke))
    sent = []
    while (text := link._next()) is not None:
        sent.append(json.loads(text)["type"])
    assert sent == ["send", "subscribe"] * 3
