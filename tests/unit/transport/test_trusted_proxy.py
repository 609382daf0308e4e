"""A proxy that says who a person is: believed for its address and its secret, and no one else is."""

import pytest

from greenroom.actors.errors import UsageError
from greenroom.transport import Principal, SignInRefusal, SignInRequest, trusted_proxy

SECRET = "the secret of the proxy"
HEADER = "X-Forwarded-Email"


def sign_in(**options):
    return trusted_proxy(HEADER, **{"proxies": ["10.1.0.0/16", "::1"], "secret": SECRET} | options)


async def answer(name, *, peer="10.1.2.3", secret=SECRET, **options):
    headers = {HEADER: name, "x-greenroom-proxy": secret}
    request = SignInRequest(headers={key: value for key, value in headers.items() if value is not None}, peer=peer)
    return (await sign_in(**options).answer(request)).answer


@pytest.mark.parametrize("peer", ["10.1.2.3", "::ffff:10.1.2.3", "::1"])
async def test_a_person_that_the_proxy_names_is_a_principal(peer):
    person = await answer("ann@example.org", peer=peer)
    assert (person.name, person.scopes) == ("ann@example.org", {"follow", "decide", "start"})


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("ann", "ann"),
        (" ann ", "ann"),
        ("Ren\u00e9".encode().decode("latin-1"), "Ren\u00e9"),
        ("Ren\u00e9", "Ren\u00e9"),
    ],
)
async def test_a_name_is_read_as_utf_8_or_latin_1(value, name):
    assert (await answer(value)).name == name


@pytest.mark.parametrize(
    "spoof",
    [
        {"peer": "10.2.0.1"},
        {"peer": "::ffff:10.2.0.1"},
        {"peer": "fe80::1%eth0"},
        {"peer": None},
        {"peer": ""},
        {"peer": "testclient"},
        {"secret": None},
        {"secret": ""},
        {"secret": SECRET[:-1]},
        {"secret": f"{SECRET}, {SECRET}"},
        {"secret": "\udc80"},
    ],
    ids=str,
)
async def test_a_header_that_is_not_of_the_proxy_is_refused(spoof):
    refusal = await answer("ann", **spoof)
    assert refusal == SignInRefusal(message="the header x-forwarded-email is accepted from the proxy only", status=403)


@pytest.mark.parametrize("name", ["", " ", "eve, ann", "a\x7fb", "a" * 201])
async def test_a_header_that_does_not_name_one_person_lets_nobody_in(name):
    assert not isinstance(await answer(name), Principal)


async def test_a_request_without_the_header_is_somebody_elses():
    assert await answer(None) is None
    assert await answer(None, secret=None, peer="8.8.8.8") is None


async def test_a_function_makes_principals_of_names_and_of_other_headers_of_the_proxy():
    async def by_group(name, request):
        groups = request.headers.get("x-forwarded-groups", "").split(",")
        if "support" not in groups:
            return SignInRefusal(message=f"{name} is not in the group support", status=403)
        return Principal(name=name, scopes={"admin"} if "lead" in groups else {"follow"})

    proxied = sign_in(principal=by_group)
    headers = {HEADER: "ann", "x-greenroom-proxy": SECRET}
    for groups, scopes in {"support": {"follow"}, "support,lead": {"admin"}}.items():
        request = SignInRequest(headers=headers | {"X-Forwarded-Groups": groups}, peer="::1")
        assert (await proxied.answer(request)).answer.scopes == scopes
    refusal = (await proxied.answer(SignInRequest(headers=headers, peer="::1"))).answer
    assert refusal.message == "ann is not in the group support"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"secret": "short"}, "the secret of the proxy is too short; make one with secrets.token_hex(24)"),
        ({"secret": None}, "too short"),
        ({"proxies": []}, "proxies=(): give the addresses of the proxy"),
        ({"proxies": ["proxy.example.org"]}, "proxies has 'proxy.example.org': give an address, or a network"),
        ({"proxies": [None]}, "proxies has None"),
        ({"scopes": {"root"}}, "scope 'root' is not known"),
        ({"header": "X User"}, "header='X User': give the name of a header"),
        ({"header": ""}, "give the name of a header"),
        ({"header": "Authorization"}, "a client's own header names nobody"),
        ({"header": "x-greenroom-proxy"}, "a client's own header names nobody"),
    ],
)
def test_what_cannot_be_a_proxy_is_refused_in_words(options, words):
    header = options.pop("header", HEADER)
    with pytest.raises(UsageError) as caught:
        trusted_proxy(header, **{"proxies": ["::1"], "secret": SECRET} | options)
    assert words in str(caught.value)


def test_one_address_may_be_a_text_and_no_secret_is_in_the_repr():
    proxied = trusted_proxy(HEADER, proxies="127.0.0.1", secret=SECRET)
    assert repr(proxied._authenticate) == "<TrustedProxy: x-forwarded-email from 127.0.0.1/32>"
