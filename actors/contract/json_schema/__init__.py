"""Judges values by JSON Schemas, and schemas themselves: bounded work, and a fault with its path."""
