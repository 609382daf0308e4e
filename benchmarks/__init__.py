"""Measurements against the budgets: `python -m benchmarks --help`."""
