"""The address of a PostgreSQL database: a URL or a key=value text of libpq, with fields of our own.

Passwords are libpq's matter: URL, PGPASSWORD, passfile or service. None appears in a `repr` or in an error.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

import attrs

from ...errors import StoreOpenError
from ._driver import psycopg
from ._schema import SCHEMA, quoted

_DEFAULTS: Final[Mapping[str, str]] = {
    "connect_timeout": "5",
    "tcp_user_timeout": "10000",
    "keepalives_idle": "5",
}
_ENCODING: Final[Mapping[str, str]] = {"client_encoding": "utf8"}
"""Whatever the environment says."""
_SETTINGS: Final = (
    "jit=off",  # it would cost a short statement a hundred times its time
    "idle_in_transaction_session_timeout=5s",
    "statement_timeout=30s",
    "lock_timeout=5s",
    "timezone=UTC",
    "client_min_messages=warning",
)

SEARCH_PATH: Final = "pg_catalog,pg_temp"
"""Where a name without a schema is looked up: not where another role may have put an operator or a function that fits
better than the server's. Our tables have their schema in each statement."""

_PORT: Final = "5432"
_LONG: Final = 130.0
"""Seconds that the driver waits for a host if the address says 0, which is libpq's word for ever."""

_OUR_FIELDS: Final = ("schema", "pooled", "listen")
_KEY_VALUE: Final = re.compile(r"(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)\s*")
_PORTS: Final = re.compile(r"\d{0,5}(,\d{0,5})*", re.ASCII)
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})


@attrs.frozen(repr=False)
class PgTarget:
    """A database, a schema in it, and how to reach them.

    Attributes:
        fields: The parameters for libpq.
        schema: the schema with our tables.
        pooled: connections lead through a pool in transaction mode: no prepared statements, no settings of a session.
        listen: libpq's text for a direct connection that hints come through; None: the same as for statements, or,
            with `pooled`, none at all.
        text: the target for messages; without a password.
        secrets: texts that no message may show.
        place: host and port, for messages; several hosts are separated by commas.
        hosts: The number of hosts.
        patience: seconds that an attempt to connect waits for each host.
    """

    fields: Mapping[str, str]
    schema: str = SCHEMA
    pooled: bool = False
    listen: str | None = None
    text: str = ""
    secrets: tuple[str, ...] = ()
    place: str = ""
    hosts: int = 1
    patience: float = 5.0

    @classmethod
    def parse(cls, url: str) -> PgTarget:
        """Read a URL or a key=value text of libpq, with our own fields schema, pooled and listen.

        Raises:
            StoreOpenError: the text cannot be read; the message does not repeat it.
        """
        try:
            rest, ours = _apart(url)
            fields = _fields(rest)
        except (psycopg.Error, ValueError):
            raise StoreOpenError(
                "the address of the database cannot be read; write postgresql://user@host:port/database?schema=name,"
                " or key=value as for libpq"
            ) from None
        settings = {**_environment(fields), **fields}
        schema = ours.get("schema", SCHEMA)
        quoted(schema)
        secrets = tuple(value for name, value in settings.items() if "password" in name and value)
        whole = {**{name: value for name, value in _DEFAULTS.items() if name not in settings}, **_ENCODING, **fields}
        if "sslmode" not in settings and not _near(settings):
            whole["sslmode"] = "verify-full"
            if "sslrootcert" not in settings and not Path("~/.postgresql/root.crt").expanduser().exists():
                whole["sslrootcert"] = "system"
        if "," in settings.get("host", "") or "," in settings.get("hostaddr", ""):
            whole.setdefault("target_session_attrs", "read-write")
        places = _places(settings)
        return cls(
            whole,
            schema,
            _flag("pooled", ours),
            ours.get("listen"),
            _described(settings, schema),
            secrets,
            place=", ".join(places),
            hosts=len(places),
            patience=_patience({**settings, **whole}),
        )

    def __repr__(self) -> str:
        """Return the target without a password."""
        return f"<PgTarget {self.text}>"

    def hidden(self, text: str) -> str:
        """Return a message without secrets, on one line."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return " ".join(text.split())

    def direct(self) -> PgTarget | None:
        """Return the target of the connection that listens; None if hints cannot come."""
        if self.listen is None:
            return None if self.pooled else self
        other = PgTarget.parse(self.listen)
        return attrs.evolve(other, schema=self.schema, secrets=(*self.secrets, *other.secrets))

    def connection_fields(self, name: str, settings: Sequence[str] = ()) -> dict[str, str]:
        """Return the fields for a new connection: `name` is its application_name, `settings` are its session's."""
        fields = {"application_name": name[:63], **self.fields}
        if not self.pooled:
            options = " ".join(f"-c {setting}" for setting in (*_SETTINGS, *settings))
            options = f"{options} {fields.get('options', '')}".strip()
            fields["options"] = f"{options} -c search_path={SEARCH_PATH}"  # of several the last one counts
        return fields


def session_name(release: str, process: str, purpose: str) -> str:
    """Return the name of a connection in the server's list (application_name), which has at most 63 bytes of it."""
    return f"greenroom/{release}/{process}/{purpose}"


def _apart(text: str) -> tuple[str, dict[str, str]]:
    """Return the text for libpq, and our own fields.

    Raises:
        ValueError: it is neither a URL nor key=value.
        StoreOpenError: a password in it ends at another place for libpq than for its author.
    """
    ours: dict[str, str] = {}
    if "\0" in text:
        raise ValueError("libpq would read the text up to the NUL character only")
    if text.startswith(("postgresql://", "postgres://")):
        head, _, query = text.partition("?")
        server, _, database = head.partition("://")[2].partition("/")
        if server.count("@") > 1 or "@" in database:  # libpq would take a part of the password for a host
            raise StoreOpenError(
                "the address of the database has an @ in a wrong place; in a password or a name, @ is written %40,"
                " / %2F, : %3A, ? %3F and % %25"
            )
        rest: list[tuple[str, str]] = []
        for name, value in parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)):
            if name in _OUR_FIELDS:
                ours[name] = value
            else:
                rest.append((name, value))
        return head + (f"?{urlencode(rest, quote_via=quote)}" if rest else ""), ours
    if "=" not in text:
        raise ValueError("neither a URL nor key=value")

    def take(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name not in _OUR_FIELDS:
            return match.group()
        bare = value[1:-1] if value.startswith("'") else value
        ours[name] = re.sub(r"\\(.)", r"\1", bare)
        return ""

    return _KEY_VALUE.sub(take, text), ours


def _fields(text: str) -> dict[str, str]:
    """Return the fields of a text for libpq.

    Raises:
        psycopg.Error, ValueError: it cannot be read.
    """
    fields = {name: str(value) for name, value in psycopg.conninfo.conninfo_to_dict(text).items() if value is not None}
    if _PORTS.fullmatch(fields.get("port", "")) is None:  # libpq would repeat it, and it may be a part of a password
        raise ValueError("a port is not a number")
    return fields


def _flag(name: str, fields: Mapping[str, str]) -> bool:
    value = fields.get(name, "").lower()
    if value not in _TRUE | _FALSE:
        raise StoreOpenError(f"{name}={value!r:.50}: write {name}=1, or leave it out")
    return value in _TRUE


def _environment(fields: Mapping[str, str]) -> dict[str, str]:
    """Return what libpq reads from the environment and from a service file."""
    values = {}
    for option in psycopg.pq.Conninfo.get_defaults():
        value = os.environ.get(option.envvar.decode()) if option.envvar else None
        if value:
            values[option.keyword.decode()] = value
    service = fields.get("service", values.get("service"))
    return values if service is None else {**values, **_service(service)}


def _service(name: str) -> dict[str, str]:
    """Return the fields of a service; libpq itself reports a service that is missing."""
    places = [os.environ.get("PGSERVICEFILE") or "~/.pg_service.conf"]
    if folder := os.environ.get("PGSYSCONFDIR"):
        places.append(f"{folder}/pg_service.conf")
    for place in places:
        fields: dict[str, str] = {}
        section = ""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            for line in Path(place).expanduser().read_text(encoding="utf-8").splitlines():
                text = line.strip()
                if text.startswith("[") and text.endswith("]"):
                    section = text[1:-1]
                elif section == name and "=" in text and not text.startswith("#"):
                    key, _, value = text.partition("=")
                    fields[key.strip()] = value.strip()
        if fields:
            return fields
    return {}


def _near(fields: Mapping[str, str]) -> bool:
    """Return True if every host is this machine: a socket or the loopback interface."""
    hosts = fields.get("hostaddr") or fields.get("host", "")
    return all(_is_local(host.strip()) for host in hosts.split(","))


def _is_local(host: str) -> bool:
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _places(fields: Mapping[str, str]) -> list[str]:
    """Return each host with its port; one port may be that of all hosts."""
    hosts = (fields.get("host") or fields.get("hostaddr", "")).split(",")
    ports = (fields.get("port") or _PORT).split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return [
        f"{host.strip() or 'the local socket'}:{port.strip() or _PORT}"
        for host, port in zip(hosts, ports, strict=False)
    ]


def _patience(fields: Mapping[str, str]) -> float:
    """Return the seconds that the driver waits for a host: libpq's rules, with a limit where libpq has none."""
    try:
        seconds = int(float(fields["connect_timeout"]))
    except ValueError:
        return _LONG  # the driver refuses the text
    return float(max(2, seconds)) if seconds > 0 else _LONG


def _described(fields: Mapping[str, str], schema: str) -> str:
    host, port = fields.get("host") or fields.get("hostaddr", ""), fields.get("port", "")
    place = f"service {fields['service']}, " if "service" in fields else ""
    user = f"{fields['user']}@" if "user" in fields else ""
    return f"{place}{user}{host or 'local socket'}{port and f':{port}'}/{fields.get('dbname', '')} schema {schema}"
