"""`Authenticator`: who sends a request, and the end of open connections whose principal is let in no more."""

import logging

import h11
import pytest
import trio
from tests.unit.transport.test_sign_in import Directory

import greenroom as gr
from greenroom.transport import Principal, SignIn, SignInRefusal
from greenroom.transport.gateway.access import SeesFailed, TokenTable
from greenroom.transport.gateway.request_head import read_head
from greenroom.transport.gateway.sign_ins.authenticator import Authenticator
from greenroom.transport.protocol.codes import ERRORS, Refused

OPERATOR = Principal(name="operator", token="o" * 16)
ANN, BOB = Principal(name="ann"), Principal(name="bob", scopes={"follow"})


def head(token=None, **headers):
    fields = [("host", "x"), *headers.items()]
    if token is not None:
        fields.append(("authorization", f"Bearer {token}"))
    return read_head(h11.Request(method="GET", target="/v1/runs", headers=fields), "127.0.0.1")


class Log(list):
    def __call__(self, what, error):
        self.append((what, error))


async def read_info(run_id):
    return f"info of {run_id}"


def made(*sign_ins, log=print, read_info=read_info):
    return Authenticator(TokenTable([OPERATOR]), sign_ins, log, read_info)


async def refused(asking):
    with pytest.raises(Refused) as caught:
        await asking
    return caught.value


# --- who sends a request ---------------------------------------------------------------------------------------------


async def test_the_principals_of_serve_come_first_and_the_function_is_not_asked_about_them():
    directory = Directory({"a": ANN})
    authenticator = made(SignIn(directory))
    assert await authenticator.of_head(head(OPERATOR.token)) is OPERATOR
    assert await authenticator.of_hello(head(), OPERATOR.token) is OPERATOR
    assert directory.calls == 0
    assert (await authenticator.of_head(head("a"))).name == "ann"
    assert (await authenticator.of_hello(head(), "a")).name == "ann"
    assert await authenticator.of_head(head()) is None


async def test_the_first_sign_in_with_an_answer_decides():
    async def proxied(request):
        name = request.headers.get("x-user")
        return None if name is None else Principal(name=name)

    authenticator = made(SignIn(proxied), SignIn(Directory({"a": ANN})))
    assert (await authenticator.of_head(head("a", x_user="no"))).name == "ann"  # an underscore is another name
    assert (await authenticator.of_head(head("a", **{"x-user": "bob"}))).name == "bob"
    assert (await refused(authenticator.of_head(head("b")))).error.code == "unauthenticated"


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (SignInRefusal(message="your session has expired"), "unauthenticated", "your session has expired"),
        (SignInRefusal(message="not in this team", status=403), "not_allowed", "not in this team"),
        (None, "unauthenticated", "holds no token that is known here"),
        ("ann", "internal", "the sign-in failed; a bug"),
        (Principal(name="operator"), "not_allowed", "'operator' belongs to a principal"),
    ],
)
async def test_each_answer_that_lets_nobody_in_is_a_refusal_with_its_text(answer, code, words):
    async def authenticate(request):
        return request.token and answer

    error = await refused(made(SignIn(authenticate), log=Log()).of_head(head("a")))
    assert error.error.code == code
    assert words in error.message


async def test_a_failure_is_logged_once_in_a_second_however_many_strangers_cause_it(autojump_clock, caplog):
    async def authenticate(request):
        if request.token == "slow":
            await trio.sleep(100)
        raise RuntimeError(request.token)

    log = Log()
    authenticator = made(SignIn(authenticate, limit=2), log=log)
    for number in range(50):
        await refused(authenticator.of_head(head(str(number))))
    assert [(what, str(error)) for what, error in log] == [("authenticate", "0")]
    with caplog.at_level(logging.WARNING):
        error = await refused(authenticator.of_head(head("slow")))
    assert (error.error.code, error.error.status, error.error.retry) == ("sign_in_unavailable", 503, True)
    assert "authenticate did not answer in time" in caplog.text


# --- open connections ------------------------------------------------------------------------------------------------


class Opened:
    """An open connection: the watch, and how it has ended."""

    def __init__(self, authenticator, principal, token):
        self.ended, self.runs = None, set()
        self.watch = authenticator.begin(principal, head(), token, self.end, lambda: self.runs)

    def end(self, code, reason):
        assert self.ended is None
        self.ended = (code.code, reason, trio.current_time())


async def begun(authenticator, token):
    return Opened(authenticator, await authenticator.of_hello(head(), token), token)


async def test_open_connections_end_once_the_function_refuses_and_all_others_stay(autojump_clock):
    directory = Directory({"a": ANN, "b": BOB})
    authenticator = made(SignIn(directory, seconds=30))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(authenticator.run)
        operator = Opened(authenticator, OPERATOR, None)
        assert operator.watch is None, "never asked about again"
        ann, more, bob = [await begun(authenticator, token) for token in "aab"]
        await trio.sleep(100)
        assert (ann.ended, more.ended, bob.ended) == (None, None, None)
        assert directory.calls == 2 * 4, "one call for a credential and period, not for a connection"
        removed_at = trio.current_time()
        del directory.people["a"]
        await trio.sleep(60)
        assert ann.ended[:2] == more.ended[:2] == (4401, "who is it?")
        assert max(ann.ended[2], more.ended[2]) - removed_at <= 30 + 1, "within `seconds` and a round"
        assert bob.ended is None
        authenticator.finish(bob.watch)
        calls = directory.calls
        await trio.sleep(100)
        assert directory.calls == calls, "nobody is asked about a connection that has ended"
        nursery.cancel_scope.cancel()


async def test_a_revoked_principal_is_ended_immediately(autojump_clock):
    sign_in = SignIn(Directory({"a": ANN, "b": BOB}))
    authenticator = made(sign_in)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(authenticator.run)
        ann, bob = await begun(authenticator, "a"), await begun(authenticator, "b")
        await trio.sleep(5)
        assert sign_in.revoke("ann") == 1
        assert ann.ended == (4401, "the sign-in of ann was revoked", trio.current_time())
        assert bob.ended is None
        assert sign_in.revoke("ann") == 0
        nursery.cancel_scope.cancel()
    assert sign_in.revoke("bob") == 0, "the gateway has stopped listening"


async def test_a_connection_ends_if_it_follows_a_run_that_its_person_may_not_see_any_more(autojump_clock):
    hidden = set()

    async def authenticate(request):
        return Principal(name="ann", sees=lambda info: info not in hidden)

    authenticator = made(SignIn(authenticate, seconds=10))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(authenticator.run)
        one, two, lists = [await begun(authenticator, "a") for _ in range(3)]
        one.runs, two.runs = {"run-1", "run-2"}, {"run-1"}
        await trio.sleep(12)
        hidden.add("info of run-2")
        await trio.sleep(12)
        assert one.ended[:2] == (1012, "a run that this connection follows is not visible any more; connect again")
        assert (two.ended, lists.ended) == (None, None)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("fault", [gr.StoreUnavailable("no store"), SeesFailed("a bug")])
async def test_if_nobody_can_say_what_a_person_may_see_a_connection_lasts_as_long_as_an_answer(fault, autojump_clock):
    is_broken = False

    async def read(run_id):
        if is_broken:
            raise fault
        return f"info of {run_id}"

    async def authenticate(request):
        return Principal(name="ann", sees=lambda info: True)

    authenticator = made(SignIn(authenticate, seconds=10), log=Log(), read_info=read)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(authenticator.run)
        ann = await begun(authenticator, "a")
        await trio.sleep(12)
        ann.runs, is_broken = {"run-1"}, True
        await trio.sleep(15)
        assert ann.ended is None
        await trio.sleep(15)
        assert ann.ended[0] == 1011
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (Principal(name="ann", scopes={"follow"}), "the scopes of ann have changed; connect again"),
        (Principal(name="anne"), "the scopes of ann have changed"),
        (SignInRefusal(message="left the company", status=403), "left the company"),
        (None, "who is it?"),
    ],
)
async def test_an_open_connection_ends_if_the_answer_is_another_one(changed, words, autojump_clock):
    directory = Directory({"a": ANN})
    authenticator = made(SignIn(directory, seconds=10))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(authenticator.run)
        ann = await begun(authenticator, "a")
        directory.people["a"] = changed
        await trio.sleep(12)
        assert words in ann.ended[1]
        assert ann.ended[0] == (4403 if "company" in words else 4401)
        nursery.cancel_scope.cancel()


async def test_another_predicate_of_the_same_person_counts_from_the_next_answer_on(autojump_clock):
    seen = []

    async def authenticate(request):
        answers = seen.copy()
        return Principal(name="ann", sees=lambda info: info in answers)

    authenticator = made(SignIn(authenticate, seconds=10))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(authenticator.run)
        ann = await begun(authenticator, "a")
        assert not ann.watch.principal.sees("run-1")
        seen.append("run-1")
        await trio.sleep(12)
        assert ann.ended is None
        assert ann.watch.principal.sees("run-1")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("how", ["raises", "hangs"])
async def test_a_failing_function_ends_open_connections_only_after_the_time_of_an_answer(how, autojump_clock):
    directory, broken = Directory({"a": ANN}), False

    async def authenticate(request):
        if broken and how == "raises":
            raise OSError("the directory is down")
        if broken:
            await trio.sleep_forever()
        return await directory(request)

    authenticator = made(SignIn(authenticate, seconds=30, limit=3), log=Log())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(authenticator.run)
        ann = await begun(authenticator, "a")
        broken = True
        await trio.sleep(50)
        assert ann.ended is None
        broken = False
        await trio.sleep(10)
        assert ann.watch.failing is None, "one good answer makes up for all failures"
        broken, broken_at = True, trio.current_time()
        await trio.sleep(120)
        code, _, at = ann.ended
        assert code == (1011 if how == "raises" else 1013)
        assert 30 <= at - broken_at <= 30 + 30 + 3 + 5 + 2, "an answer's time, then as long again"
        assert ERRORS["internal" if how == "raises" else "sign_in_unavailable"].status >= 500
        nursery.cancel_scope.cancel()


async def test_many_open_connections_are_asked_about_a_few_at_a_time(autojump_clock):
    working = most = 0

    async def authenticate(request):
        nonlocal working, most
        token, working = request.token, working + 1
        most = max(most, working)
        await trio.sleep(0.01)
        working -= 1
        return Principal(name=token)

    authenticator = made(SignIn(authenticate, seconds=5, concurrent=1000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(authenticator.run)
        opened = [await begun(authenticator, str(number)) for number in range(300)]
        most = 0
        await trio.sleep(20)
        assert 1 < most <= 64
        assert all(one.ended is None for one in opened)
        nursery.cancel_scope.cancel()


async def test_the_watch_begins_again_after_a_crash(autojump_clock):
    directory = Directory({"a": ANN})
    sign_in = SignIn(directory, seconds=5)
    authenticator = made(sign_in)
    ann = await begun(authenticator, "a")
    for _ in range(2):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(authenticator.run)
            await trio.sleep(3)
            nursery.cancel_scope.cancel()
    assert sign_in._listeners == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(authenticator.run)
        directory.people.clear()
        await trio.sleep(10)
        assert ann.ended is not None
        nursery.cancel_scope.cancel()
