"""`greenroom run` in a terminal, with a console beside it, in a pipe, with its log: as a person or a shell uses it."""

import http.client
import json
import re
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from greenroom.transport.client import Client, connect
from greenroom.transport.terminal import text_format

from .cli_kit import PATIENCE, Cli, Inside, Terminal, lines_of
from .serving_kit import AGENTS as SERVED
from .serving_kit import Server, serving

pytestmark = pytest.mark.slow

KEY = "kanarienvogel-0123456789-abcdefghijklmnopqrstuvwx"
AGENTS = f"""
from pathlib import Path

import trio

import greenroom as gr
from greenroom.testing import ScriptedModel, call


@gr.tool(needs_approval=True, effect="write")
async def pay(order: str, cents: int, key: str) -> str:
    Path("paid.txt").write_text(f"{{order}} {{cents}} {{key}}")
    return f"paid back {{cents}} of {{order}}"


@gr.tool(replay="safe")
async def watch() -> str:
    '''Ends when a test lets it.'''
    while not await trio.Path("go").exists():  # noqa: ASYNC110
        await trio.sleep(0.02)
    return "the lamp is green"


@gr.tool
async def fails(order: str) -> str:
    raise ValueError("no connection with {KEY} for " + order)


pays = call("pay", order="7", cents=500, key="{KEY}", id="c1")
payer = gr.Agent("payer", tools=[pay], model=ScriptedModel([pays, "done"]))
both = gr.Agent("both", tools=[pay, watch], model=ScriptedModel([[pays, call("watch", id="c2")], "done"]))
watcher = gr.Agent("watcher", tools=[watch], model=ScriptedModel([call("watch", id="c2"), "done"]))
failing = gr.Agent("failing", tools=[fails], model=ScriptedModel([call("fails", order="7", id="c1"), "sorry"]))
"""
HIDE = ("--secret-env", "PAY_KEY")
PROMPT = "leave it waiting ? "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "agents.py").write_text(AGENTS)
    (folder / "served.py").write_text(SERVED)
    return folder


@pytest.fixture
def cli(folder: Path, tmp_path: Path) -> Cli:
    cli = Cli(folder, tmp_path / "state")
    cli.env["PAY_KEY"] = KEY
    return cli


@pytest.fixture
def inside(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    monkeypatch.setenv("PAY_KEY", KEY)
    return Inside(folder, tmp_path / "state", monkeypatch)


def until(cli: Cli, run_id: str, event_type: str) -> list[dict[str, Any]]:
    """Wait until the file has an event, as another process sees it; returns all of that type."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        shown = cli("show", run_id, "--db", "s.db", "--json", "--events")
        data = [event for event in json.loads(shown.stdout)["events"] if event["type"] == event_type]
        if data:
            return data
    raise AssertionError(f"{event_type} did not come")


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


# --- the question ----------------------------------------------------------------------------------------------------


def test_q_leaves_the_question_open_and_says_how_to_continue(cli: Cli, inside: Inside, folder: Path) -> None:
    with cli.terminal("run", "agents.py:payer", "refund", "--db", "my runs.db", "--run-id", "r1") as terminal:
        terminal.sees("May pay run?")
        terminal.sees(PROMPT)
        terminal.types("q\n")
        terminal.sees("Waiting for 1 decision.")
        terminal.sees("resume with: greenroom run agents.py:payer --db 'my runs.db' --resume r1")
        terminal.sees("look at it:  greenroom show r1 --db 'my runs.db'")
        terminal.sees("decide it:   greenroom approve r1 --db 'my runs.db'")
        assert terminal.ends() == 3
    assert not (folder / "paid.txt").exists()
    assert inside("approve", "r1", "--db", "my runs.db", "--yes").returncode == 0
    assert inside("run", "agents.py:payer", "--db", "my runs.db", "--resume", "r1").returncode == 0
    assert (folder / "paid.txt").exists()


def test_q_of_a_run_in_memory_says_that_it_is_gone(cli: Cli) -> None:
    with cli.terminal("run", "agents.py:payer", "refund") as terminal:
        terminal.sees(PROMPT)
        terminal.types("q\n")
        terminal.sees("kept in memory only: use --db FILE to answer later, or --yes.")
        assert terminal.ends() == 3


def test_e_edits_arguments_and_what_a_mask_hides_stays(cli: Cli, folder: Path) -> None:
    with cli.terminal("run", "agents.py:payer", "refund", "--db", "s.db", "--run-id", "r1", *HIDE) as terminal:
        terminal.sees("May pay run?")
        assert "key: [redacted]" in plain(terminal.sees(PROMPT))
        terminal.types("e\n")
        terminal.sees('now: {"order": "7", "cents": 500, "key": "[redacted]"}')
        terminal.sees("A value that you")
        terminal.sees("Enter to leave them): ")
        terminal.types('{"cents": 4oo}\n')
        terminal.sees("that is no JSON")
        terminal.sees("write an object such as")
        terminal.sees(PROMPT)
        terminal.types("edit\n")
        terminal.sees("Enter to leave them): ")
        terminal.types("[400]\n")
        terminal.sees("write a JSON object")
        terminal.sees(PROMPT)
        terminal.types("e\n")
        terminal.sees("Enter to leave them): ")
        terminal.types('{"cents": "a lot"}\n')
        terminal.sees("not accepted (invalid_arguments)")
        terminal.sees(PROMPT)
        terminal.types("e\n")
        terminal.sees("Enter to leave them): ")
        terminal.types('{"cents": 400}\n')
        terminal.sees("with edited arguments")
        terminal.sees("paid back 400 of 7")
        assert terminal.ends() == 0
        assert KEY not in terminal.seen
    assert (folder / "paid.txt").read_text() == f"7 400 {KEY}"
    (resolved,) = until(cli, "r1", "run.approval.resolved")
    assert resolved["payload"]["edited"] is True


@pytest.mark.parametrize("hide", [(), HIDE])
@pytest.mark.parametrize("columns", [48, 100])
def test_what_happens_while_a_question_is_open_is_drawn_above_it(
    cli: Cli, folder: Path, hide: tuple[str, ...], columns: int
) -> None:
    with cli.terminal("run", "agents.py:both", "refund", *hide, columns=columns) as terminal:
        terminal.sees(PROMPT)
        (folder / "go").touch()
        terminal.sees("the lamp is green")
        again = terminal.sees(PROMPT)
        assert "y yes" in plain(again), "all of the question is there again"
        terminal.types("y\n")
        terminal.sees("paid back 500 of 7")
        assert terminal.ends() == 0
        assert hide == () or KEY not in terminal.seen
    if columns == 48:
        assert "\x1b[1A\x1b[J" in terminal.seen, "a question of two lines is taken away whole"


def test_what_happens_while_an_answer_is_typed_waits_for_its_end(cli: Cli, folder: Path) -> None:
    with cli.terminal("run", "agents.py:both", "refund", "--db", "s.db", "--run-id", "r1") as terminal:
        terminal.sees(PROMPT)
        terminal.types("n\n")
        terminal.sees("Why not? (Enter for no reason) ")
        terminal.types("because ")
        terminal.sees("because ")
        (folder / "go").touch()
        until(cli, "r1", "run.tool.result")
        terminal.types("of it\n")
        assert "green" not in terminal.sees("of it")
        terminal.sees("the lamp is green")
        terminal.sees("denied by")
        assert terminal.ends() == 0
    (resolved,) = until(cli, "r1", "run.approval.resolved")
    assert resolved["payload"]["reason"] == "because of it"


# --- a console beside it ---------------------------------------------------------------------------------------------


def asks(console: str, what: Any) -> Any:
    """Do something with a client at the address of a console."""

    async def ask() -> Any:
        with trio.fail_after(PATIENCE):
            async with connect(console) as client:
                return await what(client)

    return trio.run(ask)


async def approve(client: Client) -> None:
    (ticket,) = (await client.view("r1")).tickets
    assert (await client.decide("r1", ticket.approve())).ok


STAGES = {"created", "planned", "accepted", "preparing", "running"}


async def stage(client: Client) -> str:
    return (await client.view("r1")).stage.value


def test_in_a_terminal_a_served_run_is_decided_in_the_browsers_way(cli: Cli) -> None:
    with cli.terminal("run", "agents.py:payer", "refund", "--run-id", "r1", "--serve") as terminal:
        terminal.sees("console ")
        console = plain(terminal.sees("\r\n"))
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=\S{32}", console)
        terminal.sees(PROMPT)
        asks(console, approve)
        terminal.sees("It was decided elsewhere.")
        terminal.sees("paid back 500 of 7")
        assert terminal.ends() == 0


def test_in_a_pipe_a_served_run_keeps_its_token_in_a_file(cli: Cli, folder: Path) -> None:
    with cli.started("run", "agents.py:watcher", "look", "--run-id", "r1", "--serve") as process:
        assert process.stdout is not None
        console = next(line for line in process.stdout if line.startswith("console "))
        reported = re.fullmatch(r"console (http://127\.0\.0\.1:\d+)/ \(token in (\S+)\)\n", console)
        assert reported is not None
        file = Path(reported[2])
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        address = f"{reported[1]}/#token={file.read_text().strip()}"
        assert asks(address, stage) in STAGES
        (folder / "go").touch()
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    assert "the lamp is green" in out
    assert not file.exists()


@pytest.mark.parametrize("kept", [(), ("--db", "s.db")])
def test_for_programs_the_first_line_says_where_a_run_is_served(cli: Cli, folder: Path, kept: tuple[str, ...]) -> None:
    with cli.started("run", "agents.py:watcher", "look", "--run-id", "r1", "--serve", "--json", *kept) as process:
        lines = lines_of(process)
        serving = next(lines)
        assert serving["type"] == "serving"
        token = Path(serving["tokenFile"]).read_text().strip()
        assert serving["console"] == f"{serving['url']}/", "no token where it may be kept"
        created = next(lines)  # the run is there
        assert asks(f"{serving['url']}/#token={token}", stage) in STAGES
        (folder / "go").touch()
        *events, outcome = created, *lines
        assert process.wait(PATIENCE) == 0
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert outcome["status"] == "completed"


def test_a_run_that_cannot_be_served_says_why_and_continues(cli: Cli, folder: Path) -> None:
    (folder / "go").touch()
    (folder / "s.db.token").write_text("short\n")
    done = cli("run", "agents.py:watcher", "look", "--serve", "--db", "s.db")
    assert done.returncode == 0
    assert "no console: the token file" in done.stdout
    assert "the lamp is green" in done.stdout


# --- a pipe that is left ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["", "--json"])
def test_head_takes_one_line_of_a_live_run_and_the_rest_is_quiet(cli: Cli, inside: Inside, form: str) -> None:
    """The run continues writing for seconds after `head` has left; in a file it can be taken up again."""
    asked = f"run served.py:streamer look --db s.db --run-id r1 {form}"
    line = f"{' '.join(cli.command)} {asked} | head -1; echo ${{PIPESTATUS[0]}} >&2"
    command = ["bash", "-c", line]
    done = subprocess.run(
        command, cwd=cli.folder, env=cli.env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.stderr == "141\n", "no traceback, and the exit code of a reader that has enough"
    assert done.stdout.count("\n") == 1
    assert json.loads(done.stdout)["type"] == "run.created" if form else done.stdout.startswith("streamer: look")
    again = inside("run", "served.py:streamer", "--db", "s.db", "--resume", "r1")
    assert again.returncode == 0
    assert "streamed" in again.stdout


# --- the log ---------------------------------------------------------------------------------------------------------


def test_debug_shows_where_a_tool_has_failed_and_no_secret(cli: Cli) -> None:
    quiet = cli("run", "agents.py:failing", "refund", *HIDE)
    assert (quiet.returncode, quiet.stderr) == (0, "")
    done = cli("--debug", "run", "agents.py:failing", "refund", "--run-id", "r1", *HIDE)
    assert done.returncode == 0
    assert "Traceback (most recent call last):" in done.stderr
    assert 'agents.py", line' in done.stderr
    assert "ValueError: no connection with [redacted] for 7" in done.stderr
    assert "Traceback" not in done.stdout
    assert KEY not in done.stdout + done.stderr


# --- a chat page that closes its stream ------------------------------------------------------------------------------


def abort(server: Server) -> None:
    """Begin a chat, read until its run works, and close the stream."""
    token = server.console.rpartition("=")[2]
    asked = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    body = json.dumps({"id": "chat", "trigger": "submit-message", "messages": [asked]})
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/ai-sdk/v6/agents/streamer/chat", body, headers)
    response = connection.getresponse()
    assert response.status == 200
    assert any(b"line 0" in line for line in response)
    response.close()
    connection.close()


async def ended(client: Client) -> str:
    """How the only run ends."""
    (summary,) = (await client.runs()).runs
    async with client.follow(summary.run_id) as events:
        return [event.type async for event in events][-1]


@pytest.mark.parametrize(
    ("options", "end"),
    [
        (("--on-abort", "cancel"), "run.cancelled"),
        (("--on-abort", "continue"), "run.completed"),
        ((), "run.completed"),
    ],
)
def test_a_chat_that_is_aborted_cancels_its_run_if_serve_is_configured_so(
    cli: Cli, options: tuple[str, ...], end: str
) -> None:
    with serving(cli, "served.py:streamer", *options) as server:
        abort(server)
        assert server.asks(ended) == end


# --- widths ----------------------------------------------------------------------------------------------------------

LONG = " ".join(f"word{number:03}" for number in range(40))
CHINESE = "退款申请：客户的灯到货时已经损坏了，需要尽快把四十二元退回到原来的支付方式，并且通知客户处理结果。" * 2  # noqa: RUF001
WIDE_AGENTS = f"""
import greenroom as gr
from greenroom.testing import ScriptedModel, call, text


@gr.tool(needs_approval=True, effect="write")
async def a_tool_that_has_a_long_name(note: str, path: str) -> str:
    return note


@gr.tool(replay="safe")
async def tells(ctx: gr.ToolContext) -> str:
    await ctx.output("{CHINESE}\\n{LONG}\\n")
    return "{CHINESE}"


steps = [
    [text("{CHINESE} {LONG}"), call("tells")],
    call("a_tool_that_has_a_long_name", note="{CHINESE} {LONG}", path="/a/path/{"x" * 30}"),
    "{LONG} {CHINESE}",
]
agent = gr.Agent("客服代理", tools=[tells, a_tool_that_has_a_long_name], model=ScriptedModel(steps))
"""
WIDTHS = pytest.mark.parametrize("columns", [48, 100, 200])


def read(terminal: Terminal, code: int) -> list[str]:
    """The lines that are left on the screen at the end, without colours and without what was wiped."""
    assert terminal.ends() == code, terminal.seen
    raw = terminal.seen.replace("\r\n", "\n").split("\n")
    return [plain(re.split(r"\x1b\[2?K", line)[-1]).rpartition("\r")[2].rstrip() for line in raw]


def assert_fits(lines: list[str], columns: int) -> None:
    """No line is wider than the terminal, and no word has been cut in two, except by an ellipsis that says so."""
    assert [line for line in lines if text_format.columns(line) > columns] == []
    whole = " ".join(word for line in lines for word in line.split() if "…" not in word)
    found = re.findall(r"[a-z]+\d{3}|word", whole)
    assert found != []
    assert [word for word in found if re.fullmatch(r"word\d{3}", word) is None] == []


@WIDTHS
def test_stories_and_lists_fit_their_terminal(cli: Cli, inside: Inside, folder: Path, columns: int) -> None:
    (folder / "wide.py").write_text(WIDE_AGENTS)
    for run_id, asked, code in (("r1", f"{CHINESE} {LONG}", 3), ("r2", f"{LONG} {CHINESE}", 0)):
        answer = "--no-approve" if code else "--yes"
        done = inside("run", "wide.py", asked, "--db", "s.db", "--run-id", run_id, answer)
        assert done.returncode == code, done.stderr
    for command in (["show", "r1"], ["follow", "r2"], ["show", "r1", "--events"]):
        with cli.terminal(*command, "--db", "s.db", columns=columns) as terminal:
            assert_fits(read(terminal, 0), columns)
    with cli.terminal("runs", "--db", "s.db", columns=columns) as terminal:
        listed = read(terminal, 0)
    assert [line for line in listed if text_format.columns(line) > columns] == []
    assert sum("退款申请" in line for line in listed) == 1, "a title is one line"
    if columns == 200:
        titles = [line for line in listed if line.startswith(("r1", "r2"))]
        begins = {text_format.columns(line[: re.search("退款|word", line).start()]) for line in titles}  # type: ignore[union-attr]
        assert len(begins) == 1, "titles stand below each other"


@WIDTHS
def test_the_demo_fits_its_terminal(cli: Cli, folder: Path, columns: int) -> None:
    tree = folder / "tree"
    tree.mkdir()
    (tree / "README.md").write_text(f"# {LONG}\n")
    (tree / "源代码").mkdir()
    (tree / "源代码" / "很长的文件名用来测试终端的宽度.py").write_text("a = 1\n")
    with cli.terminal("demo", "tree", "--yes", "--pace", "0", columns=columns) as terminal:
        lines = read(terminal, 0)
    assert [line for line in lines if text_format.columns(line) > columns and " " in line.strip()] == []
    shown = " ".join(" ".join(lines).split())
    assert "wrote CENSUS.md" in shown, "what came of a call is seen in a narrow terminal, too"
    assert 'path="源代码"' in shown


@pytest.mark.parametrize("columns", [48, 100])
@pytest.mark.parametrize("command", [[], ["runs"], ["serve"]])
def test_help_breaks_between_words(cli: Cli, command: list[str], columns: int) -> None:
    with cli.terminal(*command, "--help", columns=columns) as terminal:
        lines = read(terminal, 0)
    assert [line for line in lines if text_format.columns(line) > columns and " " in line.strip()] == []
    shown = " ".join(" ".join(lines).split())
    assert "3 the run waits for a decision that cannot be asked for here, or for a process that works on it" in shown


def test_an_error_breaks_between_words(cli: Cli) -> None:
    with cli.terminal("show", "nothing", "--db", "nowhere.db", columns=48) as terminal:
        lines = read(terminal, 5)
    assert [line for line in lines if text_format.columns(line) > 48 and " " in line] == []
    assert "does not exist; start a run with this store, or name another file" in " ".join(lines)
