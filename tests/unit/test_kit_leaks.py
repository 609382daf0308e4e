"""leak_check and the offline guard: what they find, and what they leave alone."""

import socket
from contextlib import suppress

import httpx
import pytest
import trio

import greenroom as gr
from greenroom.actors.testing.offline import refuse_connections
from greenroom.models import OpenAIChat
from greenroom.testing import OfflineError, leak_check, open_fault_server, reply


@pytest.mark.rule("TK-11")
async def test_a_task_that_is_left_is_named_with_its_place():
    async with trio.open_nursery() as nursery:
        with pytest.raises(AssertionError, match=r"task '.*forgotten', at test_kit_leaks.py:\d+:forgotten"):
            async with leak_check():
                nursery.start_soon(forgotten)
        nursery.cancel_scope.cancel()


async def forgotten() -> None:
    await trio.sleep_forever()


@pytest.mark.rule("TK-11")
async def test_a_task_that_ends_by_itself_and_one_of_before_are_no_leaks(autojump_clock):
    async def a_few_steps() -> None:
        for _ in range(5):
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        await trio.testing.wait_all_tasks_blocked()
        async with leak_check():
            nursery.start_soon(a_few_steps)
        nursery.cancel_scope.cancel()


@pytest.mark.rule("TK-11")
async def test_a_connection_that_is_left_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(AssertionError, match=r"connection .*127\.0\.0\.1"):
            async with leak_check():
                left = await trio.open_tcp_stream(*listener.getsockname())
        await left.aclose()


@pytest.mark.rule("TK-11")
async def test_a_runtime_with_a_provider_leaves_nothing():
    async with open_fault_server(reply("Hello."), reply("Hello", hang=True)) as server:
        async with leak_check(), gr.open_runtime(drain=0) as runtime:
            model = OpenAIChat("small", base_url=server.base_url("chat"), api_key="none")
            agent = gr.Agent("a", model=model)
            assert (await (await runtime.start(agent, "Hi.")).result()).output == "Hello."
            await runtime.start(agent, "Hi.")
            await server.begun.acquire()
        await server.left.wait()


@pytest.mark.rule("TK-11")
async def test_a_block_that_raises_is_not_checked():
    async with trio.open_nursery() as nursery:
        with suppress(ZeroDivisionError):
            async with leak_check():
                nursery.start_soon(trio.sleep_forever)
                raise ZeroDivisionError
        nursery.cancel_scope.cancel()


# --- offline ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("TK-13")
@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("2001:db8::1", 80, 0, 0)])
def test_connections_to_other_machines_are_refused(address):
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    with refuse_connections() as offline, socket.socket(family) as one:
        with pytest.raises(OfflineError, match="offline"):
            one.connect(address)
        with pytest.raises(OfflineError):
            one.connect_ex(address)
    with refuse_connections() as other, socket.socket(family, socket.SOCK_DGRAM) as two:
        with pytest.raises(OfflineError):
            two.sendto(b"x", address)
    assert len(offline.attempts) == 2
    assert other.attempts == [f"sendto to {address[0]}:80"]


@pytest.mark.rule("TK-13")
def test_names_of_other_machines_are_not_looked_up():
    with refuse_connections() as offline:
        with pytest.raises(OfflineError, match=r"'example\.org'"):
            socket.getaddrinfo("example.org", 80)
        with pytest.raises(OfflineError):
            socket.create_connection(("example.org", 80))
        assert socket.getaddrinfo("localhost", 80)
        assert socket.getaddrinfo(None, 80)
    assert len(offline.attempts) == 2


@pytest.mark.rule("TK-13")
async def test_loopback_stays_open_and_all_is_as_before_afterwards():
    before = socket.socket.connect, socket.getaddrinfo, "connect" in vars(socket.socket)
    with refuse_connections() as offline:
        async with open_fault_server(reply("Hello.")) as server:
            model = OpenAIChat("small", base_url=server.base_url("chat"), api_key="none")
            assert (await gr.run(gr.Agent("a", model=model), "Hi.")).output == "Hello."
    assert not offline.attempts
    assert (socket.socket.connect, socket.getaddrinfo, "connect" in vars(socket.socket)) == before


@pytest.mark.rule("TK-13")
async def test_a_real_provider_fails_at_once_and_is_not_asked_again():
    with refuse_connections() as offline:
        outcome = await gr.run(gr.Agent("a", model=OpenAIChat("gpt-x", api_key="sk-none")), "Hi.")
    assert isinstance(outcome, gr.Failed)
    assert "offline" in outcome.message
    assert offline.attempts == ["the address of 'api.openai.com'"]


@pytest.mark.rule("TK-13")
async def test_httpx_alone_is_refused_too():
    with refuse_connections() as offline:
        async with httpx.AsyncClient() as client:
            with pytest.RaisesGroup(OfflineError, allow_unwrapped=True, flatten_subgroups=True):
                await client.get("http://192.0.2.1/")
    assert offline.attempts
