"""docs/postgres.md and the tables in the code say the same."""

import sys
from pathlib import Path

import pytest

from greenroom.actors.stores.postgres._schema import TABLES


@pytest.fixture
def tables(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The columns of each table, as the page shows them."""
    monkeypatch.syspath_prepend(str(root / "scripts"))
    import postgres_tables  # beside the other scripts, which are in no package

    monkeypatch.delitem(sys.modules, "postgres_tables")
    assert postgres_tables.PURPOSES.keys() == postgres_tables.columns().keys()
    return postgres_tables.columns()


def test_each_table_of_the_schema_is_on_the_page(tables: dict[str, list[str]]) -> None:
    assert sorted(tables) == sorted(TABLES)


def test_the_columns_are_read_from_the_statements(tables: dict[str, list[str]]) -> None:
    assert tables["events"] == ["run", "seq", "frame"]
    assert {"owner", "held", "dead", "queue", "rank", "commits", "token"} <= set(tables["runs"])
    assert all(name.isidentifier() for names in tables.values() for name in names)
