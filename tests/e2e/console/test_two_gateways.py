"""The console at a gateway without agents, on one database with another gateway and a process that works."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ...support.cutting_proxy import CuttingProxy
from ..cli_kit import Cli
from ..serving_kit import AGENTS
from ..serving_kit import Server as Served
from .conftest import Console, expect

pytestmark = [pytest.mark.slow, pytest.mark.judge, pytest.mark.no_cover]


class Service:
    """Gateways and workers on one database, started one by one."""

    def __init__(self, folder: Path, url: str, stack: ExitStack) -> None:
        (folder / "agents.py").write_text(AGENTS)
        self._cli, self._stack, self._token = Cli(folder, folder / "state"), stack, folder / "token"
        self._cli.env["GREENROOM_STORE"] = url
        self._cli.env.pop("COVERAGE_PROCESS_CONFIG", None)

    def start(self, *arguments: str) -> Served:
        """`greenroom serve` with these arguments, on a free port."""
        options = ("--port", "0", "--token-file", str(self._token), "--json")
        process = self._stack.enter_context(self._cli.started("serve", *arguments, *options))
        assert process.stdout is not None
        return Served(process, json.loads(process.stdout.readline()))

    @property
    def token(self) -> str:
        return self._token.read_text().strip()


@pytest.fixture
def service(tmp_path: Path, postgres_url: str) -> Iterator[Service]:
    with ExitStack() as stack:
        yield Service(tmp_path, postgres_url, stack)


class Place:
    """The address of the page, which outlives the gateways behind it."""

    def __init__(self, url: str) -> None:
        self.url = url


def events_heard(console: Console) -> list[int]:
    """The sequences of the events that the page gets from now on, over all its connections."""
    heard: list[int] = []

    def frame(text: Any) -> None:
        event = json.loads(text)
        if not event["type"].startswith("gw."):
            heard.append(event["sequence"])

    console.page.on("websocket", lambda socket: socket.on("framereceived", frame))
    return heard


def test_a_run_is_started_at_one_gateway_and_decided_in_the_console_of_another_that_is_replaced(
    service: Service, consoles: Callable[..., Console]
):
    service.start("agents.py:both")
    first = service.start()
    with CuttingProxy(0) as proxy:
        names = ("--host-name", f"127.0.0.1:{proxy.port}")
        second = service.start(*names)
        proxy.target = second.port
        run = first.starts("both", "r1").run_id
        console = consoles(Place(f"http://127.0.0.1:{proxy.port}"), outages=True)  # type: ignore[arg-type]
        heard = events_heard(console)
        console.open(run, token=service.token)
        page = console.page
        page.get_by_role("button", name="Approve refund").first.click()
        expect(page.locator(".card")).to_have_count(1)
        second.process.kill()
        second.process.wait()
        third = service.start(*names)
        assert third.port != second.port
        proxy.target = third.port
        page.locator("#link[data-state=live]").wait_for()
        page.get_by_role("button", name="Approve refund").click()
        console.stage("completed")
        last = int(console.text(".detail-events dd"))
        assert heard == [*range(1, last + 1)]
        assert first.asks(lambda client: client.view(run)).last_sequence == last
