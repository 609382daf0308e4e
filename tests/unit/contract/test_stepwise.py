"""Large texts and values are redacted in steps, and the result is that of the whole."""

from datetime import UTC, datetime
from typing import Any

import pytest

from greenroom.actors.contract import events as ev
from greenroom.actors.contract.calls import CallStatus
from greenroom.actors.contract.commits import EventDraft
from greenroom.actors.contract.envelope import EventEncoder
from greenroom.actors.contract.excerpt import Large, LargeText
from greenroom.actors.contract.rows import RunInfo
from greenroom.actors.contract.secrets.redaction import WHOLE, Redactor
from greenroom.actors.contract.stepwise import WINDOW, Steps, drained

from ...support.growth import lines
from ...support.secret_texts import DATA, TEXTS, S

pytestmark = pytest.mark.no_cover

UNITS = {
    "prose": "All work and no play makes Jack a dull boy, said the key: nobody. ",
    "logs": "2026-01-01 10:00:00,123 INFO app: GET /v1/runs?limit=50&cursor=abc took 12 ms, status=200\n",
    "YAML": "- name: PORT\n  value: 5432\n",
    "attributes": '<li key="" class="x">',
    "dashes": "-",
    "underscores": "_",
    "equals signs": "=",
    "table": "|---|",
    "slashes": "/",
    "colons": ":",
    "quotes": '\\"',
}
REDACTORS = {
    "plain": Redactor(),
    "named": Redactor(["canary-7f3a9", "aaaaaaaaaaaa"]),
    "run": Redactor(["canary-7f3a9"]).within("/srv/work"),
}


def texts(size: int) -> dict[str, str]:
    return {name: (unit * (size // len(unit) + 1))[:size] for name, unit in UNITS.items()}


class Counting(Redactor):
    """Counts what is read between two pauses: characters of windows and of texts that are read in one go."""

    def __init__(self) -> None:
        super().__init__()
        self.read = self.most = 0

    def text(self, value: str) -> str:
        self._count(len(value))
        return super().text(value)

    def pieces(self, text: str) -> Any:
        for place, found in enumerate(super().pieces(text)):
            if found is None or place == 0:
                self._count(min(WINDOW, len(text)))
            yield found

    def _count(self, size: int) -> None:
        self.read += size
        self.most = max(self.most, self.read)

    def longest(self, steps: Steps[Any]) -> int:
        self.read = self.most = 0
        for _ in steps:
            self.read = 0
        return self.most


VALUES: dict[str, Any] = {
    **{name: lambda text=text: text for name, text in texts(WHOLE + 9_999).items()},
    "many texts": lambda: [f"a text of number {number}" for number in range(100_000)],
    "many keys": lambda: {f"key {number}": number for number in range(100_000)},
    "nothing": lambda: [[{}, []] for _ in range(50_000)],
    "rows": lambda: [{"id": number, "name": "n" * 40, "tags": ["a", "b"]} for number in range(20_000)],
    "long texts": lambda: {"a": [texts(500_000)["prose"]] * 8},
    "a long key": lambda: {texts(500_000)["YAML"]: 1},
    "large text": lambda: LargeText(texts(2 * WHOLE)["YAML"]),
    "large text, read whole": lambda: LargeText(texts(200_000)["logs"]),
    "large value": lambda: Large({"rows": [texts(200_000)["YAML"]] * 20}),
    "large value of secrets": lambda: Large(["-----BEGIN PRIVATE KEY-----" + "a" * 200_000] * 20),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_no_step_reads_much_more_than_a_window(name: str) -> None:
    counting = Counting()
    value = VALUES[name]()
    assert counting.longest(counting.steps(value)) <= 2 * WINDOW + 1_000


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("redactor", [REDACTORS["named"], REDACTORS["run"]], ids=["named", "run"])
def test_the_steps_return_what_one_go_returns(redactor: Redactor, name: str) -> None:
    value = VALUES[name]()
    assert drained(redactor.steps(value)) == redactor.value(value)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_secret_is_hidden_wherever_the_windows_end(text: str) -> None:
    redactor = REDACTORS["plain"]
    for before in range(WINDOW - len(text) - 1, WINDOW + 2, 7):
        filler = ". " * (before // 2) + "\n" * (1 + before % 2)
        shown = drained(redactor.text_steps(filler + text + "\n" + filler))
        assert S not in shown
        assert shown.startswith(filler + redactor.text(text + "\n" + ". . . . . .")[:20])


@pytest.mark.parametrize("unit", ["eyJhbGciOi.eyJhbGciOiJI", "sk-abcdefgh", "Bearer abcdefgh", "canary-7f3a9 "])
@pytest.mark.parametrize("redactor", REDACTORS.values(), ids=REDACTORS)
def test_a_secret_that_is_longer_than_a_window_is_hidden_whole(redactor: Redactor, unit: str) -> None:
    for text in (unit * 5_000, unit + "a" * 3 * WINDOW, " " * (WINDOW - 9) + unit + "a" * 3 * WINDOW):
        spans = list(redactor.spans(text))
        assert drained(redactor.text_steps(text)) == redactor.text(text)
        assert all(span is not None for span in spans)


@pytest.mark.parametrize("name", ["nothing", "many keys", "many texts"])
def test_many_small_items_are_many_steps(name: str) -> None:
    assert len([*REDACTORS["plain"].steps(VALUES[name]())]) >= 3


@pytest.mark.parametrize("value", DATA.values(), ids=DATA)
def test_the_steps_of_data_hide_what_one_go_hides(value: object) -> None:
    redactor = REDACTORS["plain"]
    assert drained(redactor.steps(value)) == redactor.value(value)


def test_a_text_that_is_too_long_is_read_in_steps_and_marked() -> None:
    text = "so " * (WHOLE // 3 + 1) + S
    redactor = REDACTORS["plain"]
    assert drained(redactor.text_steps(text)) == redactor.text(text)
    assert len([*redactor.text_steps(text)]) >= WHOLE // WINDOW - 2


def test_many_small_events_are_made_in_steps_that_cost_what_one_step_costs() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    info = RunInfo(run_id="r", thread_id="t", agent="a", agent_digest="d", created_at=now, execution="sequential")
    encoder = EventEncoder(info, Redactor())
    event = EventDraft(
        "run.tool.call",
        ev.ToolCalled(
            call_id="c", tool="look", status=CallStatus.NEW, arguments={"at": "x" * 300}, effect="read", step=1
        ),
    )
    few, many = (event,) * 50, (event,) * 1_000
    with lines() as small:
        assert encoder.small_frames(0, now, few) is not None
    steps, pauses = encoder.frame_steps(0, now, many), 0
    with lines() as stepped:
        try:
            while True:
                next(steps)
                pauses += 1
        except StopIteration as end:
            frames = end.value
    assert frames[:50] == encoder.small_frames(0, now, few)
    assert pauses == pytest.approx(sum(map(len, frames)) / WINDOW, rel=0.5)
    assert stepped.all <= small.all * 20 * 1.2
