"""Names of variables are nouns: a bare participle (`known`, `left`) does not say which thing is meant."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.no_cover

# fmt: off
IRREGULAR = frozenset({
    "begun", "born", "broken", "brought", "built", "caught", "chosen", "drawn", "driven", "felt", "forgotten",
    "found", "frozen", "given", "gone", "got", "grown", "heard", "held", "hidden", "kept", "known", "left",
    "lent", "lost", "made", "meant", "met", "paid", "said", "seen", "sent", "shown", "sold", "spent", "stolen",
    "struck", "taken", "thrown", "told", "torn", "withdrawn", "withheld", "woken", "won", "worn", "written",
})
# fmt: on
"""Not among them: words that are nouns or verbs, too, such as cut, read and run; `done` says yes or no."""
NOUNS = frozenset({"bed", "feed", "need", "red", "seed", "shed", "speed"})
LIMITS = {
    "supervision": 0,
    "actors/contract": 0,
    "actors/engine": 0,
    "actors/state": 0,
    "actors/replay": 0,
    "actors/models": 0,
    "actors/tools": 0,
    "actors/plugins": 0,
    "actors/agents": 0,
    "actors/services": 0,
    "actors/user_code": 0,
    "actors/run": 0,
    "actors/runtime": 0,
    "actors/testing": 69,
    "actors/stores": 160,
    "actors/workspaces": 45,
    "actors/permission": 12,
    "actors/backends": 14,
    "actors/toolsets": 4,
    "transport": 201,
    "benchmarks": 0,
    "scripts": 2,
}
"""The most bare participles in a room; only smaller numbers replace these. Those of the scripts are left and right."""
FLAGS = frozenset({"all", "any", "bool", "callable", "hasattr", "isinstance", "issubclass"})


def is_participle(name: str) -> bool:
    """True for `known` and `asked`; false for `known_keys`, and for a constant."""
    word = name.strip("_")
    return word in IRREGULAR or (word.endswith("ed") and word.islower() and "_" not in word and word not in NOUNS)


def is_flag(value: ast.expr | None) -> bool:
    """True for a value that is yes or no, whose name may be an adjective: `denied = action == "cancel"`."""
    match value:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()) | ast.Constant(value=True | False):
            return True
        case ast.BoolOp(values=values):
            return any(map(is_flag, values))
        case ast.IfExp(body=body, orelse=orelse):
            return is_flag(body) and is_flag(orelse)
        case ast.Call(func=ast.Name(id=name)):
            return name in FLAGS
    return False


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the names that statements and comprehensions bind, with lines; no parameters, fields, attributes, flags."""
    flags: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    pairs = (
                        zip(target.elts, value.elts, strict=False)
                        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
                        else [(target, value)]
                    )
                    flags |= {id(left) for left, right in pairs if is_flag(right)}
            case ast.AnnAssign(target=target, value=value) if is_flag(value):
                flags.add(id(target))
            case ast.ClassDef(body=body):
                flags |= {id(line.target) for line in body if isinstance(line, ast.AnnAssign)}
    for node in ast.walk(tree):
        match node:
            case ast.Name(ctx=ast.Store()) if id(node) not in flags:
                yield node.id, node.lineno
            case ast.MatchAs(name=str(name)):
                yield name, node.lineno


def participles(path: Path) -> Iterator[str]:
    """`file:line name` of every variable whose name is a bare participle."""
    for name, line in bound_names(ast.parse(path.read_text(encoding="utf-8"))):
        if is_participle(name):
            yield f"{path}:{line} {name}"


@pytest.mark.parametrize("room", LIMITS)
def test_a_variable_has_a_noun_as_its_name(root: Path, room: str) -> None:
    """`known_keys`, `claim` and `remaining_rows` say which thing is meant; `known`, `given` and `left` do not."""
    paths = [path for path in sorted((root / room).rglob("*.py")) if "node_modules" not in path.parts]
    faults = [fault for path in paths for fault in participles(path)]
    assert len(faults) <= LIMITS[room], faults


def test_a_participle_as_a_name_is_found(tmp_path: Path) -> None:
    path = tmp_path / "loose.py"
    path.write_text(
        "known = found = {}\nfor taken in known:\n    pass\ncase = [said for said in known]\nseed, left = 1, 2\n"
        "with f() as opened:\n    pass\nmatch f():\n    case [int() as told]:\n        pass\n"
        "if (kept := f()):\n    pass\n",
        encoding="utf-8",
    )
    names = Counter(fault.split()[1] for fault in participles(path))
    assert names == Counter(["known", "found", "taken", "said", "left", "opened", "told", "kept"])


def test_a_flag_may_have_an_adjective_as_its_name(tmp_path: Path) -> None:
    path = tmp_path / "flags.py"
    path.write_text(
        "denied = a == b\nclosed = False\nmoved: bool = not a\nbroken, n = isinstance(a, B), 1\nshown = a and not b\n"
        "known_keys = {}\nclass C:\n    held: int\n    def m(self, given): self.sent = given\n",
        encoding="utf-8",
    )
    assert list(participles(path)) == []
