"""Stores of runs: memory for tests and short-lived runs, SQLite for one machine."""
