"""The types that users meet, as mypy --strict and pyright see them.

The programs of `examples`, and of some pages of the documents, have no fault in the eyes of either. The cases hold
`assert_type` for what is inferred, and ignores that must be needed for what is refused: both checkers read the same
ones, and report an ignore that hides nothing.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ..e2e.test_docs import blocks, save
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


TYPED_PAGES = (
    "artifacts",
    "evidence",
    "guardrails",
    "logging",
    "outputs",
    "permission",
    "policies",
    "postgres",
    "tasks",
    "tools",
)
"""Pages of the documents whose programs have complete types, and import nothing of each other."""


@pytest.fixture
def examples(root: Path, tmp_path: Path) -> Path:
    """A folder with the examples, and with a folder for each of the pages."""
    shutil.copytree(root / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for name in TYPED_PAGES:
        folder = tmp_path / name
        folder.mkdir()
        for where, language, text in blocks(root / "docs" / f"{name}.md"):
            if language == "python":
                save(folder, where, text)
    return tmp_path


@pytest.mark.slow
def test_the_examples_have_no_fault_for_mypy(root: Path, examples: Path):
    options = ["--strict", "--namespace-packages", "--explicit-package-bases", "--config-file", ""]
    command = [sys.executable, "-m", "mypy", *options, "--cache-dir", str(root / ".mypy_cache"), "."]
    environment = os.environ | {"MYPYPATH": f"{root / 'src'}{os.pathsep}."}
    done = subprocess.run(
        command, cwd=examples, env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.judge
@pytest.mark.slow
def test_the_examples_have_no_fault_for_pyright(root: Path, examples: Path):
    program = need_node_modules("pyright") / "node_modules" / "pyright" / "index.js"
    settings = {"extraPaths": [str(root / "src")], "pythonVersion": "3.11", "typeCheckingMode": "strict"}
    (examples / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [need_program("node"), str(program), "-p", str(examples), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=examples, capture_output=True, text=True, check=False, timeout=240)
    report = json.loads(done.stdout)
    assert (done.returncode, report["generalDiagnostics"]) == (0, []), done.stdout + done.stderr
    assert report["summary"]["filesAnalyzed"] == len([*examples.rglob("*.py")])
