"""Greenroom: an actor-model runtime for AI-agent runs on trio."""
