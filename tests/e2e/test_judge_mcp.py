"""Four clients of MCP that we have not written, in both eras, against a live server and over `greenroom mcp`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.transport.client import Client

from .cli_kit import COMMAND
from .mcp_clients import AGENTS, APPROVED, CLIENTS, MODERN, ClientProgram, Service, client
from .serving_kit import Server

pytestmark = [pytest.mark.slow, pytest.mark.judge, pytest.mark.no_cover]

WAYS = ("http", "bridge")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("clients"))
    service.start()
    yield service
    service.close()


@pytest.fixture(params=[pytest.param((name, way), id=f"{name} over {way}") for name in CLIENTS for way in WAYS])
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A client, and how it reaches the gateway."""
    value: tuple[str, str] = request.param
    return value


def target(service: Service, way: str) -> dict[str, Any]:
    return service.target if way == "http" else service.bridge


def run_of(result: dict[str, Any]) -> str:
    run_id: str = result["_meta"]["greenroom/run"]
    return run_id


def texts(result: dict[str, Any]) -> str:
    return "\n".join(item["text"] for item in result["content"] if item["type"] == "text")


def approve_in_console(server: Server) -> str:
    """Approve the only waiting run as a person at the console does; returns its id."""

    async def approve(console: Client) -> str:
        (line,) = (await console.runs(status="waiting")).runs
        view = await console.view(line.run_id)
        result = await console.decide(line.run_id, view.tickets[0].approve(reason="in the console"))
        assert result.ok
        return line.run_id

    return server.asks(approve)


def test_a_client_lists_calls_is_asked_and_cancels(way: tuple[str, str], service: Service) -> None:
    """One conversation: tools, results of all kinds, questions of all ends, a cancel."""
    name, road = way
    with client(name, target(service, road)) as driven:
        assert driven.version == ("2026-07-28" if name in MODERN else "2025-11-25")
        driven.does("list")
        names = [tool["name"] for tool in driven.gets("tools")]
        assert names == ["run_result", "colour", "echo", "guarded", "order", "pay", "picture", "work"]
        _results(driven)
        _questions(driven, service)
        _decided_in_the_console(driven, service)
        _cancel(driven, service)


def _results(driven: ClientProgram) -> None:
    driven.calls("echo", input="hello")
    assert texts(driven.gets("result")) == "you said hello"
    driven.calls("order", input="7")
    assert driven.gets("result")["structuredContent"] == {"order": "7", "cents": 500}
    driven.calls("picture")
    (image,) = driven.gets("result")["content"]
    assert (image["type"], image["mimeType"]) == ("image", "image/png")


def _questions(driven: ClientProgram, service: Service) -> None:
    before = len(service.effects)
    driven.calls("pay", invoice=7)
    asked = driven.gets("asked")
    assert 'pay {"invoice":7}' in asked["message"]
    driven.answers(APPROVED)
    assert texts(driven.gets("result")) == "invoice 7 is paid"
    driven.calls("colour")
    assert driven.gets("asked")["message"].startswith("Which colour?")
    driven.answers({"action": "accept", "content": {"name": "blue"}})
    assert texts(driven.gets("result")) == "painted blue"
    for answer, words in (
        ({"action": "accept", "content": {"decision": "deny", "reason": "too much"}}, "too much"),
        ({"action": "decline"}, "the run was cancelled by operator"),
        ({"action": "cancel"}, "waits for a decision by a person at the gateway"),
    ):
        driven.calls("pay", invoice=8)
        driven.gets("asked")
        driven.answers(answer)
        result = driven.gets("result")
        assert result["isError"]
        assert words in texts(result)
    driven.calls("run_result", run=run_of(result))
    assert "has not ended" in texts(driven.gets("result"))
    assert approve_in_console(service.server) == run_of(result)
    driven.calls("run_result", run=run_of(result), wait=20)
    assert texts(driven.gets("result")) == "invoice 8 is paid"
    driven.calls("guarded")
    result = driven.gets("result")
    assert result["isError"]
    assert "waits for a decision by ada" in texts(result)
    service.server.asks(lambda console: console.cancel(run_of(result)))
    assert service.effects[before:] == ["paid 7", "paid 8"]


def _decided_in_the_console(driven: ClientProgram, service: Service) -> None:
    before = len(service.effects)
    driven.calls("pay", invoice=9)
    driven.gets("asked")
    run_id = approve_in_console(service.server)
    driven.answers({"action": "decline"})  # too late: it changes nothing
    result = driven.gets("result")
    assert (texts(result), run_of(result)) == ("invoice 9 is paid", run_id)
    assert service.effects[before:] == ["paid 9"]


def _cancel(driven: ClientProgram, service: Service) -> None:
    driven.progress.clear()
    driven.calls("work", until=str(service.folder / "never"))

    async def ended(console: Client) -> Any:
        (line,) = (await console.runs(agent="work", status="running")).runs
        async with console.follow(line.run_id) as events:
            driven.does("cancel")
            async for event in events:
                last = event
        return last

    _until_working(driven)
    assert [one["progress"] for one in driven.progress] == sorted({one["progress"] for one in driven.progress})
    assert service.server.asks(ended).type == "run.cancelled"
    assert driven.sees()[0] == "error"


def _until_working(driven: ClientProgram) -> None:
    """Read progress until the body of the tool has begun."""
    assert driven.process.stdout is not None
    while not any("begun" in str(one) for one in driven.progress):
        ((kind, value),) = json.loads(driven.process.stdout.readline()).items()
        assert kind == "progress", (kind, value)
        driven.progress.append(value)


@pytest.mark.parametrize("name", ["sdk 1.x", "python auto"])
def test_a_client_that_cannot_ask_says_where_the_decision_is_made(name: str, service: Service) -> None:
    with client(name, service.target, asks=False) as driven:
        driven.calls("pay", invoice=10)
        result = driven.gets("result")
        assert result["isError"]
        assert "waits for a decision" in texts(result)
        service.server.asks(lambda console: console.cancel(run_of(result)))


@pytest.mark.parametrize("name", ["client 2.x", "python legacy"])
def test_the_command_of_the_page_is_a_server_by_itself(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pasted into a host: nothing else runs."""
    monkeypatch.setenv("EFFECTS", str(tmp_path / "effects"))
    command = [*COMMAND, "mcp", str(AGENTS), "--db", str(tmp_path / "runs.db"), "--agent", "pay"]
    with client(name, {"command": command, "token": ""}) as driven:
        driven.does("list")
        assert [tool["name"] for tool in driven.gets("tools")] == ["run_result", "pay"]
        driven.calls("pay", invoice=7)
        driven.gets("asked")
        driven.answers(APPROVED)
        assert texts(driven.gets("result")) == "invoice 7 is paid"
