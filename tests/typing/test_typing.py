"""The types that users meet, as mypy --strict and pyright see them.

The files hold `assert_type` for what is inferred, and ignores that must be needed for what is refused: both checkers
read the same ones, and report an ignore that hides nothing.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ..support.judges import need_node_modules, need_program

HERE = Path(__file__).parent
CASES = sorted(str(path) for path in HERE.glob("*cases.py"))
WRONG = '''"""Two mistakes and an ignore that hides nothing."""

import greenroom as gr

refused = gr.Agent("a", model=3)
reveals: int = gr.Agent("a", output_type=str).parse_output("x")
fine = gr.Agent("a", model=None)  # type: ignore[arg-type]
'''


def mypy(root: Path, files: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", *files]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=240)


def pyright(project: Path) -> subprocess.CompletedProcess[str]:
    program = need_node_modules("pyright") / "node_modules" / "pyright" / "index.js"
    command = [need_program("node"), str(program), "-p", str(project), "--pythonpath", sys.executable]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=240)


@pytest.mark.slow
def test_mypy_infers_what_the_cases_say(root: Path):
    done = mypy(root, CASES)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.judge
@pytest.mark.slow
def test_pyright_infers_what_the_cases_say():
    done = pyright(HERE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.judge
@pytest.mark.slow
def test_pyright_finds_mistakes(tmp_path: Path):
    """The test above can fail: with the same options, in another folder."""
    options = (HERE / "pyrightconfig.json").read_text(encoding="utf-8")
    options = options.replace("../../src", str(HERE.parents[1] / "src"))
    (tmp_path / "pyrightconfig.json").write_text(options, encoding="utf-8")
    (tmp_path / "wrong_cases.py").write_text(WRONG, encoding="utf-8")
    done = pyright(tmp_path)
    assert [f"wrong_cases.py:{line}:" in done.stdout for line in range(1, 8)] == [False] * 4 + [True] * 3
    assert (done.returncode, "3 errors" in done.stdout) == (1, True), done.stdout + done.stderr
