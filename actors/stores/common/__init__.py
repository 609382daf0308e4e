"""The common parts of the stores: codecs, rules of commits, the queue of writes, leases, ranks, faults."""
