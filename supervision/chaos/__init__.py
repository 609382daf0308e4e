"""Deterministic scheduling and fault injection for trio programs: find what a cancel or a crash at any step breaks."""
