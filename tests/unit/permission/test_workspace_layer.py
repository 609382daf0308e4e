"""The permission of a run in a workspace: the worktree says what is inside and withheld, and has the folder's rules."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.workspaces import Shop

import greenroom as gr
from greenroom.actors.errors import UsageError
from greenroom.actors.permission.remembered import Holder
from greenroom.actors.stored_values import StoredValue
from greenroom.actors.workspaces.worktree import Worktree

pytestmark = pytest.mark.slow
Rule = gr.ext.Rule


async def worktree_of(place: Path, where: str = "shop", **options: object) -> Worktree:
    shop = Shop(place, repository=False)
    shop.write("web/a.txt", "a")
    return (await shop.open(**options)).find(where, "t")


def verdict(permission: gr.ext.Permission, worktree: Worktree | None, tool: str, effect: str, path: str) -> str:
    facts = gr.CallFacts(call_id="", tool=tool, arguments={"path": path}, effect=effect)
    return permission.explain(facts, workspace=worktree).verdict


@pytest.mark.parametrize(
    ("path", "in_it", "without"),
    [
        ("a.txt", "allow", "ask"),
        ("web/../a.txt", "ask", "ask"),
        ("/etc/passwd", "deny", "ask"),
        ("../other/a.txt", "deny", "ask"),
        (".env", "deny", "deny"),
        ("web/.claude/settings.json", "deny", "deny"),
        ("secrets.txt", "allow", "ask"),
    ],
)
async def test_the_worktree_says_which_paths_are_inside(tmp_path: Path, path: str, in_it: str, without: str) -> None:
    permission, worktree = gr.ext.Permission(), await worktree_of(tmp_path)
    assert verdict(permission, worktree, "write_file", "write", path) == in_it
    assert verdict(permission, None, "write_file", "write", path) == without
    assert verdict(permission, worktree, "write_file", "write", str(worktree.path / "a.txt")) == "allow"


async def test_a_run_in_a_folder_of_the_workspace_is_inside_of_that_folder(tmp_path: Path) -> None:
    worktree = await worktree_of(tmp_path, "shop/web")
    assert verdict(gr.ext.Permission(), worktree, "read_file", "read", "a.txt") == "allow"
    assert verdict(gr.ext.Permission(), worktree, "read_file", "read", str(worktree.path.parent / "b")) == "deny"


async def test_the_withheld_names_are_those_of_the_workspace(tmp_path: Path) -> None:
    worktree = await worktree_of(tmp_path, withhold=["secrets.txt"], trusted=True)
    permission = gr.ext.Permission()
    assert verdict(permission, worktree, "read_file", "read", "secrets.txt") == "deny"
    assert verdict(permission, worktree, "read_file", "read", ".env") == "allow"
    assert verdict(permission, worktree, "read_file", "read", ".claude/settings.json") == "allow"


@pytest.mark.parametrize(
    ("folder", "agent", "expected"),
    [
        ("deny", "allow", "deny"),
        ("ask", "allow", "ask"),
        ("allow", "ask", "ask"),
        ("allow", "deny", "deny"),
        ("allow", "allow", "allow"),
    ],
)
async def test_of_the_rules_of_folder_and_agent_the_stricter_verdict_counts(
    tmp_path: Path, folder: str, agent: str, expected: str
) -> None:
    worktree = await worktree_of(tmp_path, rules=[Rule(folder, effect="shell")])  # type: ignore[arg-type]
    permission = gr.ext.Permission([Rule(agent, effect="shell")])  # type: ignore[arg-type]
    facts = gr.CallFacts(call_id="", tool="shell", arguments={"command": "make"}, effect="shell")
    judgement = permission.explain(facts, workspace=worktree)
    assert judgement.verdict == expected
    assert [match.layer for match in judgement.matches] == ["workspace", "agent"]
    assert [match.layer for match in permission.explain(facts).matches] == ["agent"]


async def test_remembered_rules_of_the_workspace_are_asked_for(tmp_path: Path) -> None:
    prefixes = list[str]()

    async def read_values(space: str, *, after: str, limit: int) -> Sequence[StoredValue]:
        prefixes.append(after)
        return ()

    worktree = await worktree_of(tmp_path, "shop/web")
    facts = gr.CallFacts(call_id="", tool="shell", arguments={"command": "make"}, effect="shell")
    place: dict[str, Any] = {"run_id": "r", "thread_id": "t", "workspace": worktree, "read_values": read_values}
    await gr.ext.Permission().tool_gate(gr.GateContext(phase=gr.Phase.TOOL_GATE, call=facts, **place))
    holders = [Holder(scope="run", name="r"), Holder(scope="thread", name="t"), Holder(scope="workspace", name="shop")]
    assert prefixes == [holder.prefix for holder in holders]


@pytest.mark.parametrize("rules", [[], "deny", [{"verdict": "deny"}], [Rule("deny")] * 2_001])
def test_the_rules_of_a_workspace_are_checked_when_it_is_made(tmp_path: Path, rules: object) -> None:
    with pytest.raises(UsageError, match=r"give a list of 1 to 2,000 gr\.ext\.Rule, or None"):
        gr.ext.Workspace("shop", tmp_path, rules=rules)  # type: ignore[arg-type]
