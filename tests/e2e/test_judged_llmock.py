"""Our providers judged by a service that is not ours: PyPI's llmock fails at random, and judges how a client takes it.

It knows a retry by its equal body. So an answer that is continued looks to it as a cut stream that was accepted, and
the agent continues none (`Recovery(0)`); a client that gives up after a cut stream looks the same, so no run of this
test gives up. It finds a retry before Retry-After, one of what will not pass, a storm of
retries, and an answer that was accepted though its stream was cut.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import greenroom as gr

from ..support.judges import lacking
from ..support.ports import free_port
from ..support.providers import MODELS
from ..support.wait_for_port import wait_for_port

pytestmark = [pytest.mark.judge, pytest.mark.slow]

FAULTS = (
    *("--error-rate", "429=0.1", "--error-rate", "503=0.05", "--error-rate", "400=0.05"),
    *("--stream-fault", "truncate=0.08", "--stream-fault", "disconnect=0.08", "--stream-fault", "malformed=0.04"),
)
BASES = {"chat": "/v1", "responses": "/v1", "anthropic": "/anthropic", "gemini": "/gemini"}
PROGRAM = Path(sys.executable).with_name("llmock")


@pytest.fixture
def service() -> Iterator[str]:
    """The base URL of an llmock that fails at random, of this test alone."""
    if not PROGRAM.exists():
        lacking("no llmock here: pip install 'llmock>=0.2.2,<0.3' (the dev extra)")
    port = free_port()
    command = [PROGRAM, "serve", "--host", "127.0.0.1", "--port", str(port), "--tool-mode", "off", *FAULTS]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port, patience=60.0)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def test_llmock_finds_no_fault_in_how_our_providers_take_its_faults(service):
    retried, finished = 0, 0
    for name, make in MODELS.items():
        model = make("gpt-5", base_url=service + BASES[name], api_key=f"key-of-{name}-0123456789")
        agent = gr.Agent("a", model=model, plugins=[gr.Retry(attempts=12, first=0.05), gr.Recovery(0)])
        async with gr.open_runtime(agents=[agent]) as runtime:
            runs = [await runtime.start(agent, f"Question {number} for {name}") for number in range(10)]
            outcomes = [await run.result() for run in runs]
        retried += sum(outcome.usage.requests - 1 for outcome in outcomes if isinstance(outcome, gr.Completed))
        finished += sum(isinstance(outcome, gr.Completed) for outcome in outcomes)
    done = await trio.run_process([PROGRAM, "report", "--url", service], capture_stdout=True, check=False)
    assert done.returncode == 0, done.stdout.decode()
    assert retried > 0
    assert finished > 20
