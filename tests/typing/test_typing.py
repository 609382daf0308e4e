"""The types that users meet, as mypy --strict sees them."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("file", ["cases.py", "guardrail_cases.py", "child_cases.py", "testing_cases.py"])
def test_mypy_infers_what_the_cases_say(root: Path, file: str):
    """The file holds assert_type for what is inferred, and ignores that must be needed for what is refused."""
    cases = Path(__file__).with_name(file)
    command = [sys.executable, "-m", "mypy", str(cases)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
