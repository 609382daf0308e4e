"""The runtime: actors that own runs and tool calls, and the handles of callers. Performs the effects of the engine."""
