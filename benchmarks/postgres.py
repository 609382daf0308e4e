"""Greenroom on PostgreSQL beside other libraries: steps, decisions, claims, processes at rest.

Each case starts a server of its own (an empty cluster, `fsync` on) and runs one script of `pg/` beside it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from .environments import DBOS, LANGGRAPH_POSTGRES, PGQUEUER, PROCRASTINATE, Peer
from .harness import Benchmark, Case, Figure, Skipped, Values, note

OURS = Path(__file__).resolve().parent / "pg" / "ours.py"
LIMIT = 300.0
"""Seconds for one script."""
SETTLED = 0.5
"""Seconds after which the server has counted the transactions of connections that have ended."""


@attrs.frozen
class Script:
    """One script on one server.

    Attributes:
        title: in the table. mode, count: of the script. few: its count in a quick round. peer: None for ours.
        databases: that the server has beside `postgres`.
    """

    title: str
    mode: str
    count: int
    few: int = 5
    peer: Peer | None = None
    databases: tuple[str, ...] = ()


def _both(title: str, key: str, peer: Peer | None, *databases: str, suffix: str = "") -> dict[str, Script]:
    return {
        f"{key}_one": Script(f"one run: {title}", f"one{suffix}", 200, 5, peer, databases),
        f"{key}_many": Script(f"50 runs: {title}", f"many{suffix}", 50, 2, peer, databases),
    }


SCRIPTS = {
    **_both("Greenroom, repeatable steps, gathered into later commits", "ours", None),
    **_both("Greenroom, each step durable before its body begins", "ours_unsafe", None, suffix="_unsafe"),
    **_both("LangGraph, PostgresSaver, durability sync", "langgraph", LANGGRAPH_POSTGRES),
    **_both("DBOS", "dbos", DBOS, "dbos_sys"),
    "ours_send": Script("Greenroom", "send", 300, 5),
    "dbos_send": Script("DBOS, send and recv", "send", 300, 100, DBOS, ("dbos_sys",)),
    "ours_follow": Script("Greenroom", "follow", 1, 1),
    "ours_claim": Script("Greenroom", "claim", 200_000, 3_000),
    "ours_idle": Script("Greenroom", "idle", 10_000, 50),
    "ours_jobs": Script("Greenroom, whole runs", "jobs", 1_000, 10),
    "procrastinate_jobs": Script("Procrastinate", "jobs", 1_000, 10, PROCRASTINATE),
    "pgqueuer_jobs": Script("pgqueuer", "jobs", 1_000, 10, PGQUEUER),
}
COUNTED = ("ours_one", "ours_unsafe_one", "ours_many", "langgraph_one", "langgraph_many", "dbos_one", "dbos_many")
"""Scripts whose transactions are counted, as the difference between a short and a long one."""


def _server() -> Any:
    """A server of its own.

    Raises:
        Skipped: there is none here, or no driver.
    """
    try:
        import psycopg  # noqa: F401, PLC0415 - the extra greenroom[postgres]
        from tests.support.postgres import Server, binaries  # noqa: PLC0415 - needs the environment of the tests
    except ImportError as error:
        raise Skipped(f"{error}; `make bench-postgres` has it") from None
    if binaries() is None:
        raise Skipped("no PostgreSQL server here; install one")
    return Server(durable=True)


def _transactions(server: Any) -> int:
    from tests.support.postgres_copies import transactions  # noqa: PLC0415 - as above

    time.sleep(SETTLED)  # noqa: TID251 - the server counts a while later
    return transactions(server.url())


def _run(script: Script, count: int) -> tuple[Mapping[str, float], int]:
    """What one script said, and the transactions that it took."""
    command = [sys.executable, str(OURS)] if script.peer is None else script.peer.command()
    with _server() as server:
        for name in script.databases:
            _create(server, name)
        note(f"PostgreSQL {_version(server)}, fsync on, a new cluster for each sample")
        before = _transactions(server)
        done = subprocess.run(  # noqa: S603 - our own script
            [*command, str(server.port), script.mode, str(count)],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{script.title}: exit code {done.returncode}\n{done.stderr[-4000:]}")
        return json.loads(done.stdout.splitlines()[-1]), _transactions(server) - before


def _version(server: Any) -> str:
    import psycopg  # noqa: PLC0415 - as above

    with psycopg.connect(server.url()) as connection:
        return connection.info.parameter_status("server_version") or ""


def _create(server: Any, name: str) -> None:
    import psycopg  # noqa: PLC0415 - as above

    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())


def _case(key: str, script: Script) -> Case:
    def case(quick: bool) -> Values:
        figures, _ = _run(script, script.few if quick else script.count)
        return {f"{key}_{name}": value for name, value in figures.items()}

    return case


def _counting(key: str, script: Script) -> Case:
    def case(quick: bool) -> Values:
        short, long = (script.few, 2 * script.few) if quick else (script.count // 4, script.count)
        steps = (long - short) * (20 if script.mode.startswith("many") else 1)
        _, few = _run(script, short)
        _, more = _run(script, long)
        return {f"{key}_transactions_per_step": (more - few) / steps}

    return case


def _ratios(values: Values) -> Values:
    """Ours to theirs, within one round."""
    ratios: Values = {}
    for peer in ("langgraph", "dbos"):
        for mode in ("one", "many"):
            ours, theirs = f"ours_unsafe_{mode}_steps_per_second", f"{peer}_{mode}_steps_per_second"
            if ours in values and theirs in values:
                ratios[f"{peer}_{mode}_ratio"] = values[ours] / values[theirs]
    for name in ("accepted", "acted"):
        if f"ours_send_{name}_p50" in values and f"dbos_send_{name}_p50" in values:
            ratios[f"dbos_{name}_ratio"] = values[f"ours_send_{name}_p50"] / values[f"dbos_send_{name}_p50"]
    claims, jobs = "ours_claim_claims_per_second", "pgqueuer_jobs_jobs_per_second"
    if claims in values and jobs in values:
        ratios["pgqueuer_claims_ratio"] = values[claims] / values[jobs]
    return ratios


RATIOS = {
    "langgraph_one_ratio": ("one run: steps per second, ours to LangGraph's", 1.3),
    "dbos_one_ratio": ("one run: steps per second, ours to DBOS's", 1.3),
    "langgraph_many_ratio": ("50 runs: steps per second, ours to LangGraph's", 5.0),
    "dbos_many_ratio": ("50 runs: steps per second, ours to DBOS's", 3.0),
    "pgqueuer_claims_ratio": ("runs claimed per second, to pgqueuer's jobs from the queue to done", 1.0),
}
DECIDED = {
    "ours_send_accepted_p50": ("decision in another process, sent to accepted, median: Greenroom", 5.0),
    "ours_send_accepted_p99": ("decision in another process, sent to accepted, p99: Greenroom", 30.0),
    "ours_send_acted_p50": ("decision in another process, sent to acting, median: Greenroom", 10.0),
    "ours_send_acted_p99": ("decision in another process, sent to acting, p99: Greenroom", 50.0),
    "dbos_send_accepted_p50": ("message to another process, sent to accepted, median: DBOS", None),
    "dbos_send_accepted_p99": ("message to another process, sent to accepted, p99: DBOS", None),
    "dbos_send_acted_p50": ("message to another process, sent to received, median: DBOS", None),
    "dbos_send_acted_p99": ("message to another process, sent to received, p99: DBOS", None),
    "ours_follow_followed_p50": ("event durable there to read here, median: Greenroom", 6.0),
    "ours_follow_followed_p99": ("event durable there to read here, p99: Greenroom", 40.0),
    "ours_claim_claim_p50": ("claim of 20 from 200,000 ready runs, median: Greenroom", 10.0),
    "ours_idle_opened_ms": ("a process opens beside 10,000 waiting runs: Greenroom", None),
}
AWAITED = {"ours_one": 2.0, "ours_unsafe_one": 2.0, "ours_many": 0.1}
"""Most transactions of a step."""


def _figures() -> list[Figure]:
    steps = [(key, script) for key, script in SCRIPTS.items() if script.mode.startswith(("one", "many"))]
    figures = [
        Figure(key=f"{key}_steps_per_second", what=f"steps, {script.title}", unit="/s", digits=0)
        for key, script in steps
    ]
    figures += [Figure(key=key, what=what, unit="x", at_least=least, digits=1) for key, (what, least) in RATIOS.items()]
    figures += [
        Figure(key=f"{key}_cpu_ms_per_step", what=f"CPU of the client per step, {script.title}", unit="ms")
        for key, script in steps
    ]
    figures += [
        Figure(
            key=f"{key}_transactions_per_step",
            what=f"transactions per step, {SCRIPTS[key].title}",
            unit="",
            at_most=AWAITED.get(key),
        )
        for key in COUNTED
    ]
    figures += [Figure(key=key, what=what, unit="ms", at_most=most) for key, (what, most) in DECIDED.items()]
    figures += [
        Figure(key="dbos_accepted_ratio", what="sent to accepted, median, ours to DBOS's", unit="x", at_most=1.0),
        Figure(key="dbos_acted_ratio", what="sent to acting, median, ours to DBOS's", unit="x", at_most=0.7),
        Figure(
            key="ours_idle_statements_per_second",
            what="statements of a process at rest with 10,000 waiting runs",
            unit="/s",
            at_most=2.0,
        ),
        Figure(key="ours_claim_claims_per_second", what="runs claimed, 20 at a time: Greenroom", unit="/s", digits=0),
    ]
    figures += [
        Figure(key=f"{key}_jobs_per_second", what=f"from the queue to done: {script.title}", unit="/s", digits=0)
        for key, script in SCRIPTS.items()
        if script.mode == "jobs"
    ]
    return figures


BENCHMARK = Benchmark(
    name="postgres",
    about=(
        "durable steps of 500 bytes, decisions from another process, claims, processes at rest; a server of its own "
        "for each sample, fsync on. Jobs of Procrastinate and pgqueuer are empty; ours are whole runs with a model"
    ),
    cases={
        **{key: _case(key, script) for key, script in SCRIPTS.items()},
        **{f"{key} transactions": _counting(key, SCRIPTS[key]) for key in COUNTED},
    },
    figures=_figures(),
    derive=_ratios,
    quick=("ours_one", "ours_many", "ours_send", "ours_claim", "ours_jobs"),
)
