"""The Autobahn cases, run by kosoku: tests/e2e/test_judge_autobahn.py runs it in a process of its own.

    python autobahn_client.py URL CASE...

prints case -> [verdict on the messages, verdict on the closing, passed] as one JSON object; if one has failed, of those
that have. A case may be a pattern such as 1.*
"""

import asyncio  # noqa: TID251 - the runner's own loop, in a process of its own
import json
import os
import sys

import kosoku


async def main(url: str, *cases: str) -> None:
    """Run the cases and print the verdicts."""
    try:
        results = await kosoku.run_fuzzingclient(url, cases=list(cases), concurrency=2)
    except kosoku.FailureError as failure:
        results = failure.results
    reported = {
        result.case_id: [result.behavior.value, result.behavior_close.value, result.passed] for result in results
    }
    print(json.dumps(reported))  # noqa: T201 - the answer to the caller that started us


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    sys.stdout.flush()
    os._exit(0)  # the runner's threads may abort an interpreter that ends in an orderly way
