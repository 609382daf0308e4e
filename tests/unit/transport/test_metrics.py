"""Metrics: their table, their text, what counts them, and the dashboard that asks for them."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
import trio
from prometheus_client.openmetrics import exposition
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as plain_families
from tests.support.runs import agent

import greenroom as gr
from greenroom.actors.errors import StoreUnavailable
from greenroom.actors.stores.memory.store import MemoryStore
from greenroom.testing import ScriptedModel, call
from greenroom.transport.gateway.metrics.metrics import MOST_VALUES, Metrics
from greenroom.transport.gateway.metrics.run_metrics import MOST_TICKETS, RunMetrics
from greenroom.transport.gateway.metrics.scrape import FRESH, Scrapes
from greenroom.transport.gateway.metrics.table import METRICS, metric_rows

SUFFIX = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def samples(text, name):
    """Labels -> value of one metric."""
    metric = METRICS.get(re.sub("_(count|sum)$", "", name))
    labels = ("le",) if metric is None else metric.labels
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for family in plain_families(text.decode())
        for sample in family.samples
        if sample.name == name
    }


# --- the table -------------------------------------------------------------------------------------------------------


def test_the_names_follow_the_conventions_of_prometheus():
    for name, metric in METRICS.items():
        assert re.fullmatch(r"greenroom_[a-z]+(_[a-z]+)*", name)
        assert name.endswith("_total") == (metric.kind == "counter"), name
        assert not re.search(r"_(ms|milliseconds|minutes|hours|kb|count|sum|bucket)$", name), name
        assert (metric.kind == "histogram") == bool(metric.buckets), name
        assert list(metric.buckets) == sorted(set(metric.buckets)), name
        if metric.kind == "histogram":
            assert name.endswith("_seconds")
        assert metric.text.endswith(".")
        assert not set(metric.labels) & {"run", "thread", "principal", "le", "instance", "job"}, name


def test_the_text_is_valid_and_has_each_metric_with_its_type():
    metrics = Metrics()
    for name, metric in METRICS.items():
        labels = [f"a {label}" for label in metric.labels]
        if metric.kind == "histogram":
            metrics.observe(name, *labels, value=0.3)
        else:
            metrics.count(name, *labels, amount=2)
    # the strict parser of OpenMetrics is the lint: names, suffixes, units, order, buckets
    families = list(text_string_to_metric_families(exposition.generate_latest(metrics._registry).decode()))
    kinds = {family.name: family.type for family in families}
    assert kinds == {name.removesuffix("_total"): metric.kind for name, metric in METRICS.items()}
    assert {family.name: family.documentation for family in families} == {
        name.removesuffix("_total"): metric.text for name, metric in METRICS.items()
    }
    plain = {sample.name for family in plain_families(metrics.text().decode()) for sample in family.samples}
    assert plain == {name + suffix for name, metric in METRICS.items() for suffix in SUFFIX[metric.kind]}
    assert not any(name.endswith("_created") for name in plain)


def test_the_dashboard_asks_for_each_metric_and_for_no_other(root):
    board = json.loads((root / "docs" / "grafana" / "greenroom.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    used = {name for query in queries for name in re.findall(r"greenroom_\w+", query)}
    known = {name + suffix: name for name, metric in METRICS.items() for suffix in SUFFIX[metric.kind]}
    assert used <= set(known), used - set(known)
    assert {known[name] for name in used} == set(METRICS), set(METRICS) - {known[name] for name in used}
    for query in queries:
        (metric, labels), *_ = [
            (METRICS[known[name]], set(re.split(r", ", by)))
            for by in re.findall(r"by \(([^)]*)\)", query) or [""]
            for name in re.findall(r"greenroom_\w+", query)
        ]
        assert labels - {"", "instance", "le"} <= set(metric.labels), query
        assert query.count("(") == query.count(")")
        if metric.kind != "gauge":
            assert "rate(" in query or "increase(" in query, query
        else:
            assert "rate(" not in query, query


def test_the_page_has_the_table(root):
    assert metric_rows() in (root / "docs" / "metrics.md").read_text()
    for name in re.findall(r"greenroom_\w+", (root / "docs" / "metrics.md").read_text()):
        assert any(name.startswith(metric) for metric in METRICS), name


# --- values ----------------------------------------------------------------------------------------------------------


def test_a_histogram_has_cumulated_buckets_its_number_and_its_sum():
    metrics, name = Metrics(), "greenroom_store_commit_seconds"
    for value in (0.001, 0.002, 0.2, 100.0):
        metrics.observe(name, value=value)
    text = metrics.text()
    buckets = samples(text, f"{name}_bucket")
    bounds = METRICS[name].buckets
    assert [buckets[str(bound),] for bound in bounds] == [1, 2, 2, 2, 2, 2, 2, 3, 3, 3]
    assert buckets["+Inf",] == 4
    assert samples(text, f"{name}_count") == {(): 4}
    assert samples(text, f"{name}_sum") == {(): pytest.approx(100.203)}


def test_the_values_of_a_label_are_bounded_in_number_and_in_length():
    metrics = Metrics()
    for number in range(3 * MOST_VALUES):
        metrics.count("greenroom_runs_started_total", metrics.bounded("agent", f"agent-{number}"))
    metrics.count("greenroom_runs_started_total", metrics.bounded("agent", "agent-7"))
    started = samples(metrics.text(), "greenroom_runs_started_total")
    assert len(started) == MOST_VALUES + 1
    assert started["other",] == 2 * MOST_VALUES
    assert started["agent-7",] == 2
    assert metrics.bounded("tool", "x" * 1000) == "x" * 100
    assert metrics.bounded("tool", 'a"\n\\') == 'a"\n\\', "the text escapes it"


# --- what happens to runs --------------------------------------------------------------------------------------------


@gr.tool(needs_approval=True)
async def pay(cents: int) -> str:
    """Pay."""
    if cents > 100:
        raise ValueError("too much")
    return "paid"


def clerk():
    steps = [call("pay", cents=5, id="c1"), call("pay", cents=500, id="c2"), "done"]
    return agent(*steps, key="clerk", tools=[pay])


async def answered(run, answer):
    await run.wait()
    (ticket,) = (await run.view()).tickets
    await run.decide(answer(ticket))


async def test_a_run_is_counted_from_its_events(autojump_clock):
    async with gr.open_runtime(agents=[clerk(), agent(key="other")]) as runtime:
        metrics = Metrics()
        scrapes = Scrapes(runtime, metrics)
        await scrapes.text()
        run = await runtime.start("clerk", "hi")
        await run.wait()
        await trio.sleep(100)
        text = await scrapes.text()
        assert samples(text, "greenroom_tickets_open") == {(): 1}
        assert samples(text, "greenroom_ticket_oldest_age_seconds")[()] == pytest.approx(100, abs=1)
        assert samples(text, "greenroom_threads_open") == {(): 1}
        assert samples(text, "greenroom_runs_open") == {("created",): 0, ("running",): 0, ("waiting",): 1}
        await answered(run, lambda ticket: ticket.approve())
        await trio.sleep(10)
        await answered(run, lambda ticket: ticket.approve())
        await run.wait()
        await (await runtime.start("other", "hi")).wait()
        text = await scrapes.text()
    assert samples(text, "greenroom_runs_started_total") == {("clerk",): 1, ("other",): 1}
    assert samples(text, "greenroom_runs_finished_total") == {("clerk", "completed"): 1, ("other", "completed"): 1}
    assert samples(text, "greenroom_tickets_opened_total") == {("tool_permission",): 2}
    assert samples(text, "greenroom_tickets_resolved_total") == {("approved",): 2}
    assert samples(text, "greenroom_ticket_decision_seconds_count") == {("approved",): 2}
    assert samples(text, "greenroom_ticket_decision_seconds_sum")["approved",] == pytest.approx(110, abs=1)
    assert samples(text, "greenroom_tool_calls_total") == {("pay", "succeeded"): 1, ("pay", "failed"): 1}
    assert samples(text, "greenroom_tool_call_seconds_count") == {("pay",): 2}
    (requests,) = samples(text, "greenroom_model_request_seconds_count").values()
    assert requests == 4
    assert {kind for _, kind in samples(text, "greenroom_model_tokens_total")} >= {"input", "output"}
    assert samples(text, "greenroom_store_commit_seconds_count")[()] > 5
    assert samples(text, "greenroom_run_active_seconds_count") == {("clerk",): 1, ("other",): 1}
    assert samples(text, "greenroom_store_up") == {(): 1}


async def test_failures_retries_and_cancels_are_counted_by_code(autojump_clock):
    busy = gr.testing.fail("overloaded")
    flaky = gr.Agent("flaky", model=ScriptedModel([busy, "done"]))
    broken = gr.Agent("broken", model=ScriptedModel([gr.testing.fail("unauthorized")]))
    async with gr.open_runtime(agents=[flaky, broken, clerk()]) as runtime:
        scrapes = Scrapes(runtime, Metrics())
        await scrapes.text()
        for key in ("flaky", "broken"):
            await (await runtime.start(key, "hi")).wait()
        run = await runtime.start("clerk", "hi")
        await run.wait()
        await run.cancel()
        await run.wait()
        text = await scrapes.text()
    assert samples(text, "greenroom_model_retries_total") == {("flaky", "overloaded"): 1}
    assert samples(text, "greenroom_run_failures_total") == {("broken", "model_error"): 1}
    outcomes = samples(text, "greenroom_runs_finished_total")
    assert outcomes == {("flaky", "completed"): 1, ("broken", "failed"): 1, ("clerk", "cancelled"): 1}
    assert samples(text, "greenroom_tickets_resolved_total") == {("withdrawn",): 1}
    assert samples(text, "greenroom_ticket_decision_seconds_count") == {}, "no person has decided"


async def test_without_a_scrape_nothing_listens_and_after_the_end_nothing_does():
    async with gr.open_runtime(agents=[agent()]) as runtime:
        listeners = runtime.reader._services.signals.listeners
        scrapes = Scrapes(runtime, Metrics())
        assert not listeners
        await scrapes.text()
        await scrapes.text()
        assert len(listeners) == 1
        scrapes.close()
        scrapes.close()
        assert not listeners


async def test_the_time_to_a_decision_is_known_for_a_ticket_of_an_earlier_process(autojump_clock):
    store = MemoryStore()
    async with gr.open_runtime(store, agents=[clerk()]) as runtime:
        run = await runtime.start("clerk", "hi", run_id="r")
        await run.wait()
        await trio.sleep(50)
        scrapes = Scrapes(runtime, Metrics())  # as after a restart: it has not seen the question
        await scrapes.text()
        await answered(run, lambda ticket: ticket.deny("no"))
        await run.wait()
        await trio.sleep(FRESH)
        text = await scrapes.text()
    assert samples(text, "greenroom_ticket_decision_seconds_sum")["denied",] == pytest.approx(50, abs=1)


def test_open_tickets_are_remembered_in_bounded_memory():
    class Reader:
        def on_change(self, listener, _):
            self.listener = listener
            return lambda: None

    reader, at = Reader(), datetime(2026, 1, 1, tzinfo=UTC)
    counted = RunMetrics(Metrics(), reader, lambda: at + timedelta(seconds=1))
    counted.listen()
    for number in range(MOST_TICKETS + 50):
        event = {"type": "run.approval.requested", "runId": "r", "timestamp": "2026-01-01T00:00:00.000Z"}
        payload = {"ticketId": str(number), "reason": "tool_permission"}
        frame = json.dumps({"id": "x", **event, "payload": payload}, separators=(",", ":")).encode()
        reader.listener("r", [frame])
    assert len(counted._opened) == MOST_TICKETS


# --- the store -------------------------------------------------------------------------------------------------------


class Counted(MemoryStore):
    calls, seconds, error = 0, 0.0, None

    async def backlog(self):
        self.calls += 1
        await trio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return await super().backlog()


async def test_the_store_is_asked_once_in_fifteen_seconds_however_many_scrape(autojump_clock):
    store = Counted()
    async with gr.open_runtime(store, agents=[agent()]) as runtime:
        scrapes = Scrapes(runtime, Metrics())
        for _ in range(10):
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(scrapes.text)
            await trio.sleep(1)
        assert store.calls == 1
        store.seconds = 4.0
        await trio.sleep(FRESH)
        await scrapes.text()
        await trio.sleep(60)
        await scrapes.text()
        assert store.calls == 2, "slow statements are repeated after twenty times their time"
        await trio.sleep(30)
        await scrapes.text()
        assert store.calls == 3


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_a_store_that_does_not_answer_takes_only_its_own_metrics_along(how, autojump_clock):
    store = Counted()
    async with gr.open_runtime(store, agents=[agent()]) as runtime:
        metrics = Metrics()
        metrics.opened("any")
        scrapes = Scrapes(runtime, metrics)
        await scrapes.text()
        await trio.sleep(FRESH)
        store.error, store.seconds = (StoreUnavailable("down"), 0.0) if how == "fails" else (None, 1000.0)
        began = trio.current_time()
        text = await scrapes.text()
        assert trio.current_time() - began <= 5.0
        assert samples(text, "greenroom_store_up") == {(): 0}
        assert samples(text, "greenroom_runs_open") == {}, "old numbers are not shown as new ones"
        assert samples(text, "greenroom_connections") == {("any",): 1}
        store.error, store.seconds = None, 0.0
        text = await scrapes.text()
        assert samples(text, "greenroom_store_up") == {(): 1}
        assert samples(text, "greenroom_tickets_open") == {(): 0}
