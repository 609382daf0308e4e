"""The store in memory, alone and as a peer of other processes."""
