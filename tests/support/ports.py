"""Ports for servers that come back: no other program takes one while its server is away."""

import random
import socket


def free_port(rng: random.Random | None = None) -> int:
    """A port that no server listens on, and that the system gives to no outgoing connection.

    One of the ephemeral range could be given to any connection of any test while the server is away. A client that
    knocks without end would meet itself there at last (TCP opens simultaneously), and hold the port.
    """
    rng = rng or random.SystemRandom()
    for _ in range(100):
        port = rng.randrange(15_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")
