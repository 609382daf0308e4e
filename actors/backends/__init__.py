"""Backends: other programs that do the work of a call, such as coding agents."""
