"""What the stores share: codecs, rules of commits, the queue of writes, leases, ranks, faults."""
