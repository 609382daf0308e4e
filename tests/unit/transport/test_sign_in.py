"""`SignIn`: a function that says who sends a request, called once for a credential, whatever it does."""

import math
import threading
from itertools import count

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from greenroom.actors.errors import UsageError
from greenroom.transport import Principal, SignIn, SignInRefusal, SignInRequest
from greenroom.transport.gateway.sign_ins.sign_in import MOST_READ, SignInFailure

ANN = Principal(name="ann", scopes={"follow"})


class Directory:
    """An `authenticate` that reads the token, and counts its calls."""

    def __init__(self, people=(), *, seconds=0.0):
        self.people, self.seconds, self.calls = dict(people), seconds, 0

    async def __call__(self, request):
        self.calls += 1
        token = request.token
        await trio.sleep(self.seconds)
        if token is None:
            return None
        return self.people.get(token) or SignInRefusal(message="who is it?")


def bearer(token, **more):
    return SignInRequest(headers={"Authorization": f"Bearer {token}"}, **more)


async def who(sign_in, request):
    return (await sign_in.answer(request)).answer


# --- what a function reads -------------------------------------------------------------------------------------------


def test_a_request_shows_head_and_token_and_its_repr_no_secret():
    request = SignInRequest(
        method="POST", path="/v1/runs", headers={"Cookie": "s=secret"}, peer="10.0.0.1", token="t0p"
    )
    assert (request.method, request.path, request.peer, request.token) == ("POST", "/v1/runs", "10.0.0.1", "t0p")
    assert (request.headers["cookie"], request.headers.get("COOKIE"), request.headers.get("x")) == ("s=secret",) * 2 + (
        None,
    )
    assert dict(request.headers) == {"cookie": "s=secret"}
    assert len(request.headers) == 1
    assert "secret" not in repr(request) + repr(request.headers)
    assert "t0p" not in repr(request)


@pytest.mark.parametrize(
    ("header", "token"),
    [("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("Basic abc", None), ("Bearer", ""), ("", None)],
)
def test_the_token_of_a_request_is_that_of_its_bearer_header(header, token):
    assert SignInRequest(headers={"authorization": header}).token == token


async def test_an_answer_is_asked_for_once_while_it_counts(autojump_clock):
    directory = Directory({"a": ANN})
    sign_in = SignIn(directory, seconds=30)
    for _ in range(3):
        assert (await who(sign_in, bearer("a"))).name == "ann"
    assert directory.calls == 1
    await trio.sleep(29.9)
    await who(sign_in, bearer("a"))
    assert directory.calls == 1
    await trio.sleep(0.2)
    await who(sign_in, bearer("a"))
    assert directory.calls == 2


@pytest.mark.parametrize(
    ("reads", "same", "other"),
    [
        (lambda r: r.token, {"path": "/2", "peer": "2"}, {"token": "2"}),
        (lambda r: r.path, {"token": "2"}, {"path": "/2"}),
        (lambda r: r.method, {"token": "2"}, {"method": "POST"}),
        (lambda r: r.peer, {"token": "2"}, {"peer": "2"}),
        (lambda r: r.headers["x-user"], {"headers": {"x-user": "1", "y": "2"}}, {"headers": {"x-user": "2"}}),
        (lambda r: r.headers.get("x-user"), {"headers": {"y": "2", "x-user": "1"}}, {"headers": {}}),
        (lambda r: dict(r.headers), {"token": "2"}, {"headers": {"x-user": "1", "y": "2"}}),
        (lambda r: len(r.headers), {"token": "2"}, {"headers": {}}),
        (lambda r: None, {"token": "2", "path": "/2", "headers": {}}, None),
    ],
    ids=["token", "path", "method", "peer", "header", "maybe_header", "all_headers", "count", "nothing"],
)
async def test_an_answer_is_shared_by_requests_that_the_function_cannot_tell_apart_and_by_no_other(reads, same, other):
    calls = []

    async def authenticate(request):
        calls.append(reads(request))
        return ANN

    sign_in = SignIn(authenticate)
    plain = {"path": "/1", "token": "1", "peer": "1", "headers": {"x-user": "1"}}
    await sign_in.answer(SignInRequest(**plain))
    await sign_in.answer(SignInRequest(**plain | same))
    assert len(calls) == 1
    if other is not None:
        await sign_in.answer(SignInRequest(**plain | other))
        assert len(calls) == 2


async def test_a_function_that_reads_more_for_some_requests_forgets_answers_under_the_narrower_key():
    async def authenticate(request):
        if request.token == "proxied":
            return Principal(name=request.headers["x-user"])
        return ANN

    sign_in = SignIn(authenticate)
    assert (await who(sign_in, SignInRequest(token="a"))).name == "ann"
    for name in ("bob", "eve", "bob"):
        assert (await who(sign_in, SignInRequest(token="proxied", headers={"x-user": name}))).name == name


async def test_a_function_that_reads_endless_headers_is_keyed_by_all_of_them():
    async def authenticate(request):
        for number in range(MOST_READ + 5):
            request.headers.get(f"x-{number}")
        return Principal(name=request.headers.get("x-user", "nobody"))

    sign_in = SignIn(authenticate)
    for name in ("bob", "eve"):
        assert (await who(sign_in, SignInRequest(headers={"x-user": name}))).name == name
    assert sign_in._read == {"headers"}


# --- its answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("ann", "it returned 'ann'; return a Principal, a SignInRefusal or None"),
        (True, "it returned True"),
        (Principal, "it returned <class"),
        (Principal(name="a" * 201), "give at most 200 printable characters"),
        (Principal(name="a\nb"), "printable"),
    ],
)
async def test_an_answer_of_another_kind_is_a_failure_that_names_the_value(answer, words):
    async def authenticate(request):
        return answer

    failure = await who(SignIn(authenticate), bearer("a"))
    assert isinstance(failure, SignInFailure)
    assert words in str(failure.error)


class Unkind(BaseException):
    """An exception that is none of `Exception`."""


@pytest.mark.parametrize("error", [ValueError("x"), Unkind(), ExceptionGroup("g", [OSError()]), StopAsyncIteration()])
async def test_whatever_the_function_raises_is_a_failure_for_a_second(error, autojump_clock):
    calls = []

    async def authenticate(request):
        calls.append(request.token)
        raise error

    sign_in = SignIn(authenticate)
    for _ in range(3):
        assert not (await who(sign_in, bearer("a"))).late
    assert len(calls) == 1
    await trio.sleep(1.1)
    await who(sign_in, bearer("a"))
    assert len(calls) == 2


async def test_a_sync_function_is_a_function():
    assert (await who(SignIn(lambda request: ANN), bearer("a"))).name == "ann"


async def test_a_slow_function_is_late_and_disturbs_no_known_principal(autojump_clock):
    directory = Directory({"a": ANN})
    sign_in = SignIn(directory, seconds=60, limit=2)
    await sign_in.answer(bearer("a"))
    directory.seconds = 100
    started_at = trio.current_time()
    assert (await who(sign_in, bearer("b"))).late
    assert trio.current_time() - started_at == pytest.approx(2)
    assert (await who(sign_in, bearer("a"))).name == "ann"


async def test_calls_beyond_the_number_of_concurrent_ones_wait_and_are_late(autojump_clock):
    directory = Directory({str(number): ANN for number in range(5)}, seconds=1)
    sign_in = SignIn(directory, concurrent=2, limit=2.5)
    await sign_in.answer(SignInRequest())  # now the key has the token
    answers = []

    async def ask(number):
        answers.append(await who(sign_in, bearer(number)))

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(ask, number)
    assert sum(isinstance(answer, Principal) for answer in answers) == 4
    assert sum(isinstance(answer, SignInFailure) and answer.late for answer in answers) == 1


async def test_strangers_with_made_up_tokens_do_not_keep_people_waiting(autojump_clock):
    async def authenticate(request):
        token = request.token
        await trio.sleep(0.1)
        return Principal(name="ann") if token == "ann" else None

    sign_in = SignIn(authenticate, seconds=1, concurrent=8)
    await sign_in.answer(SignInRequest(token="ann"))

    async def strange(number):
        for again in count():
            await sign_in.answer(SignInRequest(token=f"{number}-{again}"))

    async with trio.open_nursery() as nursery:
        for number in range(1_000):
            nursery.start_soon(strange, number)
        for _ in range(3):
            await trio.sleep(1.5)
            began = trio.current_time()
            assert (await sign_in.answer(SignInRequest(token="ann"))).answer.name == "ann"
            assert trio.current_time() - began <= 0.21
        nursery.cancel_scope.cancel()


async def test_concurrent_requests_with_one_credential_are_one_call(autojump_clock):
    directory = Directory({"a": ANN}, seconds=1)
    sign_in = SignIn(directory)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(sign_in.answer, bearer("a"))
    assert directory.calls == 1


@pytest.mark.parametrize("step", [0.0, 0.5, 0.9])
async def test_a_cancelled_request_leaves_the_call_to_the_next_one(step, autojump_clock):
    directory = Directory({"a": ANN}, seconds=1)
    sign_in = SignIn(directory)
    answers = []

    async def follow():
        answers.append((await who(sign_in, bearer("a"))).name)

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as inner:
                inner.start_soon(sign_in.answer, bearer("a"))
                await wait_all_tasks_blocked()
                nursery.start_soon(follow)
                nursery.start_soon(follow)
                await trio.sleep(step)
                scope.cancel()
    assert answers == ["ann", "ann"]
    assert directory.calls == 2
    assert sign_in._calls == {}


async def test_answers_and_refusals_are_bounded_and_made_up_tokens_displace_no_principal():
    directory = Directory({"a": ANN})
    sign_in = SignIn(directory, entries=16)
    await sign_in.answer(bearer("a"))
    for number in range(1000):
        await sign_in.answer(bearer(f"made up {number}"))
    assert (len(sign_in._known), len(sign_in._refused)) == (1, 2)
    calls = directory.calls
    await sign_in.answer(bearer("a"))
    assert directory.calls == calls


async def test_a_person_who_was_refused_gets_in_five_seconds_after_being_added(autojump_clock):
    directory = Directory()
    sign_in = SignIn(directory, seconds=600)
    assert (await who(sign_in, bearer("a"))).message == "who is it?"
    directory.people["a"] = ANN
    await trio.sleep(5.1)
    assert (await who(sign_in, bearer("a"))).name == "ann"


# --- revocation ------------------------------------------------------------------------------------------------------


async def test_a_revoked_principal_is_asked_about_again_and_no_other():
    directory = Directory({"a": ANN, "b": Principal(name="bob")})
    sign_in = SignIn(directory)
    await sign_in.answer(bearer("a"))
    await sign_in.answer(bearer("b"))
    ended = []
    end = sign_in.listen(lambda name: ended.append(name) or 3)
    del directory.people["a"]
    assert sign_in.revoke("ann") == 3
    end()
    assert sign_in.revoke("ann") == 0
    assert ended == ["ann"]
    assert isinstance(await who(sign_in, bearer("a")), SignInRefusal)
    assert (await who(sign_in, bearer("b"))).name == "bob"
    assert directory.calls == 3


async def test_an_answer_on_its_way_is_not_used_after_a_revocation(autojump_clock):
    directory = Directory({"a": ANN}, seconds=1)

    async def authenticate(request):
        person = directory.people.get(request.token)
        await trio.sleep(1)
        return person

    sign_in, answers = SignIn(authenticate), []

    async def ask():
        answers.append(await who(sign_in, bearer("a")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(0.5)
        del directory.people["a"]
        sign_in.revoke("ann")
    assert answers == [None]


async def test_a_thread_without_trio_may_revoke():
    sign_in = SignIn(Directory({"a": ANN}))
    assert await trio.to_thread.run_sync(sign_in.revoke, "ann") == 0, "no gateway serves with it yet"
    threads = []
    sign_in.listen(lambda name: threads.append(trio.lowlevel.in_trio_run()) or 2)
    await sign_in.answer(bearer("a"))
    revoked = []
    thread = threading.Thread(target=lambda: revoked.append(sign_in.revoke("ann")))
    thread.start()
    await trio.to_thread.run_sync(thread.join)
    assert (revoked, threads) == ([2], [True])
    assert len(sign_in._known) == 0


# --- seals -----------------------------------------------------------------------------------------------------------


async def test_the_seal_of_a_principal_is_its_own_text_or_of_its_token_or_of_its_name():
    own = Principal(name="ann", token="s" * 16)
    assert (await who(SignIn(lambda request: own), bearer("a"))).token == "s" * 16

    def by_token(request):
        return Principal(name=f"n{request.token}")

    first, second = SignIn(by_token), SignIn(by_token)
    seals = [(await who(sign_in, bearer(token))).token for sign_in in (first, second) for token in "ab"]
    assert seals[:2] == seals[2:], "another process opens the seal, too"
    assert seals[0] != seals[1]
    named = SignIn(lambda request: Principal(name=request.headers["x-user"]))
    seals = [(await who(named, SignInRequest(headers={"x-user": name}))).token for name in ("ann", "bob", "ann")]
    assert seals[0] == seals[2] != seals[1]
    assert all(len(seal) == 64 for seal in seals)


# --- wrong input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SignIn(None), "authenticate=None: give an async function, or a SignIn"),
        (lambda: SignIn("f"), "authenticate='f'"),
        (lambda: SignIn(print, seconds=0), "SignIn(seconds=0): give a number above 0"),
        (lambda: SignIn(print, limit=-1), "SignIn(limit=-1)"),
        (lambda: SignIn(print, limit=math.inf), "SignIn(limit=inf)"),
        (lambda: SignIn(print, limit=math.nan), "SignIn(limit=nan)"),
        (lambda: SignIn(print, entries=True), "SignIn(entries=True)"),
        (lambda: SignIn(print, entries="9"), "SignIn(entries='9')"),
        (lambda: SignIn(print, concurrent=0), "SignIn(concurrent=0)"),
        (lambda: SignInRefusal(message="x", status=404), "status=404): give 401 or 403"),
        (lambda: SignInRefusal(message=""), "give a text of 1 to 300 characters"),
        (lambda: SignInRefusal(message="x" * 301), "give a text of 1 to 300 characters"),
        (lambda: SignInRefusal(message=None), "give a text"),
        (lambda: SignInRefusal(message="a\r\nb: c"), "must be printable"),
    ],
)
def test_what_cannot_be_a_sign_in_is_refused_in_words(make, words):
    with pytest.raises(UsageError) as caught:
        make()
    assert words in str(caught.value)
