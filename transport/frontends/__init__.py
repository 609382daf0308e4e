"""Protocols of chat front ends, one folder each."""
