"""What a run may name, what is withheld, and what git's lists say: the pure half of workspaces."""

import pytest

from greenroom.actors.errors import UsageError
from greenroom.actors.workspaces.allowlist import find_workspace, is_inside, is_repository, parts_of
from greenroom.actors.workspaces.difference import (
    ChangedFile,
    Replacement,
    Version,
    parse_difference,
    parse_replacements,
    proposal_id,
)
from greenroom.actors.workspaces.errors import OutsideWorkspace
from greenroom.actors.workspaces.withheld import SECRETS, SETTINGS, Withheld, withhold
from greenroom.actors.workspaces.workspace import Workspace

FORBIDDEN = (
    *("..", "../x", "a/../b", "a/..", "/etc/passwd", "/", "//x"),
    *("a\nb", "a\x00b", "a\x1bb", "a\x7f", "a\x85", "a\u2028b", "a\udcff"),
    *(".git", ".git/hooks/pre-commit", "a/.GIT/x", ".g\u200cit/config", "git~1/config", "GIT~1"),
    *("x" * 256, "/".join("x" * 65), "x/" * 2_100, "\u20ac" * 100),
)


@pytest.mark.parametrize("path", FORBIDDEN)
def test_a_path_that_could_lead_out_or_forge_a_line_is_refused_with_the_one_code(path: str) -> None:
    with pytest.raises(OutsideWorkspace, match=r"^workspace_outside_allowlist: ") as caught:
        parts_of(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("", ()),
        (".", ()),
        ("./a//b/", ("a", "b")),
        ("a b/ü.txt", ("a b", "ü.txt")),
        ("...", ("...",)),
        (".gitignore", (".gitignore",)),
        ("x" * 255, ("x" * 255,)),
        ("-rf", ("-rf",)),
        ("a\\b", ("a\\b",)),
    ],
)
def test_an_ordinary_path_is_split(path: str, parts: tuple[str, ...]) -> None:
    assert parts_of(path) == parts


@pytest.mark.parametrize(
    ("target", "folder", "inside"),
    [
        ("b", (), True),
        ("../b", ("a",), True),
        ("../../b", ("a",), False),
        ("..", (), False),
        ("..", ("a",), True),
        ("/etc/passwd", (), False),
        ("a/../b", ("x",), False),  # `a` may be a link, and `..` its target's parent
        ("./b/./c", (), True),
        (".git/config", (), False),
        ("b\nc", (), False),
        ("", (), False),
    ],
)
def test_a_link_is_inside_if_no_link_on_its_way_can_lead_out(
    target: str, folder: tuple[str, ...], inside: bool
) -> None:
    assert is_inside(target, folder) is inside


def test_names_of_a_repository_are_found_as_other_file_systems_read_them() -> None:
    assert all(map(is_repository, (".git", ".Git", ".g\u200cit", "git~1")))
    assert not any(map(is_repository, (".gitignore", "git", ".gi", ".git~1", ".github")))


def test_a_workspace_is_found_by_its_whole_name_only() -> None:
    """The sibling of an allowed name is not allowed, whichever of the two is the longer one."""
    assert find_workspace("shop/packages/web", {"shop"}) == ("shop", ("packages", "web"))
    for where in ("shop2", "sho", "", "shop/..", "/shop", "other"):
        with pytest.raises(OutsideWorkspace):
            find_workspace(where, {"shop"})


@pytest.mark.parametrize("name", ["", "a/b", "A", ".a", "-a", "a" * 65, "a\n", None])
def test_a_workspace_with_an_invalid_name_is_refused_when_it_is_made(name: str) -> None:
    with pytest.raises(UsageError, match="1 to 64 of a-z"):
        Workspace(name, "x")


@pytest.mark.parametrize(
    "path",
    [
        *(
            ".env",
            "a/.env",
            ".env.local",
            ".ENV",
            "keys/server.pem",
            "id_ed25519",
            "a/b/.netrc",
            "aws_Credentials.json",
        ),
        *(".claude/settings.json", "web/.claude/settings.local.json", ".claude/hooks/run.sh", ".mcp.json"),
        *(
            ".codex",
            ".codex/config.toml",
            ".opencode/plugin/p.js",
            "opencode.jsonc",
            ".kilocode/x",
            ".gemini/settings.json",
        ),
        *(".qwen/settings.json", ".cursor/mcp.json", ".cursor/hooks.json", ".envdir/x"),
    ],
)
def test_secrets_and_settings_that_run_code_are_withheld_at_every_depth(path: str) -> None:
    assert Withheld().has(path)


@pytest.mark.parametrize(
    "path",
    [
        "AGENTS.md",
        "CLAUDE.md",
        ".claude/skills/a.md",
        ".cursor/rules/a.md",
        "env",
        "a.env",
        "codex/x",
        "pem",
        "x.pem.md",
        "a/claude",
    ],
)
def test_instructions_and_names_that_only_resemble_are_not_withheld(path: str) -> None:
    assert not Withheld().has(path)


def test_a_pattern_matches_whole_names_and_its_stars_cross_no_slash() -> None:
    assert Withheld(("a*b/c?",)).has("x/aXb/cd/e")
    assert not Withheld(("a*b/c?",)).has("a/b/cd")
    assert not Withheld(("a*b",)).has("a/b")
    assert Withheld(("a*b*c",)).has("abxc")
    assert Withheld(("[x].+",)).has("[x].+")
    assert not Withheld(()).has("anything")


def test_a_trusted_workspace_withholds_secrets_and_no_settings() -> None:
    assert withhold(None, trusted=True).patterns == SECRETS
    assert withhold(["mine"], trusted=False).patterns == ("mine", *SETTINGS)


@pytest.mark.parametrize("pattern", ["", "/", "/etc", "x" * 201])
def test_an_invalid_pattern_is_refused_when_the_workspace_is_made(pattern: str) -> None:
    with pytest.raises(UsageError, match="withhold"):
        Workspace("shop", "x", withhold=(pattern,))


def test_too_many_patterns_are_refused() -> None:
    with pytest.raises(UsageError, match="the limit is 200"):
        Withheld(("x",) * 201)


RAW = b"\0".join([
    *(b":100644 100644 aaa bbb M", b"a.txt", b":000000 100755 000 ccc A", b"bin/run"),
    *(b":100644 000000 ddd 000 D", b"gone", b":100644 100644 eee fff R090", b"old name", b"new name"),
    *(b":100644 120000 ggg hhh T", b"link"),
    *(b"3\t1\ta.txt", b"-\t-\tbin/run", b"0\t2\tgone", b"1\t1\t", b"old name", b"new name", b"1\t1\tlink", b""),
])  # fmt: skip


def test_a_list_of_git_becomes_changed_files() -> None:
    assert parse_difference(RAW) == [
        ChangedFile(path="a.txt", change="modified", added=3, removed=1),
        ChangedFile(path="bin/run", change="added", mode="100755", binary=True),
        ChangedFile(path="gone", change="deleted", removed=2),
        ChangedFile(path="link", change="modified", mode="120000", added=1, removed=1),
        ChangedFile(path="new name", change="renamed", from_path="old name", added=1, removed=1),
    ]


def test_a_list_of_git_becomes_replacements() -> None:
    assert parse_replacements(RAW[: RAW.index(b":100644 100644 eee")]) == [
        Replacement("a.txt", Version("100644", "aaa"), Version("100644", "bbb")),
        Replacement("bin/run", None, Version("100755", "ccc")),
        Replacement("gone", Version("100644", "ddd"), None),
    ]


def test_the_id_of_a_proposal_depends_on_all_that_it_shows() -> None:
    first = proposal_id("b", "t", [("x", "link")])
    assert first == proposal_id("b", "t", [("x", "link")])
    assert (
        len(
            {
                first,
                proposal_id("c", "t", [("x", "link")]),
                proposal_id("b", "u", [("x", "link")]),
                proposal_id("b", "t", []),
            }
        )
        == 4
    )
