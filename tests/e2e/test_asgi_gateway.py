"""Tests of the gateway's own connections, played on those of ASGI servers: hypercorn on trio, and uvicorn on asyncio.

What a server does by itself is not here: bytes that are no HTTP, frames that break RFC 6455, pings, idle connections.
"""

import pytest
from tests.e2e import (
    test_gateway_access,
    test_gateway_hostile,
    test_gateway_roads,
    test_gateway_sign_in,
    test_gateway_slow,
)
from tests.support import asgi_hosts, gateway, gateway_inside

pytestmark = pytest.mark.slow

PLAYED = {
    test_gateway_access: [
        "test_a_frame_without_its_scope_is_refused_and_does_nothing",
        "test_a_name_that_was_bound_to_our_address_is_not_ours",
        "test_a_page_of_another_site_gets_nothing",
        "test_commands_that_are_sent_twice_act_once_on_whichever_way_they_come",
        "test_each_route_wants_its_scope",
        "test_listed_pages_and_our_own_may_ask_and_may_read",
        "test_no_value_crashes_a_reader_or_a_run",
        "test_runs_of_others_do_not_exist_on_any_route",
    ],
    test_gateway_hostile: [
        "test_a_message_byte_by_byte_is_received",
        "test_a_second_hello_is_an_error_also_from_who_has_said_one",
        "test_messages_of_exactly_the_limit_are_received",
        "test_more_subscriptions_than_the_limit_are_refused_and_one_that_is_left_makes_room",
    ],
    test_gateway_roads: ["test_a_principal_is_answered_as_the_table_says_and_learns_nothing_of_hidden_runs"],
    test_gateway_sign_in: [
        "test_a_client_may_ask_who_it_is",
        "test_a_function_learns_the_address_at_the_other_end",
        "test_a_revoked_principal_loses_websockets_and_streams_and_gets_in_no_more",
        "test_a_websocket_whose_first_message_is_refused_is_closed_with_the_reason",
        "test_each_route_asks_the_function_and_answers_as_it_says",
        "test_starts_and_decisions_over_a_websocket_name_the_person",
    ],
    test_gateway_slow: [
        "test_a_hundred_readers_learn_of_the_end_of_a_run_and_the_gateway_forgets_it",
        "test_every_reader_gets_every_event_once_and_in_order_however_it_comes_and_goes",
    ],
}
"""Module -> its tests that hold on every road."""
for module, names in PLAYED.items():
    globals().update({name: getattr(module, name) for name in names})


@pytest.fixture(autouse=True, params=["hypercorn", "uvicorn"])
def server(request, monkeypatch):
    """The gateways of a test are behind this server."""
    serve = getattr(asgi_hosts, f"by_{request.param}")
    for support in (gateway, gateway_inside):
        monkeypatch.setattr(support, "serve", serve)
