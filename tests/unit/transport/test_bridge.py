"""What the bridges share: whose gateway they speak to, and the standard streams."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import greenroom as gr
from greenroom.testing import ScriptedModel
from greenroom.transport import connect
from greenroom.transport.cli import bridge as subject
from greenroom.transport.cli.bridge import Bridge, BridgeGateway, open_gateway, read_bridge, standard_streams

AGENT = """
import greenroom as gr
from greenroom.testing import ScriptedModel

print("said at the import")
helper = gr.Agent("helper", model=ScriptedModel(["hello"]))
"""
HELPER = gr.Agent("helper", model=ScriptedModel(["hello"]))


@pytest.fixture(autouse=True)
def without_a_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("GREENROOM_URL", "GREENROOM_TOKEN", "GREENROOM_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def options(*agents: str, **more: Any) -> argparse.Namespace:
    names = ("db", "store", "url", "token", "token_file", "secret_env", "secrets_file")
    return argparse.Namespace(command="mcp", agents=[*agents], **{**dict.fromkeys(names), **more})


def bridge(db: Path | None, *, agents: tuple[gr.Agent[Any], ...] = (HELPER,), **more: Any) -> Bridge:
    return Bridge(command="mcp", agents=agents, args=options(db=db, **more), place=db)


async def runs_at(gateway: subject.BridgeGateway) -> int:
    address = await gateway.address()
    async with connect(address.url, token=address.token) as client:
        return len((await client.runs()).runs)


@pytest.mark.rule("MB-1")
@pytest.mark.trio
@pytest.mark.parametrize("in_a_file", [True, False])
async def test_a_bridge_with_agents_hosts_a_gateway(tmp_path: Path, in_a_file: bool) -> None:
    async with open_gateway(bridge(tmp_path / "runs.db" if in_a_file else None)) as gateway:
        assert gateway.hosted
        assert await runs_at(gateway) == 0
        assert repr(gateway).endswith("hosted here>")
    assert not gateway.hosted


@pytest.mark.rule("MB-1")
@pytest.mark.trio
@pytest.mark.slow
async def test_the_second_bridge_is_a_client_of_the_first_and_becomes_the_host_after_it(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    first, second, client = (BridgeGateway(bridge(db, agents=agents)) for agents in ((HELPER,), (HELPER,), ()))
    async with trio.open_nursery() as nursery:
        for one in (first, second, client):
            await nursery.start(one.run)
        address = await first.address()
        assert (first.hosted, second.hosted, client.hosted) == (True, False, False)
        assert await second.address() == await client.address() == address
        first.close()
        with trio.fail_after(20):
            second.lost(await second.address())
            while not second.hosted:
                await trio.testing.wait_all_tasks_blocked(0.01)
            client.lost(await client.address())
            assert (await client.address()).url == (await second.address()).url != address.url
            assert await runs_at(client) == 0
        client.close()
        second.close()


@pytest.mark.trio
async def test_a_gateway_that_is_named_is_used_as_it_is(tmp_path: Path) -> None:
    named = Bridge(command="mcp", agents=(), args=options(url="http://127.0.0.1:9", token="t" * 16), place=None)
    async with open_gateway(named) as gateway:
        address = await gateway.address()
        assert (address.url, address.token) == ("http://127.0.0.1:9", "t" * 16)
        gateway.lost(address)
        await wait_all_tasks_blocked()
        with trio.fail_after(5):
            assert (await gateway.address()).url == address.url


@pytest.mark.rule("MB-1")
@pytest.mark.trio
async def test_without_a_gateway_and_without_agents_there_is_one_sentence(tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    with pytest.raises(gr.StoreOpenError, match="there is no database"):
        async with open_gateway(bridge(db, agents=())):
            pass
    async with gr.open_runtime(db):
        pass
    with pytest.raises(gr.UsageError, match=r"no gateway serves .*greenroom mcp FILE.py --db"):
        async with open_gateway(bridge(db, agents=())):
            pass


@pytest.mark.trio
async def test_a_process_without_a_gateway_is_waited_for_and_then_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "PATIENCE", 0.0)
    monkeypatch.setattr(subject.owner, "PATIENCE", 0.0)
    db = tmp_path / "runs.db"
    async with gr.open_runtime(db):
        with pytest.raises(gr.StoreOpenError, match="serves no gateway"):
            async with open_gateway(bridge(db)):
                pass


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"url": "http://127.0.0.1:9"}, "--url is for a gateway that runs already"),
        ({"token": "t" * 16}, "--token is for a gateway that runs already"),
        ({"db": Path("missing/runs.db")}, "the folder .* does not exist"),
        ({"db": Path("a.db"), "store": "service=runs"}, "give one of them"),
    ],
    ids=["url", "token", "folder", "two places"],
)
def test_options_that_contradict_each_other_are_named(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    file = tmp_path / "agents.py"
    file.write_text(AGENT)
    with pytest.raises(gr.GreenroomError, match=words):
        read_bridge(options(str(file), **more))


@pytest.mark.rule("MB-2")
def test_the_output_of_an_import_is_no_line_of_the_protocol(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "agents.py"
    file.write_text(AGENT)
    made = read_bridge(options(str(file)))
    assert [agent.key for agent in made.agents] == ["helper"]
    out, err = capfd.readouterr()
    assert (out, err) == ("", "said at the import\n")


@pytest.mark.rule("MB-2")
def test_what_other_code_prints_goes_to_standard_error_and_it_reads_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def speak() -> None:
        with standard_streams() as streams:
            await streams.write_line(b"ours")
            sys.stdout.write("a tool\n")
            os.write(1, b"a library\n")
            assert os.read(0, 1) == b""

    trio.run(speak)
    sys.stdout.write("afterwards\n")
    out, err = capfd.readouterr()
    assert out == "ours\nafterwards\n"
    assert sorted(err.splitlines()) == ["a library", "a tool"]
