"""Plugins: code that runs in the phases of a run, what it is told, and what it may ask for."""
