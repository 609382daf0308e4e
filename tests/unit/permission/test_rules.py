"""Rules that are invalid are refused where they are made, with the value and the way out; in a file with its place."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.actors.permission.always import remember
from greenroom.actors.permission.remembered import PERMISSION
from greenroom.actors.permission.rule_files import rules_of

Rule = gr.ext.Rule
INVALID = [
    ({"verdict": "alow"}, "verdict='alow' is not known; did you mean 'allow'"),
    ({"verdict": "deny", "tools": "x"}, "did you mean tool"),
    ({"verdict": "deny", "effect": "shel"}, "effect='shel' is not known; did you mean 'shell'"),
    ({"verdict": "deny", "effect": []}, "effect=[]"),
    ({"verdict": "deny", "effect": [7]}, "effect=7"),
    ({"verdict": "deny", "effect": "two words"}, "effect='two words'"),
    ({"verdict": "deny", "where": {}}, "where={}"),
    ({"verdict": "deny", "where": "x"}, "where='x'"),
    ({"verdict": "deny", "where": {"paths": "x"}}, "did you mean 'path'"),
    ({"verdict": "deny", "where": {"path": {}}}, "path={} is not a matcher"),
    ({"verdict": "deny", "where": {"path": {"globb": "x"}}}, "did you mean 'glob'"),
    ({"verdict": "deny", "where": {"path": {"glob": "x", "under": "y"}}}, "is not a matcher"),
    ({"verdict": "deny", "where": {"path": 7}}, "path=7 is not a matcher"),
    ({"verdict": "deny", "where": {"path": ""}}, "path=''"),
    ({"verdict": "deny", "where": {"path": {"glob": 7}}}, "path={'glob': 7}"),
    ({"verdict": "deny", "where": {"path": "x" * 5_000}}, "1 to 4,096 characters"),
    ({"verdict": "deny", "where": {"path": {"regex": "("}}}, "the pattern cannot be used"),
    ({"verdict": "deny", "where": {"path": {"regex": "(?=x)"}}}, "without back-references"),
    ({"verdict": "deny", "where": {"path": {"host": "x"}}}, "path takes text or glob or regex or under, not host"),
    ({"verdict": "deny", "where": {"host": {"under": "x"}}}, "not under"),
    ({"verdict": "deny", "where": {"host": {"host": "https://x"}}}, "is not a host"),
    ({"verdict": "deny", "where": {"host": {"host": "a b"}}}, "is not a host"),
    ({"verdict": "deny", "where": {"host": {"host": "*.a"}}}, "is not a host"),
    ({"verdict": "deny", "where": {"host": {"host": "a:80"}}}, "is not a host"),
    ({"verdict": "deny", "where": {"argv": []}}, "a list of words that is not empty"),
    ({"verdict": "deny", "where": {"argv": "git status"}}, "a list of words that is not empty"),
    ({"verdict": "deny", "where": {"argv": [7]}}, "a list of words"),
    ({"verdict": "deny", "where": {"argv": ["*"]}}, "the first word names the program"),
    ({"verdict": "deny", "where": {"argv": ["git", "x" * 5_000]}}, "at most 4,096 characters"),
    ({"verdict": "deny", "where": {"command": ["git"]}}, "not argv"),
    ({"verdict": "deny", "tool": {"under": "x"}}, "not under"),
    ({"verdict": "deny", "reason": 7}, "reason=7"),
    ({"verdict": "deny", "reviewers": ["ada"]}, "only a rule with verdict 'ask'"),
    ({"verdict": "allow", "expires": 5}, "only a rule with verdict 'ask'"),
    ({"verdict": "allow", "remember": False}, "only a rule with verdict 'ask'"),
    ({"verdict": "ask", "reviewers": []}, "reviewers=[]"),
    ({"verdict": "ask", "reviewers": "ada"}, "reviewers='ada'"),
    ({"verdict": "ask", "expires": 0}, "expires=0"),
    ({"verdict": "ask", "expires": True}, "expires=True"),
    ({"verdict": "ask", "expires": 1e99}, "expires=1e+99"),
    ({"verdict": "ask", "remember": 1}, "remember=1"),
    ({"verdict": "ask", "compound": True}, "only a rule with verdict 'allow'"),
    ({"verdict": "allow", "compound": True, "where": {"argv": ["x"]}}, "compound=True beside argv"),
]


@pytest.mark.parametrize(("fields", "words"), INVALID)
def test_an_invalid_rule_names_the_value(fields, words):
    with pytest.raises(gr.UsageError) as caught:
        Rule(**fields)
    assert words in str(caught.value)


@pytest.mark.parametrize("fields", [fields for fields, _ in INVALID if "tools" not in fields])
def test_an_invalid_rule_of_a_file_names_file_line_and_rule(fields):
    good = {"verdict": "ask", "reason": 'a "quoted" [bracket] {brace}'}
    text = "{\n " + json.dumps("rules") + ": [\n" + json.dumps(good) + ",\n\n" + json.dumps(fields) + "\n]}"
    with pytest.raises(gr.UsageError, match=r"^team\.json:5: rule 2: "):
        rules_of(text, name="team.json")


TOML = '''# [[rules]]
[[rules]]
verdict = "deny"
reason = """
[[rules]]
"""

  [["rules"]]
verdict = 'allow'
effect = "shell"
where = { argv = ["git", "status", "*"] }
[[rules]]
verdict = "%s"
'''


def test_rules_of_a_file_are_those_of_the_program(tmp_path):
    path = tmp_path / "rules.toml"
    path.write_text(TOML % "ask", encoding="utf-8")
    rules = gr.ext.load_rules(path)
    git = Rule("allow", effect="shell", where={"argv": ["git", "status", "*"]})
    assert rules == (Rule("deny", reason="[[rules]]\n"), git, Rule("ask"))
    assert [rule.place for rule in rules] == [f"{path}:{line}: rule {n}" for n, line in enumerate((2, 8, 12), 1)]
    data = {"rules": [{"verdict": "deny"}, {"verdict": "allow", "where": {"path": {"under": "src"}}}]}
    assert rules_of(json.dumps(data), name="r.json") == (Rule("deny"), Rule("allow", where={"path": {"under": "src"}}))


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (TOML % "aks", "r.toml", "r.toml:12: rule 3: verdict='aks'"),
        ('rules = [\n{verdict = "ask"}, # {\n{verdict = "x"}]', "r.toml", "r.toml:3: rule 2: verdict='x'"),
        ('[[rules]]\nverdict = "ask"\ncolour = 1', "r.toml", "r.toml:1: rule 1: 'colour' is not known"),
        ('[[rules]]\nreason = "x"', "r.toml", "it has no verdict"),
        ('rules = ["x"]', "r.toml", "'x' is not a rule"),
        ('{"rules": [{"verdict": "ask", "effect": null}]}', "r.json", "a value is null"),
        ('{"rules": [{"verdict": "allow", "verdict": "deny"}]}', "r.json", "'verdict' is there twice"),
        ('{"rules": [], "rules": []}', "r.json", "'rules' is there twice"),
        ('{"rules": []}', "r.json", "a list `rules` that is not empty"),
        ('{"rule": [{}]}', "r.json", "a list `rules`"),
        ('{"rules": [{"verdict": "ask"}], "extra": 1}', "r.json", "'extra' is not known"),
        ("[]", "r.json", "a list `rules`"),
        ("{", "r.json", "cannot be read"),
        ("[" * 100_000, "r.json", "cannot be read"),
        ("x = ", "r.toml", "cannot be read"),
        ("", "r.yaml", "ends in .toml or .json"),
        ("#" * 1_100_000, "r.toml", "at most 1,048,576"),
        ("[[rules]]\nverdict='ask'\n" * 2_001, "r.toml", "2,001 rules"),
    ],
)
def test_a_file_that_is_no_file_of_rules_is_refused_whole(text, name, words):
    with pytest.raises(gr.UsageError) as caught:
        rules_of(text, name=name)
    assert words in str(caught.value)
    assert str(caught.value).startswith(name)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(gr.UsageError, match=r"none\.toml: the file of rules cannot be read"):
        gr.ext.load_rules(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(gr.UsageError, match=r"bytes\.toml: the file of rules cannot be read"):
        gr.ext.load_rules(tmp_path / "bytes.toml")


@given(st.text(), st.sampled_from(["r.toml", "r.json"]))
def test_no_text_breaks_the_reader_of_files(text, name):
    with pytest.raises(gr.UsageError, match=name):
        rules_of(text, name=name)


@pytest.mark.parametrize(
    "options",
    [
        *({"rules": []}, {"rules": "x"}, {"rules": [{"verdict": "deny"}]}, {"rules": [Rule("ask")] * 2_001}),
        *({"workspace_rules": []}, {"root": "relative"}),
    ],
)
def test_permission_refuses_what_is_not_a_list_of_rules(options):
    with pytest.raises(gr.UsageError, match="Permission"):
        gr.ext.Permission(**options)


def test_a_rule_says_what_it_is():
    rule = Rule("ask", effect=["shell"], where={"command": {"glob": "make *"}}, place="r.toml:3: rule 1")
    assert str(rule) == "ask command glob 'make *' effect shell (r.toml:3: rule 1)"
    assert repr(gr.ext.Permission([rule])) == "Permission(1 rules)"


def cuts(path, text):
    """What each beginning of a file gives: its rules, or None if it is refused."""
    for length in range(len(text.encode())):
        path.write_bytes(text.encode()[:length])
        try:
            yield gr.ext.load_rules(path)
        except gr.UsageError as error:
            yield None if str(error).startswith(str(path)) else error


def test_a_cut_off_file_in_json_is_refused_wherever_it_ends(tmp_path):
    rule = {"verdict": "allow", "effect": "shell", "where": {"argv": ["git", "é", "*"]}}
    text = json.dumps({"rules": [{"verdict": "deny"}, rule]}, ensure_ascii=False, indent=1)
    path = tmp_path / "rules.json"
    assert [one for one in cuts(path, text) if one is not None] == []
    path.write_text(text, encoding="utf-8")
    assert len(gr.ext.load_rules(path)) == 2


def test_a_cut_off_file_in_toml_is_refused_or_a_beginning_of_its_rules(tmp_path):
    """TOML has no end, so the last rule may lack its last lines; those before are whole."""
    path = tmp_path / "rules.toml"
    path.write_text(TOML % "ask", encoding="utf-8")
    rules = gr.ext.load_rules(path)
    beginnings = list(cuts(path, TOML % "ask"))
    assert None in beginnings
    assert {len(one) for one in beginnings if one is not None} == {1, 2, 3}
    for one in beginnings:
        assert one is None or one[:-1] == rules[: len(one) - 1]


# --- always ----------------------------------------------------------------------------------------------------------

AT = datetime(2031, 5, 1, tzinfo=UTC)


def ticket(tool="Bash", remember=True, number=1, **arguments):
    asked = {PERMISSION: {"effect": "shell" if tool == "Bash" else "network", "remember": remember}}
    return gr.Ticket(
        ticket_id=f"t{number}",
        run_id="r",
        call_id="c",
        tool=tool,
        arguments=arguments,
        fingerprint="f",
        reason="tool_permission",
        requested_at=AT,
        parameters=asked,
    )


def always(of, form, **options):
    return remember(of, gr.ext.Always(scope="run", form=form), holder="r", at=AT, by="ada", **options)


def asked(tool="Bash", effect="shell", remembered=(), **arguments):
    call = gr.CallFacts(call_id="c", tool=tool, arguments=arguments, effect=effect)
    return gr.ext.Permission([gr.ext.Rule("ask", where={"path": {"under": "src"}})]).explain(call, remembered)


@pytest.mark.parametrize(
    ("form", "covered"),
    [("call", [True, False, False, False]), ("argv", [True, True, False, False]), ("tool", [True, True, True, False])],
)
def test_always_covers_the_call_the_words_or_the_tool(form, covered):
    rule = always(ticket(command="make a", description="x"), form)
    calls = [
        {"command": "make a", "description": "x"},
        {"command": "make  'a'", "description": "y"},
        {"command": "make b", "description": "x"},
        {"command": "make a; b", "description": "x"},
    ]
    verdicts = [asked(remembered=[rule], **arguments) for arguments in calls]
    assert [judgement.verdict == "allow" for judgement in verdicts] == covered
    assert all((judgement.remembered is rule) == (judgement.verdict == "allow") for judgement in verdicts)
    assert asked(tool="Other", remembered=[rule], command="make a").verdict == "ask"
    assert "remembered: " in str(verdicts[0])


def test_always_turns_an_ask_into_an_allow_and_nothing_else():
    rule = always(ticket("WebFetch", url="https://a.example/"), "tool")
    call = gr.CallFacts(call_id="c", tool="WebFetch", arguments={"url": "https://b.example/"}, effect="network")
    for rules, verdict in [
        ([Rule("ask")], "allow"),
        ([Rule("deny")], "deny"),
        ([Rule("ask", remember=False)], "ask"),
        ([Rule("allow")], "allow"),
    ]:
        judgement = gr.ext.Permission(rules).explain(call, [rule])
        assert judgement.verdict == verdict
        assert (judgement.remembered is rule) == (rules[0] == Rule("ask"))
    import attrs

    assert gr.ext.Permission().explain(call, [attrs.evolve(rule, revoked_at=AT)]).verdict == "ask"


@pytest.mark.parametrize("command", ["git push", "kubectl apply", "make a; b", "cat 'a", 7, ""])
def test_what_may_never_be_remembered_is_refused(command):
    with pytest.raises(gr.UsageError, match="is not remembered"):
        always(ticket(command=command), "tool")
    with pytest.raises(gr.UsageError, match="is not remembered"):
        always(ticket(command="make a"), "tool", arguments={"command": command})
    covering = always(ticket(command="make a"), "tool")
    assert asked(remembered=[covering], command=command).verdict == "ask"


def test_always_beside_another_ticket_or_without_sense_is_refused():
    with pytest.raises(gr.UsageError, match="is not remembered"):
        always(ticket(remember=False, command="make a"), "tool")
    plain = gr.Ticket(**{**{f: getattr(ticket(), f) for f in gr.Ticket.__struct_fields__}, "parameters": {}})
    with pytest.raises(gr.UsageError, match=r"is not of gr\.ext\.Permission"):
        always(plain, "tool")
    with pytest.raises(gr.UsageError, match="runs no command"):
        always(ticket("WebFetch", url="https://a.example/"), "argv")
    with pytest.raises(gr.UsageError, match="form='cal' is not known; did you mean 'call'"):
        gr.ext.Always(form="cal")
    with pytest.raises(gr.UsageError, match="scope='for_ever' is not known"):
        gr.ext.Always(scope="for_ever")
    with pytest.raises(gr.UsageError, match="has no option 'as_'"):
        gr.ext.Always(as_="call")


def test_a_rule_covers_no_question_for_other_reviewers():
    """The reviewers of a rule of the agent are not passed by for an answer of somebody else."""
    rule = always(ticket(command="make a"), "tool")
    call = gr.CallFacts(call_id="c", tool="Bash", arguments={"command": "make b"}, effect="shell")
    for reviewers, verdict in [(["ada", "bob"], "allow"), (["bob"], "ask"), (None, "allow")]:
        judgement = gr.ext.Permission([Rule("ask", reviewers=reviewers)]).explain(call, [rule])
        assert judgement.verdict == verdict


def test_a_tool_that_has_changed_is_asked_about_again():
    asking = ticket(command="make a")
    asking.parameters[PERMISSION]["definition"] = "d1"
    rule = always(asking, "tool")
    for definition, verdict in [("d1", "allow"), ("d2", "ask"), ("", "allow")]:
        call = gr.CallFacts(
            call_id="c", tool="Bash", arguments={"command": "make b"}, effect="shell", definition=definition
        )
        assert gr.ext.Permission().explain(call, [rule]).verdict == verdict


def test_a_rule_says_what_it_is_about():
    assert always(ticket(command="make a"), "argv").about == "make a"
    assert always(ticket("WebFetch", url="https://a.example/"), "call").about == "https://a.example/"
    assert len(always(ticket(command=f"make {'a' * 600}"), "call").about) == 500


def test_always_twice_is_one_rule_and_another_ticket_is_another():
    first, again = always(ticket(command="a"), "call"), always(ticket(command="a"), "tool")
    assert first.rule_id == again.rule_id != always(ticket(command="a", number=2), "call").rule_id
    edited = always(ticket(command="a"), "call", arguments={"command": "b"})
    assert asked(remembered=[edited], command="b").verdict == "allow"
    assert asked(remembered=[edited], command="a").verdict == "ask"
