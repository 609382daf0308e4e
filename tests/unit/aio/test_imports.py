"""What a program imports that uses none of it: neither asyncio nor pydantic, whatever our dependencies do."""

import subprocess
import sys

import pytest

PROGRAM = "import sys, {module}; print(*sorted({{'asyncio', 'pydantic', 'anyio'}} & sys.modules.keys()))"


@pytest.mark.parametrize(
    ("module", "others"),
    [
        ("greenroom", ""),
        ("greenroom.testing", ""),
        ("greenroom.transport.client", ""),
        ("greenroom.transport.server.serve", ""),
        ("greenroom.aio", "asyncio"),
    ],
)
@pytest.mark.slow
def test_an_import_brings_no_library_that_the_program_did_not_ask_for(module: str, others: str) -> None:
    program = [sys.executable, "-c", PROGRAM.format(module=module)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == others
