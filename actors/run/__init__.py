"""The shell: actors that own runs and tool calls, and the handles that people hold. It performs what the engine decides."""
