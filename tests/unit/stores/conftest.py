"""Connections to a schema in PostgreSQL."""

from collections.abc import Callable, Iterator

import pytest

from greenroom.actors.stores.postgres._connect import Link
from greenroom.actors.stores.postgres._target import PgTarget


@pytest.fixture
def link_to() -> Iterator[Callable[[str], Link]]:
    links: list[Link] = []

    def connect(url: str) -> Link:
        links.append(Link(PgTarget.parse(url), "test"))
        return links[-1]

    yield connect
    for link in links:
        link.close()


@pytest.fixture
def link(link_to: Callable[[str], Link], postgres_url: str) -> Link:
    return link_to(postgres_url)
