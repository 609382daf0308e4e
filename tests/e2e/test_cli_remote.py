"""Following, deciding, cancelling and sending from another terminal, whoever works on the run, or nobody."""

import json
import os
import re
import shlex
import signal
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from greenroom.actors.stores.sqlite._lock import FileLock

from ..support.ports import free_port
from .cli_kit import PATIENCE, Cli, Inside, interrupt, lines_of, one_line, wait_for
from .serving_kit import AGENTS, Server, serving

pytestmark = pytest.mark.slow


@attrs.frozen
class Place:
    """Where commands are typed: a folder with agents, and a folder for state."""

    folder: Path
    state: Path

    @classmethod
    def under(cls, path: Path) -> "Place":
        """Make both."""
        folder = path / "here"
        folder.mkdir()
        (folder / "agents.py").write_text(AGENTS)
        return cls(folder, path / "state")

    @contextmanager
    def served(self) -> Iterator[Server]:
        """A server of the agents for the time of the block."""
        names = ("support", "both", "painter", "streamer")
        agents = (f"agents.py:{name}" for name in names)
        cli = Cli(self.folder, self.state)
        cli.env.pop("COVERAGE_PROCESS_CONFIG", None)  # most servers are killed, and a killed process saves no coverage
        with serving(cli, *agents, "--db", "s.db", port=free_port()) as server:
            yield server


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place.under(tmp_path_factory.mktemp("common"))


@pytest.fixture(scope="module")
def server(common: Place) -> Iterator[Server]:
    """For all tests that leave the server running; each has runs of its own."""
    with common.served() as server:
        yield server


@pytest.fixture
def run_id(request: pytest.FixtureRequest) -> str:
    """An id that no other test has: the tests of a module share a server."""
    return f"r{zlib.crc32(request.node.nodeid.encode()):08x}"


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The folders of the common server for its tests, new ones for all others."""
    if "server" in request.fixturenames:
        found: Place = request.getfixturevalue("common")
        return found
    return Place.under(tmp_path)


@pytest.fixture
def own_server(place: Place) -> Iterator[Server]:
    """For a test that stops the server or counts its runs."""
    with place.served() as server:
        yield server


@pytest.fixture
def folder(place: Place) -> Path:
    return place.folder


@pytest.fixture
def cli(place: Place) -> Cli:
    return Cli(place.folder, place.state)


@pytest.fixture
def inside(place: Place, monkeypatch: pytest.MonkeyPatch) -> Inside:
    for name in ("GREENROOM_URL", "GREENROOM_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return Inside(place.folder, place.state, monkeypatch)


DB = ("--db", "s.db")


def shows(inside: Inside, run_id: str, words: str) -> None:
    """Wait until `greenroom show` says so: a command is accepted once it is durable, and acts later."""
    until = time.monotonic() + PATIENCE
    while words not in inside("show", run_id, *DB).stdout:
        assert time.monotonic() < until, f"{words!r} is not shown"


def jsons(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def story(inside: Inside, run_id: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(inside("show", run_id, "--json", "--events", *DB).stdout)
    return report


def resolved(inside: Inside, run_id: str) -> list[dict[str, Any]]:
    """How the tickets of a run were decided."""
    events = story(inside, run_id)["events"]
    return [event["payload"] for event in events if event["type"] == "run.approval.resolved"]


# --- from another terminal, at a server ------------------------------------------------------------------------------


def test_a_run_is_followed_in_one_terminal_and_approved_in_another(cli: Cli, server: Server, run_id: str) -> None:
    server.starts("support", run_id)
    with cli.started("follow", run_id, *DB) as follower:
        assert follower.stdout is not None
        while f"answer it with: greenroom approve {run_id} --db s.db" not in (line := follower.stdout.readline()):
            assert line
        approved = cli("approve", run_id, *DB, "--reason", "fine")
        assert (approved.returncode, approved.stderr) == (0, "")
        assert f"refund ({run_id}.t1)" in approved.stdout
        assert "cents: 500" in approved.stdout
        assert approved.stdout.endswith("approved refund\n")
        out, err = follower.communicate(timeout=PATIENCE)
    assert (follower.returncode, err) == (0, "")
    assert "approved by operator: fine" in out
    assert "paid back 500 of 7" in out
    assert "completed" in out


def test_a_denied_call_and_its_reason_reach_the_agent(inside: Inside, server: Server, run_id: str) -> None:
    server.starts("support", run_id)
    done = inside("deny", run_id, "refund", *DB, "--reason", "ask first", "--json")
    assert done.returncode == 0, done.stderr
    (answer,) = jsons(done.stdout)
    assert answer == {
        "type": "answer",
        "runId": run_id,
        "ticketId": f"{run_id}.t1",
        "tool": "refund",
        "decision": "deny",
        "status": "accepted",
        "code": None,
        "detail": None,
        "commandId": answer["commandId"],
    }
    assert inside("follow", run_id, *DB).returncode == 0
    (decided,) = resolved(inside, run_id)
    assert (decided["resolution"], decided["by"], decided["reason"]) == ("denied", "operator", "ask first")


def results(inside: Inside, run_id: str) -> list[Any]:
    """What the model was told of the calls of a run."""
    events = story(inside, run_id)["events"]
    return [event["payload"]["result"] for event in events if event["type"] == "run.tool.result"]


def test_the_model_is_told_the_text_of_a_denial_and_the_log_keeps_the_reason(
    inside: Inside, server: Server, run_id: str
) -> None:
    server.starts("both", run_id)
    done = inside("deny", run_id, "t1", "--reason", "spends too much", "--text", "Ask the customer.", *DB)
    assert done.returncode == 0, done.stderr
    assert "  the model reads: Ask the customer.\n" in done.stdout
    assert inside("deny", run_id, "t2", "--reason", "ask first", *DB).returncode == 0
    assert inside("follow", run_id, *DB).returncode == 0
    assert results(inside, run_id) == ["Ask the customer.", "The reviewer denied this call: ask first"]
    assert [event["reason"] for event in resolved(inside, run_id)] == ["spends too much", "ask first"]


def test_the_text_of_a_denial_is_kept_while_nobody_works_on_the_run(inside: Inside) -> None:
    inside("run", "agents.py:support", "help", "--run-id", "r1", *DB)
    reported = ("deny", "r1", "--text", "Ask the customer.", "--id", "d1")
    done = inside(*reported, *DB)
    assert done.returncode == 0, done.stderr
    assert "denied refund (already, by the same id)" in inside(*reported, *DB).stdout
    assert inside("run", "agents.py:support", "--resume", "r1", "--no-approve", *DB).returncode == 0
    assert results(inside, "r1") == ["Ask the customer."]


def test_of_several_one_is_named_or_all_are_decided(inside: Inside, server: Server, run_id: str) -> None:
    server.starts("both", run_id)
    several = inside("approve", run_id, *DB)
    assert several.returncode == 2
    assert f"2 decisions of {run_id} are open; name one of them as TARGET, or say --all" in one_line(several.stderr)
    assert several.stdout.count("refund") == 2
    listed = jsons(inside("approve", run_id, *DB, "--json").stdout)
    assert [ticket["ticketId"] for ticket in listed] == [f"{run_id}.t1", f"{run_id}.t2"]
    unclear = inside("approve", run_id, "refund", *DB)
    assert unclear.returncode == 2
    assert f"'refund' is no open ticket of run {run_id}; there are: {run_id}.t1, {run_id}.t2" in one_line(
        unclear.stderr
    )
    edited = inside("approve", run_id, "--all", "--edit", '{"order": "9"}', *DB)
    assert "--edit and --result are for one decision" in one_line(edited.stderr)
    assert inside("deny", run_id, "t2", *DB).returncode == 0
    assert inside("approve", run_id, "--all", *DB).returncode == 0
    assert inside("follow", run_id, *DB).returncode == 0
    assert [event["resolution"] for event in resolved(inside, run_id)] == ["denied", "approved"]


def test_all_of_them_are_those_that_nobody_has_decided_meanwhile(inside: Inside) -> None:
    """Nobody works on the run: what is decided acts later, and until then the ticket is seen."""
    inside("run", "agents.py:both", "help", "--run-id", "r1", *DB)
    assert inside("deny", "r1", "t2", *DB).returncode == 0
    rest = inside("approve", "r1", "--all", *DB)
    assert (rest.returncode, rest.stderr) == (0, "")
    assert "r1.t2 was decided meanwhile: " in rest.stdout


def test_all_of_them_at_once(inside: Inside, server: Server, run_id: str) -> None:
    server.starts("both", run_id)
    done = inside("deny", run_id, "--all", "--json", *DB)
    assert [ticket["ticketId"] for ticket in jsons(done.stdout)] == [f"{run_id}.t1", f"{run_id}.t2"]
    assert done.returncode == 0


def test_edited_arguments_are_what_runs(inside: Inside, server: Server, run_id: str) -> None:
    server.starts("support", run_id)
    done = inside("approve", run_id, "--edit", '{"order": "7", "cents": 400}', *DB)
    assert done.returncode == 0, done.stderr
    assert 'with these arguments instead:\n  order: "7"\n  cents: 400\n' in done.stdout
    assert inside("follow", run_id, *DB).returncode == 0
    assert "paid back 400 of 7" in inside("show", run_id, *DB).stdout


def test_what_does_not_fit_is_refused_by_the_server_and_can_be_tried_again(
    inside: Inside, server: Server, run_id: str
) -> None:
    server.starts("support", run_id)
    done = inside("approve", run_id, "--edit", '{"order": "7", "cents": "many"}', *DB)
    assert done.returncode == 1
    assert f"{run_id}.t1 was not decided (invalid_arguments)" in one_line(done.stderr)
    (answer,) = jsons(inside("approve", run_id, "--edit", "{}", "--json", *DB).stdout)
    assert (answer["status"], answer["code"]) == ("rejected", "invalid_arguments")
    assert inside("approve", run_id, *DB).returncode == 0


def test_a_question_is_answered_with_a_result(inside: Inside, server: Server, run_id: str) -> None:
    server.starts("painter", run_id)
    guess = inside("approve", run_id, *DB)
    assert guess.returncode == 2
    assert f"{run_id}.t1 wants more than a yes (it asks for an answer): give --result JSON" in one_line(guess.stderr)
    assert inside("approve", run_id, "--result", "7", *DB).returncode == 1
    assert inside("approve", run_id, "--result", '"blue"', *DB).returncode == 0
    assert inside("follow", run_id, *DB).returncode == 0
    assert "blue" in inside("show", run_id, *DB).stdout


def test_a_command_with_its_id_acts_once(inside: Inside, server: Server, run_id: str) -> None:
    server.starts("support", run_id)
    first, second = (inside("send", run_id, "It was order 8.", "--id", "s1", *DB, "--json") for _ in range(2))
    assert [jsons(process.stdout)[0]["status"] for process in (first, second)] == ["accepted", "duplicate"]
    other = inside("send", run_id, "Something else.", "--id", "s1", *DB)
    assert other.returncode == 1
    assert "send: not accepted (decision_id_conflict)" in one_line(other.stderr)
    blank = inside("send", run_id, " ", "--id", "s2", *DB)
    assert blank.returncode == 2
    assert "the text is blank" in one_line(blank.stderr)


def test_a_cancelled_run_ends_its_follower_with_code_four(cli: Cli, server: Server, run_id: str) -> None:
    server.starts("support", run_id)
    with cli.started("follow", run_id, *DB, "--json") as follower:
        wait_for(follower, "run.waiting")
        done = cli("cancel", run_id, "--reason", "no longer needed", *DB)
        assert (done.returncode, done.stdout) == (0, f"accepted by {run_id}; the run will end.\n")
        *_, outcome = lines_of(follower)
        assert follower.wait(PATIENCE) == 4
    reported = {"status": "cancelled", "exit": 4, "reason": "no longer needed", "by": "operator"}
    assert {name: outcome[name] for name in reported} == reported


def test_input_is_read_at_the_next_step(inside: Inside, server: Server, run_id: str) -> None:
    server.starts("support", run_id)
    done = inside("send", run_id, "It was order 8.", *DB)
    assert done.stdout == f"accepted by {run_id}; the run reads it at its next step.\n"
    assert inside("approve", run_id, *DB).returncode == 0
    assert "It was order 8." in inside("follow", run_id, *DB).stdout


def test_a_run_is_held_and_let_go_on_with_a_word_to_the_model(inside: Inside, server: Server, run_id: str) -> None:
    server.starts("support", run_id)
    done = inside("pause", run_id, "--reason", "the shop is closed", *DB)
    assert done.stdout == f"accepted by {run_id}; the run waits before its next step, until a decision.\n"
    shows(inside, run_id, "t2")
    assert inside("approve", run_id, *DB).returncode == 2  # both of them are open
    assert inside("approve", run_id, "t1", *DB).returncode == 0
    shown = inside("show", run_id, *DB).stdout
    assert "pause asked for: the shop is closed" in shown
    assert "the run" in shown
    went_on = inside("approve", run_id, "t2", "--result", '"The shop is open again."', *DB)
    assert went_on.returncode == 0
    assert "approved the run" in went_on.stdout
    assert "The shop is open again." in inside("follow", run_id, *DB).stdout
    late = inside("pause", run_id, *DB)
    assert (late.returncode, "pause: not accepted (run_done)" in one_line(late.stderr)) == (1, True)


def test_a_run_that_somebody_works_on_is_shown_with_what_can_be_typed_now(inside: Inside, own_server: Server) -> None:
    own_server.starts("support", "r1")
    assert inside("show", "r1", *DB).stdout.endswith("\nfollow it: greenroom follow r1 --db s.db\n")
    own_server.process.kill()
    own_server.process.wait()
    assert "\ncontinue with: greenroom run FILE.py:AGENT --resume r1 --db s.db\n" in inside("show", "r1", *DB).stdout


def test_to_deny_a_held_run_ends_it(inside: Inside, server: Server, run_id: str) -> None:
    server.starts("support", run_id)
    assert inside("pause", run_id, *DB).returncode == 0
    shows(inside, run_id, "t2")
    reported = inside("deny", run_id, "--all", "--text", "enough", *DB)
    assert reported.returncode == 2
    assert f"{run_id}.t2 holds the run: to deny it ends the run, and the model reads nothing of it" in one_line(
        reported.stderr
    )
    assert inside("deny", run_id, "t2", "--reason", "enough", *DB).returncode == 0
    assert inside("follow", run_id, *DB).returncode == 4


def test_nothing_to_decide_is_said_so(inside: Inside, server: Server, run_id: str) -> None:
    server.starts("support", run_id)
    assert inside("cancel", run_id, *DB).returncode == 0
    assert inside("follow", run_id, *DB).returncode == 4
    done = inside("approve", run_id, *DB)
    assert done.returncode == 2
    assert (
        f"nothing of run {run_id} waits for a decision (it is cancelled); see greenroom follow {run_id} --db s.db"
        in one_line(done.stderr)
    )
    late = inside("cancel", run_id, *DB)
    assert late.returncode == 1
    assert "cancel: not accepted (run_done)" in one_line(late.stderr)


def test_the_beginning_of_an_id_is_enough_if_it_is_the_only_one(inside: Inside, own_server: Server) -> None:
    own_server.starts("support", "order-7")
    own_server.starts("support", "order-8")
    assert inside("approve", "order-8", *DB).returncode == 0
    several = inside("approve", "ord", *DB)
    assert several.returncode == 2
    assert "2 runs begin with 'ord'" in one_line(several.stderr)
    own_server.starts("support", "unique")
    assert inside("approve", "uni", *DB).returncode == 0
    unknown = inside("follow", "nobody", *DB)
    assert unknown.returncode == 2
    hint = re.search(r"no run has the id 'nobody'; list the known ones with `greenroom (.+)`", one_line(unknown.stderr))
    listed = inside(*shlex.split(hint[1]))
    assert (listed.returncode, "order-7" in listed.stdout) == (0, True)
    elsewhere = inside("cancel", "nobody", "--url", own_server.console)
    said = f"no run has the id 'nobody'; the console at {own_server.url}/ lists those that you may see"
    assert said in one_line(elsewhere.stderr)


# --- following -------------------------------------------------------------------------------------------------------


def test_json_lines_are_the_events_as_they_are_stored_from_the_cursor_on(
    inside: Inside, server: Server, run_id: str
) -> None:
    server.starts("streamer", run_id, until="run.completed")
    *events, outcome = jsons(inside("follow", run_id, "--json", *DB).stdout)
    assert events == story(inside, run_id)["events"]
    assert (outcome["status"], outcome["exit"], outcome["after"]) == ("completed", 0, len(events))
    *rest, _ = jsons(inside("follow", run_id, "--json", "--after", "10", *DB).stdout)
    assert rest == events[10:]
    (over,) = jsons(inside("follow", run_id, "--json", "--after", str(len(events)), *DB).stdout)
    assert (over["status"], over["exit"]) == ("completed", 0)


def test_ctrl_c_says_how_to_go_on(cli: Cli, inside: Inside, server: Server, run_id: str) -> None:
    server.starts("support", run_id)
    with cli.started("follow", run_id, *DB, "--json") as follower:
        seen = wait_for(follower, "run.waiting")
        code, (outcome,), err = interrupt(follower)
    assert (code, err) == (130, "")
    last = seen[-1]["sequence"]
    assert outcome["resume"] == f"greenroom follow {run_id} --after {last} --db s.db"
    inside("approve", run_id, *DB)
    *rest, _ = jsons(inside(*outcome["resume"].split()[1:], "--json").stdout)
    assert rest[0]["sequence"] == last + 1


def test_a_follower_in_a_terminal_sees_the_server_go_and_come(cli: Cli, own_server: Server) -> None:
    own_server.starts("support", "r1")
    with cli.terminal("follow", "r1", *DB) as terminal:
        terminal.sees("waits for a decision")
        terminal.sees("answer it with")
        assert own_server.stops() == 0
        terminal.sees("no connection (")
        with serving(cli, "agents.py:support", *DB, port=own_server.port):
            assert cli("approve", "r1", *DB).returncode == 0
            terminal.sees("completed")
            assert terminal.ends() == 0
    assert terminal.seen.count("\x1b[?25l") == terminal.seen.count("\x1b[?25h")


def test_a_server_that_comes_back_at_another_port_is_found(cli: Cli, inside: Inside, own_server: Server) -> None:
    own_server.starts("support", "r1")
    with cli.started("follow", "r1", *DB, "--json") as follower:
        seen = wait_for(follower, "run.waiting")
        assert own_server.stops() == 0
        with serving(cli, "agents.py:support", *DB) as other:
            assert other.port != own_server.port
            assert inside("approve", "r1", *DB).returncode == 0
            seen += list(lines_of(follower))
        assert follower.wait(PATIENCE) == 0
    *events, outcome = seen
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert outcome["status"] == "completed"


def test_what_a_server_has_not_sent_any_more_is_read_from_its_file(
    cli: Cli, inside: Inside, own_server: Server
) -> None:
    """It is gone, and somebody has brought the run to its end without a gateway."""
    own_server.starts("support", "r1")
    with cli.started("follow", "r1", *DB, "--json") as follower:
        seen = wait_for(follower, "run.waiting")
        own_server.process.kill()
        own_server.process.wait()
        assert inside("run", "agents.py:support", "--resume", "r1", "--yes", *DB).returncode == 0
        seen += list(lines_of(follower))
        assert follower.wait(PATIENCE) == 0
    *events, outcome = seen
    assert events == story(inside, "r1")["events"]
    assert outcome["status"] == "completed"


# --- in a terminal ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "code", "status"), [("y\n", 0, "done"), ("n\n", 3, "waiting"), ("\x04", 3, "waiting")]
)
def test_approve_asks_whoever_sits_there(
    cli: Cli, inside: Inside, server: Server, run_id: str, keys: str, code: int, status: str
) -> None:
    server.starts("support", run_id)
    with cli.terminal("approve", run_id, *DB) as terminal:
        assert "cents: 500" in terminal.sees("Approve it?")
        terminal.sees("n no ? ")
        terminal.types(keys)
        assert terminal.ends() == code
    if not code:
        assert inside("follow", run_id, *DB).returncode == 0
    assert story(inside, run_id)["status"] == status


def test_ctrl_c_at_the_question_decides_nothing(cli: Cli, inside: Inside, server: Server, run_id: str) -> None:
    server.starts("support", run_id)
    with cli.terminal("approve", run_id, *DB) as terminal:
        terminal.sees("n no ? ")
        terminal.types("\x03")
        assert terminal.ends() == 130
    assert "Traceback" not in terminal.seen
    assert story(inside, run_id)["status"] == "waiting"


def test_of_two_terminals_the_second_is_told_that_it_was_decided(cli: Cli, server: Server, run_id: str) -> None:
    server.starts("both", run_id)
    with cli.terminal("approve", run_id, "t1", *DB) as terminal:
        terminal.sees("n no ? ")
        assert cli("deny", run_id, "t1", *DB).returncode == 0
        terminal.types("y\n")
        terminal.sees(f"{run_id}.t1 was not decided (already_decided)")
        assert terminal.ends() == 1


def test_yes_asks_nobody(cli: Cli, server: Server, run_id: str) -> None:
    server.starts("support", run_id)
    with cli.terminal("approve", run_id, "--yes", *DB) as terminal:
        terminal.sees("approved refund")
        assert terminal.ends() == 0


# --- where the server is ---------------------------------------------------------------------------------------------


def test_a_server_is_named_by_url_or_by_the_environment(
    inside: Inside, server: Server, run_id: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.starts("support", run_id)
    token = (folder / "s.db.token").read_text().strip()
    for options in (["--url", server.console], ["--url", server.url, "--token", token]):
        assert inside("send", run_id, "more", *options).returncode == 0
    monkeypatch.setenv("GREENROOM_URL", server.url)
    monkeypatch.setenv("GREENROOM_TOKEN", token)
    assert inside("send", run_id, "more").returncode == 0
    assert inside("approve", run_id).returncode == 0


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (["--url", "{url}"], "does not take this token", 1),
        (["--url", "{url}", "--token", "nobody has this one"], "does not take this token", 1),
        (["--url", "nonsense"], "not the URL of a gateway", 2),
        (["--url", "{url}", "--db", "s.db"], "give one of them", 2),
        (["--url", "{url}", "--token", "x", "--token-file", "y"], "give one of them", 2),
        (["--url", "{url}", "--token-file", "nowhere"], "the token file nowhere cannot be read", 2),
        (["--db", "nowhere.db"], "there is no database nowhere.db", 5),
        (["--db", "."], "is a folder", 5),
        ([], "there is no database", 5),
    ],
)
def test_a_place_that_can_not_be_is_one_line(
    inside: Inside, server: Server, run_id: str, options: list[str], words: str, code: int
) -> None:
    for command in (
        ["follow", run_id],
        ["approve", run_id],
        ["cancel", run_id],
        ["pause", run_id],
        ["send", run_id, "text"],
    ):
        done = inside(*command, *(option.format(url=server.url) for option in options))
        assert words in one_line(done.stderr)
        assert done.returncode == code
        assert done.stdout == ""


def test_nobody_at_the_url_is_one_line(inside: Inside) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = inside("follow", "r1", "--url", f"http://127.0.0.1:{port}", "--token", "x")
    assert done.returncode == 1
    assert "start one with `greenroom serve`" in one_line(done.stderr)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["follow"], "required: RUN_ID"),
        (["follow", "r1", "--after", "-1"], "is not the number of an event"),
        (["follow", "r1", "--after", "last"], "argument --after: last is not the number of an event"),
        (["serve", "agents.py", "--port", "http"], "argument --port: http is not between 0 and 65535"),
        (["approve", "r1", "t1", "--all"], "omit TARGET"),
        (["approve", "r1", "--all", "--id", "x"], "omit --id"),
        (["approve", "r1", "--edit", "{"], "--edit is no JSON"),
        (["approve", "r1", "--edit", "[1]"], "must be a JSON object"),
        (["deny", "r1", "--yse"], "unrecognized arguments: --yse; did you mean --yes?; see greenroom deny --help"),
        (
            ["send", "r1", "x", "--token", "-abc"],
            "--token lacks its value (a value that begins with - is written as --token=VALUE)",
        ),
        (["--verbose"], "unrecognized arguments: --verbose; did you mean --version?; see greenroom --help"),
        (["approve", "r1", "--text", "x"], "unrecognized arguments"),
        (["send", "r1"], "required: TEXT"),
    ],
)
def test_wrong_usage_is_one_line_and_code_two(inside: Inside, arguments: list[str], words: str) -> None:
    done = inside(*arguments)
    assert done.returncode == 2
    assert words in one_line(done.stderr)


def test_every_command_shows_examples(inside: Inside) -> None:
    for command in ("serve", "follow", "approve", "deny", "cancel", "pause", "send"):
        done = inside(command, "--help")
        assert done.returncode == 0
        assert f"greenroom {command} " in done.stdout.split("examples:")[1]


# --- a run without an owner ----------------------------------------------------------------------------------------


def test_an_approval_of_a_run_that_nobody_works_on_acts_when_it_is_resumed(inside: Inside) -> None:
    inside("run", "agents.py:support", "help", "--run-id", "r1", *DB)
    followed = inside("follow", "r1", *DB)
    assert followed.returncode == 3
    assert "No process works on the run now; its stage is needs_approval." in followed.stdout
    assert "greenroom run FILE.py:AGENT --resume r1 --db s.db" in followed.stdout
    approved = inside("approve", "r1", *DB, "--reason", "fine")
    assert approved.returncode == 0, approved.stderr
    assert (
        "the command acts when the run is resumed, by a server or by: greenroom run FILE.py:AGENT --resume r1 --db s.db"
        in approved.stdout
    )
    assert story(inside, "r1")["pending"] == 1
    again = inside("deny", "r1", *DB)
    assert again.returncode == 1
    assert "already_decided" in one_line(again.stderr)
    done = inside("run", "agents.py:support", "--resume", "r1", "--no-approve", *DB)
    assert done.returncode == 0, done.stdout
    (decided,) = resolved(inside, "r1")
    assert (decided["resolution"], decided["reason"]) == ("approved", "fine")
    assert inside("follow", "r1", *DB).returncode == 0


def test_a_run_that_nobody_works_on_is_cancelled_and_sent_to_as_well(inside: Inside) -> None:
    inside("run", "agents.py:support", "help", "--run-id", "r1", *DB)
    assert inside("send", "r1", "more", *DB).returncode == 0
    assert inside("cancel", "r1", "--reason", "enough", *DB).stdout == "accepted by r1; the run will end.\n"
    assert story(inside, "r1")["stage"] == "cancelled"
    assert inside("run", "agents.py:support", "--resume", "r1", "--no-approve", *DB).returncode == 4
    assert inside("follow", "r1", *DB).returncode == 4
    assert inside("follow", "r1", "--after", "1000", *DB).returncode == 4


@pytest.mark.parametrize("command", [["approve", "r1"], ["cancel", "r1"], ["send", "r1", "more"]])
def test_a_command_waits_for_another_one_that_has_the_database_open(inside: Inside, command: list[str]) -> None:
    """Commands are typed side by side, by scripts or by people; each has the file for a moment."""
    inside("run", "agents.py:support", "help", "--run-id", "r1", *DB)
    other = FileLock(inside.folder / "s.db")
    other.acquire()
    threading.Timer(0.3, other.release).start()
    done = inside(*command, *DB)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_run_that_was_cut_off_is_told_as_interrupted(cli: Cli, inside: Inside) -> None:
    with cli.started("run", "agents.py:endless", "help", "--run-id", "r1", "--json", *DB) as process:
        wait_for(process, "run.tool.output.delta")
        process.send_signal(signal.SIGKILL)
        process.wait()
    *events, outcome = jsons(inside("follow", "r1", "--json", *DB).stdout)
    assert (outcome["status"], outcome["exit"]) == ("interrupted", 3)
    assert outcome["after"] == events[-1]["sequence"]


@pytest.mark.parametrize("command", ["follow", "approve", "cancel"])
def test_a_process_that_serves_no_gateway_is_said_so(cli: Cli, inside: Inside, command: str) -> None:
    with cli.started("run", "agents.py:endless", "help", "--run-id", "r1", "--json", *DB) as process:
        wait_for(process, "run.tool.output.delta")
        done = inside(command, "r1", *DB)
        assert done.returncode == 5
        assert f"process {process.pid} works on s.db and serves no gateway" in one_line(done.stderr)


def test_a_degraded_run_ends_its_follower_and_takes_commands(cli: Cli, inside: Inside) -> None:
    inside("run", "agents.py:support", "help", "--run-id", "r1", *DB)
    with serving(cli, "agents.py:painter", *DB):
        followed = inside("follow", "r1", *DB)
        assert followed.returncode == 3
        assert "No process works on the run there (agent_unknown)." in followed.stdout
        approved = inside("approve", "r1", *DB)
        assert approved.returncode == 0
        assert "restart the server with the agent of r1 (agent_unknown)" in approved.stdout
        cancelled = inside("cancel", "r1", *DB)
        assert (cancelled.returncode, cancelled.stdout) == (0, "accepted by r1; the run will end.\n")
        assert inside("follow", "r1", *DB).returncode == 4  # an end needs no agent


# --- the demo --------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(folder: Path) -> Path:
    """A folder for the census."""
    (folder / "README.md").write_text("# A project\n")
    (folder / "agents.py").unlink()
    return folder


def test_the_demo_is_answered_from_another_terminal(cli: Cli, tree: Path) -> None:
    with cli.terminal("demo", "--pace", "0") as terminal:
        console = re.search(r"console (http://127\.0\.0\.1:\d+/#token=[\w-]+)", terminal.sees("May write_report run?"))
        assert console is not None
        terminal.sees("leave it waiting ? ")
        terminal.types("half a word")
        run_id = json.loads(cli("runs", "--json").stdout)["runId"]
        approved = cli("approve", run_id)
        assert approved.returncode == 0, approved.stderr
        terminal.sees("approved by operator")
        terminal.sees("It was decided elsewhere.")
        terminal.sees("completed")
        assert terminal.ends() == 0
    assert (tree / "CENSUS.md").exists()
    assert "Traceback" not in terminal.seen


def test_the_demo_is_followed_to_its_end_from_another_terminal(cli: Cli, tree: Path) -> None:
    """Its process ends with the run; what it has not sent is in the file."""
    with cli.terminal("demo", "--pace", "0") as terminal:
        terminal.sees("leave it waiting ? ")
        run_id = json.loads(cli("runs", "--json").stdout)["runId"]
        with cli.started("follow", run_id, "--json") as follower:
            wait_for(follower, "run.waiting")
            terminal.types("y\n")
            assert terminal.ends() == 0
            *_, outcome = lines_of(follower)
            assert follower.wait(PATIENCE) == 0
    assert outcome["status"] == "completed"


def test_the_demo_is_denied_in_the_browsers_way(cli: Cli, tree: Path) -> None:
    """With the URL that it prints and nothing else."""
    with cli.terminal("demo", "--pace", "0") as terminal:
        console = re.search(r"console (http://[\w.:/#=-]+)", terminal.sees("May write_report run?"))
        assert console is not None
        terminal.sees("leave it waiting ? ")
        run_id = json.loads(cli("runs", "--json").stdout)["runId"]
        assert cli("deny", run_id, "--url", console[1], "--reason", "not now").returncode == 0
        terminal.sees("denied by operator: not now")
        assert terminal.ends() == 0
    assert not (tree / "CENSUS.md").exists()


def test_a_demo_whose_question_is_answered_here_is_as_before(cli: Cli, tree: Path) -> None:
    with cli.terminal("demo", "--pace", "0", "--no-serve") as terminal:
        assert "console" not in terminal.sees("May write_report run?")
        terminal.sees("leave it waiting ? ")
        run_id = json.loads(cli("runs", "--json").stdout)["runId"]
        refused = cli("approve", run_id)
        assert refused.returncode == 5
        assert "serves no gateway" in one_line(refused.stderr)
        terminal.types("y\n")
        assert terminal.ends() == 0
    assert (tree / "CENSUS.md").exists()


def test_a_demo_that_can_not_serve_runs_all_the_same(cli: Cli, tree: Path, tmp_path: Path) -> None:
    """Here its token cannot be kept."""
    (tmp_path / "state" / "greenroom" / "demo.db.token").mkdir(parents=True)
    os.chmod(tmp_path / "state" / "greenroom", 0o700)
    with cli.terminal("demo", "--pace", "0") as terminal:
        assert "no console: the token file" in terminal.sees("May write_report run?")
        terminal.sees("leave it waiting ? ")
        terminal.types("y\n")
        assert terminal.ends() == 0
    assert (tree / "CENSUS.md").exists()


def test_a_demo_that_was_left_is_answered_and_goes_on(inside: Inside, tree: Path) -> None:
    assert inside("demo").returncode == 3
    run_id = json.loads(inside("runs", "--json").stdout)["runId"]
    approved = inside("approve", run_id)
    assert approved.returncode == 0
    assert (
        f"the command acts when the run is resumed, by a server or by: greenroom demo --resume {run_id}"
        in approved.stdout
    )
    assert inside("demo", "--resume").returncode == 0
    assert (tree / "CENSUS.md").exists()


def test_deny_asks_in_a_terminal_as_approve_does(cli: Cli, inside: Inside, server: Server, run_id: str) -> None:
    server.starts("support", run_id)
    with cli.terminal("deny", run_id, *DB) as terminal:
        terminal.sees("Deny it? y yes · n no ? ")
        terminal.types("n\n")
        terminal.sees("Nothing was decided.")
        assert terminal.ends() == 3
    assert story(inside, run_id)["status"] == "waiting"
    with cli.terminal("deny", run_id, *DB) as terminal:
        terminal.sees("Deny it? y yes · n no ? ")
        terminal.types("y\n")
        terminal.sees("denied refund")
        assert terminal.ends() == 0
