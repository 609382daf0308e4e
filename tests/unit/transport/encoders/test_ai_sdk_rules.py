"""The rules that the AI SDK's streams are held to can fail: each planted fault is caught."""

from collections.abc import Callable
from typing import Any

import pytest

from ....support.ai_sdk_rules import Broken, Chat, Part, check_message, check_part, check_stream, read_sse
from ...engine.world import call
from .test_ai_sdk import a_world, events_of, of, parts_of


def drop(kind: str) -> Callable[[list[Part]], list[Part]]:
    return lambda parts: [part for part in parts if part is not of(parts, kind)[0]]


def double(kind: str) -> Callable[[list[Part]], list[Part]]:
    def apply(parts: list[Part]) -> list[Part]:
        at = parts.index(of(parts, kind)[0])
        return [*parts[: at + 1], parts[at], *parts[at + 1 :]]

    return apply


def change(kind: str, **fields: Any) -> Callable[[list[Part]], list[Part]]:
    def apply(parts: list[Part]) -> list[Part]:
        at = parts.index(of(parts, kind)[0])
        return [*parts[:at], {**parts[at], **fields}, *parts[at + 1 :]]

    return apply


def append(*more: Part) -> Callable[[list[Part]], list[Part]]:
    return lambda parts: [*parts, *more]


def insert(part: Part, before: str) -> Callable[[list[Part]], list[Part]]:
    def apply(parts: list[Part]) -> list[Part]:
        at = parts.index(of(parts, before)[0])
        return [*parts[:at], part, *parts[at:]]

    return apply


FAULTS = {
    "no start": drop("start"),
    "two starts": double("start"),
    "no finish": drop("finish"),
    "two finishes": double("finish"),
    "another message": change("start", messageId="other"),
    "a null field": change("finish", finishReason=None),
    "a reason that nobody knows": change("finish", finishReason="done"),
    "a finish without a reason": lambda parts: [*parts[:-1], {"type": "finish"}],
    "an unknown type": insert({"type": "text"}, "finish"),
    "an unknown field": change("text-start", text="x"),
    "a missing field": lambda parts: [{k: v for k, v in part.items() if k != "delta"} for part in parts],
    "a part after finish": append({"type": "text-start", "id": "late"}),
    "unterminated text": drop("text-end"),
    "text without start": drop("text-start"),
    "the end of an unknown block": insert({"type": "text-end", "id": "nobody"}, "finish-step"),
    "a block id twice": insert({"type": "text-start", "id": "r.m1-text-1"}, "finish-step"),
    "no start of a step": drop("start-step"),
    "no end of a step": drop("finish-step"),
    "two ends of a step": double("finish-step"),
    "an output without its call": drop("tool-input-available"),
    "a call without its output": drop("tool-output-available"),
    "a second part for a call": lambda parts: [
        *parts[:-2],
        {"type": "start-step"},
        *of(parts, "tool-input-available", "tool-output-available"),
        {"type": "finish-step"},
        *parts[-2:],
    ],
    "a preliminary output": change("tool-output-available", preliminary=True),
    "an error that is not the last": insert({"type": "error", "errorText": "x"}, "text-start"),
    "an error without text": insert({"type": "error"}, "finish"),
    "an answer that was never asked for": insert(
        {"type": "tool-approval-response", "approvalId": "r.t1", "approved": True}, "tool-output-available"
    ),
    "an output behind an open request": insert(
        {"type": "tool-approval-request", "approvalId": "r.t1", "toolCallId": "c1"}, "tool-output-available"
    ),
    "a denial without a request": lambda parts: [
        {"type": "tool-output-denied", "toolCallId": "c1"} if part["type"] == "tool-output-available" else part
        for part in parts
    ],
}


def good() -> tuple[list[Part], str]:
    world = a_world()
    world.says("looking", calls=[call("c1", "read", n=1)])
    world.returns("c1", 3)
    world.says("three")
    return parts_of(events_of(world), "v7"), "lookingthree"


def judge(parts: list[Part]) -> None:
    check_stream(parts, "v7", message_id="r")
    check_message(Chat("v7").stream(parts).message, ended=True)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught(name: str) -> None:
    parts, _ = good()
    judge(parts)
    with pytest.raises(Broken):
        judge(FAULTS[name](parts))


@pytest.mark.parametrize("kind", ["reset-step", "tool-approval-response"])
def test_a_part_of_v7_is_refused_by_v6(kind: str) -> None:
    part = {"type": kind} | ({"approvalId": "t", "approved": True} if kind == "tool-approval-response" else {})
    check_part(part, "v7")
    with pytest.raises(Broken, match="v6 does not know"):
        check_part(part, "v6")


@pytest.mark.parametrize(
    "body",
    [
        "",
        "data: {}",
        "data: {}\n\n",
        "data: [DONE]\n\ndata: {}\n\n",
        "event: x\ndata: [DONE]\n\n",
        "data: [DONE]\n\n" * 2,
    ],
)
def test_a_body_that_is_not_ended_as_it_should_be_is_caught(body: str) -> None:
    with pytest.raises(Broken):
        read_sse(body)


def test_a_body_with_ids_and_comments_is_read() -> None:
    assert read_sse(': hello\n\nid: e-1\ndata: {"type":"start"}\n\ndata: [DONE]\n\n') == [{"type": "start"}]
