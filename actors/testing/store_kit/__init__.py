"""The kit that checks a store."""
