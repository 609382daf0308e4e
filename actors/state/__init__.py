"""State of runs and threads: typed keys, immutable snapshots, batches of writes. Pure: no trio, no clock, no I/O."""
