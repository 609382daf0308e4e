"""The reader of commands: no text breaks it, and no command that a shell would split is taken as simple."""

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom.actors.permission.commands import COMMAND_LIMIT, inner_command, read_command, subcommand
from greenroom.actors.permission.publishing import effects_of

SHELL = st.lists(
    st.sampled_from([*"ab '\"\\;&|<>$(){}`\n\t#=!é\u00a0\x00\r", "$(", "git", "push", "''", "&&", " -x "]), max_size=25
).map("".join)
"""Texts made of everything that means something to a shell."""
WORDS = st.text(alphabet=st.sampled_from([*"ab '\"\\#=!é,.:/-+@%^"]), max_size=25)
"""Texts that may be simple: what a shell joins and quotes with, and no operators."""


@given(st.one_of(st.text(), SHELL))
def test_no_text_breaks_the_reader(text):
    command = read_command(text)
    assert command.compound == (command.argv is None)
    assert all(0 <= step.place < len(step.words) for step in command.steps)
    assert effects_of(command) <= {"publish", "deploy"}
    assert all(isinstance(subcommand(step, ["push"]), bool) for step in command.steps)
    inner_command(text)


@given(st.lists(st.text(), max_size=8))
def test_no_words_break_the_reader(words):
    command = read_command(words)
    assert command.argv in (None, tuple(words))
    assert inner_command(words) in (None, *words)


@given(st.one_of(SHELL, WORDS))
def test_simple_words_are_those_of_the_standard_library(text):
    """shlex reads quotes as POSIX says; it takes comments for words."""
    command = read_command(text)
    if command.argv is not None and "#" not in text:
        assert list(command.argv) == shlex.split(text)


@given(SHELL)
def test_a_command_with_an_operator_is_compound_also_in_quotes(text):
    if set(text) & set(";&|<>$(){}`\n\x00\r\u00a0"):
        assert read_command(text).argv is None


SHELLS = [["dash"], ["bash", "--norc"], ["sh"]]


@pytest.mark.slow
@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_a_simple_command_has_the_words_that_a_shell_gives_its_program(shell):
    """`printf` prints its words; a second command would print something else or nothing."""

    @settings(max_examples=150)
    @given(st.one_of(SHELL, WORDS))
    def check(text):
        command = read_command(f"printf '<%s>' x{text}")
        if command.argv is None:
            return
        line = [*shell, "-f", "-c", command.text]
        done = subprocess.run(line, capture_output=True, timeout=20, check=False)
        assert done.stdout.decode() == "".join(f"<{word}>" for word in command.argv[2:])

    check()


@pytest.mark.slow
@pytest.mark.parametrize("text", ["a 'b", 'a "b', "a \\", "a 'b\" c"])
def test_what_a_shell_refuses_as_unfinished_has_no_words(text):
    assert read_command(text).argv is None
    done = subprocess.run(["sh", "-n", "-c", text], capture_output=True, check=False)
    assert done.returncode != 0 or text.endswith("\\")  # a last backslash is a word or the end, as the shell likes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ()),
        ("  \t ", ()),
        ("''", ("",)),
        ("a''b \"\"", ("ab", "")),
        (r"a\ b", ("a b",)),
        (r'"a\b\"\\"', (r"a\b\"\\".replace('\\"', '"').replace("\\\\", "\\"),)),
        ("a # b 'c", ("a",)),
        ("a#b '#'c", ("a#b", "#c")),
        ("é 'ü ö'", ("é", "ü ö")),
    ],
)
def test_words_of_simple_commands(text, words):
    assert read_command(text).argv == words


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("bash -lc 'a; b'", "a; b"),
        ("/bin/sh -c a", "a"),
        (["/usr/bin/zsh", "-lc", "a $X"], "a $X"),
        ("bash -lc a b", None),
        ("bash -c", None),
        ("./bash -c a", None),
        ("bash -x -c a", None),
        ("bash -lc 'a", None),
        ("env bash -c a", None),
    ],
)
def test_the_text_inside_of_a_wrapped_command(command, text):
    assert inner_command(command) == text


@pytest.mark.parametrize("text", ["git x;", "sudo git ", "kubectl -a;", "'", "a 'b' ", "{\n  x = 'a';\n}", "\\", "a="])
def test_the_work_is_bounded_by_the_length_of_the_command(text):
    """A command of very many steps is not compared with the table to its end, and counts as whatever it may be."""
    command = read_command((text * COMMAND_LIMIT)[:COMMAND_LIMIT])
    assert len(command.steps) <= COMMAND_LIMIT
    assert effects_of(command) in (frozenset(), frozenset({"publish", "deploy"}))
