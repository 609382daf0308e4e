"""Plugins: code that runs in the phases of a run, the contexts of hooks, and their mutations."""
