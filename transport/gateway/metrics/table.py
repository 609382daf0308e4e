"""The table of all metrics, by the conventions of Prometheus: units in seconds and bytes, `_total` for counters.

docs/metrics.md shows this table, and the dashboard in docs/grafana asks for its metrics only; tests compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import attrs

Kind = Literal["counter", "gauge", "histogram"]
MODEL_SECONDS: Final = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
TOOL_SECONDS: Final = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
RUN_SECONDS: Final = (0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
DECISION_SECONDS: Final = (5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 604_800.0)
COMMIT_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


@attrs.frozen(kw_only=True)
class Metric:
    """One metric.

    Attributes:
        name: As scraped, with `_total` for a counter.
        kind: Its type.
        text: What it counts or shows.
        labels: The names of its labels.
        buckets: The upper bounds of a histogram, without infinity.
        about: "runs": what happened to runs of this process since the first scrape; "gateway": since the start of the
            gateway; "process": as it is now; "store": of the whole store, the same in each process.
    """

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    about: Literal["runs", "gateway", "process", "store"] = "runs"


def _runs(name: str, text: str, *labels: str, buckets: tuple[float, ...] = ()) -> Metric:
    kind: Kind = "histogram" if buckets else "counter"
    return Metric(name=f"greenroom_{name}", kind=kind, text=text, labels=labels, buckets=buckets)


def _gateway(name: str, text: str, *labels: str, kind: Kind = "counter") -> Metric:
    return Metric(name=f"greenroom_{name}", kind=kind, text=text, labels=labels, about="gateway")


def _process(name: str, text: str, *labels: str, kind: Kind = "gauge") -> Metric:
    return Metric(name=f"greenroom_{name}", kind=kind, text=text, labels=labels, about="process")


def _store(name: str, text: str, *labels: str) -> Metric:
    return Metric(name=f"greenroom_{name}", kind="gauge", text=text, labels=labels, about="store")


METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric
    for metric in (
        _runs("runs_started_total", "Runs that were created.", "agent"),
        _runs("runs_finished_total", "Ended runs: completed, stopped, failed or cancelled.", "agent", "outcome"),
        _runs("run_failures_total", "Runs that failed or were stopped, by the code of the reason.", "agent", "code"),
        _runs("run_active_seconds", "Time in which an ended run has worked, not waited.", "agent", buckets=RUN_SECONDS),
        _runs("model_request_seconds", "Answered model requests, from the request on.", "model", buckets=MODEL_SECONDS),
        _runs("model_tokens_total", "Tokens: input (cached is a part of it), output (reasoning is).", "model", "kind"),
        _runs("model_retries_total", "Failed or interrupted model requests that are repeated.", "agent", "code"),
        _runs("model_requests_cut_total", "Model requests that the end of their run has stopped.", "agent"),
        _runs("tool_calls_total", "Calls that have ended: succeeded, failed or cancelled.", "tool", "outcome"),
        _runs("tool_call_seconds", "Time of a call from its start to its end.", "tool", buckets=TOOL_SECONDS),
        _runs("background_tasks_total", "Background tasks that have ended.", "tool", "outcome"),
        _runs("tickets_opened_total", "Questions to people, by reason.", "reason"),
        _runs("tickets_resolved_total", "Closed questions: approved, denied, expired or withdrawn.", "resolution"),
        _runs("ticket_decision_seconds", "From a question to the decision of a person.", "resolution",
              buckets=DECISION_SECONDS),
        _runs("store_commit_seconds", "From the newest event of a commit until it is durable.", buckets=COMMIT_SECONDS),
        _store("runs_open", "Runs that are not done, by status.", "status"),
        _store("threads_open", "Threads with a run that is not done."),
        _store("tickets_open", "Open questions to people."),
        _store("ticket_oldest_age_seconds", "Age of the oldest open question; 0 without one."),
        _store("queue_ready", "Runs that wait to be claimed (shared store).", "queue"),
        _store("queue_working", "Runs with an owner that do not wait for people (shared store).", "queue"),
        _store("queue_oldest_seconds", "Age of the oldest ready run (shared store).", "queue"),
        _store("process_beat_age_seconds", "Age of the newest beat of each live process (shared store).", "process"),
        _process("store_up", "1 if the store answered this scrape, 0 if it did not: its metrics are missing then."),
        _process("runs_live", "Runs that have an owner in this process."),
        _process("runs_followed", "Runs with a follower in this process."),
        _process("store_queue_length", "Requests that wait for the store's writer."),
        _process("store_beat_age_seconds", "Age of this process's newest confirmed beat (shared store)."),
        _process("store_commits_total", "Commits of runs.", kind="counter"),
        _process("store_transactions_total", "Transactions; each has one commit or several.", kind="counter"),
        _process("store_events_total", "Events that were written.", kind="counter"),
        _process("store_commands_total", "Commands that were posted.", kind="counter"),
        _process("store_written_bytes_total", "Bytes that were written; 0 if unknown.", kind="counter"),
        _process("store_reconnects_total", "Connections opened again after a failure (shared store).", kind="counter"),
        _process("store_repeated_total", "Statements sent again, as their outcome was unknown (shared store).",
                 kind="counter"),
        _process("store_hints_sent_total", "Hints to other processes (shared store).", kind="counter"),
        _process("store_hints_received_total", "Hints from other processes (shared store).", kind="counter"),
        _process("store_hints_dropped_total", "Hints that were lost here or at the server (shared store).",
                 kind="counter"),
        _process("store_claims_total", "Runs that this process has claimed (shared store).", kind="counter"),
        _process("store_freed_total", "Runs of dead processes that this process has freed (shared store).",
                 kind="counter"),
        _process("store_dead_letters_total", "Of these, the ones that became dead letters (shared store).",
                 kind="counter"),
        _gateway("connections", "Open connections: any, and of these websocket.", "kind", kind="gauge"),
        _gateway("connections_refused_total", "Connections that were refused.", "why"),
        _gateway("connections_cut_total", "Connections cut without a close frame.", "why"),
        _gateway("http_requests_total", "Answered HTTP requests.", "status"),
        _gateway("frames_received_total", "WebSocket frames of clients.", "type"),
        _gateway("failures_total", "Bugs: exceptions in a connection."),
    )
}  # fmt: skip
"""Name -> metric, in the order of docs/metrics.md."""


def metric_rows() -> str:
    """Return the table of docs/metrics.md."""
    head = "| metric | type | labels | meaning |\n|---|---|---|---|\n"
    return head + "\n".join(_row(metric) for metric in METRICS.values())


def _row(metric: Metric) -> str:
    return f"| `{metric.name}` | {metric.kind} | {', '.join(metric.labels)} | {metric.text} |"
