"""Secrets in texts and values: what is recognised, and what is shown instead."""
