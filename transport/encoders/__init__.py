"""Streams of other protocols, encoded from events. Pure: one module per protocol with begin, step and finish."""
