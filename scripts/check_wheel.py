"""Fail unless a wheel holds the package as real files: every module and data file of the repository, and no more.

Usage: check_wheel.py WHEEL REPOSITORY

The three inner packages are symbolic links under `src/greenroom`. A build backend that drops or copies links makes a
wheel that installs without a complaint and lacks half of the code; this is where that would show.
"""

import stat
import sys
import zipfile
from pathlib import Path

INNER = ("actors", "supervision", "transport")
KINDS = (".py", ".json", ".sql", ".typed", ".html", ".css", ".js", ".svg", ".txt")


def expected(repository: Path) -> set[str]:
    """The names that the wheel must hold, as paths inside it."""
    facade = repository / "src" / "greenroom"
    names = {f"greenroom/{path.name}" for path in facade.iterdir() if path.is_file() and path.suffix in KINDS}
    names.add("pytest_greenroom.py")
    for inner in INNER:
        names |= {
            f"greenroom/{path.relative_to(repository).as_posix()}"
            for path in (repository / inner).rglob("*")
            if path.is_file() and path.suffix in KINDS and "__pycache__" not in path.parts
        }
    return names


def complaints(wheel: Path, repository: Path) -> list[str]:
    """One sentence for each thing that is wrong with the wheel."""
    needed_names = expected(repository)
    with zipfile.ZipFile(wheel) as archive:
        infos = {info.filename: info for info in archive.infolist() if ".dist-info/" not in info.filename}
    names = set(infos)
    links = [name for name, info in infos.items() if stat.S_ISLNK(info.external_attr >> 16)]
    out = [f"{name} is a symbolic link in the wheel" for name in links]
    out += [f"{name} is missing from the wheel" for name in sorted(needed_names - names)]
    out += [f"{name} is in the wheel and should not be" for name in sorted(names - needed_names)]
    out += [f"greenroom/{inner} holds no module" for inner in INNER if f"greenroom/{inner}/__init__.py" not in names]
    if "greenroom/py.typed" not in names:
        out.append("greenroom/py.typed is missing: type checkers would ignore the annotations")
    return out


def main() -> int:
    """Print what is wrong; the exit code says whether anything is."""
    wheel, repository = Path(sys.argv[1]), Path(sys.argv[2])
    wrong = complaints(wheel, repository)
    for line in wrong:
        print(f"package: {line}")
    if not wrong:
        print(f"package: the wheel holds all {len(expected(repository))} files of the package, as real files")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
