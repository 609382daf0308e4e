"""The services of a runtime: clock, signals, timers, logs, checks of values; nothing here calls user code."""
