"""Releases of the package as wheels, built and installed here, so that processes of several releases work together.

A wheel has the files that `scripts/check_wheel.py` demands of the one that is published, and needs no build backend:
backends come from an index, and tests run without one. The libraries are those of the tests' environment.
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
from scripts.check_wheel import expected

PACKAGE = ("actors", "supervision", "transport", "src")
SCHEMA = "actors/stores/postgres/_schema.py"
FOURTH = "SCHEMA_VERSION: Final = 4"
"""Of the fourth level of rows; the parent of the commit that brought the words is the last release without."""


@attrs.frozen
class Release:
    """An installed release.

    Attributes:
        name: for messages.
        place: what PYTHONPATH names.
        tests: the folder whose `tests` its processes run: they were written for it.
    """

    name: str
    place: Path
    tests: Path

    @property
    def environment(self) -> dict[str, str]:
        """Of its processes."""
        return {**os.environ, "PYTHONPATH": str(self.place)}

    def run(self, *words: str, cwd: Path | None = None) -> str:
        """Run its interpreter; returns what that prints. Fails if it ends with an error."""
        done = subprocess.run(
            [sys.executable, *words], cwd=cwd, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    def cli(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run its command line."""
        command = [sys.executable, "-c", "from greenroom.transport.cli import main; raise SystemExit(main())", *words]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)


def install(name: str, version: str, source: Path, folder: Path, *, tests: Path) -> Release:
    """Build the wheel of a source tree and install it into a folder of its own."""
    wheel = build_wheel(source, folder, version)
    place = folder / name
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--target", str(place), str(wheel)], check=True)
    return Release(name, place, tests)


def build_wheel(source: Path, folder: Path, version: str) -> Path:
    """Write the wheel of a source tree: the files of the package, and what says so."""
    about = f"greenroom-{version}.dist-info"
    files = {name: (source / "src" / name).read_bytes() for name in sorted(expected(source))}
    files[f"{about}/METADATA"] = f"Metadata-Version: 2.1\nName: greenroom\nVersion: {version}\n".encode()
    files[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=") for name, body in files.items()
    }
    lines = [f"{name},sha256={digests[name].decode()},{len(body)}" for name, body in files.items()]
    files[f"{about}/RECORD"] = "\n".join([*lines, f"{about}/RECORD,,", ""]).encode()
    wheel = folder / f"greenroom-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return wheel


def tree_before_the_fourth_level(root: Path, folder: Path) -> Path | str:
    """Export the last commit before the fourth level; or return why there is none here.

    A source tree without the repository, a shallow clone and a history that begins later are reasons. A whole history
    without the words of the level is not: they have changed, and `FOURTH` must follow.
    """
    if shutil.which("git") is None:
        return "no program git here, which exports the release before the fourth level"
    top = _git(root, "rev-parse", "--show-toplevel")
    if top.returncode != 0:
        return f"no history here, so the release before the fourth level is unknown: {top.stderr.strip()}"
    if Path(top.stdout.strip()).resolve() != root.resolve():
        return "no repository of its own here, so the release before the fourth level is unknown"
    if _git(root, "rev-parse", "--is-shallow-repository").stdout.strip() == "true":
        return "a shallow clone lacks the release before the fourth level: git fetch --unshallow"
    found = _git(root, "log", "--reverse", "--format=%H", f"-S{FOURTH}", "--", *PACKAGE).stdout.split()
    assert found, f"no commit brought {FOURTH!r}"
    parent = f"{found[0]}^"
    if _git(root, "cat-file", "-e", f"{parent}:{SCHEMA}").returncode != 0:
        return "the history begins after the release before the fourth level"
    archive = folder / "old.tar"
    packed = _git(root, "archive", "--output", str(archive), parent, *PACKAGE, "tests", "scripts")
    assert packed.returncode == 0, packed.stderr
    tree = folder / "old-source"
    with tarfile.open(archive) as tar:
        tar.extraction_filter = lambda member, _: member  # an argument for it came with Python 3.11.4 only
        tar.extractall(tree)  # noqa: S202 - of our own repository; it has links
    return tree


def _git(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)


def changed_copy(root: Path, folder: Path, changes: Mapping[str, Sequence[tuple[str, str]]]) -> Path:
    """Copy the package, with changes: file -> what is replaced by what, each of which must be there exactly once."""
    for part in PACKAGE:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(root / part, folder / part, symlinks=True, ignore=ignored)
    for name, pairs in changes.items():
        text = (folder / name).read_text()
        for old, new in pairs:
            text, times = re.subn(old, new, text)
            assert times == 1, f"{name} has {old!r} {times} times: the change for the next release needs other words"
        (folder / name).write_text(text)
    return folder


def next_level(level: int) -> dict[str, list[tuple[str, str]]]:
    """The changes for rows of a higher level: a field that each new run has, and an upgrade of older rows."""
    upgrade = (
        "\n\ndef _written_by(name: str, data: object) -> Any:\n"
        '    return {**data, "release": "older"} if name == "RunRow" and isinstance(data, dict) else data\n\n\nUPGRADES'
    )
    return {
        "actors/contract/codec.py": [
            (rf"SCHEMA_VERSION: Final = {level}\n", f"SCHEMA_VERSION: Final = {level + 1}\n"),
            (rf"(UPGRADES: .*\b{level - 1}: \w+)}}", rf"\g<1>, {level}: _written_by}}"),
            (r"\n\nUPGRADES", upgrade),
        ],
        "actors/contract/rows.py": [
            (r"(    stage: Stage = Stage.CREATED\n    position)", r'    release: str = ""\n\1')
        ],
        "actors/engine/initial_row.py": [(r"RunRow\(last_sequence=1", 'RunRow(release="next", last_sequence=1')],
    }


def one_more_migration(statements: Sequence[str], *, oldest: int) -> dict[str, list[tuple[str, str]]]:
    """The changes for one more migration."""
    more = f'PgMigration(summary="of a test", statements={tuple(statements)!r}, oldest={oldest})'
    return {SCHEMA: [(r"(PG_MIGRATIONS: Final\[.*\] = \(.*?)(,?)\)\n", rf"\1, {more})\n")]}
