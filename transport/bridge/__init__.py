"""Between asyncio and trio: a trio program in a thread, and calls in both directions."""
