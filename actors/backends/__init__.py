"""Backends: code that lets another program do the work of a call."""
