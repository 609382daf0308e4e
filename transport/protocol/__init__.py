"""The protocol `greenroom.v1` without I/O: frames both ways, close codes, limits. docs/gateway.md tells it whole."""
