"""Servers of other libraries that do the same work. Each runs in an environment of its own, so each is a script."""
