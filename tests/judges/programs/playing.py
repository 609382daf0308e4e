"""Play scenes of the real programs in a process of their own, whose network is loopback only."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.judges import lacking, need_node_modules, need_program

from .programs import PROGRAMS

Scene = dict[str, Any]


PATIENCE = 200.0
"""Seconds after which a process is given up; it takes about ten."""


@cache
def network() -> tuple[tuple[str, ...], dict[str, str]]:
    """The words before a command that has loopback only; else, variables that lead nowhere but to loopback."""
    words = ("unshare", "--map-root-user", "--net")
    try:
        if subprocess.run([*words, "true"], check=False, capture_output=True).returncode == 0:
            return words, {}
    except FileNotFoundError:
        pass
    nowhere = "http://127.0.0.1:9"
    return (), {"HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "NO_PROXY": "127.0.0.1,localhost"}


def begun(root: Path, module: str, name: str, scenes: Sequence[str], **variables: str) -> "subprocess.Popen[str]":
    """A process that plays scenes of a program."""
    words, more = network()
    command = [*words, sys.executable, "-m", f"tests.judges.programs.{module}", name, *scenes]
    environment = os.environ | more | variables
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=root, env=environment, stdout=pipe, stderr=pipe, text=True)


@cache
def played(root: Path, module: str, name: str, scenes: tuple[str, ...], **variables: str) -> dict[str, Scene]:
    """What has come of the scenes of a program."""
    with begun(root, module, name, scenes, **variables) as process:
        try:
            out, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    found: dict[str, Scene] = json.loads(out)
    return found


def need(name: str) -> None:
    """Skip the test, or fail, where the program is missing."""
    need_node_modules("programs")
    if name == "gemini":
        need_program("node")
    if not PROGRAMS[name].binary.exists():
        lacking(f"no {name} here: npm has it for Linux on x86-64 only")
