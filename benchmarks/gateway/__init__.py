"""What the gateway's benchmarks share: the C client, the measured servers in their own processes, and the peers."""
