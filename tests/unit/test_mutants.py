"""The script that plants faults: each mutant is one small change that compiles, and the same seed draws the same."""

import ast
import textwrap
from pathlib import Path

from scripts.mutants import ROOT, copy_of, drawn, mutants

SOURCE = textwrap.dedent('''
    def f(a, b):
        """A text."""
        if a and not b:
            log(a)
        total = 1 if a < b else 2
        return total
''').encode()


def test_each_mutant_is_the_source_with_one_change():
    found = {(mutant.old, mutant.new) for mutant in mutants("f.py", SOURCE)}
    assert found == {
        ("a and (not b)", "((a) or (not b))"),
        ("a and (not b)", "(not (a and (not b)))"),
        ("not b", "(b)"),
        ("log(a)", "pass"),
        ("1", "2"),
        ("2", "3"),
        ("a < b", "(a <= b)"),
        ("return total", "return None"),
    }


def test_every_mutant_compiles_and_is_another_program():
    path = "actors/engine/command_rules.py"
    source = (ROOT / path).read_bytes()
    program = ast.dump(ast.parse(source))
    found = list(mutants(path, source))
    assert len(found) > 20
    for mutant in found[::5]:
        assert ast.dump(ast.parse(mutant.applied(source))) != program, mutant


def test_the_seed_draws(tmp_path: Path):
    folder = tmp_path / "actors" / "engine"
    folder.mkdir(parents=True)
    (folder / "f.py").write_bytes(SOURCE)
    assert len(drawn(tmp_path, 1, 100)) == len(list(mutants("f.py", SOURCE)))
    assert drawn(tmp_path, 1, 4) == drawn(tmp_path, 1, 4) != drawn(tmp_path, 2, 4)


def test_a_copy_has_the_files_and_links_of_the_tree(tmp_path: Path):
    tree = copy_of(ROOT, tmp_path)
    assert (tree / "src" / "greenroom" / "actors").is_symlink()
    assert (tree / "actors" / "run").is_dir()
