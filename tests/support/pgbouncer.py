"""A pgbouncer in transaction mode in front of a server, for tests."""

import os
import pwd
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from .judges import need_program

_CONFIG = """[databases]
{database} = host=127.0.0.1 port={server} dbname={database} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
auth_type = any
pool_mode = transaction
max_client_conn = 100
default_pool_size = 4
logfile = {folder}/log
pidfile = {folder}/pid
unix_socket_dir =
{more}
"""


@contextmanager
def bouncing(url: str, *, more: str = "") -> Iterator[str]:
    """The URL of the same schema through a pgbouncer that the block has for itself; `more`: settings of it."""
    path, parts = need_program("pgbouncer"), urlsplit(url)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="greenroom-bouncer-", dir="/tmp") as folder:
        config = Path(folder) / "pgbouncer.ini"
        values = {
            "server": parts.port,
            "user": parts.username,
            "database": parts.path[1:],
            "folder": folder,
            "more": more,
        }
        config.write_text(_CONFIG.format(port=port, **values), encoding="utf-8")
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            for place in (Path(folder), config):
                os.chown(place, nobody.pw_uid, nobody.pw_gid)
            extra: dict[str, object] = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        else:
            extra = {}
        process = subprocess.Popen([path, "-q", str(config)], cwd="/", stderr=subprocess.DEVNULL, **extra)  # type: ignore[call-overload]
        try:
            _wait(port)
            yield url.replace(f":{parts.port}/", f":{port}/")
        finally:
            process.terminate()
            process.wait(10)


def _wait(port: int) -> None:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)  # noqa: TID251 - a program that starts
        else:
            return
    raise RuntimeError("pgbouncer does not listen")
