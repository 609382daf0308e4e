"""The real coding agents, driven through their dialects, in a network of their own against the project's model service.

Each program plays its scenes once (`driving.py`), in about ten seconds; the tests read what has come of them.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing
from tests.support.judges import need_node_modules

from greenroom.actors.backends.dialect import Declined, Prompt, Supplied
from greenroom.actors.backends.dialects.acp import ACPDialect
from greenroom.actors.backends.dialects.codex import CodexDialect
from greenroom.actors.backends.items import Question

from .playing import Scene, need, played
from .programs import KEY, LAST, MODULES, PROGRAMS, REFUSAL, SECRET

pytestmark = [pytest.mark.judge, pytest.mark.slow, pytest.mark.no_cover, pytest.mark.timeout(300)]

SCENES = {
    "claude": ("worked", "declined", "cancelled", "cut", "edited", "question", "delegated"),
    "codex": ("worked", "declined", "cancelled", "cut", "together"),
    "gemini": ("worked", "cancelled"),
    "opencode": ("worked",),
}
READS_TEXTS = ("claude", "codex", "opencode")
"""The programs whose model reads why a call was denied."""
ASKS_READS = ("claude", "codex", "opencode")
"""The programs that ask before they read a file."""


def lives(root: Path, name: str) -> dict[str, Scene]:
    """What has come of the scenes of a program."""
    return played(root, "driving", name, SCENES[name])


@pytest.fixture(params=PROGRAMS)
def name(request: pytest.FixtureRequest) -> str:
    need(request.param)
    return str(request.param)


def items(scene: Scene, *kinds: str) -> list[dict[str, Any]]:
    return [item for kind, item in scene["items"] if kind in kinds]


# --- every program ---------------------------------------------------------------------------------------------------


def test_a_write_and_a_command_are_asked_about_and_denied_with_a_text_the_program_goes_on(root: Path, name: str):
    scene = lives(root, name)["worked"]
    assert not scene["timeout"]
    assert (scene["verdict"]["outcome"], scene["verdict"]["text"]) == ("completed", LAST), scene["errors"]
    assert {name: text.strip() for name, text in scene["files"].items()} == {
        ".env": "KEY=canary-1234567",
        "a.txt": "A",
        "b.txt": "B",
        "notes.txt": "hello",
    }
    effects = [asked["effect"] for asked in items(scene, "Asked")]
    read = {"claude": ["read"], "codex": ["shell"], "opencode": ["read"], "gemini": []}[name]
    write = "patch" if name == "codex" else "write"
    assert effects == [write, *read, write, "shell"]
    for text in (REFUSAL, *([SECRET] if name in ASKS_READS else [])):
        assert any(text in body for body in scene["requests"]) == (name in READS_TEXTS)
    assert not any("canary-1234567" in body for body in scene["requests"])


def test_the_questions_name_what_the_rules_read(root: Path, name: str):
    scene = lives(root, name)["worked"]
    texts = [json.dumps(asked["arguments"]) for asked in items(scene, "Asked")]
    folder = scene["folder"]
    wanted = [f"{folder}/a.txt", f"{folder}/.env", f"{folder}/c.txt", "echo B > b.txt"]
    if name not in ASKS_READS:
        wanted.remove(f"{folder}/.env")
    assert all(part in text for part, text in zip(wanted, texts, strict=True)), texts


def test_a_call_that_is_denied_without_a_text_does_not_run(root: Path, name: str):
    if "declined" in SCENES[name]:
        scene = lives(root, name)["declined"]
        assert (scene["verdict"]["outcome"], "b.txt" in scene["files"]) == ("completed", False)


@pytest.mark.parametrize("scene", ["cancelled", "cut"])
def test_a_program_that_is_stopped_ends_with_all_that_it_has_started(root: Path, name: str, scene: str):
    if scene in SCENES[name]:
        stopped = lives(root, name)[scene]
        assert (stopped["verdict"]["outcome"], stopped["left"]) == ("cancelled", [])
        assert not stopped["timeout"]
        assert "b.txt" not in stopped["files"]


def test_every_line_is_understood(root: Path, name: str, record_property: Any):
    """A kind that the dialect does not know is drift: look at what it says before it becomes one that is ignored."""
    fields: dict[str, set[str]] = {}
    for scene in lives(root, name).values():
        assert items(scene, "Unparsed") == []
        assert [notice["text"] for notice in items(scene, "Notice") if notice["kind"] != "warning"] == []
        for kind, names in scene["fields"].items():
            fields.setdefault(kind, set()).update(names)
    known = json.loads(Path(__file__).with_name("fields.json").read_text())[name]
    drift = {kind: sorted(names - set(known.get(kind, ()))) for kind, names in fields.items()}
    drift = {kind: names for kind, names in drift.items() if names}
    record_property("drift", drift)
    print(f"{name}: kinds and fields that are new: {drift or 'none'}")  # noqa: T201 - for the log of the CI


def test_the_session_and_the_tokens_are_known(root: Path, name: str):
    scene = lives(root, name)["worked"]
    assert [session["session_id"] != "" for session in items(scene, "SessionKnown")] == [True]
    assert items(scene, "UsageSeen")[-1]["usage"]["input"] > 0
    assert items(scene, "PromptDone")[0]["text"] == LAST


def test_every_call_has_an_end(root: Path, name: str):
    scene = lives(root, name)["worked"]
    ended = [one["call_id"] for one in items(scene, "CallEnded")]
    assert len(ended) == len(set(ended))
    asked = {one["call_id"] for one in items(scene, "Asked")}
    assert set(ended) <= asked | {one["call_id"] for one in items(scene, "Seen")}
    assert len(asked - set(ended)) == (1 if name == "gemini" else 0)  # of a call that was denied it says no more


def test_neither_the_prompt_nor_a_key_is_on_the_command_line(root: Path, name: str):
    for scene in lives(root, name).values():
        assert not any(text in " ".join(scene["argv"]) for text in ("Do it.", KEY))


# --- some programs ---------------------------------------------------------------------------------------------------


def test_claude_runs_a_command_as_it_was_edited(root: Path):
    need("claude")
    assert lives(root, "claude")["edited"]["files"]["b.txt"] == "edited\n"


def test_claude_gets_the_answer_to_its_question(root: Path):
    need("claude")
    scene = lives(root, "claude")["question"]
    (asked,) = items(scene, "Question")
    assert (asked["message"], [*asked["schema"]["properties"]]) == ("Which colour? (Red / Blue)", ["Which colour?"])
    assert any("Blue" in body.rpartition("tool_result")[2] for body in scene["requests"][-1:])
    assert scene["verdict"]["outcome"] == "completed"


def test_a_sub_agent_of_claude_asks_after_the_result_line(root: Path):
    need("claude")
    scene = lives(root, "claude")["delegated"]
    assert scene["files"]["s.txt"] == "S"
    kinds = [json.loads(line).get("type") for line in scene["lines"] if line]
    assert kinds.index("result") < len(kinds) - 1 - kinds[::-1].index("control_request")
    assert [one["tool"] for one in items(scene, "Asked")] == ["Agent", "Write"]
    assert (scene["verdict"]["outcome"], len(items(scene, "PromptDone"))) == ("completed", 1)


def test_three_questions_of_codex_are_open_together_and_answered_in_the_other_order(root: Path):
    need("codex")
    scene = lives(root, "codex")["together"]
    assert scene["mostOpen"] == 3
    asked = [one["ask_id"].removeprefix("i") for one in items(scene, "Asked")]
    answered = [str(frame["id"]) for frame in map(json.loads, scene["sent"]) if "result" in frame]
    assert answered == asked[::-1]
    assert {"x.txt", "y.txt", "z.txt"} <= scene["files"].keys()


# --- frames ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def codex_schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The schemas that Codex itself writes."""
    need("codex")
    folder, home = tmp_path_factory.mktemp("schemas"), tmp_path_factory.mktemp("home")
    command = [*PROGRAMS["codex"].command, "app-server", "generate-json-schema", "--out", str(folder)]
    variables = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home)}
    subprocess.run(command, check=True, env=variables, capture_output=True)
    return folder


@cache
def codex_schema(path: Path) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads(path.read_text()))


def check_codex(frames: list[dict[str, Any]], requests: dict[Any, str], schemas: Path) -> None:
    """Our requests, notifications and answers; `requests`: the methods of the program's requests, by their ids."""
    for frame in frames:
        if "result" in frame:
            words = requests[frame["id"]].removeprefix("item/").split("/")
            file = "".join(word[0].upper() + word[1:] for word in words) + "Response.json"
            codex_schema(schemas / file).validate(frame["result"])
        elif "method" in frame:
            file = "ClientRequest.json" if "id" in frame else "ClientNotification.json"
            codex_schema(schemas / file).validate(frame)
        else:
            codex_schema(schemas / "JSONRPCError.json").validate(frame)


def requests_in(lines: list[str]) -> dict[Any, str]:
    frames = (json.loads(line) for line in lines if line.strip().startswith("{"))
    return {frame["id"]: frame["method"] for frame in frames if "method" in frame and "id" in frame}


def test_every_frame_to_codex_is_of_its_own_schema(root: Path, codex_schemas: Path):
    methods = set()
    for scene in lives(root, "codex").values():
        frames = [json.loads(line) for line in scene["sent"]]
        check_codex(frames, requests_in(scene["lines"]), codex_schemas)
        methods |= {frame["method"] for frame in frames if "method" in frame}
    expected = {"initialize", "initialized", "thread/start", "turn/start", "turn/steer", "turn/interrupt"}
    assert methods == expected


def test_the_answers_that_no_scene_needs_are_of_the_schema_of_codex(codex_schemas: Path):
    questions = [{"id": "q1", "header": "H", "question": "Which?", "options": [{"label": "A", "description": "a"}]}]
    form = {"type": "object", "properties": {"name": {"type": "string"}}}
    asks: dict[Any, tuple[str, dict[str, Any]]] = {
        0: ("item/tool/requestUserInput", {"questions": questions}),
        1: ("mcpServer/elicitation/request", {"mode": "form", "message": "Name?", "requestedSchema": form}),
        2: ("item/permissions/requestApproval", {"itemId": "p"}),
        3: ("item/tool/requestUserInput", {"questions": questions}),
        4: ("mcpServer/elicitation/request", {"mode": "url", "message": "Look", "url": "http://127.0.0.1/"}),
        5: ("item/tool/call", {}),
    }
    dialect = CodexDialect()
    dialect.begin(Prompt(text="Do it.", folder="/srv", session="th-1", model="small", instructions="Be short."))
    frames = list[bytes]()
    for number, (method, params) in asks.items():
        line = json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n"
        for item in dialect.feed(line):
            if isinstance(item, Question):
                value = {"q1": "A"} if "UserInput" in method else {"name": "Ada"}
                frames.append(dialect.answer(item.ask_id, Declined() if number == 3 else Supplied(value=value)))
            frames.append(getattr(item, "data", b""))
    for line in ('{"id": 1, "result": {}}', '{"id": 2, "result": {"thread": {"id": "th-1"}}}'):
        frames += [getattr(item, "data", b"") for item in dialect.feed(line.encode() + b"\n")]
    sent = [json.loads(line) for data in frames for line in data.splitlines()]
    assert {"thread/resume", "turn/start"} <= {frame.get("method") for frame in sent}
    assert {frame["id"] for frame in sent if "method" not in frame} == asks.keys()
    check_codex(sent, {number: method for number, (method, _) in asks.items()}, codex_schemas)


class AcpSchema:
    """The schema of the Agent Client Protocol: the frames of a client by their methods."""

    def __init__(self) -> None:
        path = MODULES / "@agentclientprotocol/sdk/schema/v1/schema.json"
        self.whole = json.loads(path.read_text())
        resource = referencing.Resource.from_contents(self.whole)
        self.registry = referencing.Registry().with_resource("urn:acp", resource)
        self.any = jsonschema.Draft202012Validator(self.whole)
        self.names: dict[tuple[str, str], str] = {}
        for name, definition in self.whole["$defs"].items():
            for kind in ("Request", "Response", "Notification"):
                if "x-method" in definition and name.endswith(kind):
                    self.names[definition["x-method"], kind] = name

    def check(self, frame: dict[str, Any], requests: dict[Any, str]) -> None:
        assert frame["jsonrpc"] == "2.0"
        self.any.validate(frame)
        if "result" in frame:
            self._check(frame["result"], requests[frame["id"]], "Response")
        elif "method" in frame:
            self._check(frame["params"], frame["method"], "Request" if "id" in frame else "Notification")

    def _check(self, value: Any, method: str, kind: str) -> None:
        schema = {"$ref": f"urn:acp#/$defs/{self.names[method, kind]}"}
        jsonschema.Draft202012Validator(schema, registry=self.registry).validate(value)


@pytest.mark.parametrize("program", ["gemini", "opencode"])
def test_every_frame_to_an_acp_program_is_of_the_protocols_schema(root: Path, program: str):
    need(program)
    schema, methods = AcpSchema(), set()
    for scene in lives(root, program).values():
        requests = requests_in(scene["lines"])
        for frame in map(json.loads, scene["sent"]):
            schema.check(frame, requests)
            methods.add(frame.get("method", "answer"))
    stops = {"session/cancel"} if "cancelled" in SCENES[program] else set()
    assert methods == {"initialize", "session/new", "session/prompt", "answer"} | stops


def frames_of(dialect: ACPDialect, *messages: dict[str, Any]) -> Iterator[bytes]:
    """What an ACP dialect says to these messages; each question is answered."""
    for message in messages:
        for item in dialect.feed(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"):
            if isinstance(item, Question):
                yield dialect.answer(item.ask_id, Supplied(value={"name": "Ada"}) if item.message else Declined())
            yield getattr(item, "data", b"")


def test_the_frames_that_no_scene_needs_are_of_the_protocols_schema():
    need_node_modules("programs")
    form = {"type": "object", "properties": {"name": {"type": "string"}}}
    options = [{"optionId": "yes", "name": "Yes", "kind": "allow_always"}]
    messages: tuple[dict[str, Any], ...] = (
        {"id": 1, "result": {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}},
        {"id": 2, "result": {}},
        {"id": 0, "method": "elicitation/create", "params": {"message": "Name?", "requestedSchema": form}},
        {"id": 1, "method": "elicitation/create", "params": {"message": "", "requestedSchema": form}},
        {
            "id": 2,
            "method": "session/request_permission",
            "params": {"toolCall": {"toolCallId": "c"}, "options": options},
        },
        {"id": 3, "method": "terminal/create", "params": {}},
    )
    dialect = ACPDialect(("agent",))
    dialect.begin(Prompt(text="Do it.", folder="/srv", session="se-1"))
    data = b"".join(frames_of(dialect, *messages))
    sent = [json.loads(line) for line in data.splitlines()]
    assert {"session/load", "session/prompt"} <= {frame.get("method") for frame in sent}
    schema = AcpSchema()
    for frame in sent:
        schema.check(frame, {one["id"]: one["method"] for one in messages if "method" in one})
