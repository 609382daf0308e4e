"""Metrics for Prometheus: their table, what counts them, and the answer to a scrape."""
