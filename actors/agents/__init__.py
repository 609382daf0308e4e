"""Agents: their definition, deps, graph, handoffs, filters and attachments."""
