"""Runs whose work the real coding agents do: each call that they ask about is decided over the gateway."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from .playing import Scene, begun, need, played
from .programs import KEY, LAST, PROGRAMS, REFUSAL
from .running import PLACE, PROMPT, new_place, processes_of

pytestmark = [pytest.mark.judge, pytest.mark.slow, pytest.mark.no_cover, pytest.mark.timeout(300)]

FULL = os.environ.get("GREENROOM_CHAOS") == "full"
SLOW = ("proposed",) if FULL else ()
SCENES = {
    "claude": (
        *("decided", "refused", "stopped", "overdue", "unreachable", "silent", "employed", "planted", "proposed"),
    ),
    "codex": ("decided", "refused", "stopped", "overdue", "silent", "planted", "proposed"),
    "gemini": ("decided", "planted", *SLOW),
    "opencode": ("decided", "planted", *SLOW),
}
LEFT = 4.0
"""Seconds from the end of a process until no process of its program is left."""


@pytest.fixture(params=PROGRAMS)
def name(request: pytest.FixtureRequest) -> str:
    need(request.param)
    return str(request.param)


def runs(root: Path, name: str) -> dict[str, Scene]:
    return played(root, "running", name, SCENES[name])


def payloads(scene: Scene, kind: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in scene["events"] if event["type"] == f"run.{kind}"]


def test_another_client_decides_what_the_program_asks(root: Path, name: str):
    scene = runs(root, name)["decided"]
    assert (scene["outcome"], scene["output"], scene["equal"], scene["left"]) == ("Completed", LAST, True, [])
    assert sorted(scene["files"]) == [".env", "a.txt", "b.txt", "notes.txt"]
    parents = {one["callId"]: one.get("parentCallId") for one in payloads(scene, "tool.call")}
    asked = payloads(scene, "approval.requested")
    assert len(asked) >= 3
    assert all(one["live"] and parents[one["callId"]] is not None for one in asked)
    assert {one["by"] for one in payloads(scene, "approval.resolved")} == {"operator"}
    results = {one["callId"]: one for one in payloads(scene, "tool.result")}
    assert set(results) == set(parents)
    assert [one["result"] for one in results.values() if one.get("code") == "approval_rejected"][-1] == REFUSAL


def test_a_secret_is_read_by_no_program(root: Path, name: str):
    scene = runs(root, name)["decided"]
    everything = json.dumps([scene["events"], scene["requests"]])
    assert "canary-1234567" not in everything
    reads = [one for one in payloads(scene, "tool.result") if one["tool"].lower() == "read"]
    assert [one["status"] for one in reads] == ([] if name == "codex" else ["failed"])
    if name in ("claude", "opencode"):
        assert [one["code"] for one in reads] == ["permission_denied"]


def test_neither_a_key_nor_the_prompt_is_seen_by_others(root: Path, name: str):
    scene = runs(root, name)["decided"]
    assert scene["lines"]
    assert not any(text in " ".join(words) for words in scene["lines"] for text in (KEY, PROMPT))
    assert KEY not in json.dumps(scene["events"])


def test_a_denial_without_a_text_ends_the_run_and_the_program(root: Path, name: str):
    if "refused" in SCENES[name]:
        scene = runs(root, name)["refused"]
        assert (scene["outcome"], scene["code"], scene["left"]) == ("Cancelled", "approval_rejected", [])
        assert "b.txt" not in scene["files"]


def test_a_run_that_is_cancelled_while_the_program_asks_leaves_no_process(root: Path, name: str):
    if "stopped" in SCENES[name]:
        scene = runs(root, name)["stopped"]
        assert (scene["outcome"], scene["left"]) == ("Cancelled", [])
        assert [one["resolution"] for one in payloads(scene, "approval.resolved")] == ["withdrawn"]


@pytest.mark.parametrize("program", ["claude", "codex"])
def test_the_deadline_passes_while_the_program_asks(root: Path, program: str):
    need(program)
    scene = runs(root, program)["overdue"]
    assert (scene["outcome"], scene["code"], scene["left"]) == ("Failed", "run_timeout", [])


def test_a_model_service_that_is_away_ends_the_run_at_the_limit_of_the_program(root: Path):
    need("claude")
    scene = runs(root, "claude")["unreachable"]
    assert (scene["outcome"], scene["left"]) == ("Failed", [])
    assert "worked for 5 s" in scene["detail"]


@pytest.mark.parametrize("program", ["claude", "codex"])
def test_a_program_that_says_nothing_is_stopped(root: Path, program: str):
    need(program)
    scene = runs(root, program)["silent"]
    assert (scene["outcome"], scene["left"]) == ("Failed", [])
    assert "said nothing for 3 s" in scene["detail"]


def test_what_the_program_of_a_child_run_asks_is_decided_at_the_parent_run(root: Path):
    need("claude")
    scene = runs(root, "claude")["employed"]
    assert (scene["outcome"], scene["output"], scene["files"]["b.txt"]) == ("Completed", "It is done.", "B\n")
    assert scene["mirror"] == [True, "child_approval", "Bash"]


def test_settings_in_the_folder_run_nothing_and_take_no_question_away(root: Path, name: str):
    scene = runs(root, name)["planted"]
    assert (scene["outcome"], [file for file in scene["files"] if file.startswith("ran_")]) == ("Completed", [])
    asked = [json.dumps(one["arguments"]) for one in payloads(scene, "approval.requested")]
    written = ["settings.json"] if name in ("claude", "gemini") else []
    applied = ["proposal"] if name in ("codex", "opencode") else []
    wanted = [*written, "echo B > b.txt", *applied]
    assert [part in text for part, text in zip(wanted, asked, strict=True)] == [True] * len(wanted)
    assert {one["status"] for one in payloads(scene, "tool.result")} == {"succeeded"}
    assert scene["files"]["b.txt"] == "B\n"


def test_what_the_program_changes_is_applied_after_the_program_has_resolved_a_conflict(root: Path, name: str):
    if "proposed" not in SCENES[name]:
        return
    scene = runs(root, name)["proposed"]
    assert (scene["outcome"], scene["output"], scene["equal"]) == (
        "Completed",
        f"{LAST}\n\nApplied: a.txt, b.txt.",
        True,
    )
    first, second = scene["proposals"]
    assert "b.txt" not in first["files"].keys() | second["files"].keys()
    assert (first["files"]["a.txt"], second["files"]["a.txt"]) == ("one\ntwo\nthree\n", "one\nzwei\nthree\n")
    assert (scene["files"]["a.txt"], scene["files"]["b.txt"]) == ("one\nzwei = 2\nthree\n", "B\n")
    assert [one["conflicts"] for one in payloads(scene, "patch.conflicted")] == [["a.txt"]]


def gone(home: Path, seconds: float) -> bool:
    """Whether the processes that have this home end in time."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if not processes_of(home):
            return True
        threading.Event().wait(0.1)
    return not processes_of(home)


KILLED = [("claude", "asks"), ("codex", "works"), ("gemini", "asks")]
if FULL:
    KILLED = [(program, moment) for program in PROGRAMS for moment in ("asks", "works")]


@pytest.mark.parametrize(("program", "moment"), KILLED)
def test_a_kill_leaves_no_process_and_the_next_one_asks_what_came_of_the_work(
    root: Path, tmp_path: Path, program: str, moment: str
):
    need(program)
    new_place(str(tmp_path))
    with begun(root, "running", program, [moment], **{PLACE: str(tmp_path)}) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.kill()
    assert json.loads(line)["processes"] > 0
    assert gone(tmp_path / "h", LEFT), "a process of the program lives on"
    scene = played(root, "running", program, ("after",), **{PLACE: str(tmp_path)})["after"]
    assert scene["before"] == []
    resolved = [(one["resolution"], one.get("reason", "")) for one in payloads(scene, "approval.resolved")]
    if moment == "asks":
        assert resolved[0][0] == "withdrawn"
        assert resolved[0][1].startswith("owner_lost")
        assert scene["late"] == ["rejected", "already_decided"]
    assert "b.txt" not in scene["files"]
    assert [one["reason"] for one in payloads(scene, "approval.requested")][-1:] == ["outcome_unknown"]
    assert scene["left"] == []
