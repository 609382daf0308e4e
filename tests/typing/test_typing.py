"""The types that users meet, as mypy --strict and pyright see them.

The files hold `assert_type` for what is inferred, and ignores that must be needed for what is refused: both checkers
read the same ones, and report an ignore that hides nothing.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..support.judges import need_node_modules, need_program

HERE = Path(__file__).parent
CASES = sorted(str(path) for path in HERE.glob("*cases.py"))


@pytest.mark.slow
def test_mypy_infers_what_the_cases_say(root: Path):
    command = [sys.executable, "-m", "mypy", *CASES]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.judge
@pytest.mark.slow
def test_pyright_infers_what_the_cases_say():
    program = need_node_modules("pyright") / "node_modules" / "pyright" / "index.js"
    command = [need_program("node"), str(program), "-p", str(HERE), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False, timeout=240)
    report = json.loads(done.stdout)
    assert (done.returncode, report["generalDiagnostics"]) == (0, []), done.stdout + done.stderr
    assert report["summary"]["filesAnalyzed"] == len(CASES)
