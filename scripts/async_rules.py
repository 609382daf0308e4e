"""Run flake8-async over files: the same rules and findings as `python -m flake8_async`, in a fraction of its time.

    python -m scripts.async_rules --enable ASYNC --disable ASYNC910,ASYNC911 actors/agents/agent.py tests/conftest.py

The options are those of flake8-async, except `--autofix`. Three things save time:

- A file without findings is remembered by its content, the options and the versions, and is judged again when one of
  them changes. The memory is `.async_rules_cache` in the current folder; `make clean` removes it.
- Positions in a file are computed once. flake8-async computes them again for each of its visitors, because a visitor
  may repair the code; here none does.
- A file in which no word is that a rule looks at has no findings and is not parsed.
"""

import argparse
import functools
import hashlib
import multiprocessing
import os
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import libcst
from flake8_async import Plugin, runner

MEMORY: Final = Path(".async_rules_cache")
WORDS: Final = re.compile(rb"async|await|trio|anyio|BaseException|except\s*[:*]|[Ee]xceptions|ExceptionGroup")
"""Every rule is about asynchronous functions, names of a library, handlers of everything, or groups of errors."""


class _Positions(libcst.MetadataWrapper):
    """Metadata that all visitors of a module share."""

    def visit(self, visitor: libcst.CSTVisitorT) -> libcst.Module:
        super().visit(visitor)
        return self.module  # an equal copy otherwise, whose metadata would have to be computed


@functools.lru_cache(maxsize=1)
def _positions(module: libcst.Module, **options: Any) -> _Positions:
    return _Positions(module, **options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the files of a command line, print their findings, and return 1 if there are any."""
    options = parsed(arguments)
    judged_digests = set(MEMORY.read_text(encoding="utf-8").split()) if MEMORY.exists() else set()
    all_digests = digests(options)
    new = [file for file, digest in all_digests.items() if digest not in judged_digests]
    new = [file for file in new if WORDS.search(Path(file).read_bytes())]
    new.sort(key=os.path.getsize, reverse=True)  # the longest first, so that no process is left with one at the end
    errors_by_file = {file: errors for file, errors in _judged(new, options) if errors}
    for file in sorted(errors_by_file):
        print("\n".join(errors_by_file[file]))
    clean = (digest for file, digest in all_digests.items() if file not in errors_by_file)
    MEMORY.write_text("\n".join(sorted(clean)), encoding="utf-8")
    return 1 if errors_by_file else 0


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options and files of a command line."""
    parser = argparse.ArgumentParser(prog="async_rules")
    Plugin.add_options(parser)
    options = parser.parse_args(arguments)
    if options.autofix:
        parser.error("--autofix: only python -m flake8_async writes files")
    return options


def digests(options: argparse.Namespace) -> dict[str, str]:
    """Return the digest of everything that the findings in a file depend on, for each file."""
    option_values = sorted((name, value) for name, value in vars(options).items() if name != "files")
    versions = [version("flake8-async"), version("libcst"), platform.python_version()]
    ground = repr((option_values, versions)).encode() + Path(__file__).read_bytes()
    return {file: hashlib.sha256(ground + Path(file).read_bytes()).hexdigest() for file in options.files}


def _judged(files: Sequence[str], options: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    cores = os.cpu_count() or 1
    if len(files) < 4 * cores:  # less work than processes to start
        _prepare(options)
        yield from map(_findings, files)
        return
    with multiprocessing.Pool(cores, _prepare, (options,)) as pool:
        yield from pool.imap_unordered(_findings, files)


def _prepare(options: argparse.Namespace) -> None:
    """Set up flake8-async in a process of the pool; pyproject.toml fixes the version whose parts are replaced here."""
    Plugin.parse_options(options)
    runner.cst = SimpleNamespace(MetadataWrapper=_positions)


def _findings(file: str) -> tuple[str, list[str]]:
    return file, [f"{file}:{error}" for error in sorted(Plugin.from_filename(file).run())]


if __name__ == "__main__":
    sys.exit(main())
