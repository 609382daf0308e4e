"""The SDK of MCP is an extra: nothing of it is imported before the first name of `gr.mcp`, and nothing needs it."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.no_cover, pytest.mark.slow]
FOREIGN = ("mcp", "mcp_types", "pydantic", "starlette", "anyio", "httpx2", "uvicorn")
MODULES = "greenroom.testing, greenroom.transport.cli, greenroom.transport.server.serve"
ALL = f"import greenroom as gr, {MODULES}; gr.backends; gr.ext"


def output_of(code: str) -> str:
    """What a Python of its own says after it has imported the library and the command line."""
    lines = f"import sys; FOREIGN = {FOREIGN!r}; {ALL}; {code}"
    result = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr == ""
    return result.stdout.strip()


def test_the_library_and_its_command_line_import_nothing_of_the_sdk():
    assert output_of("print(sorted(set(FOREIGN) & set(sys.modules)))") == "[]"


def test_the_first_name_imports_the_sdk():
    assert output_of("gr.mcp.Rule; print({'mcp', 'anyio'} <= set(sys.modules))") == "True"


def test_without_the_extra_the_first_name_says_what_to_install_and_all_else_works():
    code = """
for name in FOREIGN: sys.modules[name] = None
try: gr.mcp.Server
except gr.UsageError as error: print(error)
try: import greenroom.mcp
except gr.UsageError as error: print("again")
"""
    text = output_of(f"exec({code!r})")
    assert text.startswith("gr.mcp needs the SDK of MCP, which cannot be imported (")
    assert "pip install 'greenroom[mcp]'" in text
    assert text.endswith("again")
