"""A server for each test, and processes on it."""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ...support.postgres import Server
from .swarm import Swarm


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def times() -> Mapping[str, float] | None:
    """The times of leases in this module, if they are not those of the swarm."""
    return None


@pytest.fixture
def swarm(
    server: Server, tmp_path: Path, root: Path, rng: random.Random, times: Mapping[str, float] | None
) -> Iterator[Swarm]:
    with Swarm(tmp_path, root, server.url(), rng) as swarm:
        swarm.times = times or swarm.times
        yield swarm
