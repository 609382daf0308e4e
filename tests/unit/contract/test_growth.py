"""No text stops the process: what reads foreign text takes time in proportion to its length.

`re` holds the interpreter lock while it searches: a search in quadratic time over 400 kB is half a minute in which
nothing else runs. So each pattern is measured with the worst texts that are known for it. The time is that of the
thread on the processor, which other programs on a busy machine do not change.
"""

import os
import random
from collections.abc import Callable, Sequence
from itertools import count
from time import thread_time

import pytest

from greenroom.actors.contract.secrets.redaction import MASK, Redactor
from greenroom.actors.contract.secrets.shapes import PARTS, TOKENS
from greenroom.actors.contract.stop import ContentMatch
from greenroom.actors.models.answers import read_output_type
from greenroom.actors.services.stream_redaction import StreamRedactor
from greenroom.actors.tools.docstrings import parameter_texts

pytestmark = pytest.mark.no_cover

SIZES = (16_384, 65_536, 262_144, 1_048_576)
TOLERANCE = 3.0
"""How much slower per character the large text may be. Linear: 1, caches may make it 2. Quadratic: 4, 16, 64."""
CLEAR = 1.2
"""Below this a text is clearly read in linear time. A quadratic share too small to show between 16 and 64 KiB costs
less than five times the linear share at 1 MiB."""
TRIES = 6
FULL = os.environ.get("GREENROOM_CHAOS") == "full"
"""Measure all sizes of each text, as `make chaos` does; else a text that is clearly linear is done at 64 KiB."""

NAMED = ("canary-7f3a9", "aaaaaaaaaaaa", "correct horse battery")
Text = Callable[[int], str]


def again(unit: str, before: str = "", behind: str = "") -> Text:
    return lambda size: before + unit * max(1, (size - len(before) - len(behind)) // len(unit)) + behind


def worst_of_token(name: str) -> list[Text]:
    token = TOKENS[name]
    head, letter = token.heads[0], token.example[len(token.heads[0])]
    few = letter * (token.least - 1)
    return [
        again(head),
        again(head + few),
        again(letter, head, "\0"),
        again(head + few + " "),
    ]


WORST: dict[str, list[Text]] = {
    **{name: worst_of_token(name) for name in TOKENS},
    "jwt": [
        again("eyJ"),
        again("eyJ", ".", "\0"),
        again(".eyJ"),
        again(".eyJaaaaaaaa"),
        again("eyJaaaaaaaa.", "", "\0"),
        again("a", "eyJaaaaaaaa.eyJ"),
        again("eyJ", "a" * 50 + ".eyJaaaaaaaa", "\0"),
        again(".eyJaaaaaaaa.a "),
        again("a" * 4096 + ".eyJaaaaaaaa!"),
    ],
    "pem": [
        again("-----BEGIN "),
        again("-----BEGIN PRIVATE KEY-----"),
        again("-----END ", "-----BEGIN PRIVATE KEY-----"),
        again("-----BEGIN " + "A" * 33),
        again("-"),
        again("-----BEGIN PRIVATE KEY-----a-----END PRIVATE KEY-----"),
    ],
    "bearer": [
        again("bearer "),
        again("Bearer" + " " * 9),
        again("bearer a"),
        again(" ", "bearer"),
        again("bearer aaaaaaaa="),
    ],
    "basic": [
        again("basic "),
        again("a", "basic "),
        again("basic aaaa"),
        again("basic aaaa "),
        again("basic aaaa=="),
        again("Basic dXNlcjpwYXNz "),
        again("basic basic"),
    ],
    "url": [
        again("://"),
        again("://a:"),
        again(":"),
        again("://" + "a" * 255 + ":"),
        again("a:", "://"),
        again("://a:bcdef…"),
        again("://" + "a1" * 128 + " "),
        again("://abcdefghijklmnop1@"),
    ],
    "quoted": [
        again('"password": '),
        again('"password": "'),
        again('"password": {'),
        again('"password": [[['),
        again("{", '"password": '),
        again('\\"', '"password": "'),
        again("\\", '"password": ', '"'),
        again('"password": \\"a\\\\'),
        again('password"'),
        again("password\\"),
        again('\\"'),
        again('\\":'),
        again('a"'),
        again('"key" :'),
        again('"', '"password": {'),
        again('{"password": null} '),
        again("'password': 'a',"),
        again(" ", '"password":', '"'),
        again('["password"] = '),
        again('["password"] = "a" '),
        again('name="password"\n\n'),
        again('name="password"\n\na\n'),
    ],
    "named": [
        again("password: |\n"),
        again("password: |\n a\n"),
        again(" a\n", "password: |\n"),
        again("- abcdefg\n", "passwords:\n"),
        again("passwords:\n - abcdefg\n"),
        again("passwords: ["),
        again("password="),
        again("password=abc "),
        again("password:"),
        again("authorization: "),
        again("a", "password="),
        again("token="),
        again("key="),
        again("="),
        again('password="'),
        again("cookie:a\n"),
        again("a_", "", "password=1"),
        again("password=12345678"),
        again("password: str"),
        again("password: a | b | c = "),
        again("password: a[" + "b" * 60 + "] = "),
        again('password: str = "a" '),
        again("password:: "),
        again("password::"),
        again("password: \u201c"),
        again("password: \u201ca\u201d"),
        again("\u201c", "password: \u201e"),
    ],
    "spaced": [
        again("password  = "),
        again("password   ="),
        again("  ="),
        again(" " * 64 + "="),
        again('password = "'),
        again("api_token = a"),
        again("password  : |\n"),
    ],
    "numbered": [
        again("password_1="),
        again("password1 = "),
        again('"password_12": "'),
        again("password_12:"),
        again("password1=abc "),
        again("e1="),
        again('"d_12"'),
    ],
    "npmrc": [
        again("_auth="),
        again("h="),
        again("_auth=abc "),
    ],
    "percent": [
        again("password%3D"),
        again("%3D"),
        again("%26password%3Dabc1234"),
        again("%", "password%3D"),
        again("%26", "password%3D"),
    ],
    "tag": [
        again("<password a="),
        again("<password a='b'>"),
        again("<password " + "a" * 128),
        again("<password a=" + "b" * 513),
        again("<" + "a" * 64),
        again("<"),
        again("<password a='b'/>"),
    ],
    "plist": [
        again("<string>"),
        again("</key><string>"),
        again("password</key>" + " " * 30 + "<string>"),
        again("password</key><string>"),
        again("</key>" + " " * 40 + "<string>"),
    ],
    "keytext": [
        again("LS0tLS1CRUdJTiBQUklW"),
        again("LS0tLS1CRUdJTiBQUklW\n"),
        again("a" * 40 + "\n", "LS0tLS1CRUdJTiBQUklW\n"),
        again("a" * 39 + "\n", "LS0tLS1CRUdJTiBQUklW\n"),
        again(" ", "LS0tLS1CRUdJTiBQUklW"),
        again("L"),
    ],
    "jdbc": [
        again(":oracle:thin:"),
        again(":oracle:thin:a/"),
        again(":oracle:thin:" + "a" * 64 + "/"),
        again("a", ":oracle:thin:b/"),
        again(":oracle:oci:a/b@"),
    ],
    "pgpass": [
        again(":5432"),
        again(":5432:a:b:"),
        again(":5432:" + "a" * 40 + ":" + "b" * 40 + ":c "),
        again(":5432:a:b:abcdefgh "),
        again("a", ":5432:a:b:"),
    ],
    "value": [
        again('"value":'),
        again("value="),
        again('"name": "password", "value": "'),
        again('password", "value": \'a'),
        again("password, " + " " * 40 + "value: a"),
        again('"value": "a", '),
        again('"value": "' + "a" * 511),
        again('value="a", "name": "'),
    ],
    "element": [
        again("<password>"),
        again("password>"),
        again("<password>a"),
        again("<password> "),
        again("<password><![CDATA["),
        again(" ", "<password>", "<"),
    ],
    "option": [
        again(" --"),
        again(" --a"),
        again(" --password "),
        again(' --password "'),
        again("'--password', '"),
        again(" --" + "a" * 63),
    ],
    "statement": [
        again("password '"),
        again("by '"),
        again("identified by '"),
        again("password 'a\n"),
        again("password 'aaaaaaa"),
    ],
    "user": [
        again(" -u"),
        again(" -u a:"),
        again(" -u " + "a" * 64),
        again(" -u a:bcd"),
        again(" -u a:bc1d2e"),
    ],
    "slackhook": [
        again("hooks.slack.com/services/"),
        again("hooks.slack.com/"),
        again("a", "hooks.slack.com/services/"),
    ],
    "telegram": [
        again("12345678:"),
        again("12345678:AA"),
        again("a", "12345678:AA", "\0"),
    ],
    "home": [
        again("/home/"),
        again("/"),
        again("/root"),
        again("/home/a"),
        again("/Users/" + "a" * 65),
        again("\\n/home/a"),
    ],
    "windows": [again("C:\\Users\\"), again("C:"), again("C:\\\\Users\\\\a"), again("C:/users/")],
}
NAMED_TEXTS = [
    again("canary"),
    again("canary-7f3a"),
    again("canary-7f3a9"),
    again("a"),
    again("aaaaaaaaaaa "),
    again("correct horse "),
    again("canary…"),
    again("canary\n[... "),
]
FRAGMENTS = (
    *(
        "eyJ",
        ".",
        "aaaaaaaa",
        "-----BEGIN ",
        "PRIVATE KEY-----",
        "bearer ",
        "basic ",
        "://",
        ":",
        "@",
        "/home/",
        "a",
        " ",
        "\n",
    ),
    *(
        '"',
        "'",
        "\\",
        "password",
        "token",
        "=",
        "{",
        "}",
        "canary",
        "-7f3a9",
        "…",
        "sk-",
        "ghp_",
        "SG.",
        "correct horse ",
    ),
)


def compound(seed: int) -> Text:
    """A text that repeats a random sequence of what the patterns look for."""
    dice = random.Random(seed)
    return again("".join(dice.choices(FRAGMENTS, k=dice.randint(2, 6))), *dice.choices(FRAGMENTS, k=2))


def fastest(work: Callable[[str], object], text: str) -> float:
    """Seconds of the processor, of the best of a few tries."""
    best = spent = 0.0
    for tries in count(1):
        started_at = thread_time()
        work(text)
        took = thread_time() - started_at
        best, spent = min(best, took) if tries > 1 else took, spent + took
        if tries >= 3 or spent > 0.003:
            return best
    raise AssertionError


def assert_linear(work: Callable[[str], object], text: Text, sizes: Sequence[int] = SIZES) -> None:
    """The time per character does not grow with the text.

    Each size is measured once the smaller ones are known to be linear, because a quadratic search of the next one
    would take minutes; the largest are left out if the smaller ones are clear. What looks bad is measured again, with
    the smallest size: one measurement of a linear function may look bad, but not six.
    """
    small = text(sizes[0])
    base = fastest(work, small) / len(small)
    for size in sizes[1:]:
        large = text(size)
        for _ in range(TRIES):
            took = fastest(work, large)
            relative = took / len(large) / base
            if relative <= TOLERANCE:
                break
            if relative > 4 * TOLERANCE:  # no machine is that busy, and trying again would take minutes
                raise AssertionError(f"time per character grows: {relative:.1f} at {size} for {text(80)[:80]!r}")
            base = max(base, fastest(work, small) / len(small))
        else:
            raise AssertionError(f"time per character grows: {relative:.1f} at {size} for {text(80)[:80]!r}")
        if relative <= CLEAR and not FULL:
            return


PLAIN, WITH_NAMED = Redactor(), Redactor(NAMED)
HOLD, HOLD_WITH_NAMED = StreamRedactor(PLAIN), StreamRedactor(WITH_NAMED)
HELD_SIZES = (16_384, 65_536)
"""No stream looks at more than a piece of 65,536 characters at a time."""


def test_every_part_of_the_expression_has_worst_texts():
    assert set(WORST) == set(PARTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORST)
def test_each_secret_pattern_is_linear_in_the_length_of_hostile_texts(name):
    for text in WORST[name]:
        assert_linear(PLAIN.text, text)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORST)
def test_holding_back_is_linear_in_the_worst_texts(name):
    for text in WORST[name][:2]:
        assert_linear(HOLD.settled, text, HELD_SIZES)


@pytest.mark.slow
@pytest.mark.parametrize("work", [WITH_NAMED.text, WITH_NAMED.within("/srv/aaaa").text], ids=["runtime", "run"])
def test_named_secrets_are_found_in_linear_time(work):
    for text in (*NAMED_TEXTS, again("/srv/aaa"), again("/srv/aaaa")):
        assert_linear(work, text)


@pytest.mark.slow
def test_named_secrets_are_held_back_in_linear_time():
    for text in NAMED_TEXTS:
        assert_linear(HOLD_WITH_NAMED.settled, text, HELD_SIZES)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_texts_of_all_patterns_together_are_linear(seed):
    assert_linear(WITH_NAMED.text, compound(seed))


ANSWER = read_output_type("agent", int)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "text"),
    [
        (ANSWER.check, again(" ", "```\n", "x")),
        (ANSWER.check, again("\n", "```json\n", "x")),
        (ANSWER.check, again("``` ", "```\n", "x")),
        (ANSWER.check, again(" ", "", "x")),
        (lambda text: parameter_texts(type("Documented", (), {"__doc__": f"x\n\nArgs:\n    {text}"})), again("a")),
        (
            lambda text: parameter_texts(type("Documented", (), {"__doc__": f"x\n\nArgs:\n    {text}"})),
            again(" ", "a", "b"),
        ),
        (
            lambda text: parameter_texts(type("Documented", (), {"__doc__": f"x\n\nArgs:\n    {text}"})),
            again("(", "a "),
        ),
    ],
)
def test_other_readers_of_foreign_text_are_linear(work, text):
    assert_linear(work, text)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(.*a){12}b", r"(\w+\s?)+!", "a*a*a*b"])
def test_a_content_match_is_linear_for_any_pattern(pattern):
    assert_linear(ContentMatch(pattern).met, again("a", "", "\0"))


def test_the_measurement_of_growth_finds_quadratic_work():
    """The check above can fail: this work reads the text once for each 512 characters."""
    with pytest.raises(AssertionError, match="grows"):
        assert_linear(lambda text: [text.count("b") for _ in range(len(text) // 512)], again("a"))


def test_the_text_that_stopped_the_process_is_read_in_no_time():
    """A quarter of a megabyte took 16 s. The bound is far above what a busy machine needs, and far below that."""
    text = "eyJ" * 87_000
    started_at = thread_time()
    assert MASK not in Redactor().text(text)
    assert thread_time() - started_at < 5
