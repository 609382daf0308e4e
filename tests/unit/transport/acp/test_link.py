"""The link to the gateway of a bridge: when a gateway is lost, and what is asked again."""

from typing import Any

import pytest
import trio

from greenroom.actors.errors import UsageError
from greenroom.transport.acp.link import ATTEMPTS, PATIENCE, GatewayLink, _watch
from greenroom.transport.client import ClientClosed, ConnectionState, NotReachable


@pytest.mark.parametrize(
    ("state", "is_lost"),
    [
        (ConnectionState(connected=True), False),
        (ConnectionState(connected=False, reason="cut", wait=0.1, attempt=1), False),
        (ConnectionState(connected=False, reason="cut", wait=0.1, attempt=ATTEMPTS), True),
        (ConnectionState(connected=False, reason="the token is unknown"), True),
    ],
)
def test_a_gateway_is_lost_after_some_attempts_or_when_it_refuses(state, is_lost):
    lost = trio.Event()
    _watch(lost, state)
    assert lost.is_set() is is_lost


class Answers:
    """A request that is answered by these: an error, or a value."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.clients: list[Any] = []

    async def __call__(self, client: Any) -> Any:
        self.clients.append(client)
        await trio.lowlevel.checkpoint()
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def with_client(name: Any) -> GatewayLink:
    link = GatewayLink()
    link.use(name)
    return link


@pytest.mark.rule("ACP-12")
@pytest.mark.trio
async def test_a_request_is_asked_again_while_there_is_no_gateway(autojump_clock):
    answers = Answers(ClientClosed("x"), NotReachable("x"), "yes")
    assert await with_client("a").call(answers) == "yes"
    assert answers.clients == ["a"] * 3


@pytest.mark.trio
async def test_a_gateway_that_does_not_answer_for_long_is_an_error(autojump_clock):
    began = trio.current_time()
    with pytest.raises(NotReachable):
        await with_client("a").call(Answers(*[NotReachable("x")] * 1_000))
    assert PATIENCE <= trio.current_time() - began < 2 * PATIENCE


@pytest.mark.trio
async def test_a_refusal_is_not_asked_again(autojump_clock):
    answers = Answers(UsageError("no"), "yes")
    with pytest.raises(UsageError):
        await with_client("a").call(answers)
    assert len(answers.clients) == 1


@pytest.mark.trio
async def test_a_request_waits_for_a_client(autojump_clock):
    link, seen = with_client(None), []
    assert link.url == ""

    async def ask() -> None:
        seen.append(await link.call(Answers("yes")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert seen == []
        link.use("b")
    assert seen == ["yes"]
