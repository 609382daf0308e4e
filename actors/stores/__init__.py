"""Stores: where runs live. Memory for tests and throw-away runs, SQLite for everything on one machine."""
