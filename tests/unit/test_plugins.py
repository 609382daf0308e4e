"""Plugins are checked when their agent is made, what a hook asks for is checked when it is said."""

from typing import Any

import attrs
import pytest

import greenroom as gr
from greenroom.actors.errors import AgentDefinitionError, StateError
from greenroom.actors.plugins.mutation import MutationError
from greenroom.actors.plugins.plugin import hooked, name_of
from greenroom.testing import ScriptedModel

NAME = gr.StateKey("name", str)


class Audit(gr.Plugin):
    """A plugin with one hook."""

    async def run_start(self, ctx: gr.PhaseContext) -> None:
        """Does nothing."""


def made(**parts: Any) -> gr.Plugin:
    """A plugin with other parts."""
    plugin: gr.Plugin = type("Made", (gr.Plugin,), parts)()
    return plugin


def with_own(plugin: gr.Plugin, name: str, value: Any) -> gr.Plugin:
    """The plugin with an attribute of its own."""
    setattr(plugin, name, value)
    return plugin


async def one(self: Any, ctx: Any) -> None:
    """What a hook looks like."""


async def two(self: Any, ctx: Any, more: Any) -> None:
    """Takes too much."""


BAD: dict[str, tuple[Any, str]] = {
    "a class": ([Audit], "is not a plugin; give an instance, as Audit()"),
    "something else": ([print], "is not a plugin; derive its class from gr.Plugin"),
    "no list": (Audit(), "give a list of plugins"),
    "one name twice": ([Audit(), made(name="Audit")], "two plugins are named 'Audit'; give one another `name`"),
    "a name with a space": ([made(name="my plugin")], "use printable characters without spaces"),
    "a name that is none": ([made(name=3)], "use printable characters without spaces"),
    "a hook that is not async": ([made(run_start=lambda self, ctx: None)], "run_start is not async; define it with"),
    "a hook of another shape": ([made(tool_gate=two)], "tool_gate must take one argument, the context"),
    "a misspelled hook": (
        [made(run_start=one, tools_gate=one)],
        "tools_gate is not a phase and is never called; did you mean",
    ),
    "a hook as others name it": (
        [made(on_run_end=one)],
        "on_run_end is not a phase and is never called; did you mean 'run_end'?",
    ),
    "a hook that is cut short": (
        [made(run_start=one, before_tool=one)],
        "before_tool is not a phase and is never called; did you mean 'before_tool_execute'?",
    ),
    "a hook with its words in another order": (
        [made(run_start=one, gate_tool=one)],
        "gate_tool is not a phase and is never called; did you mean 'tool_gate'?",
    ),
    "a hook that its class does not have": (
        [with_own(made(run_start=one), "tool_gate", one)],
        "tool_gate is set on the instance and is never called; define it as a method of its class",
    ),
    "no hook at all": (
        [made(before_model=one)],
        "it has a method for no phase (before_model is none); the phases are: run_",
    ),
    "no time": ([made(timeout=0)], "timeout=0: give seconds, more than 0, or None for no limit"),
    "endless time": ([made(timeout=float("inf"))], "timeout=inf"),
    "no number": ([made(timeout=float("nan"))], "timeout=nan"),
    "a time that is none": ([made(timeout=True)], "timeout=True"),
    "a time as text": ([made(timeout="3")], "timeout='3'"),
    "another policy": ([made(on_error="log")], "on_error='log': use 'fail' or 'ignore'"),
    "one key, not a tuple": ([made(state=NAME)], "give a tuple of state keys"),
    "no key": ([made(state=("name",))], "'name' is no state key"),
    "one name for two keys": (
        [made(state=(NAME,)), Audit(), made(name="b", state=(gr.StateKey("name", int),))],
        "two different state keys are named 'name'; rename one",
    ),
}


@pytest.mark.rule("P-41")
@pytest.mark.parametrize("fault", BAD)
def test_a_plugin_that_cannot_be_is_named_with_the_way_out(fault: str) -> None:
    plugins, said = BAD[fault]
    with pytest.raises(AgentDefinitionError) as caught:
        gr.Agent("helper", plugins=plugins, model=ScriptedModel(["x"]))
    assert said in str(caught.value)
    assert "agent 'helper'" in str(caught.value)


@pytest.mark.rule("P-40")
def test_only_overridden_methods_are_hooks() -> None:
    assert hooked([Audit(), made()]) == {gr.Phase.RUN_START}
    assert name_of(Audit()) == "Audit"
    assert name_of(made(name="x")) == "x"


def test_a_plugin_may_have_methods_of_its_own() -> None:
    plugin = made(run_start=one, record=one, _run_starts=one, start=lambda self: None)
    assert gr.Agent("helper", plugins=[plugin]).plugins == (plugin,)


def test_a_key_may_be_declared_by_plugin_and_agent_alike() -> None:
    agent = gr.Agent("helper", plugins=[made(state=(NAME,))], state=[NAME], model=ScriptedModel(["x"]))
    assert list(agent.spec.keys) == [NAME.id]


def test_the_plugins_are_part_of_what_an_agent_is() -> None:
    plain, with_one = gr.Agent("helper"), gr.Agent("helper", plugins=[Audit()])
    other = gr.Agent("helper", plugins=[made(name="Audit")])
    assert len({plain.spec.digest, with_one.spec.digest, other.spec.digest}) == 3


# --- mutations -------------------------------------------------------------------------------------------------------


@pytest.mark.rule("P-49")
def test_a_mutation_is_a_value() -> None:
    first = gr.Mutation().end("enough")
    second = first.add_message("x")
    assert (first.request.messages, len(second.request.messages), second.reason) == ((), 1, "enough")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        first.reason = "more"  # type: ignore[misc]


M: Any = gr.Mutation()
WRONG: dict[str, tuple[Any, str]] = {
    "no key": (lambda: M.set("name", 3), "'name' is no state key"),
    "no key to update": (lambda: M.update("name", 3), "'name' is no state key"),
    "no text": (lambda: M.add_message(3), "add_message(content): 3 is no str"),
    "a role": (lambda: M.add_message("x", role="tool"), "use 'system' or 'user'"),
    "a placement": (lambda: M.add_message("x", placement="end"), "use one of system, session, conversation, suffix"),
    "a priority": (lambda: M.add_message("x", priority=1.5), "give a whole number"),
    "an included tool": (lambda: M.include_tools(print), "is no str"),
    "an excluded tool": (lambda: M.exclude_tools(["a"]), "is no str"),
    "a model": (lambda: M.override(model=3), "override(model): 3 is no str"),
    "a setting": (lambda: M.override(stop=object.__subclasses__), "give plain JSON data"),
    "arguments": (lambda: M.edit_call("C", [1]), "give a JSON object as arguments"),
    "a call": (lambda: M.edit_call(3, {}), "edit_call(call_id): 3 is no str"),
    "a text": (lambda: M.drop_call("C", 3), "drop_call(text): 3 is no str"),
    "a reason": (lambda: M.end(None), "end(reason): None is no str"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_is_refused_when_it_is_said(what: str) -> None:
    say, said = WRONG[what]
    with pytest.raises(MutationError) as caught:
        say()
    assert said in str(caught.value)


def test_a_value_of_another_type_is_refused_when_it_is_said() -> None:
    with pytest.raises(StateError, match="state key 'name'"):
        gr.Mutation().set(NAME, 3)  # type: ignore[arg-type]
    with pytest.raises(StateError, match="is exclusive and takes no updates"):
        gr.Mutation().update(NAME, "x")


def test_what_was_said_is_a_copy() -> None:
    arguments, found = {"at": ["here"]}, gr.StateKey("found", list[str])
    made_of = gr.Mutation().edit_call("C", arguments).set(found, arguments["at"]).override(stop=arguments["at"])
    arguments["at"].append("there")
    assert made_of.edits[0].arguments == {"at": ["here"]}
    assert made_of.writes[0][1].value == ["here"]
    assert made_of.request.settings == {"stop": ["here"]}
