"""The shapes of secrets: one expression that finds every place where a secret may be, or may begin.

The expression searches every text that leaves the private rows, so each part of it obeys two rules.

*Linear.* `re` holds the interpreter lock while it searches, so a search in quadratic time stops the process. No part
scans an unbounded run of characters from each of many starts: a part either matches (and the search continues behind
the match), or fails within a bounded number of characters, or scans a run that no other start of the same part scans
again. `tests/unit/contract/test_growth.py` measures every part.

*Cheap without a match.* A part begins with punctuation where the shape has some ("sk-" is found by its "-", JSON by the
quote after a key), because most text is letters. The text before is checked once the rest matches.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from typing import Final

import attrs

CUT: Final = r"(?=\Z|…|\n\[\.\.\. )"
"""The end of a text, or the mark of a cut: the text before may be the beginning of something longer."""
CUT_MARKS: Final = ("…", "\n[... ")
"""The beginnings of marks where text was left out."""
ENOUGH: Final = 8
"""Characters of a token after its head that are hidden at a cut; fewer reveal nothing of a key."""

_WORD: Final = r"A-Za-z0-9_\-"
_ALNUM: Final = "A-Za-z0-9"
_QUOTE: Final = "[\"']"
_BLANK: Final = r"[ \t]"
_BEARER: Final = r"A-Za-z0-9._~+/\-"


@attrs.frozen
class SecretShape:
    """Tokens with a head that a service gave them.

    Attributes:
        heads: their beginnings, all of one length and equal except for letters.
        letters: the characters after the head, as the inside of a character class.
        least: the least number of these characters.
        example: an invented token.
    """

    heads: tuple[str, ...]
    letters: str
    least: int
    example: str


TOKENS: Final = {
    "sk": SecretShape(("sk-",), _WORD, 16, "sk-proj-abcdefghijklmnop1234"),  # OpenAI, Anthropic, and others after them
    "xai": SecretShape(("xai-",), _WORD, 20, "xai-abcdefghijklmnopqrst1234"),
    "gitlab": SecretShape(
        (*("glpat-", "glrt-", "glptt-", "glcbt-", "gldt-", "glft-", "gloas-", "glimt-", "glagent-"), "glsoat-"),
        _WORD,
        16,
        "glpat-abcdefghijklmnop1234",
    ),
    "slack": SecretShape(("xoxa-", "xoxb-", "xoxp-", "xoxr-", "xoxs-"), r"A-Za-z0-9\-", 10, "xoxb-1234567890-abcdef"),
    "slackapp": SecretShape(("xapp-",), r"A-Za-z0-9\-", 10, "xapp-1-A012345678-123456"),
    "pypi": SecretShape(("pypi-",), _WORD, 40, "pypi-AgEIcHlwaS5vcmcCJDAwMDAwMDAwLTAwMDAtMDAwMA"),
    "github": SecretShape(("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), _ALNUM, 20, "ghp_abcdefghijklmnopqrst1234"),
    "githubpat": SecretShape(("github_pat_",), "A-Za-z0-9_", 20, "github_pat_11ABCDEFG0abcdefghij_klm"),
    "stripe": SecretShape(
        ("sk_live_", "sk_test_", "rk_live_", "rk_test_"), _ALNUM, 16, "sk_live_abcdefghijklmnop12345678"
    ),
    "webhook": SecretShape(("whsec_",), "A-Za-z0-9+/", 16, "whsec_abcdefghijklmnop12345678"),
    "npm": SecretShape(("npm_",), _ALNUM, 30, "npm_abcdefghijklmnopqrstuvwxyz0123456789"),
    "huggingface": SecretShape(("hf_",), _ALNUM, 30, "hf_abcdefghijklmnopqrstuvwxyz01234567"),
    "groq": SecretShape(("gsk_",), _ALNUM, 30, "gsk_abcdefghijklmnopqrstuvwxyz0123456789"),
    "docker": SecretShape(("dckr_pat_",), _WORD, 20, "dckr_pat_abcdefghijklmnopqrstuvw"),
    "shopify": SecretShape(
        ("shpat_", "shpca_", "shppa_", "shpss_"), "a-fA-F0-9", 32, "shpat_" + "0123456789abcdef" * 2
    ),
    "digitalocean": SecretShape(("dop_v1_", "doo_v1_", "dor_v1_"), "a-f0-9", 40, "dop_v1_" + "0123456789abcdef" * 4),
    "sendgrid": SecretShape(
        ("SG.",), r"A-Za-z0-9_\-.", 32, "SG.abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyz0123456789"
    ),
    "googleoauth": SecretShape(("ya29.",), _WORD, 20, "ya29.a0AfH6SMBabcdefghijklmnopqrstuvwxyz"),
    # Kinds of gitleaks' list (config/gitleaks.toml, 2026) whose heads end in punctuation, which few texts contain.
    "perplexity": SecretShape(("pplx-",), _ALNUM, 40, "pplx-" + "abcdefgh01234567" * 3),
    "postman": SecretShape(("PMAK-",), r"a-fA-F0-9\-", 40, "PMAK-" + "0123456789abcdef" * 3),
    "pulumi": SecretShape(("pul-",), "a-f0-9", 40, "pul-" + "0123456789abcdef" * 3),
    "brevo": SecretShape(("xkeysib-",), r"a-z0-9\-", 40, "xkeysib-" + "0123456789abcdef" * 4),
    "square": SecretShape(("sq0atp-", "sq0csp-"), _WORD, 22, "sq0atp-abcdefghijklmnop123456"),
    "age": SecretShape(("AGE-SECRET-KEY-",), "0-9A-Z", 40, "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0" * 3),
    "heroku": SecretShape(("HRKU-",), _WORD, 30, "HRKU-AA" + "abcdefgh01234567" * 3),
    "grafana": SecretShape(("glc_", "glsa_"), "A-Za-z0-9+/_", 32, "glsa_" + "abcdefgh01234567" * 2 + "_0123abcd"),
    "notion": SecretShape(("ntn_",), _ALNUM, 40, "ntn_12345678901" + "abcdefgh01234567" * 2),
    "linear": SecretShape(("lin_api_",), _ALNUM, 40, "lin_api_" + "abcdefgh01234567" * 3),
    "rubygems": SecretShape(("rubygems_",), "a-f0-9", 40, "rubygems_" + "0123456789abcdef" * 3),
    "prefect": SecretShape(("pnu_",), _ALNUM, 36, "pnu_" + "abcdefgh01234567" * 3),
    "planetscale": SecretShape(
        ("pscale_tkn_", "pscale_oauth_", "pscale_pw_"), r"A-Za-z0-9_=.\-", 32, "pscale_tkn_" + "abcdefgh01234567" * 2
    ),
    "sentry": SecretShape(("sntrys_", "sntryu_"), r"A-Za-z0-9+/=_\-", 40, "sntryu_" + "0123456789abcdef" * 4),
    "shippo": SecretShape(("shippo_live_", "shippo_test_"), "a-fA-F0-9", 40, "shippo_live_" + "0123456789abcdef" * 3),
    "vault": SecretShape(("hvs.", "hvb."), _WORD, 40, "hvs." + "abcdefgh01234567" * 6),
    "doppler": SecretShape(("dp.pt.",), _ALNUM, 40, "dp.pt." + "abcdefgh01234567" * 3),
    "aws": SecretShape(("AKIA", "ASIA", "ABIA", "ACCA"), "0-9A-Z", 16, "AKIAIOSFODNN7EXAMPLE"),
    "google": SecretShape(("AIza",), _WORD, 30, "AIzaSyA-abcdefghijklmnopqrstuvwxyz01234"),
}
"""Part of the expression -> its tokens."""

KEY_ENDS: Final = ("ord", "swd", "ase", "pwd", "ret", "key", "ken", "rer", "kie", "ial", "als", "ass", "ure")
PLURAL_ENDS: Final = ("rds", "wds", "ses", "ets", "eys", "ens", "ers", "ies")
_LAST: Final = "dDeEtTyYnNrRlLsS"
"""Last letters of the names in `SECRET_KEYS`: in almost every text they decide whether a name is worth reading."""

_TOKENS_OF: Final = (
    *("api", "auth", "access", "refresh", "id", "session", "bearer", "bot", "user", "security", "github", "gitlab"),
    *("slack", "jwt", "sas", "npm", "deploy", "vault", "service"),
)
_KEYS_OF: Final = (
    *("secret", "api", "access", "private", "priv", "account", "auth", "client", "db", "database", "encryption"),
    *("master", "service", "shared", "signing"),
)
_PASS_OF: Final = ("db", "database", "key", "user", "admin", "root", "mysql", "postgres", "smtp", "ftp", "redis")
SECRET_NAMES: Final = (
    *(
        "password",
        "pgpassword",
        "passwd",
        "passphrase",
        "pwd",
        "secret",
        "bearer",
        "authorization",
        "cookie",
        "credential",
        "credentials",
    ),
    *(f"{word}{between}key" for word in _KEYS_OF for between in ("", "_", "-")),
    *(f"{word}{between}token" for word in _TOKENS_OF for between in ("", "_", "-")),
    *(f"{word}{between}pass" for word in _PASS_OF for between in ("_", "-")),
    *(f"{word}{between}signature" for word in ("access", "amz", "goog") for between in ("", "_", "-")),
)
"""Names whose values are never shown, also with a prefix; `clientSecret` is read as `client_Secret`. An o before
them is that of oauth: a stream need not hold a word with an o back for that.

The kinds are those of detect-secrets' keyword detector and of gitleaks' generic rule.
"""
SECRET_KEYS: Final = re.compile(
    rf"(?i)(?:(?:^|[_\-. ])o?(?:{'|'.join(SECRET_NAMES)})|^token|^_auth)(?:_?[0-9]|_[0-9]{{2}})?\Z"
)
PLURAL_KEYS: Final = re.compile(rf"(?i)(?:^|[_\-. ])o?(?:{'|'.join(SECRET_NAMES)})s\Z")
"""Names of lists of secrets; a number under such a name is a count."""

UNMISTAKABLE: Final = re.compile(
    r"(?i)(?:password|passwd|passphrase|secretkey|apikey|accesskey|privatekey|accesstoken)\Z"
)
"""Keys of data that need no separator behind a prefix: DBPASSWORD. In a stream, a text may be cut at the prefix."""

LINE_KEYS: Final = re.compile(r"(?i)(?:authorization|cookie)\Z")
"""Names whose value in text is the rest of the line, whatever the value looks like."""

LONGEST_KEY: Final = 64
"""Characters of a name that are read: bounds the time at each place; no name in use is longer."""

KEY_TEXTS: Final = tuple(
    b64encode(b"-----BEGIN " + kind).decode() for kind in (b"PRIV", b"RSA ", b"EC P", b"DSA ", b"OPEN", b"ENCR")
)
"""The beginnings of private keys (PEM) in base64; those of certificates and most public keys differ."""

_PERSON: Final = r"[^\s/\\\"'`:;,<>()|*?\[\]{}$#&=…]{1,64}"
HOME: Final = rf"(?:home|Users)/{_PERSON}|root(?![\w\-])"
"""After a slash: a home directory, which names its user and the layout of the host."""


def _token(name: str, token: SecretShape) -> tuple[str, str]:
    """Return the part for a kind of token, from the end of its head if that is punctuation, else from the head."""
    letters, least = f"[{token.letters}]", token.least
    first_letters = min(ENOUGH, least)
    rest = f"(?P<{name}>{letters}{{{first_letters}}}(?:{letters}{{{least - first_letters},}}+|{letters}*+{CUT}))"
    if token.heads[0][-1] not in _ENDS_OF_HEADS:
        return token.heads[0][0], f"(?:{'|'.join(head[1:] for head in token.heads)}){rest}"
    behind = "|".join(f"(?<={re.escape(head)})" for head in token.heads)
    if name == "sk":  # part of a word it is none (task-...), unless the letter before is that of an escape
        behind = r"(?<=sk-)(?:(?<![A-Za-z0-9]sk-)|(?<=\\[nrtbf]sk-))"
    end = token.heads[0][-1]
    return end, f"{_BEHIND_HEADS[end]}(?:{behind}){rest}"


def _telling(separator: str, *, plural: bool = False) -> str:
    """Return a look-behind for a separator or quote: the name before may be one of `SECRET_KEYS`, or of the plurals."""
    groups = [[end for end in (*KEY_ENDS, *(PLURAL_ENDS if plural else ())) if end not in _BEFORE_END]]
    groups += [[end] for end in _BEFORE_END]
    ends = [
        "|".join(_BEFORE_END.get(end, "") + "".join(f"[{letter}{letter.upper()}]" for letter in end) for end in group)
        for group in (*groups, ["ization"])
    ]
    return f"(?:{'|'.join(f'(?<=(?:{end}){separator})' for end in ends)})"


def _numbered(separator: str) -> str:
    """Return the look-behinds of `_telling` for a name with a number: PASSWORD1, PASSWORD_1, PASSWORD_12."""
    numbers = ("[0-9]", "_[0-9]", "_[0-9][0-9]")
    behind = "|".join(f"(?<=[{_LAST}]{number}{separator}){_telling(number + separator)}" for number in numbers)
    return f"(?:{behind})"


_BEFORE_END: Final = {"key": r"[\w\-]", "ass": r"(?:[_\-.][pP]|[a-z0-9]P)"}
"""`key` and `pass` tell something only as part of a name: `key=` and `class=` are in many texts."""
_ENDS_OF_HEADS: Final = "-_."
_BEHIND_HEADS: Final = {
    end: f"(?<=[{''.join(sorted({head[-2] for token in TOKENS.values() for head in token.heads if head[-1] == end}))}]"
    f"{re.escape(end)})"
    for end in _ENDS_OF_HEADS
}
"""Last character of a head -> a look-behind for the one before it: lines of dashes and underscores are frequent."""
_BEHIND_NAME: Final = rf"(?<=[{_LAST} \t][=:])"
_BEHIND_QUOTED: Final = rf"(?<=[{_LAST}\\ ]{_QUOTE})"
_BEHIND_NUMBER: Final = "(?<=[0-9].)"
_BEFORE_LETTER: Final = "(?=[A-Za-z])"
_GUARDS: Final = (*_BEHIND_HEADS.values(), _BEHIND_NAME, _BEHIND_QUOTED, _BEFORE_LETTER)
"""The condition that all alternatives with one first character share is asked once, before them."""

_PARTS: Final = {
    **{name: _token(name, token) for name, token in TOKENS.items()},
    # A JSON web token, by its second part: each run between two dots is scanned once, whatever precedes it.
    "jwt": (".", rf"(?P<jwt>eyJ[{_WORD}]{{8,}}+(?:\.[{_WORD}]*+|{CUT}))"),
    "pem": (
        "-",
        (
            rf"{_BEFORE_LETTER}(?P<pem>BEGIN(?<=-----BEGIN) [A-Z0-9 ]{{0,32}}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:[\s\S]*?-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----|[\s\S]*))"
        ),
    ),
    "bearer": ("bB", rf"(?P<bearer>(?i:earer)\s{{1,8}}[{_BEARER}]{{8}}(?:[{_BEARER}]{{8,}}+=*|[{_BEARER}]*+{CUT}))"),
    "basic": ("bB", r"(?P<basic>(?i:asic)\s{1,8}[A-Za-z0-9+/_\-]{4,}+={0,2})"),
    # A URL with a password. Where the text is cut a number is a port, and anything else may be a password.
    "url": (
        ":",
        (
            r"/(?P<url>/(?:[^\s/:@\"]{0,256}:"
            rf"(?:[^\s/\"]{{1,256}}@|(?![0-9]{{0,5}}{CUT})[^\s/@\"…\[]{{3,256}}{CUT})"
            # a token as the user
            r"|(?=[A-Za-z_.\-]{0,256}[0-9])(?=[0-9_.\-]{0,256}[A-Za-z])[A-Za-z0-9_.\-]{16,256}@))"
        ),
    ),
    # jdbc:oracle:thin:user/password@host
    "jdbc": (
        ":",
        (
            r"(?<=[in]:)(?P<jdbc>(?:(?<=:oracle:thin:)|(?<=:oracle:oci:))[^\s/@\"'…]{1,64}"
            rf"(?:\Z|/[^\s@\"'…]{{0,256}}(?:@|{CUT})))"
        ),
    ),
    # host:5432:database:user:password
    "pgpass": (
        ":",
        r"5(?P<pgpass>43[0-9]:[^\s:]{1,40}:[^\s:]{1,40}:(?:[^\s…]{6,256}|[^\s…]{0,5}\Z))",
    ),
    # "password": in JSON and Python text, also inside another text, where the quotes have backslashes.
    # Behind a comma the value is the other half of a pair, or the next word of a command line.
    "quoted": (
        "\"'",
        (
            rf"{_BEHIND_QUOTED}(?P<quoted>(?=[:=,\s\]])(?<! {_QUOTE})"
            rf"(?:{_telling(_QUOTE, plural=True)}|(?<=\\{_QUOTE})))"
        ),
    ),
    # PASSWORD 'x', IDENTIFIED BY 'x'
    "statement": (
        "\"'",
        (
            rf"{_BEHIND_QUOTED}(?P<statement>(?<=[dDyY] {_QUOTE})"
            rf"(?:(?<=[wW][oO][rR][dD] {_QUOTE})|(?<=[bB][yY] {_QUOTE})))"
        ),
    ),
    # password=..., Authorization: ...
    "named": ("=:", rf"{_BEHIND_NAME}(?P<named>(?<=[{_LAST}][=:]){_telling('[=:]', plural=True)})"),
    # password = ..., also in a column of them
    "spaced": (
        "=:",
        (
            rf"{_BEHIND_NAME}(?P<spaced>(?<=[ \t][=:])(?:(?<=[ \t][ \t][=:])|{_telling(_BLANK + '[=:]')}"
            rf"|(?<=[0-9] [=:]){_numbered(' [=:]')}))"
        ),
    ),
    # PASSWORD_1=..., "password2": ...
    "numbered": ("=:\"'", rf"{_BEHIND_NUMBER}(?P<numbered>{_numbered('[=:' + _QUOTE[1:])})"),
    # _auth=...
    "npmrc": ("=", r"(?<=h=)(?P<npmrc>(?<=_auth=))"),
    # password%3D...
    "percent": ("%", rf"(?P<percent>3[dD]{_telling('%3[dD]')})"),
    # "name": "PASSWORD", "value": "..."
    "value": ("=:\"'", r"(?<=[eE].)(?P<value>(?:(?<=[vV]alue[=:\"'])|(?<=VALUE[=:\"'])))"),
    # <password>...</password>
    "element": (">", rf"(?<=[{_LAST}]>)(?P<element>{_telling('>')})"),
    # <password type="...">...</password>
    "tag": (
        "<",
        (
            rf"[A-Za-z](?P<tag>[\w.:\-]{{2,64}}+\s(?<=[{_LAST}]\s){_telling(chr(92) + 's')}"
            r"[^<>=]{0,128}+(?:\Z|=[^<>]{0,512}+(?:>|\Z)))"
        ),
    ),
    # <key>password</key><string>...</string>
    "plist": (">", r"(?<=g>)(?P<plist>(?<=<string>))"),
    # --password ...
    "option": ("-", rf"{_BEFORE_LETTER}(?P<option>(?<=--)(?!user[=\"',\s])(?:(?<=[\s\"'`(\[,]--)|(?<=\A--)))"),
    # curl -u name:password, --user name:password
    "user": (
        "-",
        (
            rf"{_BEFORE_LETTER}(?P<user>u(?:(?<=[\s\"']-u)|(?<=\A-u)|ser(?:(?<=[\s\"']--user)|(?<=\A--user)))"
            r"[=\"',\s]{1,4}[^\s:=\"']{1,64}:[^\s\"']{3,256})"
        ),
    ),
    "slackhook": (
        "/",
        (
            rf"{_BEFORE_LETTER}(?P<slackhook>(?<=hooks\.slack\.com/)"
            r"(?:services|workflows|triggers)/[A-Za-z0-9+/]{20,256})"
        ),
    ),
    "telegram": (":", r"A(?P<telegram>(?<=[0-9]{8}:A)A[A-Za-z0-9_\-]{30,64})"),
    # A private key whose text is base64 again; its last line, with the end mark of the key, may be shorter. The lines
    # are an atomic group and not `(...)*+`: Python before 3.11.5 matches a possessive group too short
    # (python/cpython#106052).
    "keytext": (
        "L",
        (
            rf"(?P<keytext>(?:{'|'.join(head[1:] for head in KEY_TEXTS)})"
            r"[A-Za-z0-9+/_\-]*+(?>(?:\s{1,8}[A-Za-z0-9+/]{40,}+)*)={0,2}(?:\s{1,8}[A-Za-z0-9+/]{0,39}+\Z)?)"
        ),
    ),
    "home": ("/", rf"{_BEFORE_LETTER}(?P<home>(?<![\w.\-~]/)(?:{HOME})|(?<=\\[nrt]/)(?:{HOME}))"),
    "windows": (":", rf"[\\/](?P<windows>(?<=[A-Za-z]:.)[\\/]?(?i:users)[\\/]{{1,2}}{_PERSON})"),
}
"""Name -> (characters that the part may begin with, the rest, which has a group of that name)."""


def alternatives(name: str) -> list[tuple[str, str]]:
    """Return the alternatives of one part: each possible first character, with the rest.

    A group has one name per alternative: the part's, with a digit if there are several.
    """
    first, rest = _PARTS[name]
    return [
        (first_letters, rest.replace(f"?P<{name}>", f"?P<{name}{n or ''}>")) for n, first_letters in enumerate(first)
    ]


def expression(parts: Iterable[tuple[str, str]]) -> str:
    """Return one expression of many alternatives, each a character and a rest.

    `re` skips to the next character that begins an alternative if each of them begins with one plain character. There
    it tries them in order: so alternatives with one first character are merged, and the most frequent characters come
    first.
    """
    by_first: dict[str, list[str]] = {letter: [] for letter in _FREQUENT}
    for first, rest in parts:
        by_first.setdefault(first, []).append(rest)
    return "|".join(f"{re.escape(first)}(?:{_guarded(rests)})" for first, rests in by_first.items() if rests)


def _guarded(rests: Iterable[str]) -> str:
    by_guard: dict[str, list[str]] = {}
    for rest in rests:
        guard = next(filter(rest.startswith, _GUARDS), "")
        by_guard.setdefault(guard, []).append(rest.removeprefix(guard))
    return "|".join(f"{guard}(?:{'|'.join(behind)})" for guard, behind in by_guard.items())


_FREQUENT: Final = "\"':/.-_="
PARTS: Final = {name: alternatives(name) for name in _PARTS}
"""Name -> its alternatives, for `expression`."""
