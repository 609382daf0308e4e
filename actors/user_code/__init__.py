"""Calls of the user's functions: hooks, gates, guardrails, instructions, predicates, with their deadlines."""
