"""`greenroom prune`: what it deletes, gives back, says and refuses."""

import json
import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import attrs
import pytest
import trio

import greenroom as gr
from greenroom.actors.testing.store_kit._tools import create, message, new_run, opened
from greenroom.transport.cli import main
from greenroom.transport.cli.prune import size_text

NOW = datetime.now(UTC)


@pytest.fixture
def database(tmp_path):
    """Thirty runs of a year ago, ten of a thread that lives on, and one that is open."""
    path = tmp_path / "runs.db"

    async def fill():
        store = gr.SQLiteStore(path, writer="inline")
        async with opened(store):
            for number in range(40):
                name, old = f"r{number}", number < 30
                thread = "living" if number % 3 == 0 else f"{name}.thread"
                text = message(f"{name}.m1", "x" * 20_000)
                author = await create(store, new_run(name, thread, messages=(text,)))
                await author.write(50)
                await author.end(at=NOW - timedelta(days=365 if old else 1))
            await create(store, new_run("open", "open"))

    trio.run(fill)
    return path


def said(capsys, *arguments):
    code = main([*map(str, arguments)])
    return code, capsys.readouterr()


def test_old_runs_go_and_their_room_comes_back(database, capsys):
    before = database.stat().st_size
    code, output = said(capsys, "prune", "--older-than", "30d", "--db", database, "--dry-run")
    assert (code, output.out.startswith("would delete 30 runs and 20 messages, some ")) == (0, True), output
    assert database.stat().st_size == before
    code, output = said(capsys, "prune", "--older-than", "30d", "--db", database, "--json")
    data = json.loads(output.out)
    assert (code, data["runs"], data["messages"], data["dryRun"]) == (0, 30, 20, False)
    assert data["freedBytes"] == before - database.stat().st_size > before / 3
    assert data["reusableBytes"] == 0
    with closing(sqlite3.connect(database)) as file:
        assert file.execute("SELECT count(*) FROM runs").fetchone() == (11,)
        assert file.execute("SELECT count(*) FROM garbage").fetchone() == (0,)
        assert file.execute("SELECT count(DISTINCT run) FROM events").fetchone() == (11,)
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert said(capsys, "prune", "--older-than", "30d", "--db", database)[1].out == "no run ended so long ago\n"


def test_a_file_of_an_older_release_gives_its_room_back_too(database, capsys):
    with closing(sqlite3.connect(database, isolation_level=None)) as file:
        file.execute("PRAGMA auto_vacuum = NONE")
        file.execute("VACUUM")
        file.execute("INSERT INTO events(run, seq, frame) VALUES (40, 1000, ?)", (b"x" * 17_000_000,))
    before = database.stat().st_size
    code, output = said(capsys, "prune", "--older-than", "30d", "--db", database, "--json")
    assert code == 0, output.err
    assert json.loads(output.out)["freedBytes"] == before - database.stat().st_size
    assert database.stat().st_size < before - 400_000


def test_a_database_that_is_open_elsewhere_is_refused_and_can_be_looked_at(database, capsys):
    async def inside():
        async with opened(gr.SQLiteStore(database, writer="inline")):
            return await trio.to_thread.run_sync(
                lambda: [
                    said(capsys, "prune", "--older-than", "30d", "--db", database, *more)
                    for more in ([], ["--dry-run"])
                ]
            )

    (code, output), (code_dry, output_dry) = trio.run(inside)
    assert code == 5
    assert f"{database} is open in process {os.getpid()}" in output.err
    assert "runtime.store.prune" in output.err
    assert (code_dry, output_dry.out[:20]) == (0, "would delete 30 runs")


@pytest.mark.parametrize("age", ["30", "d", "-3d", "3.5d", "30 days", "", "٣d", "1y", "9999999999d"])
def test_an_age_that_is_none_is_refused(database, capsys, age):
    with pytest.raises(SystemExit) as end:
        main(["prune", f"--older-than={age}", "--db", str(database)])
    assert end.value.code == 2
    assert "such as 30d" in capsys.readouterr().err


def test_what_can_not_be_is_refused(tmp_path, database, capsys):
    code, output = said(capsys, "prune", "--older-than", "1d", "--db", tmp_path / "nothing.db")
    assert (code, "there is no database" in output.err, (tmp_path / "nothing.db").exists()) == (5, True, False)
    code, output = said(capsys, "prune", "--older-than", "99999999w", "--db", database)
    assert (code, "before the year 1" in output.err) == (2, True)
    with pytest.raises(SystemExit) as end:
        main(["prune", "--older-than", "999999999w", "--db", str(database)])
    assert end.value.code == 2
    assert "999999999w is too long" in capsys.readouterr().err


def test_sizes_are_for_people():
    sizes = [0, 999, 1000, 999_600, 1_234_567, 454_000_000, 10**13, 10**16]
    assert [size_text(size) for size in sizes] == [
        *("0 bytes", "999 bytes", "1 kB", "1 MB", "1.23 MB", "454 MB", "10 TB", "1e+04 TB")
    ]
    assert attrs.evolve(gr.Pruned(runs=1), messages=2) == gr.Pruned(runs=1, messages=2)
