"""What type checkers must know of permission; checked by test_typing.py, never run."""

from typing import Literal, assert_type

import greenroom as gr

rules = [
    gr.ext.Rule("allow", effect="shell", where={"argv": ["git", "status", "*"]}),
    gr.ext.Rule("ask", tool={"glob": "mcp__*"}, reviewers=["ada"], expires=60),
    gr.ext.Rule("deny", where={"path": {"under": "secrets"}, "host": "a.example"}),
]
gr.ext.Rule("alow")  # type: ignore[arg-type]
permission = gr.ext.Permission(rules, root="/srv/shop")
agent = gr.Agent("coder", plugins=[permission, gr.ext.Permission()])
judgement = permission.explain(gr.CallFacts(call_id="", tool="shell", arguments={}))
assert_type(judgement.verdict, Literal["deny", "ask", "allow"])
assert_type(judgement.matches, tuple[gr.ext.RuleMatch, ...])
assert_type(judgement.subject, gr.ext.Subject)
gr.ext.Always(scope="run", form="argv")
gr.ext.Always(form="words")  # type: ignore[arg-type]
assert_type(gr.ext.load_rules("rules.toml"), tuple[gr.ext.Rule, ...])
