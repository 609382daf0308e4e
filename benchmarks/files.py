"""Where the measured databases stand: a fresh folder in the place for temporary files, gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def database() -> Iterator[Path]:
    """A path for a database."""
    with TemporaryDirectory(prefix="greenroom-bench-") as folder:
        yield Path(folder) / "bench.db"


def size(path: Path) -> int:
    """Bytes of a database with what belongs to it."""
    return sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*"))
