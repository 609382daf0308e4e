"""The table of commands: what each is for, its options and its examples. `--help` shows all of it.

This module imports nothing that makes `--help` slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from . import option_types as types

# Written again, for `--help` must not wait for the import of the runtime; a test compares.
ORDERS: Final = ("newest", "waiting_longest")
OUTCOMES: Final = ("completed", "stopped", "failed", "cancelled")
STATUSES: Final = ("created", "running", "waiting", "done")
FORMS: Final = ("call", "tool", "argv")
SCOPES: Final = ("run", "thread", "workspace")
STAGES: Final = ("planned", "accepted", "preparing", "needs_approval", "applying", "completed", "failed", "cancelled")


class Option(NamedTuple):
    """An option or an argument: its names, and the keywords of argparse."""

    names: Sequence[str]
    keywords: Mapping[str, Any]


class Group(NamedTuple):
    """Options that `--help` shows under a title; without a title, options of which one may be given."""

    options: Sequence[Option]
    title: str = ""
    text: str = ""


class CommandLine(NamedTuple):
    """A command: module and function, a line for the list of commands, the text of its help; or the actions it has."""

    place: str
    summary: str
    text: str
    options: Sequence[Option | Group]
    examples: str
    actions: Mapping[str, tuple[str, Sequence[Option | Group]]]
    redacts: bool


def _command(
    place: str, summary: str, text: str, *options: Option | Group, examples: str, redacts: bool = True, **actions: Any
) -> CommandLine:
    return CommandLine(place, summary, text, options, examples, actions, redacts)


def option(written: str, text: str, kind: types.Kind | None = None, **keywords: Any) -> Option:
    """Return an option: `--yes`, `--limit N`, `--status/--stage STATUS`; or an argument with its name, `run_id RUN_ID`.

    `kind` reads the value. A FILE becomes a path. `?` at the end: the value may be missing; `...`: repeatable.
    """
    names, _, metavar = written.partition(" ")
    if not metavar:
        keywords["action"] = "store_true"
    elif metavar.endswith("..."):
        keywords["action"] = "append"
    elif metavar.endswith("?"):
        keywords["nargs"] = "?"
    if metavar:
        keywords["metavar"] = metavar = metavar.rstrip("?.")
        keywords["type"] = Path if metavar == "FILE" else kind
    return Option(names.split("/"), {"help": text} | keywords)


# --- options of several commands -------------------------------------------------------------------------------------

SECRETS: Final = Group((
    option("--secret-env NAME...", "hide the value of this environment variable (repeatable)"),
    option("--secrets-file FILE...", "hide each line of this file (repeatable)"),
), "hidden values",
    "Keys of a known form, values under names such as password, and home directories are always hidden. Name all "
    "other secrets: events, questions, errors and this output show [redacted] in their place.",
)  # fmt: skip
STORE: Final = option(
    "--store URL",
    "a shared store, such as postgresql://user@host/database or service=NAME (default: GREENROOM_STORE); keep "
    "its password in a service file, a password file or PGPASSWORD: others see a command line",
)


def _kept(default: str = "the demo's") -> tuple[Option, Option]:
    return option("--db FILE", f"the SQLite file (default: {default})"), STORE


WHERE: Final = Group((
    *_kept(),
    option("--url URL", "a server, such as http://127.0.0.1:8765, or its console's URL"),
    option("--token-file FILE", "a file with the server's token"),
    option("--token TOKEN", "the token; other users of this machine can see the command line"),
), "location of the run",
    "The lock file of a database leads to its server and token; a shared store is opened directly. Default: the "
    "server in the variables GREENROOM_URL and GREENROOM_TOKEN, otherwise the store in GREENROOM_STORE, otherwise "
    "the demo's database.",
)  # fmt: skip
RUN_ID: Final = option("run_id RUN_ID", "id of the run, or a prefix of the id")
REASON: Final = option("--reason TEXT", "the reason")
LOG_REASON: Final = "the reason, for the log"
COMMAND_ID: Final = option("--id ID", "id of the command: repeated with the same id, a command acts once")
DEBUG: Final = option("--debug", "show the traceback of an error")
MODEL: Final = (
    option("--model NAME", "ask this model, such as openai:gpt-5-mini or ollama:qwen3, in place of the agent's own"),
    option("--base-url URL", "where the model's provider is, such as http://127.0.0.1:8080/v1"),
)
ANSWERING: Final = (
    Group((
        option("--yes", "approve every call that needs an approval"),
        option("--no-approve", "do not ask: leave the run waiting (exit code 3)"),
    )),
    option("--json", "one event per line as JSON, then the outcome; does not ask"),
)  # fmt: skip
HAND_IN: Final = (COMMAND_ID, option("--json", "the answer as one line of JSON"), WHERE)
TICKETS: Final = (
    RUN_ID,
    option("target TARGET?", "the ticket, call or tool (default: the only open ticket)"),
    option("--all", "decide every open ticket"),
    option("--yes", "do not ask for confirmation"),
)
DECIDED: Final = (COMMAND_ID, option("--json", "the answers as JSON, one per line; does not ask"), WHERE)
DECIDING: Final = (
    "Show the open tickets of a run and decide them, through the server that works on the run or in its database."
)
OF_STORE: Final = (option("--json", "JSON"),)
RIGHTS: Final = ("follow", "decide", "start", "admin")
TOKENS: Final = option("--tokens FILE", "the file of tokens; add makes it", required=True)
QUEUE: Final = option("name NAME", "name of the queue: the agent's key, if start names no other", types.queue)

# --- the table -------------------------------------------------------------------------------------------------------

PROGRAM: Final = """\
  greenroom demo                             an example agent, offline; asks before it writes its report
  greenroom run support.py:agent "refund order 7" --db support.db
  greenroom work "Mend the tests." --with claude        a coding agent, on a copy of this folder
  greenroom runs --db support.db             all runs, newest first
  greenroom show RUN_ID --db support.db      one run from start to end
  greenroom serve support.py:agent --db support.db      a gateway with a console; from other terminals:
  greenroom follow RUN_ID --db support.db    a run live
  greenroom approve RUN_ID --db support.db   approve a call (also deny, cancel, pause, send)
"""
"""Examples of the program itself."""

COMMANDS: Final[Mapping[str, CommandLine]] = {
    "run": _command(
        "run:run", "run an agent and follow it live",
        "Run an agent from a Python file or module, follow it live, and decide its calls.",
        option("agent AGENT", "file.py:name or package.module:name; the name is optional if there is one agent"),
        option("text TEXT?", "the input of the run"),
        *_kept("in memory only"),
        option("--run-id ID", "id of the new run; the same id and text again continue the same run"),
        option("--title TEXT", "one line for lists of runs (default: the first line of TEXT)"),
        option("--attach FILE...", "an image or a file of the input; repeat for more"),
        option("--resume RUN_ID", "continue this run of --db or --store (a prefix will do)"),
        option("--serve", "serve a console during the run, on a free port; with --json the first line has its address"),
        *MODEL, *ANSWERING,
        examples="""\
  greenroom run support.py:agent "refund order 7"                    in memory; questions appear here
  greenroom run support.py:agent "refund order 7" --db support.db    durable: Ctrl-C, then --resume
  greenroom run support.py:agent --db support.db --resume run_4f1c   continues a run, also after a crash
  greenroom run support.py:agent "refund order 7" --yes --json       for scripts: one event per line, then the outcome
  greenroom run support.py:agent "..." --secret-env DB_PASSWORD      the value of the variable is hidden in all output
  greenroom run support.py:agent "..." --model anthropic:claude-sonnet-4-5      another model (docs/models.md)
"""),
    "demo": _command(
        "demo:demo", "run the example agent: a census of a folder",
        "Run an example agent on real files, offline: the agent lists, counts and reads the files of a folder, then "
        "asks whether it may write its report there. The agent never leaves the folder and replaces no file but its "
        "own report.",
        option("directory DIRECTORY?", "the folder (default: the current one)", Path),
        option("--report NAME", "file name of the report (default: CENSUS.md)"),
        option("--db FILE", "keep the run in this SQLite file (default: greenroom/demo.db in the state folder, such as "
            "~/.local/state)"),
        option("--resume RUN_ID?", "continue this run, or the newest unfinished one", const=""),
        option("--pace SECONDS", "time of the model for an answer (default: 0.4 on a terminal, else 0)", types.seconds),
        option("--no-serve", "serve no console while a question is open"),
        *MODEL, *ANSWERING,
        examples="""\
  greenroom demo                        the files of the current folder
  greenroom demo ~/project --yes        another folder; writes the report without asking
  greenroom demo --resume               continues the newest unfinished run
  greenroom demo --model openai:qwen3 --base-url http://127.0.0.1:8080/v1      a real model in place of the function
"""),
    "work": _command(
        "work:work", "let a coding agent work on a copy of a folder",
        "Let a coding agent work on a copy of a folder. The calls that its rules do not allow are asked about; at the "
        "end the difference is shown, and a yes brings it into the folder. Nothing else reaches the folder.",
        option("text TEXT?", "what to do"),
        option("--with PROGRAM",
            "claude, codex, gemini, opencode, acp:COMMAND (the Agent Client Protocol), plain:COMMAND (asks nothing), "
            "or demo, an example that works offline (default: the first one that is installed)"),
        option("--workspace DIRECTORY", "the folder (default: the current one)", Path),
        option("--rules FILE", "rules that allow, ask or deny calls (docs/permission.md)"),
        option("--thread THREAD", "the thread: its runs share the copy (default: a new one)"),
        *_kept(),
        option("--resume RUN_ID?", "continue this run, or the newest unfinished one of the folder", const=""),
        option("--no-serve", "serve no console while a question is open"),
        *ANSWERING,
        examples="""\
  greenroom work "Mend the tests." --with claude
  greenroom work --with demo                                  an example, offline
  greenroom work "Translate README.md." --workspace ~/shop --with "acp:opencode acp" --rules rules.toml
  greenroom work --resume                                     continues the newest unfinished run of this folder
"""),
    "diff": _command(
        "changes:diff", "show what a run proposes to change",
        "Show the difference that waits for a decision, or else the newest one of the run.",
        RUN_ID, option("--json", "one JSON object"), WHERE,
        examples="""\
  greenroom diff run_4f1c
  greenroom diff run_4f1c --url http://127.0.0.1:8765 --token-file token
"""),
    "apply": _command(
        "changes:apply", "apply what a run proposes to change",
        "Show the proposal that waits for a decision, and approve that it is applied, or only some of its files; the "
        "others stay pending.",
        RUN_ID,
        option("paths PATH", "only these files of the proposal (default: all)", nargs="*"),
        option("--yes", "do not ask for confirmation"),
        option("--reason TEXT", LOG_REASON),
        *DECIDED,
        examples="""\
  greenroom apply run_4f1c                     shows the difference, then asks
  greenroom apply run_4f1c README.md --yes     one file of it, without asking
"""),
    "runs": _command(
        "inspect:runs", "list runs, newest first or longest wait first",
        "List the runs of a database with their titles and questions, also while a process has the database open.",
        *_kept(),
        option("action revive?", "let a dead letter be claimed again", choices=("revive",)),
        option("run_id RUN_ID?", "with revive: id of the run, or a prefix of it"),
        option("--status/--stage STATUS",
            f"only runs of this status: {', '.join(STATUSES)}; waiting lists the longest wait first; or of this"
            f" stage: {', '.join(STAGES)}",
            choices=(*STATUSES, *STAGES)),
        option("--agent KEY", "only runs of this agent"),
        option("--by NAME", "only runs that this user or principal started"),
        option("--outcome OUTCOME", f"only runs that have ended so: {', '.join(OUTCOMES)}",
            choices=OUTCOMES),
        option("--code CODE", "only runs that have ended with this code, such as model_error"),
        option("--tool NAME", "only runs that have called this tool"),
        option("--text TEXT", "only runs with this text in their id, title, input, output or reason of failure"),
        option("--since TIME", "started at this time or later: 2h, 3d, or 2026-01-31[T09:30[Z]]", types.moment),
        option("--until TIME", "started before this time", types.moment),
        option("--order ORDER", "newest, or waiting_longest", choices=ORDERS),
        option("--limit N", "maximum number of runs (default: 20)", types.count, default=20),
        option("--cursor CURSOR", "the next page; printed at the end of a page"),
        option("--json", "one JSON object per line; the last one has the cursor of the next page"),
        examples="""\
  greenroom runs                                    runs of the demo
  greenroom runs --db support.db --status waiting   waiting runs, the longest wait first
  greenroom runs --db support.db --agent support --since 2d --text "order 7"
  greenroom runs --db support.db --outcome failed --tool refund
  greenroom runs --db support.db --json             one JSON object per line
  greenroom runs --store service=runs               runs of a shared store
  greenroom runs revive run_4f1c --store service=runs      lets a dead letter be claimed again
"""),
    "show": _command(
        "inspect:show", "show one run from start to end",
        "Show the history of a run, its open questions and the command that continues the run. Works while a process "
        "has the database open.",
        RUN_ID, *_kept(), option("--events", "show every event"), option("--json", "one JSON object"),
        examples="""\
  greenroom show run_4f1c --db support.db             a prefix of an id that no other run shares
  greenroom show run_4f1c --db support.db --events    every event
  greenroom show run_4f1c --db support.db --json --events
"""),
    "replay": _command(
        "replay:replay", "replay a stored run and compare",
        "Replay a stored run from its record, and report the first event that differs from the stored one, with the "
        "input before it. No model and no tool is called, nothing is written. Works while a process has the database "
        "open. Name the same secrets as the process that worked on the run: its events hide them.",
        RUN_ID, *_kept(),
        option("--agent AGENT", "file.py:name or package.module:name; without a name, the agent with the run's key "
            "(default: the demo's)"),
        option("--step", "show each input with the state before, its effects and events"),
        option("--json", "one JSON object; with --step, one object per input before"),
        examples="""\
  greenroom replay run_4f1c --db support.db --agent support.py          compares every event with the stored one
  greenroom replay run_4f1c --db support.db --agent support.py --step   input by input: state before, effects, events
  greenroom replay run_4f1c --db support.db --agent new.py:support      finds the first event that another agent changes
"""),
    "evidence": _command(
        "evidence:evidence", "show who allowed what in a run",
        "Show who started a run, each of its calls with the rule or the person that let it pass, and what came of it. "
        "The account is read from the log. --export writes account and log into a file; keep the file elsewhere, and "
        "--check compares the log with it later. Works while a process has the database open.",
        RUN_ID, *_kept(),
        option("--export FILE", "write account, all events and a SHA-256 over them"),
        option("--check FILE", "name the first event that was changed, dropped, added or moved since FILE was made"),
        option("--json", "one JSON object"),
        examples="""\
  greenroom evidence run_4f1c --db support.db                        the account
  greenroom evidence run_4f1c --db support.db --export run.evidence   a file to keep elsewhere
  greenroom evidence run_4f1c --db support.db --check run.evidence    0: untouched, 1: an event differs, 2: no such file
"""),
    "artifacts": _command(
        "artifacts:artifacts", "list the artifacts of a run, or write one into a file",
        "List what a run has published, or write the bytes of one artifact into a new file.",
        RUN_ID,
        option("name NAME?", "id or name of the artifact; of several with one name the newest"),
        option("--output FILE", "where to write it (default: its name, in the current folder)"),
        option("--json", "one JSON object for each artifact"), WHERE,
        examples="""\
  greenroom artifacts run_4f1c --db support.db                              id, kind, name and size of each
  greenroom artifacts run_4f1c report.md --db support.db --output may.md    the newest report
"""),
    "prune": _command(
        "prune:prune", "delete runs that ended long ago",
        "Delete the runs of a database that ended long ago, with the messages of threads that have no run left, and "
        "return their space. A server that has the database open does it. The ids of deleted runs stay in use.",
        *_kept(),
        option("--older-than AGE", "time since the end of the runs, such as 12h, 30d or 8w", types.age, required=True),
        option("--dry-run", "report what would be deleted, and delete nothing"),
        option("--json", "one JSON object"),
        examples="""\
  greenroom prune --older-than 30d --db support.db --dry-run    reports what would be deleted
  greenroom prune --older-than 30d --db support.db
"""),
    "backup": _command(
        "backup:backup", "copy a database, also while a server works on it",
        "Copy a SQLite database as it is now into a new file. Whoever has it open continues meanwhile. The copy is "
        "complete, and can be opened like any database.",
        option("copy COPY", "the new file", Path), *_kept(),
        option("--json", "one JSON object"),
        examples="""\
  greenroom backup friday.db --db support.db
"""),
    "serve": _command(
        "serve:serve", "serve agents: HTTP, WebSocket and a console in the browser",
        "Serve agents to people and programs in other processes: a WebSocket to follow runs and decide, an HTTP API, "
        "the stream protocols of chat front ends, and a console. Unfinished runs of the database continue.",
        option("agents AGENT",
            "file.py:name or package.module:name; without a name, all its agents; none, with a shared store: a "
            "gateway for the runs that other processes work on",
            nargs="*"),
        *_kept("in memory only"),
        option("--workers N",
            "processes that work on the runs of a shared store and accept connections on one port; a process that "
            "ends is replaced, and its runs continue elsewhere",
            types.workers),
        option("--metrics-port PORT",
            "with --workers: the first of further ports, one for each process, so that each can be scraped for metrics",
            types.metrics_port),
        Option(("--worker",), {"help": types.HIDDEN}),
        option("--host HOST", "the address to bind (default: 127.0.0.1)", default="127.0.0.1"),
        option("--port PORT", "the port; 0 for a free one (default: 8765)", types.port, default=8765),
        option("--token-file FILE", "file with the token; created if missing (default: DB.token)"),
        option("--tokens FILE",
            "a file of tokens of people and programs, made by `greenroom token`; read again when it changes"),
        option("--proxy-header NAME",
            "a header in which a proxy names the person that it has signed in, such as X-Forwarded-Email"),
        option("--proxy-secret FILE", "the secret that the proxy sends in X-Greenroom-Proxy"),
        option("--proxy ADDRESS...", "an address or network of the proxy (default: this machine)", default=[]),
        option("--host-name NAME...", "an accepted Host header, such as name:8765", default=[]),
        option("--origin URL...", "an accepted origin of pages of another host", default=[]),
        option("--on-abort WHAT",
            "effect on a run whose chat page closes its stream: continue, or cancel (default: continue)",
            choices=("continue", "cancel"), default="continue"),
        option("--mcp AGENT...", "an agent that MCP hosts can call at /v1/mcp (default: all)", default=[]),
        option("--a2a AGENT...", "an agent that A2A clients can use at /v1/a2a (default: all)", default=[]),
        option("--a2a-default AGENT", "the agent whose card is at /.well-known/agent-card.json (default: the only)"),
        option("--a2a-cards WHO", "who may read the cards: private (default) asks for a token, public does not",
            choices=("private", "public"), default="private"),
        option("--prices FILE", "prices of models, as JSON, by which the console shows the cost of runs"),
        option("--max-running N", "maximum number of runs that work at once", types.count),
        option("--json", "print the address as one line of JSON"),
        examples="""\
  greenroom serve support.py:agent --db support.db              http://127.0.0.1:8765, token in support.db.token
  greenroom serve support.py billing.py:agent --db all.db       several agents
  greenroom serve support.py --port 0                           a free port; runs in memory
  greenroom serve support.py --store service=runs --workers 4   four processes on one PostgreSQL database
  greenroom serve --store service=runs                          a gateway for the runs of other processes
  greenroom serve support.py --db s.db --host 0.0.0.0 --host-name runs.example.org --token-file /run/secrets/token
"""),
    "token": _command(
        "token_commands:token", "add, list and revoke tokens of people and programs",
        "Change a file of tokens, which a gateway reads while it serves: `greenroom serve --tokens FILE`. The file has "
        "only digests of the tokens; a token is shown once, when it is made (docs/sign-in.md).",
        add=("make a token and show it", (
            option("name NAME", "name of the person or program, which appears in events as the author of decisions"),
            TOKENS,
            Option(("--scope",), {
                "help": "follow, decide, start or admin; repeat for more (default: follow, decide and start)",
                "metavar": "SCOPE", "action": "append", "choices": RIGHTS}),
            option("--own", "the token sees only the runs that its principal has started"),
            option("--expires TIME", "when it expires: an age such as 90d, or a date (default: never)", types.expiry),
            *OF_STORE)),
        list=("show name, permissions, expiry and id of each token", (TOKENS, *OF_STORE)),
        revoke=("remove the tokens of a name, or one token", (
            option("which NAME", "a name, or the beginning of an id, at least 8 digits"), TOKENS, *OF_STORE)),
        examples="""\
  greenroom token add ann --tokens tokens                       follow, decide and start; prints the token
  greenroom token add nightly --tokens tokens --scope start --scope follow --own --expires 90d
  greenroom token list --tokens tokens
  greenroom token revoke ann --tokens tokens                    its connections end within 4 seconds
  greenroom serve support.py:agent --db support.db --tokens tokens
""", redacts=False),
    "mcp": _command(
        "mcp:mcp", "serve agents as MCP tools on the standard streams",
        "Be an MCP server for the program that starts this command: an editor, a chat host, another agent. Each agent "
        "is a tool, and the questions of its runs are asked there. The command is a client of the server that has the "
        "database open, or else is that server itself while it runs, with a console. Standard output has the messages "
        "of the protocol only.",
        option("agents AGENT",
            "file.py:name or package.module:name; without a name, all its agents; none for a server that runs already",
            nargs="*"),
        option("--agent KEY", "only this agent (default: all)"),
        WHERE,
        examples="""\
  greenroom mcp support.py --db support.db       the agents of a file; runs are kept, and go on after a restart
  greenroom mcp --db support.db                  the agents of the `greenroom serve` that has the database open
  greenroom mcp --url http://runs.example.org:8765 --token-file token --agent support
"""),
    "acp": _command(
        "acp:acp", "be the agent of an editor that speaks the Agent Client Protocol",
        "Speak the Agent Client Protocol on standard input and output, for editors. A session is a thread, a prompt a "
        "run on it. With AGENT this process works on the runs, unless a gateway has the database open already; without "
        "AGENT, such a gateway does.",
        option("agents AGENT", "file.py:name or package.module:name; without a name, all its agents", nargs="*"),
        option("--agent KEY", "the agent that works on prompts (default: the only one)"),
        WHERE,
        examples="""\
  greenroom acp support.py:agent --db support.db       for the settings of an editor (docs/acp.md)
  greenroom acp --db support.db                        the server of this database has the agents
  greenroom acp --url http://127.0.0.1:8765 --token-file token --agent support
"""),
    "follow": _command(
        "follow:follow", "follow a run of another process live",
        "Show the history of a run, then its events live to its end. A run without an owner has only recorded events.",
        RUN_ID,
        option("--after N", "begin after this event (default: 0)", types.sequence, default=0),
        option("--json", "one event per line as JSON, then the outcome"),
        WHERE,
        redacts=False,  # the output was redacted when it was written, with the secrets of the writing process
        examples="""\
  greenroom follow run_4f1c --db support.db                     finds the server of the database by the lock file
  greenroom follow run_4f1c --db support.db --after 17 --json   one event per line, from 18 on
  greenroom follow run_4f1c --url http://runs.example.org:8765 --token-file token
"""),
    "approve": _command(
        "decide:approve", "approve a call that waits for a decision", DECIDING,
        *TICKETS,
        option("--reason TEXT", LOG_REASON),
        option("--edit JSON", "run the call with these arguments instead"),
        option("--result JSON", "the requested answer, or the result of the call"),
        option("--always FORM?",
            "let later calls pass without a question: call (the same arguments, the default), argv (the same words of "
            "a command) or tool (every call of the tool)",
            choices=FORMS, const="call"),
        option("--scope SCOPE", "with --always: run, thread (the default) or workspace", choices=SCOPES),
        *DECIDED,
        examples="""\
  greenroom approve run_4f1c --db support.db                    shows the call, then asks
  greenroom approve run_4f1c t2 --db support.db --yes           a named ticket, without asking
  greenroom approve run_4f1c --edit '{"order": "7", "cents": 400}' --reason "not all of it"
  greenroom approve run_4f1c --result '"blue"'                  the answer to a question
  greenroom approve run_4f1c --always argv --scope thread       is not asked again about this command in this thread
"""),
    "deny": _command(
        "decide:deny", "deny a call that waits for a decision", DECIDING,
        *TICKETS,
        option("--reason TEXT",
            f"{LOG_REASON}; the model reads the reason, too, unless --text or the agent's denial=... gives another "
            "text"),
        option("--text TEXT", "the text that the model reads, unchanged; the log has --reason"),
        *DECIDED,
        examples="""\
  greenroom deny run_4f1c --db support.db --reason "ask the customer first"
  greenroom deny run_4f1c --db support.db --all
  greenroom deny run_4f1c --db support.db --reason "spends too much" --text "Do not try again; ask the customer."
"""),
    "cancel": _command(
        "command:cancel", "ask a run to end", "Ask a run to end; its calls and tasks are cancelled.",
        RUN_ID, option("--after-step", "let the current step end first"), REASON, *HAND_IN,
        examples="""\
  greenroom cancel run_4f1c --db support.db --reason "no longer needed"
  greenroom cancel run_4f1c --db support.db --after-step        after the current step
"""),
    "pause": _command(
        "command:pause", "hold a run before its next step",
        "Let a run end its step, and hold the run until an approval, which continues it, or a denial, which ends it.",
        RUN_ID, REASON, *HAND_IN,
        examples="""\
  greenroom pause run_4f1c --db support.db --reason "the shop is closed"
  greenroom approve run_4f1c --db support.db --result '"The shop is open again."'   continues the run with this text
"""),
    "send": _command(
        "command:send", "give a run more input", "Give a run more input, which the run reads at its next step.",
        RUN_ID, option("text TEXT", "the input"), *HAND_IN,
        examples="""\
  greenroom send run_4f1c "It was order 8, sorry." --db support.db
"""),
    "rules": _command(
        "rules:rules", "list and revoke what people answered with always, explain rules",
        "List the rules that people have made with an \"always\" beside an approval, revoke one, or say what the rules "
        "of an agent or a file come to for a call. Nothing is asked or run.",
        list=("the remembered rules that hold, newest first", (
            option("--run RUN_ID", "only the rules that hold for this run: its own, its thread's, its workspace's"),
            option("--all", "revoked rules, too"), WHERE, *OF_STORE)),
        revoke=("revoke a rule: it allows nothing any more, in every process", (
            option("rule_id RULE_ID", "the rule's id, or the beginning or the end of it"), WHERE, *OF_STORE)),
        explain=("what the rules say about a call", (
            option("rules RULES", "a file of rules (.toml or .json), or an agent: file.py:name, package.module:name"),
            option("tool TOOL", "the name of the tool"),
            option("arguments ARGUMENTS", "its arguments as a JSON object, or the command that it runs"),
            option("--effect EFFECT", "the effect (default: that of the agent's tool, or of a known program's)"),
            option("--root FOLDER", "with a file of rules: the folder of the workspace"),
            option("--run RUN_ID", "also the remembered rules that hold for this run"), WHERE, *OF_STORE)),
        examples="""\
  greenroom rules list --db support.db                      the rules that hold
  greenroom rules list --db support.db --run run_4f1c --all those for one run, revoked ones included
  greenroom rules revoke 1b0c33d2 --db support.db           the rule whose id begins or ends so
  greenroom rules explain rules.toml Bash "git push"        ask, allow or deny, and by which rule
  greenroom rules explain coder.py shell '{"command": "make"}' --run run_4f1c
"""),
    "queues": _command(
        "store_commands:queues", "list, limit and pause queues of runs", "List, limit and pause queues of runs.",
        list=("length, limit and oldest run of each queue", (WHERE, *OF_STORE)),
        limit=(
            "limit the runs of a queue that work at once, over all processes",
            (QUEUE, option("number N", "1 or more, or none for no limit", types.limit), WHERE, *OF_STORE),
        ),
        pause=("claim no run of a queue", (QUEUE, WHERE, *OF_STORE)),
        resume=("claim the runs of a queue again", (QUEUE, WHERE, *OF_STORE)),
        examples="""\
  greenroom queues list --store service=runs             length, work and oldest run of each queue
  greenroom queues limit mails 5 --store service=runs    at most 5 runs of the queue work at once, over all processes
  greenroom queues limit mails none --store service=runs
  greenroom queues pause mails --store service=runs      no run of the queue is claimed; working runs continue
  greenroom queues resume mails --store service=runs
"""),
    "db": _command(
        "store_commands:db", "look at the database of a shared store, migrate it",
        "Look at the database of a shared store, and keep it in order.",
        show=("show server, schema, missing rights, replication and processes", (STORE, *OF_STORE)),
        migrate=("create the tables, or bring them to this release", (STORE, *OF_STORE)),
        level=("show the releases of the processes and the levels of the rows", (STORE, *OF_STORE)),
        adopt=(
            "put a copy of a database into use: a new epoch, and no claim of the original is valid",
            (STORE, *OF_STORE),
        ),
        examples="""\
  greenroom db show --store service=runs       server, schema, rights, replication, processes
  greenroom db migrate --store service=owner   bring the tables to this release, as the role that owns them
  greenroom db level --store service=runs      releases of the processes, and levels of the rows
  greenroom db adopt --store service=copy      put a copy of a database into use
"""),
}  # fmt: skip
"""The commands in the order of `greenroom --help`. The function of each returns the exit code; a GreenroomError that it
raises says why the command failed."""
