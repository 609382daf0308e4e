"""axe-core (npm, 4.14.1) judges what a page of the console shows: names, roles, contrast, order, landmarks.

    axe = Axe(need_axe())
    assert axe.violations(page) == []

Every rule that axe has switched on by itself is asked: WCAG 2.0 to 2.2 at A and AA, and the best practices.
"""

from typing import TYPE_CHECKING, Any

from ...support.judges import need_node_modules

if TYPE_CHECKING:
    from playwright.sync_api import Page

RUN = """async () => {
    const { violations } = await axe.run(document, { resultTypes: ["violations"] });
    return violations.flatMap(({ id, impact, help, nodes }) => nodes.map(({ target, failureSummary }) =>
        `${id} (${impact}): ${help}: ${target.join(" ")}: ${failureSummary.split("\\n").slice(1).join("; ").trim()}`));
}"""


def need_axe() -> str:
    """The source of axe-core; the test is skipped without it, and says why."""
    folder = need_node_modules("axe") / "node_modules" / "axe-core"
    return (folder / "axe.min.js").read_text(encoding="utf-8")


class Axe:
    """The judge of pages."""

    def __init__(self, source: str) -> None:
        self._source = source

    def violations(self, page: "Page") -> list[str]:
        """What axe finds wrong in the page as it is now: rule, element and advice, one line each."""
        if not page.evaluate("'axe' in window"):
            page.evaluate(self._source)
        found: list[Any] = page.evaluate(RUN)
        return [str(line) for line in found]
