"""A file of tokens: who may use a gateway, changed by `greenroom token` and by hand, and read again while it serves.

The file has a line for each token, and comments:

    # NAME   SCOPES            EXPIRES               SHA-256
    ann      decide,follow     2027-01-31T00:00:00Z  9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    nightly  follow,start,own  never                 60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752

The word `own` among the scopes: the token sees only the runs that its principal has started. Several tokens may have
one name, such as an old and a new one during a change.

The file has digests only, so whoever reads it cannot sign in. A plain SHA-256 is enough: slow and salted hashes protect
passwords, which people choose and others can guess, and a token of `greenroom token add` is 192 random bits. A token is
looked up by its digest, of which a client cannot choose a single byte, so the time of a look-up tells nothing.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

import attrs
import trio

from greenroom.actors.contract.rows import RunInfo
from greenroom.actors.errors import UsageError

from ..access import SCOPES, Principal, Scope, everything
from .sign_in import SignIn, SignInRefusal, SignInRequest

logger = logging.getLogger("greenroom.gateway")

OWN: Final = "own"
NEVER: Final = "never"
LONGEST_FILE: Final = 1_048_576
"""Bytes of a file of tokens: some 10,000 lines."""
LONGEST_NAME: Final = 128
"""Most characters of a name."""
LOOK: Final = 1.0
"""Seconds between two looks whether the file has changed, and for which an answer counts."""
ID: Final = 12
"""Hexadecimal digits of a digest that name a token to people."""
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


@attrs.frozen(kw_only=True)
class TokenEntry:
    """A line of the file.

    Attributes:
        name: The name of the principal.
        scopes: Its permissions.
        own: It sees only the runs that it has started.
        expires: UTC; None for never.
        digest: SHA-256 of the token.

    Raises:
        UsageError: A value is invalid.
    """

    name: str
    scopes: frozenset[Scope]
    own: bool = False
    expires: datetime | None = None
    digest: bytes = attrs.field(repr=False)

    def __attrs_post_init__(self) -> None:
        name = self.name
        if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME or " " in name or name.startswith("#"):
            raise UsageError(f"{name!r:.150} is no name: give 1 to {LONGEST_NAME} characters without spaces, not #")
        unknown = sorted(self.scopes - set(SCOPES))
        if unknown or not self.scopes:
            what = f"the scope {unknown[0]!r:.50} is not known" if unknown else "there is no scope"
            raise UsageError(f"{what}; give some of {', '.join(SCOPES)}")

    @property
    def id(self) -> str:
        """The beginning of the digest, which names the token to people."""
        return self.digest.hex()[:ID]

    def expired(self, now: datetime) -> bool:
        """Return True if the token is not valid any more."""
        return self.expires is not None and self.expires <= now

    def principal(self) -> Principal:
        """Return the principal of the token."""
        return Principal(name=self.name, scopes=self.scopes, sees=_own(self.name) if self.own else everything)

    def line(self) -> str:
        """Return the line of the file."""
        scopes = ",".join(sorted(self.scopes) + [OWN] * self.own)
        expires = NEVER if self.expires is None else f"{self.expires:%Y-%m-%dT%H:%M:%SZ}"
        return f"{self.name}  {scopes}  {expires}  {self.digest.hex()}"


def _own(name: str) -> Callable[[RunInfo], bool]:
    return lambda info: info.by == name


def entry_of(line: str) -> TokenEntry | None:
    """Return the token of a line; None for an empty line and a comment.

    Raises:
        UsageError: The line is invalid; the text names the value.
    """
    words = line.partition(" #")[0].split()
    if not words or words[0].startswith("#"):
        return None
    if len(words) != 4:
        raise UsageError(f"a line has four words, NAME SCOPES EXPIRES SHA-256, and here are {len(words)}")
    name, scopes, expires, digest = words
    if not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        raise UsageError(
            "the fourth word is no SHA-256, which is 64 hexadecimal digits; `greenroom token add` makes it"
        )
    rights = set(scopes.split(","))
    scope_set: frozenset[Scope] = frozenset(rights - {OWN})  # type: ignore[arg-type]  # checked by the entry
    return TokenEntry(
        name=name, scopes=scope_set, own=OWN in rights, expires=_expiry(expires), digest=bytes.fromhex(digest)
    )


def _expiry(word: str) -> datetime | None:
    if word == NEVER:
        return None
    try:
        time = datetime.fromisoformat(word)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise UsageError(f"{word!r:.50} is no time with a zone: write 2027-01-31T00:00:00Z, or never")
    return time.astimezone(UTC)


def entries_of(text: str, path: Path) -> Sequence[TokenEntry]:
    """Return the tokens of a file.

    Raises:
        UsageError: A line is invalid, or a token is there twice; the text names file and line.
    """
    entries = dict[bytes, TokenEntry]()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            entry = entry_of(line)
        except UsageError as error:
            raise UsageError(f"{path}, line {number}: {error}") from error
        if entry is not None:
            if entry.digest in entries:
                raise UsageError(f"{path}, line {number}: the token {entry.id} has a line already; remove one of them")
            entries[entry.digest] = entry
    return tuple(entries.values())


def read_tokens(path: Path) -> tuple[str, Sequence[TokenEntry]]:
    """Return the text of a file and its tokens.

    Raises:
        UsageError: The file cannot be read, or is invalid, or other users can write it.
    """
    try:
        with path.open("rb") as file:
            facts, data = os.fstat(file.fileno()), file.read(LONGEST_FILE + 1)
        text = data.decode()
    except OSError as error:
        way = "; make it with `greenroom token add`" if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"the file of tokens {path} cannot be read: {error.strerror}{way}") from error
    except UnicodeError as error:
        raise UsageError(f"the file of tokens {path} is no text in UTF-8") from error
    if facts.st_mode & _OTHERS_WRITE:
        raise UsageError(f"other users can write the file of tokens {path}: chmod 600 {path}")
    if facts.st_uid not in (0, os.geteuid()):
        raise UsageError(f"the file of tokens {path} belongs to another user (uid {facts.st_uid})")
    if len(data) > LONGEST_FILE:
        raise UsageError(f"the file of tokens {path} is larger than {LONGEST_FILE} bytes")
    return text, entries_of(text, path)


class TokenFile:
    """The tokens of a file, for `SignIn`: knows the principals of requests whose token the file has.

    A file that has become invalid or has vanished leaves the tokens of its last reading in force, and is logged.
    """

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            UsageError: See `read_tokens`.
        """
        self.path = path
        self._entries: Mapping[bytes, TokenEntry] = {}
        self._stamp: object = None
        self._looked = float("-inf")
        self._read()

    def __repr__(self) -> str:
        return f"<TokenFile {self.path} with {len(self._entries)} tokens>"

    async def __call__(self, request: SignInRequest) -> Principal | SignInRefusal | None:
        """Return the principal of the token of a request; None for no token, and for one that the file has not."""
        token = request.token
        if trio.current_time() >= self._looked + LOOK:
            self._looked = trio.current_time()
            await trio.to_thread.run_sync(self._read_again)
        entry = None if token is None else self._entries.get(sha256(token.encode(errors="surrogatepass")).digest())
        if entry is None:
            return None
        if entry.expired(datetime.now(UTC)):
            return SignInRefusal(message=f"the token of {entry.name} has expired")
        return entry.principal()

    def _read(self) -> None:
        self._stamp = self._stamp_now()
        _, entries = read_tokens(self.path)
        self._entries = {entry.digest: entry for entry in entries}

    def _read_again(self) -> None:
        if self._stamp_now() == self._stamp:
            return
        try:
            self._read()
        except UsageError as error:
            logger.error("%s; the tokens of the last reading stay in force", error)  # noqa: TRY400 - no bug of ours

    def _stamp_now(self) -> object:
        """Return what changes when the file does, also when another file takes its place."""
        try:
            facts = self.path.stat()
        except OSError as error:
            return error.errno
        return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_mode, facts.st_uid


def token_file(path: str | os.PathLike[str]) -> SignIn:
    """Return the sign-in with the tokens of a file, for `serve(authenticate=token_file("tokens"))`.

    The file is read again while the gateway serves. A token that is removed from it, or expires, is refused within 2
    seconds, and its open WebSockets and streams end within 4.

    Raises:
        UsageError: The file cannot be read, or is invalid, or other users can write it.
    """
    return SignIn(TokenFile(Path(path)), seconds=LOOK)
