"""The shell: actors that own runs and tool calls, and the handles people hold. Performs what the engine decides."""
