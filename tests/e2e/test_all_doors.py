"""One run, all doors: started by one protocol, followed, decided and cancelled by every other, at two gateways.

Each round draws who starts the run, who answers which question, who cancels, at which gateway each door is, and when a
gateway is killed. Afterwards there is one log with one terminal event, and each door has shown what is in it.
"""

import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from .doors.agents_of_others import A2ADoor, AcpDoor, McpDoor
from .doors.chats import AgUiDoor, AiSdkDoor, OlderAgUiDoor
from .doors.door import CITY, Door, Ending
from .doors.house import TERMINAL, House, house
from .doors.page import ConsoleDoor
from .doors.raw import CliDoor, SseDoor, WebSocketDoor, results_of

pytestmark = [pytest.mark.slow, pytest.mark.judge, pytest.mark.no_cover, pytest.mark.timeout(900)]

DOORS: tuple[type[Door], ...] = (
    *(SseDoor, WebSocketDoor, CliDoor, ConsoleDoor),
    *(AiSdkDoor, AgUiDoor, OlderAgUiDoor, McpDoor, A2ADoor, AcpDoor),
)
PROTOCOLS = re.compile(
    r"(?i)[a-z.:-]*(?:websocket|\bsse\b|\bcli\b|console|ai.?sdk|ag.?ui|copilot|\bmcp|\ba2a(?![0-9a-f])|\bacp\b|elicit)[a-z.:-]*"
)
"""A word with the name of a protocol or of a door in it. Ids are random hexadecimal digits, which may be `a2a`."""
NUMBERS = itertools.count(1)
ROUNDS = 50
SAMPLE = 2
"""Rounds of a session that is not the whole."""


@pytest.fixture(scope="module")
def desk(root: Path, postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    from ..support.postgres import own_schema

    with own_schema(postgres_server) as store, house(tmp_path_factory.mktemp("doors"), root, store) as built:
        yield built


@pytest.fixture
def doors(desk: House, chromium: Any) -> Iterator["Doors"]:
    ConsoleDoor.browser = chromium
    made = Doors(desk)
    yield made
    made.close()


@attrs.define(eq=False, repr=False)
class Doors:
    """All doors of one run."""

    house: House
    doors: list[Door] = attrs.field(factory=list)
    tickets: list[str] = attrs.field(factory=list)

    def open(self, key: str, first: type[Door], lot: random.Random) -> str:
        """Let a door start a run, and all others follow it."""
        self.close()
        key = f"{key}-{next(NUMBERS)}"  # another one when a test runs again
        self.doors = [door(self.house, lot.choice(self.house.gateways)) for door in DOORS]
        self.tickets = []
        run = self.of(first).start(key)
        thread = self.house.view(run)["thread"]
        for door in self.doors:
            door.follow(run, thread)
        return run

    def of(self, kind: type[Door]) -> Door:
        """The door of this kind."""
        return next(door for door in self.doors if type(door) is kind)

    def asked(self) -> str | None:
        """The next question, which each door shows; None if the run has ended."""
        shown = {door.name: door.question() for door in self.doors}
        assert len(set(shown.values())) == 1, shown
        (ticket,) = set(shown.values())
        self.tickets += [] if ticket is None else [ticket]
        return ticket

    def close(self) -> None:
        for door in self.doors:
            door.close()

    def compare(self, run: str) -> Ending:
        """Hold what each door has shown against the log, and the log of one gateway against that of the other."""
        endings = {door.name: door.ended() for door in self.doors}
        log, other = (self.house.log(run, gateway) for gateway in self.house.gateways)
        assert log == other
        assert [event["sequence"] for event in log] == [*range(1, len(log) + 1)]
        assert [event["type"] for event in log if event["type"] in TERMINAL] == [log[-1]["type"]]
        resolved = [event["payload"]["ticketId"] for event in log if event["type"] == "run.approval.resolved"]
        assert resolved == self.tickets
        truth = Ending(
            status=log[-1]["type"].removeprefix("run."),
            texts=[event["payload"]["text"] for event in log if event["type"] == "run.message.completed"],
            results=results_of(log),
            output=log[-1]["payload"].get("output"),
            events=log,
        )
        for name, ending in endings.items():
            for field in attrs.asdict(truth):
                shown = getattr(ending, field)
                assert shown is None or shown == getattr(truth, field), (name, field)
        return truth


@pytest.mark.parametrize("first", DOORS, ids=lambda door: door.name)
def test_every_door_shows_a_run_that_another_one_has_started_and_any_two_answer(
    doors: Doors, rng: random.Random, first: type[Door]
) -> None:
    run = doors.open(f"by-{DOORS.index(first)}", first, rng)
    for number in (1, 2):
        assert doors.asked() == f"{run}.t{number}"
        faster, slower = rng.sample(doors.doors, 2)
        faster.decide()
        if not isinstance(slower, ConsoleDoor):  # its card may be gone
            slower.decide(yes=False)
    assert doors.asked() is None
    truth = doors.compare(run)
    assert (truth.status, truth.results) == ("completed", ["paid 500 for 7", CITY])
    assert doors.house.effects(run) == 1


@pytest.mark.parametrize("first", DOORS, ids=lambda door: door.name)
def test_every_door_ends_well_when_another_one_cancels(doors: Doors, rng: random.Random, first: type[Door]) -> None:
    run = doors.open(f"ended-by-{DOORS.index(first)}", rng.choice(DOORS), rng)
    doors.asked()
    doors.of(first).cancel()
    assert doors.asked() is None
    assert doors.compare(run).status == "cancelled"
    assert doors.house.effects(run) == 0


def test_a_run_goes_through_all_doors_while_gateways_are_killed(
    doors: Doors, seed: int, sampled: Callable[[Sequence[int], int], list[int]]
) -> None:
    """A kill comes before a door asks for something, or while the gateway answers."""
    for number in sampled(range(ROUNDS), SAMPLE):
        lot = random.Random(f"{seed} {number}")
        run = doors.open(f"round-{number}", lot.choice(DOORS), lot)
        cancelled = lot.random() < 0.3
        while doors.asked() is not None:
            with doors.house.killing(lot):
                if cancelled and len(doors.tickets) == 2:
                    lot.choice(doors.doors).cancel()
                else:
                    lot.choice([door for door in doors.doors if door.may_decide]).decide()
        truth = doors.compare(run)
        assert truth.status == ("cancelled" if cancelled else "completed"), number
        unknown = sum(event["payload"].get("reason") == "outcome_unknown" for event in truth.events or ())
        assert 1 - unknown <= doors.house.effects(run) <= 1 + unknown, number


def test_no_row_and_no_event_names_a_protocol(
    doors: Doors, rng: random.Random, sampled: Callable[[Sequence[type[Door]], int], list[type[Door]]]
) -> None:
    """What is stored of runs that each door has started, answered and cancelled."""
    for first in sampled(DOORS, 2):
        run = doors.open(f"stored-{DOORS.index(first)}", first, rng)
        doors.asked()
        doors.of(first).decide()
        doors.asked()
        doors.of(first).cancel()
        assert doors.asked() is None
        assert doors.compare(run).status == "cancelled"
    stored = doors.house.stored()
    assert "run.approval.resolved" in stored
    assert "operator" in stored
    assert sorted(set(PROTOCOLS.findall(stored))) == []
