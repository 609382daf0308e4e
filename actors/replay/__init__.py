"""Re-running a stored run: what it recorded is turned back into inputs, and the machine's events are compared."""
