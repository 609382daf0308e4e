"""A gateway on a store that other processes have open, too."""

import pytest
from tests.support.gateway import gateway, http
from tests.support.runs import agent

import greenroom as gr

pytestmark = pytest.mark.slow


class Others(gr.MemoryStore):
    """A store in memory that reports what other processes have."""

    silence = None

    @property
    def unready(self):
        return self.silence

    async def agents(self):
        return {"helper": frozenset({"old"}), "billing": frozenset({"b1", "b2"})}


async def test_agents_of_other_processes_are_listed_with_their_digests():
    helper = agent()
    async with gr.open_runtime(Others(), agents=[helper]) as runtime, gateway(runtime) as address:
        lines = (await http(address, "GET", "/v1/agents")).json()["agents"]
    assert lines == [
        {"key": "billing", "description": "", "tools": [], "digests": ["b1", "b2"], "here": False},
        {
            "key": "helper",
            "description": helper.description,
            "tools": [],
            "digests": sorted(["old", helper.spec.digest]),
            "here": True,
        },
    ]


async def test_a_process_without_a_confirmed_beat_is_not_ready():
    store = Others()
    async with gr.open_runtime(store) as runtime, gateway(runtime) as address:
        assert (await http(address, "GET", "/readyz", token=None)).status == 200
        store.silence = "no beat of this process is confirmed for 6 s"
        reply = await http(address, "GET", "/readyz", token=None)
        assert (reply.status, reply.json()["error"]["code"]) == (503, "store_unavailable")
        assert "no beat" in reply.json()["error"]["message"]
        assert (await http(address, "GET", "/healthz", token=None)).status == 200
