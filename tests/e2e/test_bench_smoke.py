"""The benchmarks run and say what they should. How fast anything is, no test says."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.no_cover

NAMES = ["run_durable", "waiting_memory", "loop_peers"]
"""Of the last one ours only: the others would have to be installed."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_benchmarks_run_and_write_their_figures(root: Path, tmp_path: Path) -> None:
    """Some of them, small: each figure has a median within its range, and those with a budget are judged."""
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "benchmarks", *NAMES, "--quick", "--json", str(out)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stderr
    data = json.loads(out.read_text(encoding="utf-8"))
    assert data["quick"] is True
    assert data["machine"]["python"]
    assert list(data["benchmarks"]) == NAMES
    for name, found in data["benchmarks"].items():
        assert f"## {name}" in done.stdout
        assert found["figures"]
        for figure in found["figures"]:
            assert figure["low"] <= figure["median"] <= figure["high"]
            assert (figure["budget"] is None) == (figure["met"] is None)
            assert figure["what"] in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="the client is in C")
def test_the_gateways_benchmarks_run_and_peers_are_left_out(root: Path, tmp_path: Path) -> None:
    """Small: what they check (every event once, in order) they check here, too; a peer would have to be installed."""
    names = ["gateway_fanout", "gateway_stalled", "gateway_replay", "gateway_http", "gateway_asgi", "gateway_peers"]
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "benchmarks", *names, "--quick", "--json", str(out)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stderr
    data = json.loads(out.read_text(encoding="utf-8"))
    assert list(data["benchmarks"]) == names
    for found in data["benchmarks"].values():
        assert found["figures"]
        assert found["notes"] == []
    counted = data["benchmarks"]["gateway_fanout"]["values"]
    assert set(counted["pump_encodes"]) == set(counted["tasks_encodes"]) == {1.0}, "encoded once, however many read it"
    assert "full_peer_cpu" not in counted


@pytest.mark.slow
def test_without_a_compiler_the_table_says_what_was_skipped(root: Path, tmp_path: Path) -> None:
    """The commit is asked of git, so that one is left on the path."""
    git = shutil.which("git")
    assert git is not None
    (tmp_path / "git").symlink_to(git)
    command = [sys.executable, "-m", "benchmarks", "gateway_http", "--quick"]
    env = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert "- health: skipped: no C compiler" in done.stdout
    assert "| GET /healthz: requests |" not in done.stdout


def test_a_sample_in_a_process_of_its_own_prints_its_values_and_notes(root: Path) -> None:
    """As a measurement asks for it; a quick round stays in one process."""
    command = [sys.executable, "-m", "benchmarks", "--sample", "kernel", "tell", "--quick"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    values, notes = json.loads(done.stdout)
    assert values
    assert min(values.values()) >= 0
    assert notes == []


def test_an_unknown_benchmark_is_refused_with_the_known_names(root: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "nonsense"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "run_overhead" in done.stderr
