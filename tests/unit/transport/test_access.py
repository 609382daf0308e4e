"""Who is let in: tokens, scopes, and the Host and Origin headers."""

import pytest

from greenroom.actors.errors import UsageError
from greenroom.transport.bearer_token import new_token
from greenroom.transport.gateway.access import (
    SCOPES,
    OriginPolicy,
    Principal,
    TokenTable,
    everything,
    own_hosts,
)
from greenroom.transport.protocol.codes import Refused

ANN = Principal(name="ann", token="a" * 16)
BOB = Principal(name="bob", token="b" * 16, scopes={"follow"})


# --- principals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": ""}, "give a name"),
        ({"name": "  "}, "give a name"),
        ({"name": None}, "give a name"),
        ({"token": "short"}, "the token of 'ann' is too short"),
        ({"token": None}, "too short"),
        ({"scopes": "decide"}, "scopes='decide': give a set, such as {'decide'}"),
        ({"scopes": {"follow", "root"}}, "scope 'root' is not known; use some of follow, decide, start, admin"),
    ],
)
def test_a_principal_that_cannot_be_is_refused_in_words(changes, words):
    with pytest.raises(UsageError, match=words):
        Principal(**({"name": "ann", "token": "a" * 16} | changes))


def test_a_token_is_in_no_repr_and_in_no_error():
    assert ANN.token not in repr(ANN)
    assert ANN.token not in repr(TokenTable([ANN, BOB]))
    with pytest.raises(UsageError) as caught:
        Principal(name="x", token="hunter" + "2")
    assert "hunter2" not in str(caught.value)


def test_admin_includes_every_scope_and_no_other_scope_includes_another():
    assert all(ANN.may(scope) for scope in SCOPES)
    for mine in SCOPES[:-1]:
        only = Principal(name="x", token="x" * 16, scopes={mine})
        assert [scope for scope in SCOPES if only.may(scope)] == [mine]


def test_a_scope_that_is_missing_is_named_with_who_misses_it():
    BOB.need("follow")
    with pytest.raises(Refused, match="bob has no scope 'decide'") as caught:
        BOB.need("decide")
    assert caught.value.error.code == "not_allowed"


def test_a_principal_sees_every_run_by_default():
    assert everything(None)  # it looks at nothing
    assert ANN.sees is everything


def test_each_new_token_is_another_one_and_long_enough_and_no_program_takes_it_for_an_option():
    tokens = {new_token() for _ in range(1_000)}
    assert len(tokens) == 1_000
    assert all(token[0].isalnum() for token in tokens)  # of 1,000 unchecked ones about 31 begin with - or _
    assert all(Principal(name="x", token=token).token == token for token in tokens)


# --- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_finds_its_principal_and_nothing_else_finds_anybody():
    ring = TokenTable([ANN, BOB])
    assert (ring.find(ANN.token), ring.find(BOB.token)) == (ANN, BOB)
    for token in ("", "a" * 15, "a" * 17, "A" * 16, " " + ANN.token, "\ud800", "x" * 100_000):
        assert ring.find(token) is None
    assert TokenTable([]).find("") is None
    with pytest.raises(UsageError, match="the principal 'ann' has no token"):
        TokenTable([Principal(name="ann")])


@pytest.mark.parametrize("header", ["Bearer {}", "bearer {}", "BEARER  {} "])
def test_a_bearer_header_is_read_without_regard_to_the_case_of_its_scheme(header):
    assert TokenTable([ANN, BOB]).bearer(header.format(BOB.token)) is BOB


def test_no_header_is_anonymous_and_not_an_error():
    """A page says who it is in its first frame."""
    assert TokenTable([ANN]).bearer(None) is None


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic {}", "{}", "Token {}", "Bearer {}x", "Bearer: {}"])
def test_a_header_that_says_nothing_known_is_refused_and_not_repeated(header):
    with pytest.raises(Refused) as caught:
        TokenTable([ANN]).bearer(header.format(ANN.token))
    assert caught.value.error.code == "unauthenticated"
    assert ANN.token not in caught.value.message


# --- Host and Origin -------------------------------------------------------------------------------------------------

LOCAL = OriginPolicy(hosts=own_hosts([("127.0.0.1", 8765), ("::1", 8765)], ["Gate.Example"]))


def let_in(doorway, host, origin=None):
    try:
        doorway.check(host, origin)
    except Refused as refused:
        return refused.error.code != "forbidden_origin"
    return True


@pytest.mark.parametrize(
    "host", ["localhost:8765", "LOCALHOST:8765", "127.0.0.1:8765", "[::1]:8765", "gate.example", "GATE.example"]
)
def test_the_names_of_loopback_and_the_listed_ones_are_let_in(host):
    assert let_in(LOCAL, host)


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "localhost",
        "localhost:80",
        "localhost:8766",
        "localhost:8765.evil.example",
        "evil.example:8765",
        "localhost.evil.example:8765",
        "127.0.0.1",
        "127.0.0.2:8765",
        "::1:8765",
        "[::1]",
        "[::ffff:127.0.0.1]:8765",
        "gate.example:8765",
        "user@localhost:8765",
        " localhost:8765",
    ],
)
def test_any_other_host_is_kept_out(host):
    """A name of another site that points to loopback (DNS rebinding) says its own name here."""
    assert not let_in(LOCAL, host)


def test_the_address_itself_is_let_in():
    doorway = OriginPolicy(hosts=own_hosts([("127.0.0.2", 80), ("fe80::1", 8765)], []))
    for host in ("127.0.0.2", "127.0.0.2:80", "[fe80::1]:8765", "[FE80::1]:8765"):
        assert let_in(doorway, host)
    assert not let_in(doorway, "fe80::1:8765")


def test_the_default_port_may_be_left_out_since_browsers_do():
    doorway = OriginPolicy(hosts=own_hosts([("127.0.0.1", 80)], []))
    assert let_in(doorway, "localhost")
    assert let_in(doorway, "[::1]")
    assert let_in(doorway, "localhost:80")
    assert let_in(doorway, "localhost", "http://localhost")
    assert not let_in(doorway, "localhost", "http://localhost:8080")


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:8765", None),
        ("localhost:8765", "http://localhost:8765"),
        ("LocalHost:8765", "http://localhost:8765"),
        ("[::1]:8765", "http://[::1]:8765"),
        ("gate.example", "https://gate.example"),
        ("127.0.0.1:8765", "http://127.0.0.1:8765"),
    ],
)
def test_a_page_of_the_same_host_is_let_in_and_so_is_a_program(host, origin):
    assert let_in(LOCAL, host, origin)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://",
        "http://evil.example",
        "http://localhost",
        "http://localhost:8766",
        "http://127.0.0.1:8765",
        "http://localhost:8765.evil.example",
        "http://localhost:8765@evil.example",
        "http://evil.example#localhost:8765",
        "file://localhost:8765",
        "chrome-extension://localhost:8765",
        "localhost:8765",
        "//localhost:8765",
        "http://[",
        "http://[::1",
        "http://]localhost:8765",
        "http://localhost:8765, http://evil.example",
    ],
)
def test_a_page_of_another_site_is_kept_out(origin):
    assert not let_in(LOCAL, "localhost:8765", origin)
    assert not let_in(OriginPolicy(hosts=None), "localhost:8765", origin)


def test_the_origin_of_a_sandboxed_page_is_kept_out_even_where_there_is_no_host():
    assert not let_in(OriginPolicy(hosts=None), None, "null")
    assert not let_in(OriginPolicy(hosts=None), "", "")


def test_without_a_list_every_host_is_let_in_but_not_every_page():
    doorway = OriginPolicy(hosts=None, origins=frozenset({"https://app.example"}))
    assert let_in(doorway, "anything:1")
    assert let_in(doorway, None)
    assert let_in(doorway, "anything:1", "http://anything:1")
    assert let_in(doorway, "anything:1", "https://app.example")
    assert not let_in(doorway, "anything:1", "https://other.example")
    assert not let_in(doorway, "anything:1", "https://app.example:8443")


def test_what_is_kept_out_is_shown_which_list_to_grow():
    with pytest.raises(Refused, match=r"the Host 'evil' is not on the list; add it with --host-name, or hosts="):
        LOCAL.check("evil", None)
    with pytest.raises(Refused, match=r"the Origin 'null' is not on the list; add it with --origin, or origins="):
        LOCAL.check("localhost:8765", "null")
    with pytest.raises(Refused) as caught:
        LOCAL.check("x" * 10_000, None)
    assert len(caught.value.message) < 200
