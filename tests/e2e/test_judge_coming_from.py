"""The programs of other frameworks in docs/coming-from.md print what the page says, in an environment that has them."""

import subprocess
from pathlib import Path

import pytest

from ..support.judges import need_peers
from .test_docs import blocks, fits, save

pytestmark = [pytest.mark.slow, pytest.mark.judge, pytest.mark.no_cover]

NOT_RUN = {"with_temporal.py"}
"""Temporal needs a server. Its module is imported, which checks the definitions of the workflow and the activities."""


def their_programs(root: Path, folder: Path) -> dict[str, str]:
    """Save the programs of others. Name -> the text behind the program, which is what it prints."""
    programs: dict[str, str] = {}
    name = ""
    for where, language, text in blocks(root / "docs/coming-from.md"):
        if language == "python":
            save(folder, where, text)
            name = text.split("\n", 1)[0].removeprefix("# ")
            if name.startswith("with_"):
                programs[name] = ""
        elif language == "text":
            programs[name] = text
    return programs


def test_each_program_of_the_page_prints_what_the_page_says(root: Path, tmp_path: Path) -> None:
    python = need_peers()
    programs = their_programs(root, tmp_path)
    assert len(programs) == 4
    assert {name for name, printed in programs.items() if not printed} == NOT_RUN
    processes = {
        name: subprocess.Popen(
            [python, name], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for name in programs
    }
    for name, process in processes.items():
        printed, _ = process.communicate(timeout=120)
        assert process.returncode == 0, f"{name}\n{printed}"
        assert fits(programs[name], printed), f"{name} prints\n{printed}"
