"""Waiting for a server that another program opens."""

import socket
import time


def wait_for_port(port: int, patience: float = 30.0) -> None:
    """Return when a server on loopback accepts connections.

    Raises:
        TimeoutError: none does.
    """
    until = time.monotonic() + patience
    while time.monotonic() < until:
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)  # noqa: TID251 - another program starts
    raise TimeoutError(f"no server on port {port} after {patience:g} s")
