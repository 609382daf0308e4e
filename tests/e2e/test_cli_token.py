"""`greenroom token`, and `greenroom serve --tokens`: people come and go while the server runs."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.support.gateway import http, talking

from greenroom.actors.errors import UsageError
from greenroom.transport import Address
from greenroom.transport.cli import commands
from greenroom.transport.cli.token_commands import _change, _locked
from greenroom.transport.gateway.access import SCOPES
from greenroom.transport.gateway.sign_ins.token_file import TokenEntry, read_tokens

from .cli_kit import Cli, Inside

pytestmark = pytest.mark.slow

in_thread: Any = trio.to_thread.run_sync
AGENT = """
import greenroom as gr
from greenroom.testing import ScriptedModel
helper = gr.Agent("helper", model=ScriptedModel(["done"] * 100))
"""


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    return Inside(tmp_path, tmp_path / "state", monkeypatch)


def added(inside: Inside, *words: str) -> dict[str, Any]:
    done = inside("token", "add", *words, "--tokens", "tokens", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def names(inside: Inside) -> list[str]:
    done = inside("token", "list", "--tokens", "tokens", "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["name"] for line in done.stdout.splitlines()]


def test_the_table_of_commands_has_the_scopes_of_principals() -> None:
    assert commands.RIGHTS == SCOPES


def test_a_token_is_made_shown_once_listed_and_revoked(inside: Inside, tmp_path: Path) -> None:
    done = inside("token", "add", "ann", "--tokens", "tokens")
    token = done.stdout.removesuffix("\n")
    assert len(token) == 32, "the output is the token alone, so that it can go into a file"
    assert done.stderr.startswith("The token of ann (")
    path = tmp_path / "tokens"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token not in path.read_text()
    more = added(inside, "ci", "--scope", "start", "--scope", "follow", "--own", "--expires", "90d")
    assert (more["scopes"], more["own"], len(more["token"])) == (["follow", "start"], True, 32)
    listing = inside("token", "list", "--tokens", "tokens").stdout
    assert "ann  decide, follow, start  never expires  " in listing
    assert "ci  follow, start, own runs only  expires 20" in listing
    assert token not in listing
    assert inside("token", "revoke", "ann", "--tokens", "tokens").stdout.startswith("revoked: ann (")
    assert names(inside) == ["ci"]
    assert inside("token", "revoke", more["id"][:8], "--tokens", "tokens").returncode == 0
    assert inside("token", "list", "--tokens", "tokens").stdout == "no tokens\n"


def test_lines_of_a_person_stay_as_they_are_and_a_link_stays_a_link(inside: Inside, tmp_path: Path) -> None:
    text = f"# ours\n\nann   follow  never {'a' * 64}  # of her laptop\n# the robot:\nbot start never {'b' * 64}"
    (tmp_path / "real").write_text(text)
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "tokens").symlink_to("real")
    added(inside, "eve")
    assert (tmp_path / "real").read_text().startswith(text + "\neve  decide,follow,start  never  ")
    assert inside("token", "revoke", "bot", "--tokens", "tokens").returncode == 0
    lines = (tmp_path / "real").read_text().splitlines()
    assert lines[:4] == text.splitlines()[:4]
    assert len(lines) == 5
    assert (tmp_path / "tokens").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["real", "tokens"], "no draft is left"


async def test_changes_at_the_same_time_are_all_there(tmp_path: Path) -> None:
    path = tmp_path / "tokens"

    async def add(number: int) -> None:
        entry = TokenEntry(name=f"n{number}", scopes=frozenset({"start"}), digest=bytes([number] * 32))
        await _change(path, lambda lines: lines.append(f"{entry.line()}\n"), create=True)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(add, number)
    assert len(read_tokens(path)[1]) == 20


async def test_a_lock_that_is_never_freed_is_an_error_after_ten_seconds(
    tmp_path: Path, autojump_clock: trio.abc.Clock
) -> None:
    async with _locked(tmp_path):
        with pytest.raises(UsageError, match="another program has locked"):
            await _change(tmp_path / "tokens", list.clear, create=True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["add", "a b"], "'a b' is no name"),
        (["add", "#a"], "is no name"),
        (["add", ""], "is no name"),
        (["add", "ann", "--scope", "root"], "root"),
        (["add", "ann", "--expires", "soon"], "'soon' is no time; write 90d, 8w, or 2027-01-31"),
        (["add", "ann", "--expires", "2020-01-01"], "the token would have expired already"),
        (["add", "ann", "--expires", "999999999w"], "too long"),
        (["add", "ann", "--expires", "999999999m"], None),
        (["list"], "cannot be read: No such file or directory; make it with `greenroom token add`"),
        (["revoke", "ann"], "cannot be read: No such file"),
        (["add", "ann", "--tokens", "no/where"], "the folder "),
    ],
)
def test_a_wrong_word_is_refused_and_writes_nothing(
    inside: Inside, tmp_path: Path, words: list[str], reason: str | None
) -> None:
    done = inside("token", *words[:1], "--tokens", "tokens", *words[1:])
    assert (done.returncode == 0) == (reason is None), done.stderr
    assert "Traceback" not in done.stderr
    assert (reason or "") in done.stderr
    assert (tmp_path / "tokens").exists() == (reason is None)


def test_a_name_that_the_file_has_not_is_refused(inside: Inside, tmp_path: Path) -> None:
    added(inside, "ann")
    before = (tmp_path / "tokens").read_bytes()
    done = inside("token", "revoke", "bob", "--tokens", "tokens")
    assert done.returncode == 2
    assert "has no token with the name or the id 'bob'" in done.stderr
    assert (tmp_path / "tokens").read_bytes() == before


async def test_a_proxy_names_people_to_the_command(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENT)
    (tmp_path / "secret").write_text("the secret of the proxy\n")
    proxy = ("--proxy-header", "X-Forwarded-Email", "--proxy-secret", "secret")
    refused = await in_thread(inside, "serve", "agents.py", "--port", "0", *proxy[:2])
    assert "give --proxy-header and --proxy-secret, or none of them" in refused.stderr
    refused = await in_thread(inside, "serve", "agents.py", "--port", "0", *proxy, "--proxy", "example.org")
    assert "proxies has 'example.org': give an address, or a network" in refused.stderr
    with Cli(tmp_path, tmp_path / "state").started("serve", "agents.py", "--port", "0", *proxy, "--json") as process:
        assert process.stdout is not None
        line = json.loads(await in_thread(process.stdout.readline))
        address = Address(host="127.0.0.1", port=int(line["url"].rpartition(":")[2]))
        headers = {"X-Forwarded-Email": "ann@example.org", "X-Greenroom-Proxy": "the secret of the proxy"}
        person = (await http(address, "GET", "/v1/me", token=None, headers=headers)).json()
        assert person == {"principal": "ann@example.org", "scopes": ["decide", "follow", "start"]}
        del headers["X-Greenroom-Proxy"]
        assert (await http(address, "GET", "/v1/me", token=None, headers=headers)).status == 403


async def test_people_come_and_go_while_the_server_runs(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENT)
    ann = (await in_thread(added, inside, "ann"))["token"]
    server = Cli(tmp_path, tmp_path / "state").started(
        "serve", "agents.py", "--port", "0", "--tokens", "tokens", "--json", "--token-file", "operator"
    )
    with server as process:
        assert process.stdout is not None
        line = json.loads(await in_thread(process.stdout.readline))
        address = Address(host="127.0.0.1", port=int(line["url"].rpartition(":")[2]))
        operator = (tmp_path / "operator").read_text().strip()
        assert (await http(address, "GET", "/metrics", token=operator)).status == 200, "the old road stays"
        assert (await http(address, "GET", "/v1/runs", token=ann)).status == 200
        assert (await http(address, "GET", "/metrics", token=ann)).status == 403
        bob = (await in_thread(added, inside, "bob", "--scope", "follow"))["token"]
        async with talking(address, token=None) as talk:
            await talk.say("hello", token=ann)
            assert (await talk.hear())["principal"] == "ann"
            assert (await in_thread(inside, "token", "revoke", "ann", "--tokens", "tokens")).returncode == 0
            with trio.fail_after(60):
                assert (await talk.closing())[0] == 4401
        assert (await http(address, "GET", "/v1/runs", token=ann)).status == 401
        assert (await http(address, "GET", "/v1/runs", token=bob)).status == 200
        assert (await http(address, "POST", "/v1/runs", token=bob, body={})).status == 403
