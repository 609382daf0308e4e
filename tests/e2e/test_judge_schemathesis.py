"""Schemathesis plays what our OpenAPI document promises, right and wrong, against a gateway with a run in it.

A fixed seed and number of examples. Left out is the check that whatever a schema allows is accepted: a schema does not
say which cursors and agents there are.
"""

import json
import os
import re
import sys

import pytest
import trio

import greenroom as gr
from greenroom.testing import call
from greenroom.transport.gateway.openapi import openapi
from greenroom.transport.server.routes import ROUTES

from ..support.gateway import TOKEN, gateway
from ..support.runs import agent

pytest.importorskip("schemathesis", reason="a judge of HTTP is missing: pip install schemathesis")
pytestmark = [pytest.mark.judge, pytest.mark.slow, pytest.mark.no_cover]

DIRECT = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


@gr.tool(needs_approval=True, effect="write")
async def refund(order: str, cents: int) -> str:
    return f"paid {cents}"


async def judged(address, folder, seed, location, *words):
    """What Schemathesis says of a gateway and a document: its exit code, and its report."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", location, "--url", address.url, "--no-color"]
    command += ["--header", f"Authorization: Bearer {TOKEN}", "--seed", str(seed), "--request-timeout", "60"]
    command += ["--phases", "examples,coverage,fuzzing", "--max-examples", "4", "--generation-database", "none"]
    command += ["--exclude-checks", "positive_data_acceptance", *words]
    options = {"env": DIRECT, "cwd": folder, "capture_stdout": True, "capture_stderr": True, "check": False}
    done = await trio.run_process(command, **options)
    return done.returncode, (done.stdout + done.stderr).decode()


async def test_the_gateway_does_what_its_document_says(tmp_path, seed):
    """No request makes it fail, every answer has a form that is documented, and what is wrong is refused."""
    clerk = agent(call("refund", order="7", cents=5, id="c1"), "done", key="clerk", tools=[refund])
    async with gr.open_runtime(agents=[clerk]) as runtime, gateway(runtime) as address:
        run = await runtime.start("clerk", "hi")
        await run.wait()
        code, reported = await judged(address, tmp_path, seed, f"{address.url}/v1/openapi.json")
    assert code == 0, reported[-8_000:]
    assert int(re.search(r"Tested: (\d+)", reported)[1]) >= len(ROUTES) - 1, reported[-2_000:]
    assert int(re.search(r"(\d+) generated", reported)[1]) > 300


async def test_the_judge_sees_an_answer_that_is_not_as_documented(tmp_path, seed):
    document = openapi(ROUTES)
    document["components"]["schemas"]["Health"]["properties"]["status"] = {"enum": ["ill"]}
    (tmp_path / "openapi.json").write_text(json.dumps(document))
    async with gr.open_runtime() as runtime, gateway(runtime) as address:
        code, reported = await judged(address, tmp_path, seed, "openapi.json", "--include-path", "/healthz")
    assert code == 1
    assert "violates schema" in reported
