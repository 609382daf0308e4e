"""The numbered rules of the documents, and the tests that quote them.

    python -m tests.rules          every rule with its tests: rule, test, file; fails if rules and tests do not match
    python -m tests.rules L-12 P   that rule, and those of a page

A rule is some sentences, an item of a list or a row of a table, and ends with its id, "[L-12]", at the end of a line of
the page. A rule begins behind the id before it, or with its paragraph, item or row. A test quotes the rules that it
shows: `@pytest.mark.rule("L-12")`. An id stays with its rule: a new rule gets a new number, wherever it is on its page.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "L": "lifecycle",
    "P": "plugins",
    "S": "state",
    "A": "approvals",
    "M": "models",
    "LO": "loop",
    "OU": "outputs",
    "GU": "guardrails",
    "PO": "policies",
    "CR": "child-runs",
    "TK": "testing",
    "AT": "attachments",
    "AR": "artifacts",
    "HA": "handoffs",
    "TS": "toolsets",
    "MB": "mcp",
    "MS": "mcp-server",
    "MC": "mcp-client",
    "ACP": "acp",
    "AS": "a2a",
    "AB": "remote-agents",
}
"""The letters before the hyphen of an id, and the page whose rules have them."""
ID = re.compile(r"\[([A-Z]+-\d+)\]")
BEGINNING = re.compile(r"\n\n(?:\| )?|\n\| |\n *- |\n *\d+\. |^```$", re.MULTILINE)
"""The places at which a paragraph, an item of a list or a row of a table begins."""


@attrs.frozen
class Rule:
    """A rule: its id, its page, and the words that it begins with."""

    id: str
    page: str
    words: str

    @property
    def letters(self) -> str:
        """The letters before the hyphen: the same for all rules of a page."""
        return self.id.partition("-")[0]


@attrs.frozen
class Quote:
    """A test that quotes a rule, by its id."""

    rule: str
    test: str
    file: str


def rules_of(page: str, text: str) -> Iterator[Rule]:
    """The rules of a page, in its order."""
    parts = ID.split(text)
    for words, rule in zip(parts[::2], parts[1::2], strict=False):
        yield Rule(rule, page, " ".join(BEGINNING.split(words)[-1].split())[:60])


def misplaced_ids(page: str, text: str) -> Iterator[str]:
    """The ids of a page that do not end their line or their cell of a table: one sentence each."""
    for match in ID.finditer(text):
        behind = text[match.end() :].partition("\n")[0]
        if behind.strip() and not re.match(r" \||( \[[A-Z]+-\d+\])+ \|", behind):
            yield f"docs/{page}.md: {match[1]} begins its rule; the id of a rule ends the last line of the rule"


def quotes_of(file: str, text: str) -> Iterator[Quote]:
    """What the tests of a file quote, in its order."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.rule":
                    yield from (Quote(ast.literal_eval(arg), node.name, file) for arg in mark.args)


def all_pages(root: Path = ROOT) -> dict[str, str]:
    """The text of each page that has rules."""
    return {page: (root / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in PAGES.values()}


def all_rules(root: Path = ROOT) -> list[Rule]:
    """The rules of all pages."""
    return [rule for page, text in all_pages(root).items() for rule in rules_of(page, text)]


def all_quotes(root: Path = ROOT) -> list[Quote]:
    """The quotes of all tests."""
    folders = ("chaos", "conformance", "e2e", "unit")
    paths = sorted(path for folder in folders for path in (root / "tests" / folder).rglob("test_*.py"))
    texts = ((path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")) for path in paths)
    return [quote for file, text in texts if "mark.rule" in text for quote in quotes_of(file, text)]


def faults(rules: Iterable[Rule], quotes: Iterable[Quote]) -> list[str]:
    """Where the documents and the tests do not match: one sentence each."""
    found, seen = [], dict[str, Rule]()
    for rule in rules:
        if rule.id in seen:
            found.append(f"{rule.id} is two rules, in docs/{seen[rule.id].page}.md and in docs/{rule.page}.md")
        if PAGES.get(rule.letters) != rule.page:
            found.append(f"{rule.id} is in docs/{rule.page}.md, whose rules have another letter")
        seen[rule.id] = rule
    quoted = set()
    for quote in quotes:
        quoted.add(quote.rule)
        if quote.rule not in seen:
            found.append(f"{quote.file}: {quote.test} quotes {quote.rule}, which is no rule of the documents")
    found += [
        f"{rule.id} (docs/{rule.page}.md) has no test: {rule.words}" for rule in seen.values() if rule.id not in quoted
    ]
    return found


def table(rules: Iterable[Rule], quotes: Iterable[Quote], wanted: Iterable[str]) -> Iterator[str]:
    """A line for each rule and test."""
    names, quotes = set(wanted), list(quotes)
    for rule in rules:
        if not names or names & {rule.id, rule.letters}:
            for quote in quotes:
                if quote.rule == rule.id:
                    yield f"{rule.id:6} {quote.test}  {quote.file}"


def main(arguments: list[str]) -> int:
    """Print the table, then the faults. 1 if there are any."""
    rules, quotes = all_rules(), all_quotes()
    sys.stdout.writelines(f"{line}\n" for line in table(rules, quotes, arguments))
    wrong = [
        *faults(rules, quotes),
        *(fault for page, text in all_pages().items() for fault in misplaced_ids(page, text)),
    ]
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
