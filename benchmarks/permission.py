"""What judging one call by rules costs: microseconds per call, with 500 rules and with none."""

from __future__ import annotations

import time

import greenroom as gr

from .harness import Benchmark, Case, Figure

CALLS = 2_000
RULES = [
    rule
    for n in range(100)
    for rule in (
        gr.ext.Rule("allow", effect="shell", where={"argv": [f"program{n}", "run", "*"]}),
        gr.ext.Rule("deny", where={"path": {"glob": f"folder{n}/**/*.py"}}),
        gr.ext.Rule("ask", tool={"glob": f"mcp__server{n}__*"}),
        gr.ext.Rule("allow", effect="network", where={"host": {"host": f"h{n}.example.com"}}),
        gr.ext.Rule("allow", effect="shell", where={"command": {"regex": f"make target{n}( -j[0-9]+)?"}}),
    )
]


def _case(key: str, tool: str, effect: str, arguments: dict[str, str], rules: list[gr.ext.Rule] | None = None) -> Case:
    """The median of five blocks, so that a first slow one does not count."""
    permission = gr.ext.Permission(RULES if rules is None else rules or None, root="/home/ada/shop")
    call = gr.CallFacts(call_id="c", tool=tool, arguments=arguments, effect=effect)

    def case(quick: bool) -> dict[str, float]:
        calls = 20 if quick else CALLS
        blocks = []
        for _ in range(5):
            began = time.process_time()
            for _ in range(calls):
                permission.explain(call)
            blocks.append((time.process_time() - began) / calls * 1e6)
        return {key: sorted(blocks)[2]}

    return case


BENCHMARK = Benchmark(
    name="permission",
    about="judging one call, CPU time; 500 rules of five kinds",
    cases={
        "none": _case("none", "Bash", "shell", {"command": "program77 run a b"}, []),
        "words": _case("words", "Bash", "shell", {"command": "program77 run a b"}),
        "pattern": _case("pattern", "Bash", "shell", {"command": "make target55 -j8"}),
        "compound": _case("compound", "Bash", "shell", {"command": "cd x && npm run build && git push origin main"}),
        "path": _case("path", "Read", "read", {"file_path": "/home/ada/shop/folder99/a/b.py"}),
        "host": _case("host", "WebFetch", "network", {"url": "https://a.h77.example.com/x/y"}),
    },
    figures=(
        Figure(key="none", what="a command, no rules", unit="us", digits=1),
        Figure(key="words", what="a command, allowed by its words", unit="us", at_most=50, digits=1),
        Figure(key="pattern", what="a command, allowed by a pattern", unit="us", at_most=50, digits=1),
        Figure(key="compound", what="a compound command that publishes", unit="us", at_most=50, digits=1),
        Figure(key="path", what="a file, denied by a pattern", unit="us", at_most=50, digits=1),
        Figure(key="host", what="an address, allowed by its host", unit="us", at_most=50, digits=1),
    ),
)
