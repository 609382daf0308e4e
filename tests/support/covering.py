"""Which stores and execution modes a scene runs on.

A scene whose fixtures offer stores and modes has up to six variants. A session runs, of each file,

- every case on its home, the first store and mode that it offers: memory and sequential, as a rule; of a function with
  more than 8 cases 8, drawn;
- each further pair on a function that is drawn, with one case of it;
- any pair that is still missing, on the first case that offers it: so a file covers every pair that its scenes offer.

Lots come from the seed and the names alone: the same seed chooses the same variants, in every worker. The id of a test
names its pair, `test_x[memory-sequential]`; a test that the command line names with `::` runs on all pairs.
`GREENROOM_CHAOS=cover` runs every case of every scene on each of its stores and in each of its modes, by a covering
array: as many variants as the longer of the two lists has values. `full` runs the product. A test that lists its stores
or modes itself, with `parametrize`, keeps them.

Of sweeps, floods and programs beside the scenes a session plays a share of the cases (`SHARES`), and of the other tests
of a file that are marked slow a share, too (`SLOW`), both drawn in the same way. `full` plays all of them. Where judges
are required, no judge is left out, and more of the slow tests run (`SLOW_WITH_JUDGES`). A file that the command line
names runs with all of its slow tests.

Scenes in real time (`LIVE`) are not counted there, because each takes seconds: a session runs a few of all files,
drawn, and with `full` each case of each scene, in a mode that is drawn.
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import pytest

from greenroom.actors.contract.spec import MODES

from .runs import KINDS, LIVE, PEERS, SERVED

AXES = ((*KINDS, SERVED, PEERS), (*MODES, "own"))
Pair = tuple[str | None, str | None]
"""A store and a mode; None for one that a test does not choose."""
MOST = 8
"""Cases of one function in a session."""
EACH = 1
"""Functions of a file that run on a pair which is the home of none."""
FEW = 3
"""Scenes of a session that are played in real time."""
SLOW, SLOW_WITH_JUDGES = 0.15, 0.5
"""The parts of a file's slow tests that a session plays, on a desk and in the CI; of each file at least one test."""
SHARES: Mapping[str, float] = {
    "tests/chaos/test_crash_everything.py::test_a_long_lived_task_crashes_under_load_and_no_run_ends_of_it": 0.3,
    "tests/chaos/test_preparing_sweeps.py": 0.5,
    "tests/chaos/test_replay_sweeps.py": 0.3,
    "tests/chaos/test_report_sweeps.py": 0.5,
    "tests/chaos/test_runs_with_parts.py": 0.3,
    "tests/chaos/test_shared_disorder.py": 0.4,
    "tests/chaos/test_workspace_sweeps.py": 0.5,
    "tests/conformance/test_growth.py::test_the_cost_of_a_run_is_linear_in_its_size": 0.1,
    "tests/conformance/test_postgres_pooled.py": 0.4,
    "tests/conformance/test_postgres_strangers.py::test_a_flood_of_hints_delays_no_beat_no_claim_and_no_commit": 0.3,
    "tests/conformance/test_provider_limits.py": 0.4,
    "tests/conformance/test_replay_reworded.py::test_no_test_of_replay_reads_what_the_engine_says": 0,
    "tests/conformance/test_shared_forgetting.py::test_each_planted_leak_is_found": 0.3,
    "tests/conformance/test_store_kit_outside.py::test_a_store_in_postgres_is_checked_from_outside_of_the_package": 0,
    "tests/conformance/test_stores.py::test_a_store_in_postgres_keeps_its_promise": 0.3,
    "tests/conformance/test_stores.py::test_a_store_keeps_its_promise": 0.5,
    "tests/conformance/test_stores.py::test_processes_on_postgres_keep_the_promises_of_a_shared_store": 0.3,
    "tests/e2e/console/": 0.3,
    "tests/e2e/postgres/": 0.3,
    "tests/e2e/test_all_doors.py::test_every_door": 0.15,
    "tests/e2e/test_asgi_gateway.py": 0.04,
    "tests/e2e/test_bench_smoke.py": 0.3,
    "tests/e2e/test_cli_work.py": 0.5,
    "tests/e2e/test_docs.py::test_every_block_of_the_page_does_what_the_page_says": 0.4,
    "tests/e2e/test_follow_through_kills.py": 0.4,
    "tests/e2e/test_judge_": 0.4,
    "tests/e2e/test_kill_nine.py": 0.5,
    "tests/e2e/test_mcp_canaries.py": 0.5,
    "tests/e2e/test_mcp_elicitation.py": 0.4,
    "tests/e2e/test_mcp_nasty.py": 0.4,
    "tests/e2e/test_postgres_service.py": 0.4,
    "tests/e2e/test_program_kills.py": 0.4,
    "tests/e2e/test_pytest_plugin.py": 0.5,
    "tests/e2e/test_remote_agent_kills.py": 0.4,
    "tests/e2e/test_workspace_kills.py": 0.5,
    "tests/unit/contract/test_growth.py": 0.25,
    "tests/unit/contract/test_secret_texts.py": 0.5,
    "tests/unit/contract/test_stepwise.py": 0.3,
    "tests/unit/models/test_stream_limits.py": 0.4,
    "tests/unit/stores/test_damaged_rows.py::test_a_damaged_row_is_a_store_error_of_its_run_only": 0.4,
    "tests/unit/transport/test_ws_session_lives.py::test_a_planted_fault": 0.3,
}
"""The first words of ids of tests that repeat one check very often, or take many seconds -> the part of a session."""


@attrs.frozen
class Variant:
    """One case of a function on one pair.

    Attributes:
        name: the test's id, unique. function: the one in the file, with its class if it has one.
        case: everything that it is called with except the pair.
    """

    name: str
    file: str
    function: str
    case: Hashable
    pair: Pair


def chosen(variants: Sequence[Variant], seed: int) -> set[Variant]:
    """The variants of a session. Their order does not matter, except for the order of their files' functions."""
    files: dict[str, list[Variant]] = defaultdict(list)
    for variant in variants:
        files[variant.file].append(variant)
    return {one for of_file in files.values() for one in _of_file(of_file, seed)}


def _of_file(variants: Iterable[Variant], seed: int) -> Iterator[Variant]:
    functions: dict[str, dict[Hashable, list[Variant]]] = defaultdict(lambda: defaultdict(list))
    for variant in variants:
        functions[variant.function][variant.case].append(variant)
    runs: Counter[Pair] = Counter()
    missing: dict[Pair, Variant] = {}
    first_cases = []
    for function in functions.values():
        cases = sorted(function.values(), key=lambda case: _lot(seed, case[0]))[:MOST]
        homes = [min(case, key=lambda one: _place(one.pair)) for case in cases]
        yield from homes
        runs.update(one.pair for one in homes)
        first_cases.append([case for case in cases[0] if case not in homes])
        for case in cases:
            for one in case:
                missing.setdefault(one.pair, one)
    for further in sorted(filter(None, first_cases), key=lambda further: _lot(seed, further[0])):
        one = min(further, key=lambda one: (runs[one.pair], _lot(seed, one)))
        if runs[one.pair] < EACH:
            yield one
            runs[one.pair] += 1
    for pair, one in missing.items():
        if not runs[pair]:
            yield one


def covering(variants: Iterable[Variant], seed: int) -> set[Variant]:
    """Of each case as many variants as bring it to each store and each mode that it offers.

    Lots decide which store meets which mode, so that the cases of a function are played in different pairs.
    """
    cases: dict[Hashable, list[Variant]] = defaultdict(list)
    for variant in variants:
        cases[variant.file, variant.function, variant.case].append(variant)
    return {one for case in cases.values() for one in _covering(case, seed)}


def _covering(case: Sequence[Variant], seed: int) -> Iterator[Variant]:
    missing = {value for one in case for value in enumerate(one.pair)}
    while missing:
        best = max(case, key=lambda one: (len(missing & {*enumerate(one.pair)}), _lot(seed, one)))
        yield best
        missing -= {*enumerate(best.pair)}


def _place(pair: Pair) -> tuple[int, ...]:
    return tuple(axis.index(value) if value else 0 for axis, value in zip(AXES, pair, strict=True))


def _lot(seed: int, variant: Variant) -> bytes:
    return _number(seed, variant.name)


def _number(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed} {name}".encode()).digest()


def live(variants: Iterable[Variant], seed: int, most: int | None = FEW) -> set[Variant]:
    """The variants that are played in real time: of each case one mode, and of at most `most` functions one case."""
    cases: dict[Hashable, list[Variant]] = defaultdict(list)
    for variant in variants:
        cases[variant.file, variant.function, variant.case].append(variant)
    drawn = [min(case, key=lambda one: _lot(seed, one)) for case in cases.values()]
    if most is None:
        return set(drawn)
    functions: dict[Hashable, Variant] = {}
    for one in sorted(drawn, key=lambda one: _lot(seed, one)):
        functions.setdefault((one.file, one.function), one)
    return set(list(functions.values())[:most])


def shared_out(names: Iterable[str], seed: int) -> set[str]:
    """The tests that a session leaves out by `SHARES`; each is known by its id."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        for start in SHARES:
            if name.startswith(start):
                groups[start].append(name)
    drawn = {start: sorted(group, key=lambda name: _number(seed, name)) for start, group in groups.items()}
    return {name for start, group in drawn.items() for name in group[math.ceil(len(group) * SHARES[start]) :]}


def slow_left_out(names: Iterable[str], seed: int, share: float) -> set[str]:
    """The slow tests that a session leaves out, by their ids. What `SHARES` names keeps its own share."""
    files: dict[str, list[str]] = defaultdict(list)
    for name in names:
        if not name.startswith(tuple(SHARES)):
            files[name.partition("::")[0]].append(name)
    drawn = (sorted(file, key=lambda name: _number(seed, name)) for file in files.values())
    return {name for file in drawn for name in file[math.ceil(len(file) * share) :]}


# --- tests as variants -----------------------------------------------------------------------------------------------


def leave_out(
    config: pytest.Config,
    items: list[pytest.Item],
    seed: int,
    *,
    cover: bool = False,
    full: bool = False,
    judges_required: bool = False,
) -> None:
    """Take the variants that are not chosen out of a collection, most of those in real time, and the rests of shares.

    Of more than a sample, coverage is measured of the variants that a sample would have.
    """
    found = {item: variant for item in items if (variant := _variant(item)) and not _named(config, item)}
    slow = [variant for variant in found.values() if variant.pair[0] == LIVE]
    others = [variant for variant in found.values() if variant.pair[0] != LIVE]
    sample = chosen(others, seed)
    kept = {
        *(others if full else sample),
        *(covering(others, seed) if cover else ()),
        *live(slow, seed, None if full else FEW),
    }
    left_out = [item for item, variant in found.items() if variant not in kept]
    if cover or full:
        for item, variant in found.items():
            if variant not in sample:
                item.add_marker("no_cover")
    if not full:
        others_by_name = {
            item.nodeid: item
            for item in items
            if not _named(config, item) and not (judges_required and item.get_closest_marker("judge"))
        }
        left_out += [others_by_name[name] for name in shared_out(others_by_name, seed)]
    if not full and not cover:
        tests = {
            item.nodeid: item
            for item in set(others_by_name.values()).difference(left_out)
            if item.get_closest_marker("slow") and not _file_named(config, item)
        }
        share = SLOW_WITH_JUDGES if judges_required else SLOW
        left_out += [tests[name] for name in slow_left_out(tests, seed, share)]
    removed = set(left_out)
    config.hook.pytest_deselected(items=[*removed])
    items[:] = [item for item in items if item not in removed]


def _variant(item: pytest.Item) -> Variant | None:
    """None for a test whose fixtures choose neither a store nor a mode."""
    call = getattr(item, "callspec", None)
    if not isinstance(item, pytest.Function) or call is None:
        return None
    own = set(_own(item))
    pair: list[str | None] = [None, None]
    rest = []
    for name, value in sorted(call.params.items()):
        axis = [number for number, values in enumerate(AXES) if isinstance(value, str) and value in values]
        axis = [0] if value == LIVE else axis
        if axis and name not in own:
            pair[axis[0]] = value
        else:
            rest.append((name, id(value)))  # variants share the objects that they are called with
    if pair == [None, None]:
        return None
    file, _, name = item.nodeid.partition("::")
    return Variant(item.nodeid, file, name.partition("[")[0], tuple(rest), (pair[0], pair[1]))


def _own(item: pytest.Item) -> Iterator[str]:
    """The arguments that the test lists values of."""
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        yield from (name.strip() for name in names.split(",")) if isinstance(names, str) else names


def _file_named(config: pytest.Config, item: pytest.Item) -> bool:
    """Whether the command line names the file of the test."""
    return any(Path(argument.partition("::")[0]).resolve() == item.path for argument in config.args)


def _named(config: pytest.Config, item: pytest.Item) -> bool:
    """Whether the command line names the function or one of its cases."""
    names = (argument.partition("::")[2] for argument in config.args)
    own = item.nodeid.partition("::")[2]
    return any(name and (own == name or own.startswith(f"{name}[")) for name in names)
