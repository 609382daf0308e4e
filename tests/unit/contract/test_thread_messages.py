"""A message as people see it: masked as events are, bounded, and read in steps."""

import json
from typing import Any

import msgspec
import pytest

from greenroom.actors.contract.envelope import PAYLOAD_BYTES
from greenroom.actors.contract.messages import CallRequest, Message, Producer
from greenroom.actors.contract.parts import Part, part_of
from greenroom.actors.contract.secrets.redaction import Redactor
from greenroom.actors.contract.stepwise import drained
from greenroom.actors.contract.threads.messages import ThreadMessage, message_steps

SECRET = "hunter2-4711"
MIB = 2**20


def shown(message: Message, *redactors: Redactor) -> ThreadMessage:
    return drained(message_steps(1, message, redactors or (Redactor(),)))


def made(role: Any = "user", content: str = "", **fields: Any) -> Message:
    return Message(id="m", role=role, content=content, producer=Producer(run_id="r", step=2), **fields)


def asked(*arguments: Any) -> Message:
    calls = tuple(CallRequest(call_id=f"c{n}", tool="t", arguments=values) for n, values in enumerate(arguments))
    return made("assistant", calls=calls)


@pytest.mark.parametrize(
    "message",
    [
        made(content=f"my password={SECRET}"),
        made("assistant", f"Authorization: Bearer {SECRET}"),
        made("tool", json.dumps({"password": SECRET}), call_id="c"),
        made("tool", json.dumps([{"api_key": SECRET}])),
        made("tool", f'{{"password": "{SECRET}", and it is cut off'),
        made("tool", f'{{"pass\\u0077ord": "{SECRET}"}}'),
        asked({"password": SECRET}),
        asked({"deep": [{"headers": {"Authorization": SECRET}}]}),
        made(parts=(part_of("file", b"x", "a/b", name=f"password={SECRET}"),)),
        made(parts=(Part(type="image", media_type="image/png", url=f"https://u:{SECRET}@example.com/a.png"),)),
        made("assistant", calls=(CallRequest(call_id="c", tool="t", arguments={}, fault=f"password={SECRET}"),)),
        asked({"password": SECRET, "rows": ["x" * 400_000]}),
    ],
)
def test_secrets_are_masked_wherever_they_are(message):
    line = msgspec.json.encode(shown(message)).decode()
    assert SECRET not in line
    assert "redacted" in line


def test_a_text_without_secrets_is_unchanged():
    text = '{"b":  1,\n "a": "é"}'
    assert shown(made("tool", text)).text == text


def test_what_only_providers_read_is_not_shown():
    line = shown(made("assistant", "hi", provider="openai", items=({"encrypted": "x"},), final_at=1))
    assert msgspec.to_builtins(line) == {
        "position": 1, "id": "m", "role": "assistant", "text": "hi", "run": "r", "step": 2,
    }  # fmt: skip


def test_each_redactor_masks():
    roots = [Redactor().within(root) for root in ("/srv/one", "/srv/two")]
    assert shown(made(content="/srv/one/a /srv/two/b"), *roots).text == "[workspace]/a [workspace]/b"


def test_arguments_of_any_depth_are_shown():
    value: Any = 1
    for _ in range(5_000):
        value = [value]
    assert "nested too deeply" in str(shown(asked({"x": value})).calls[0].arguments)


def addressed(number: int) -> Part:
    return Part(type="image", media_type="a/b", url=f"https://e.com/{'x' * 8_000}{number}")


LARGE = {
    "a text": (made(content="x" * MIB), ("text",)),
    "a text in many bytes": (made(content="é" * 400_000), ("text",)),
    "arguments": (asked({"rows": ["x" * 100] * 8_000}), ("calls",)),
    "many calls": (asked(*({"x": "y" * 500} for _ in range(3_000))), ("calls",)),
    "a few large calls": (asked(*({"x": "y" * 200_000} for _ in range(4))), ("calls",)),
    "addresses": (
        made(parts=tuple(map(addressed, range(100)))),
        ("parts",),
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_large_message_keeps_what_fits_and_names_what_is_cut(name):
    message, names = LARGE[name]
    line = shown(message)
    assert line.excerpted == names
    assert len(msgspec.json.encode(line)) <= PAYLOAD_BYTES
    assert line.text or line.calls or line.parts


@pytest.mark.parametrize("message", [made(content=f"password={SECRET} " * 10_000), LARGE["many calls"][0]])
def test_a_large_message_is_read_in_many_steps(message):
    steps = message_steps(1, message, (Redactor(),))
    assert sum(1 for _ in steps) >= 6
