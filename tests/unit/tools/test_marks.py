"""The mark of a tool's definition: the same for the same text in any process, another one for another tool."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import greenroom as gr
from greenroom.actors.tools.marks import definition_mark

SOURCE = '''
import greenroom as gr


@gr.tool(needs_approval=True, effect="write")
async def pay(order: str, cents: int) -> str:
    """Pay an order."""
    names = {"a", "b", "c", "d"}
    return f"paid {cents} of {order}" if order in names else "?"
'''
SHOW = "from release import pay\nfrom greenroom.actors.tools.marks import definition_mark\nprint(definition_mark(pay))"


def mark_of(source: str, folder: Path, *, optimise: bool = False) -> str:
    """The mark in a process of its own."""
    (folder / "release.py").write_text(source)
    flags = ["-B", *(["-OO"] if optimise else [])]
    run = subprocess.run([sys.executable, *flags, "-c", SHOW], cwd=folder, capture_output=True, text=True, check=True)
    return run.stdout.strip()


@pytest.mark.rule("A-14")
@pytest.mark.slow
def test_every_process_gives_the_same_text_the_same_mark(tmp_path):
    first = mark_of(SOURCE, tmp_path)
    assert len(first) == 16
    assert mark_of(SOURCE, tmp_path) == first
    moved = SOURCE.replace("import greenroom as gr\n", "import greenroom as gr\n\nOTHER = 1\n\n", 1)
    assert mark_of(moved, tmp_path) == first, "where the function stands does not matter"
    assert mark_of(SOURCE.replace("paid", "sent"), tmp_path) != first


@gr.tool(needs_approval=True)
async def pay(order: str) -> str:
    """Pay an order."""
    return f"paid {order}"


def remade(**options: Any) -> Any:
    return gr.tool(pay.function, **{"needs_approval": True, **options})


def test_the_same_function_with_the_same_options_has_the_same_mark():
    assert definition_mark(remade()) == definition_mark(pay)


@pytest.mark.rule("A-10")
@pytest.mark.parametrize(
    "options",
    [
        {"name": "pay2"},
        {"description": "Pay it twice."},
        {"effect": "write"},
        {"replay": "safe"},
        {"needs_approval": False},
        {"needs_approval": lambda ctx, arguments: True},
        {"background": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_texts_and_options_that_change_the_action_change_the_definition_mark(options):
    assert definition_mark(remade(**options)) != definition_mark(pay)


@pytest.mark.parametrize("options", [{"timeout": 3.0}, {"grace": 1.0}, {"on_error": "raise"}])
def test_timeout_grace_and_on_error_do_not_change_the_definition_mark(options):
    assert definition_mark(remade(**options)) == definition_mark(pay)


def compiled(body: str) -> Any:
    """A tool whose text is not to be had."""
    space: dict[str, Any] = {}
    exec(compile(textwrap.dedent(body), "<gone>", "exec"), space)  # noqa: S102 - the text is in this test
    return gr.tool(space["do"])


def test_a_function_without_text_is_marked_by_its_bytecode():
    text = "def do(order: str) -> str:\n    return order if order in {'a', 'b', 'c'} else 'no'\n"
    assert definition_mark(compiled(text)) == definition_mark(compiled(text))
    assert definition_mark(compiled(text)) != definition_mark(compiled(text.replace("'no'", "'yes'")))
    assert definition_mark(compiled(text)) != definition_mark(compiled(text.replace("'c'", "'e'")))


def test_the_engine_knows_the_mark_of_each_tool_of_an_agent():
    agent = gr.Agent("a", tools=[pay])
    assert agent.spec.definition("pay", "any") == definition_mark(pay)
    assert agent.spec.definition("nothing", "any") == ""
