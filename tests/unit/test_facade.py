"""The names that others write against: they are there, they take what the page says, and what they give is frozen."""

import ast
import importlib
import inspect
import pickle
import pydoc
import re
import traceback
import typing
from pathlib import Path
from types import FunctionType

import attrs
import msgspec
import pytest

import greenroom as gr
import greenroom.actors.testing
import greenroom.testing
from greenroom import supervision
from greenroom.transport import connect

NAMES = (
    *(
        "tool",
        "ToolContext",
        "SyncToolContext",
        "Suspend",
        "SetResult",
        "Block",
        "Deny",
        "Agent",
        "stop",
        "stop_at_tools",
    ),
    *("open_runtime", "Runtime", "Run", "RunView", "run", "RunPage", "RunSummary", "RunInfo", "Event"),
    *("Completed", "Stopped", "Waiting", "Failed", "Cancelled", "Termination", "CommandResult", "Decision", "Ticket"),
    *(
        "Message",
        "Usage",
        "ModelRequest",
        "ModelResponse",
        "CallRequest",
        "Model",
        "Store",
        "MemoryStore",
        "SQLiteStore",
    ),
    *("GreenroomError", "UsageError", "UnknownRun", "UnknownAgent", "RunExists", "ThreadBusy", "RunDegradedError"),
    *("RuntimeClosed", "RuntimeFailed", "StoreError", "StoreOpenError", "StoreUnavailable", "StoreDown", "ModelError"),
    *("ReplayReport", "Difference", "Unreplayable"),
    *("ToolError", "ToolDefinitionError", "AgentDefinitionError"),
    *(
        "Plugin",
        "PhaseContext",
        "GateContext",
        "CallFacts",
        "FinalOutput",
        "Mutation",
        "MutationError",
        "Verdict",
        "Phase",
    ),
    *("StateKey", "commutative", "State", "WritableState", "StateError", "Tool", "ExecutionMode", "TaskView"),
)
FROZEN = (
    *(
        gr.Completed,
        gr.Stopped,
        gr.Waiting,
        gr.Failed,
        gr.Cancelled,
        gr.CommandResult,
        gr.Decision,
        gr.Ticket,
        gr.Event,
    ),
    *(gr.Message, gr.Usage, gr.ModelRequest, gr.ModelResponse, gr.CallRequest, gr.RunView, gr.Agent, gr.Run),
    *(gr.ReplayReport, gr.Difference, gr.Unreplayable),
)


@pytest.mark.parametrize("name", NAMES)
def test_the_name_is_public(name):
    assert hasattr(gr, name)


def test_every_import_of_the_facade_is_a_re_export():
    """`import a as a` is what type checkers take as public; anything else would be hidden from them."""
    tree = ast.parse(Path(gr.__file__).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            assert all(alias.asname in (alias.name, f"_{alias.name}") for alias in node.names), ast.unparse(node)


@pytest.mark.parametrize(
    ("function", "keywords"),
    [
        (gr.open_runtime, {"agents", "deps", "drain", "store_patience", "max_running"}),
        (gr.run, {"deps"}),
        (gr.Run.events, {"after", "until"}),
        (gr.Run.cancel, {"mode", "reason", "by"}),
        (gr.Runtime.fork, {"step"}),
        (gr.Runtime.resume, {"deps"}),
        (gr.Runtime.replay, {"agent"}),
        (
            gr.Suspend,
            {"action", "message", "parameters", "response_schema", "resume_mode", "expires_after", "on_expiry"},
        ),
        (gr.Agent, {"instructions", "tools", "model", "execution", "stop", "output_type", "tool_use", "on_deny"}),
        (gr.Message, {"id", "role", "content", "calls", "call_id", "producer"}),
        (gr.Usage, {"requests", "input", "output", "cached", "reasoning"}),
        (gr.ModelRequest, {"agent", "messages", "tools", "settings"}),
        (gr.Completed, {"output", "usage", "termination"}),
        (gr.Stopped, {"code", "detail", "output"}),
        (gr.Waiting, {"tickets"}),
        (gr.Failed, {"code", "message", "termination"}),
        (gr.Cancelled, {"reason", "by"}),
        (gr.CommandResult, {"status", "code", "detail"}),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_it_takes_the_keywords_of_the_page(function, keywords):
    parameters = inspect.signature(function).parameters
    for name in keywords:
        assert parameters[name].kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def test_a_list_of_runs_takes_the_keywords_of_the_page():
    (filters,) = typing.get_args(typing.get_type_hints(gr.Runtime.runs)["filters"])
    assert {"status", "limit", "cursor"} <= set(filters.__annotations__)


def test_a_runtime_has_the_names_that_a_user_needs_and_no_other():
    """More would be a part of the runtime that embedders come to lean on: put it on the reader or the commands."""
    own = {
        "agents",
        "clock",
        "closed",
        "commands",
        "evidence",
        "get",
        "join",
        "override",
        "reader",
        "replay",
        "resume",
        "start",
    }
    of_access = {name for name in dir(gr.RunAccess) if not name.startswith("_")}
    assert {name for name in dir(gr.Runtime) if not name.startswith("_")} == own | of_access | {"as_principal", "store"}
    assert [name for name in dir(gr.RunCommands) if not name.startswith("_")] == [
        *("cancel", "check", "closing", "decide", "new_id", "pause", "post", "send", "supersedes"),
    ]
    assert [name for name in dir(gr.RunReader) if not name.startswith("_")] == [
        *(
            "agent_of_thread",
            "artifact",
            "backlog",
            "check_open",
            "check_thread",
            "closed",
            "crashed",
            "degraded",
            "events",
            "follow",
            "info",
            "missing_requirement",
            "on_change",
        ),
        *(
            "on_rename",
            "outage",
            "outcome",
            "outline",
            "page",
            "part",
            "record",
            "redactor",
            "statistics",
            "summaries",
            "threads",
            "throughput",
            "ticket",
            "tickets",
            "view",
        ),
    ]


def test_the_transport_uses_public_parts_of_the_runtime_only(root):
    """The gateway, the command line and the terminal are embedders: what they lack becomes public."""
    private = [
        f"{path.relative_to(root)}:{node.lineno}: .{node.attr}"
        for path in sorted((root / "transport").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name | ast.Attribute)
        and (node.value.id if isinstance(node.value, ast.Name) else node.value.attr) in ("runtime", "_runtime")
        and (node.attr.startswith("_") or not hasattr(gr.Runtime, node.attr))
        and not ("aio" in path.parts and node.attr in ("inner", "thread"))  # of the runtime of asyncio
    ]
    assert private == []


def test_the_defaults_are_those_of_the_page():
    defaults = {name: parameter.default for name, parameter in inspect.signature(gr.open_runtime).parameters.items()}
    assert defaults["store"] is None
    assert (defaults["drain"], defaults["store_patience"], defaults["max_running"]) == (5.0, None, None)
    events = inspect.signature(gr.Run.events).parameters
    assert (events["after"].default, events["until"].default) == (0, "end")
    suspend = gr.Suspend()
    assert (suspend.resume_mode, suspend.on_expiry, suspend.expires_after) == ("replay_tool_call", "deny", None)


@pytest.mark.parametrize("kind", FROZEN, ids=lambda kind: kind.__name__)
def test_what_people_hold_is_frozen(kind):
    struct = issubclass(kind, msgspec.Struct)
    field = kind.__struct_fields__[0] if struct else attrs.fields(kind)[0].name
    value = kind(**dict.fromkeys(kind.__struct_fields__)) if struct else kind.__new__(kind)
    with pytest.raises(AttributeError, match="immutable" if struct else "can't set"):
        setattr(value, field, 1)


def test_a_stopped_outcome_is_a_completed_one():
    assert issubclass(gr.Stopped, gr.Completed)


def test_the_stop_conditions_stand_under_stop():
    for name in (
        "MaxRounds",
        "Timeout",
        "TokenBudget",
        "ConsecutiveErrors",
        "StopOnTool",
        "ContentMatch",
        "LoopDetection",
    ):
        assert hasattr(gr.stop, name)


@pytest.mark.parametrize("name", ["ScriptedModel", "FunctionModel", "call", "text", "fail", "delay", "think", "refuse"])
def test_the_test_kit_is_the_same_under_both_names(name):
    assert getattr(greenroom.testing, name) is getattr(greenroom.actors.testing, name)


def test_errors_of_the_caller_are_value_errors_and_all_are_greenroom_errors():
    for name in (
        "UnknownRun",
        "UnknownAgent",
        "RunExists",
        "ThreadBusy",
        "ToolDefinitionError",
        "AgentDefinitionError",
    ):
        assert issubclass(getattr(gr, name), gr.UsageError)
    assert issubclass(gr.UsageError, ValueError)
    for name in (
        "UsageError",
        "StoreError",
        "ModelError",
        "RunDegradedError",
        "RuntimeClosed",
        "RuntimeFailed",
        "ToolError",
    ):
        assert issubclass(getattr(gr, name), gr.GreenroomError)


def test_every_public_name_of_the_facade_has_a_docstring():
    mute = [
        name
        for name, value in vars(gr).items()
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)) and not value.__doc__
    ]
    assert mute == []


def test_a_ticket_makes_decisions_for_exactly_its_action():
    from datetime import UTC, datetime

    ticket = gr.Ticket(
        ticket_id="t1",
        run_id="r1",
        call_id="c1",
        tool="refund",
        arguments={},
        fingerprint="f" * 32,
        reason="tool_permission",
        requested_at=datetime.now(UTC),
    )
    yes, no = ticket.approve(result=1, reason="ok", by="ada"), ticket.deny("no")
    assert (yes.action, yes.target, yes.fingerprint, yes.result, yes.reason, yes.decided_by) == (
        *("resume", "t1", "f" * 32, 1, "ok", "ada"),
    )
    assert (no.action, no.target, no.fingerprint, no.reason) == ("cancel", "t1", "f" * 32, "no")


@pytest.mark.parametrize(
    "name",
    ["greenroom", "greenroom.testing", "greenroom.supervision", "greenroom.supervision.chaos", "greenroom.transport"],
)
def test_help_lists_every_public_name(name):
    """`help()` shows what `__all__` names; what is re-exported is in it."""
    package = importlib.import_module(name)
    reported = pydoc.plain(pydoc.render_doc(package))
    assert package.__all__
    for public in set(package.__all__) - {"__version__"}:  # which has a place of its own
        assert hasattr(package, public)
        assert public in reported, public
    tree = ast.parse(Path(package.__file__).read_text(encoding="utf-8"))
    exported = {alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert {name for name in exported if name and not name.startswith("_")} <= set(package.__all__)


@pytest.mark.parametrize(
    "name",
    ["greenroom", "greenroom.testing", "greenroom.supervision", "greenroom.supervision.chaos", "greenroom.transport"],
)
def test_what_a_package_exports_says_that_it_is_from_there(name):
    """Tracebacks, help and pickles name the place that users import from; the types of fields are still found."""
    package = importlib.import_module(name)
    for public in package.__all__:
        value = getattr(package, public)
        if isinstance(value, type | FunctionType) and value.__name__ == public:
            assert value.__module__ == name, public
            assert pickle.loads(pickle.dumps(value)) is value  # noqa: S301 - our own
        if isinstance(value, type) and value is not gr.StateKey:  # one of its names is there for type checkers only
            assert all(not isinstance(hint, str) for hint in typing.get_type_hints(value).values())
        if attrs.has(value) and value is not gr.StateKey:
            attrs.resolve_types(value)


ERRORS = [
    gr.UnknownRun("r1"),
    gr.RunPruned("a run had it", same=True),
    gr.ThreadBusy("busy", active="r1"),
    gr.ModelError("slow down", kind="rate_limited", retry_after=2.0, usage=gr.Usage(requests=1)),
    gr.RunDegradedError("r1", "deps_missing", "no deps"),
    gr.RunFailedError(gr.Failed(code="x", message="m", termination=gr.Termination(kind=gr.TerminationKind.ERROR))),
    gr.RunCancelledError(gr.Cancelled(reason="enough", by="ann")),
    gr.RunWaitingError(gr.Waiting(tickets=())),
    gr.Suspend(action="pay", expires_after=3.0, on_expiry=gr.SetResult(1)),
    supervision.ActorExited("a/b", supervision.Shutdown()),
    supervision.UnknownChild("a", "b"),
    *(kind("said") for kind in (gr.UsageError, gr.ToolError, gr.StoreDown, gr.RuntimeClosed, gr.UnknownAgent)),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_whole_out_of_a_pickle(error):
    """A worker process may raise it; its text, its attributes and its class are the same on the other side."""
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(again), str(again), repr(again), vars(again)) == (type(error), str(error), repr(error), vars(error))
    assert type(error).__module__.startswith("greenroom"), error
    assert traceback.format_exception_only(error)[-1].startswith(f"{type(error).__module__}.{type(error).__name__}")


def test_an_outcome_has_its_output_or_raises_why_there_is_none():
    done = gr.Termination(kind=gr.TerminationKind.NATURAL_END)
    assert gr.Completed(output=3, usage=gr.Usage(), termination=done).output == 3
    failed = gr.Failed(code="tool_error", message="It broke.", termination=done)
    for outcome, error, words in (
        (failed, gr.RunFailedError, "the run failed (tool_error): It broke."),
        (gr.Cancelled(reason="enough", by="ann"), gr.RunCancelledError, "the run was cancelled by ann: enough"),
        (
            gr.Cancelled(reason=None, by=None, code="approval_rejected"),
            gr.RunCancelledError,
            "cancelled: approval_rejected",
        ),
        (gr.Cancelled(reason=None, by=None), gr.RunCancelledError, "the run was cancelled"),
        (gr.Waiting(tickets=()), gr.RunWaitingError, "the run waits"),
    ):
        with pytest.raises(gr.OutcomeError) as caught:
            _ = outcome.output
        assert (type(caught.value), caught.value.outcome) == (error, outcome)
        assert words in str(caught.value)


@pytest.mark.parametrize(("effect", "meant"), [("writes", "write"), ("Write", "write"), ("networks", "network")])
def test_an_effect_that_nearly_is_one_that_policies_know_is_refused(effect, meant):
    with pytest.raises(gr.ToolDefinitionError, match=f"did you mean '{meant}'"):
        gr.tool(effect=effect)(_pay)
    assert gr.tool(effect="audit")(_pay).effect == "audit"


def _pay(cents: int) -> int:
    return cents


async def test_a_misspelt_option_of_start_is_shown_what_it_may_mean():
    async with gr.open_runtime() as runtime:
        with pytest.raises(gr.UsageError, match="did you mean thread_id"):
            await runtime.start(gr.Agent("a", model=greenroom.testing.ScriptedModel(["x"])), "hi", thread_idd="t")


MODEL = greenroom.testing.ScriptedModel(["done"])
MISSPELT = [
    (
        lambda: gr.Agent("a", instrutions="Be kind."),
        "Agent() has no option 'instrutions'; did you mean instructions? it has",
    ),
    (lambda: gr.Agent("a", temperature=0), "Agent() has no option 'temperature'; did you mean settings? it has"),
    (lambda: gr.Agent("a", "openai:x"), "takes key by position and got 'openai:x', too; give the others by name, of"),
    (lambda: gr.Agent("a").tool(_pay), "decorate with @gr.tool, and give tools=[...]"),
    (lambda: gr.Agent("a", execution="sequental"), "did you mean 'sequential'? use one of"),
    (lambda: gr.Agent("a", on_deny="continu"), "did you mean 'continue'? use one of"),
    (
        lambda: gr.Agent("a", tools=[gr.tool(_pay)], stop=[gr.stop.StopOnTool("_play")]),
        "did you mean '_pay'? the tools are",
    ),
    (lambda: gr.StateKey("k", int, defualt=0), "StateKey() has no option 'defualt'; did you mean default? it has"),
    (lambda: gr.StateKey("k", int, scope="threads"), "did you mean 'thread'?"),
    (lambda: gr.Suspend(mesage="why"), "Suspend() has no option 'mesage'; did you mean message? it has"),
    (lambda: gr.Suspend(resume_mode="replay_tool"), "did you mean 'replay_tool_call'? use one of"),
    (lambda: gr.Suspend(on_expiry="cancel"), "did you mean 'cancel_run'? use 'deny'"),
    (lambda: gr.tool(concurency="shared")(_pay), "did you mean 'concurrency'?"),
    (lambda: gr.tool(concurrency="order")(_pay), "did you mean 'ordered'? use one of"),
    (lambda: gr.SQLiteStore("runs.db", writer="thred"), "did you mean 'thread'? use 'thread' or 'inline'"),
    (lambda: connect("ws://x", tokn="t"), "connect() has no option 'tokn'; did you mean token? it has"),
    (lambda: gr.open_runtime(agnets=[]), "open_runtime() has no option 'agnets'; did you mean agents? it has"),
    (lambda: gr.Decision(target="t", action="resum"), "did you mean 'resume'? use 'approve' (or 'resume')"),
    (lambda: gr.ModelError("x", kind="time_out"), "did you mean 'timeout'? the kinds are"),
    (lambda: greenroom.testing.fail("overload"), "did you mean 'overloaded'? the kinds are"),
    (lambda: greenroom.testing.delay(-1), "give seconds, 0 or more"),
    (lambda: gr.stop.ContentMatch("("), "is not a regular expression"),
]


@pytest.mark.parametrize(("wrong", "words"), MISSPELT)
def test_what_is_wrong_at_the_facade_is_a_usage_error_that_says_what_may_be_meant(wrong, words):
    with pytest.raises(gr.UsageError, match=re.escape(words)):
        wrong()


async def test_so_is_what_is_wrong_in_a_call_of_a_runtime_or_a_run():
    agent = gr.Agent("helper", model=MODEL)
    async with gr.open_runtime(agents=[agent]) as runtime:
        run = await runtime.start("helper", "hi", run_id="r")
        wrong = [
            (lambda: gr.run(agent, "hi", dep=1), "run() has no option 'dep'; did you mean deps? it has"),
            (lambda: runtime.start("helpr", "hi"), "did you mean 'helper'? this runtime knows"),
            (lambda: runtime.start(agent, "hi", on_busy="queued"), "did you mean 'queue'? use 'queue' or 'refuse'"),
            (lambda: runtime.start(agent, "hi", execution="parallel"), "execution='parallel' is not known;"),
            (lambda: runtime.runs(state="done"), "runs() has no option 'state'; did you mean"),
            (lambda: runtime.runs(status="wait"), "did you mean 'waiting'? use one of"),
            (lambda: runtime.fork("r", stepp=1), "fork() has no option 'stepp'; did you mean step? it has"),
            (lambda: runtime.resume("r", dep=1), "did you mean deps?"),
            (lambda: runtime.replay("r", agnet=None), "did you mean agent?"),
            (lambda: run.cancel(reson="x"), "cancel() has no option 'reson'; did you mean reason? it has"),
            (lambda: run.cancel(mode="after_steps"), "did you mean 'after_step'? use 'now' or 'after_step'"),
            (lambda: run.pause(reson="x"), "did you mean reason?"),
            (lambda: run.send("x", buy="x"), "did you mean by?"),
            (lambda: run.decide("c1", "resum"), "did you mean 'resume'?"),
            (
                lambda: run.decide("c1", "resume", reson="x"),
                "decide() has no option 'reson'; did you mean reason? it has",
            ),
            (lambda: runtime.decide("r", "c1"), "action=None is not known"),
            (lambda: runtime.decide("r", "c1", "resum"), "did you mean 'resume'?"),
            (lambda: runtime.decide("r", "c1", "deny", reson="x"), "did you mean reason? it has"),
        ]
        for call, words in wrong:
            with pytest.raises(gr.UsageError) as caught:
                await call()
            assert words in str(caught.value)
        with pytest.raises(gr.UsageError, match=r"did you mean after\?"):
            run.events(aftr=3)


def test_what_checks_its_options_looks_as_before():
    """Signatures, names and docstrings are those of the function, and a coroutine function is one."""
    assert list(inspect.signature(gr.run).parameters) == ["agent", "text", "deps", "attachments"]
    assert inspect.iscoroutinefunction(gr.run)
    assert "instructions" in inspect.signature(gr.Agent).parameters
    assert (gr.Runtime.fork.__name__, gr.Run.cancel.__qualname__) == ("fork", "Run.cancel")
    with pytest.raises(TypeError, match="missing"):
        gr.Agent()
