"""The protocol `greenroom.v1` without I/O: frames in both directions, close codes, limits.

docs/gateway.md is the specification.
"""
