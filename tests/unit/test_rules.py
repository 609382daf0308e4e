"""Every numbered rule of the documents has a test that quotes it, and no test quotes a rule that there is not."""

import pytest

from ..rules import (
    PAGES,
    Quote,
    Rule,
    all_pages,
    all_quotes,
    all_rules,
    faults,
    main,
    misplaced_ids,
    quotes_of,
    rules_of,
    table,
)

pytestmark = pytest.mark.no_cover

RULE = Rule("L-1", "lifecycle", "A run ends once.")
QUOTE = Quote("L-1", "test_a", "tests/unit/test_a.py")


def test_every_rule_has_a_test_and_every_quote_names_a_rule():
    assert not faults(all_rules(), all_quotes())


def test_every_id_ends_a_line():
    assert not [fault for page, text in all_pages().items() for fault in misplaced_ids(page, text)]


def test_every_page_has_rules():
    assert {rule.page for rule in all_rules()} == set(PAGES.values())


def test_a_rule_ends_with_its_id():
    text = (
        "# Runs\n\nA run\nends once. [L-1]\nIt stays so. [L-2]\n\n| row | a cell [L-3] |\n\n- one\n- two [L-4]\n\nText."
    )
    assert [(rule.id, rule.words) for rule in rules_of("lifecycle", text)] == [
        ("L-1", "A run ends once."),
        ("L-2", "It stays so."),
        ("L-3", "row | a cell"),
        ("L-4", "two"),
    ]
    assert not list(misplaced_ids("lifecycle", text))


@pytest.mark.parametrize("text", ["[L-1] A run ends once.", "A run [L-1] ends.", "| [L-1] row | a cell |"])
def test_an_id_in_the_running_text_is_a_fault(text):
    assert [fault.partition(":")[0] for fault in misplaced_ids("lifecycle", text)] == ["docs/lifecycle.md"]


def test_a_mark_quotes_one_rule_or_several():
    text = '@pytest.mark.slow\n@pytest.mark.rule("L-1", "P-2")\nasync def test_a(): pass\n\ndef test_b(): pass'
    assert list(quotes_of("f.py", text)) == [Quote("L-1", "test_a", "f.py"), Quote("P-2", "test_a", "f.py")]


@pytest.mark.parametrize(
    ("rules", "quotes", "fault"),
    [
        ([RULE], [], "L-1 (docs/lifecycle.md) has no test: A run ends once."),
        ([], [QUOTE], "tests/unit/test_a.py: test_a quotes L-1, which is no rule of the documents"),
        ([RULE, RULE], [QUOTE], "L-1 is two rules, in docs/lifecycle.md and in docs/lifecycle.md"),
        ([Rule("L-1", "state", "")], [QUOTE], "L-1 is in docs/state.md, whose rules have another letter"),
    ],
)
def test_what_does_not_match_is_a_fault(rules, quotes, fault):
    assert faults(rules, quotes) == [fault]


def test_what_matches_is_none():
    assert not faults([RULE], [QUOTE])


@pytest.mark.parametrize(("wanted", "lines"), [([], 1), (["L-1"], 1), (["L"], 1), (["L-2"], 0), (["P"], 0)])
def test_the_table_has_rule_test_and_file(wanted, lines):
    assert list(table([RULE], [QUOTE], wanted)) == ["L-1    test_a  tests/unit/test_a.py"] * lines


def test_the_program_prints_the_table_and_ends_well(capsys):
    assert main(["L-1"]) == 0
    assert (
        "test_a_run_goes_through_all_stages_to_its_end  tests/conformance/test_lifecycle_run.py"
        in capsys.readouterr().out
    )
