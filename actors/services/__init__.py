"""What all parts of a runtime use: clock, signals, timers, logs, checks of values; nothing here calls user code."""
