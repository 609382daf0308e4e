"""Toolsets of other people's servers."""
