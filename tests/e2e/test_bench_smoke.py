"""The benchmarks run and say what they should. How fast anything is, no test says."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_benchmarks_run_and_write_their_figures(root: Path, tmp_path: Path) -> None:
    """Two of them, small: each figure has a median within its range, and those with a budget are judged."""
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "benchmarks", "run_durable", "waiting_memory", "--quick", "--json", str(out)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    data = json.loads(out.read_text(encoding="utf-8"))
    assert data["quick"] is True
    assert data["machine"]["python"]
    assert list(data["benchmarks"]) == ["run_durable", "waiting_memory"]
    for name, found in data["benchmarks"].items():
        assert f"## {name}" in done.stdout
        assert found["figures"]
        for figure in found["figures"]:
            assert figure["low"] <= figure["median"] <= figure["high"]
            assert (figure["budget"] is None) == (figure["met"] is None)
            assert figure["what"] in done.stdout


def test_an_unknown_benchmark_is_refused_with_the_known_names(root: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "nonsense"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "run_overhead" in done.stderr
