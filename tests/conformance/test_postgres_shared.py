"""Processes on PostgreSQL keep the promises of a shared store, in real time with short leases."""

import pytest
from tests.support.postgres_steering import PostgresSteering

from greenroom.actors.testing.store_kit import SHARED_SCENARIOS, Scenario

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]


@pytest.mark.parametrize("scenario", SHARED_SCENARIOS, ids=str)
async def test_processes_on_postgres_keep_their_promises(scenario: Scenario, postgres_url: str) -> None:
    with PostgresSteering(postgres_url) as steering:
        await scenario(steering.open_store, steering)
