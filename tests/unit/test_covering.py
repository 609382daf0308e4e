"""Which variants of the scenes a session runs: each case at home, each pair once per file, by seed."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ..support.covering import (
    AXES,
    EACH,
    FEW,
    MOST,
    SHARES,
    SLOW,
    SLOW_WITH_JUDGES,
    Pair,
    Variant,
    chosen,
    covering,
    live,
    shared_out,
    slow_left_out,
)
from ..support.runs import LIVE

pytestmark = pytest.mark.no_cover

pytest_plugins = ["pytester"]

STORES, MODES = AXES
HOME = (STORES[0], MODES[0])
OFFERS: tuple[tuple[Pair, ...], ...] = (
    tuple((store, mode) for store in STORES for mode in MODES),
    tuple((store, None) for store in STORES),
    tuple((None, mode) for mode in MODES),
    tuple((store, MODES[1]) for store in STORES),
)
"""What the fixtures of a function may offer: both axes, one of them, or a part."""


def variants(file: str, function: str, cases: int, offer: tuple[Pair, ...]) -> list[Variant]:
    return [
        Variant(f"{file}::{function}[{case}-{pair}]", file, function, case, pair)
        for case in range(cases)
        for pair in offer
    ]


FILES = st.lists(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from(OFFERS)), min_size=1, max_size=8), min_size=1, max_size=4
).map(
    lambda files: [
        variant
        for number, functions in enumerate(files)
        for f, (cases, offer) in enumerate(functions)
        for variant in variants(f"{number}.py", f"f{f}", cases, offer)
    ]
)


@given(FILES, st.integers())
def test_every_case_runs_and_every_file_covers_the_pairs_that_it_offers(offered, seed):
    kept = chosen(offered, seed)
    assert kept <= set(offered)
    assert {(variant.file, variant.function, variant.case) for variant in kept} == {
        (variant.file, variant.function, variant.case) for variant in offered
    }
    assert {(variant.file, variant.pair) for variant in kept} == {(variant.file, variant.pair) for variant in offered}


@given(FILES, st.integers())
def test_a_case_runs_on_the_first_pair_that_it_offers(offered, seed):
    kept, first = chosen(offered, seed), {}
    for one in offered:
        first.setdefault((one.file, one.function, one.case), one)
    assert set(first.values()) <= kept


@given(FILES, st.integers())
def test_at_most_one_case_of_a_function_runs_on_a_further_pair_unless_the_file_lacks_one(offered, seed):
    kept = chosen(offered, seed)
    cases = {(variant.file, variant.function, variant.case) for variant in offered}
    functions = {case[:2] for case in cases}
    pairs = {(variant.file, variant.pair) for variant in offered}
    assert len(kept) <= len(cases) + len(functions) + len(pairs)


@given(FILES, st.integers())
def test_a_file_runs_the_same_whatever_else_is_collected(offered, seed):
    alone = [variant for variant in offered if variant.file == "0.py"]
    assert chosen(alone, seed) == {variant for variant in chosen(offered, seed) if variant.file == "0.py"}


def test_another_seed_draws_others_and_home_stays():
    offered = [variant for number in range(6) for variant in variants("a.py", f"f{number}", 3, OFFERS[0])]
    assert chosen(offered, 1) == chosen(offered, 1)
    drawn = {frozenset(variant for variant in chosen(offered, seed) if variant.pair != HOME) for seed in range(10)}
    assert len(drawn) == 10


def test_of_a_function_with_many_cases_some_are_drawn():
    offered = variants("a.py", "f", MOST + 30, OFFERS[0])
    drawn = [{variant.case for variant in chosen(offered, seed)} for seed in range(3)]
    assert [len(cases) for cases in drawn] == [MOST] * 3
    assert len(set(map(frozenset, drawn))) == 3


def test_the_pairs_of_a_file_are_run_equally_often():
    offered = [variant for number in range(40) for variant in variants("a.py", f"f{number}", 1, OFFERS[0])]
    runs = defaultdict(int)
    for one in chosen(offered, 1):
        runs[one.pair] += 1
    assert runs.pop(HOME) == 40
    assert set(runs.values()) == {EACH}


# --- each case on each store and in each mode ------------------------------------------------------------------------


@given(FILES, st.integers())
def test_a_covering_array_has_each_case_on_each_store_and_in_each_mode_that_it_offers(offered, seed):
    kept = covering(offered, seed)
    assert kept <= set(offered)
    for axis in range(2):
        shown, wanted = ({(one.function, one.case, one.pair[axis]) for one in some} for some in (kept, offered))
        assert shown == wanted
    cases = {(one.file, one.function, one.case) for one in offered}
    assert len(kept) <= len(cases) * max(map(len, AXES))
    assert kept == covering(offered[::-1], seed)


def test_the_cases_of_a_file_meet_all_pairs_in_a_covering_array():
    offered = variants("a.py", "f", 60, OFFERS[0])
    assert {one.pair for one in covering(offered, 1)} == set(OFFERS[0])


# --- in real time ----------------------------------------------------------------------------------------------------

IN_REAL_TIME = [
    one
    for number in range(4)
    for function in "abc"
    for one in variants(f"{number}.py", function, 3, tuple((LIVE, mode) for mode in MODES))
]


def test_a_session_plays_few_scenes_in_real_time_each_of_another_function():
    drawn = live(IN_REAL_TIME, 1)
    assert len(drawn) == FEW == len({(one.file, one.function) for one in drawn})
    assert drawn == live(IN_REAL_TIME[::-1], 1)
    assert len({frozenset(live(IN_REAL_TIME, seed)) for seed in range(10)}) == 10


def test_a_full_session_plays_each_case_in_real_time_once():
    drawn = live(IN_REAL_TIME, 1, None)
    cases = {(one.file, one.function, one.case) for one in IN_REAL_TIME}
    assert {(one.file, one.function, one.case) for one in drawn} == cases
    assert len(drawn) == len(cases)
    assert {one.pair[1] for one in drawn} == set(MODES)


# --- sweeps and programs ---------------------------------------------------------------------------------------------


def test_every_share_is_of_a_test_that_exists(root):
    for start in SHARES:
        file, _, function = start.partition("::")
        assert list(root.glob(f"{file.rstrip('/')}*")), start
        assert not function or f"def {function}" in (root / file).read_text(encoding="utf-8"), start


@pytest.mark.parametrize("start", SHARES)
def test_a_session_plays_its_share_and_every_case_has_its_turn(start):
    names = [f"{start}[{number}]" for number in range(20)]
    left_out = [shared_out(names, seed) for seed in range(60)]
    assert {len(names) - len(found) for found in left_out} == {round(20 * SHARES[start])}
    assert left_out[0] == shared_out(names[::-1], 0)
    assert not SHARES[start] or not set.intersection(*left_out)


@pytest.mark.parametrize("share", [SLOW, SLOW_WITH_JUDGES])
def test_of_each_file_a_part_of_the_slow_tests_runs_and_each_has_its_turn(share):
    names = [f"tests/e2e/test_a.py::test_{number}" for number in range(20)]
    one, own = "tests/e2e/test_b.py::test_alone", f"{next(iter(SHARES))}[1]"
    left_out = [slow_left_out([*names, one, own], seed, share) for seed in range(60)]
    assert {len(names) - len(found) for found in left_out} == {20 * share}
    assert left_out[0] == slow_left_out([own, one, *names[::-1]], 0, share)
    assert not set.intersection(*left_out)
    assert not {one, own} & set.union(*left_out)


# --- in a session ----------------------------------------------------------------------------------------------------

SCENES = """
import pytest

@pytest.fixture(params=["memory", "sqlite"])
def shelf(request): return request.param

@pytest.fixture(params=["sequential", "parallel_streaming"])
def mode(request): return request.param

@pytest.mark.parametrize("n", [1, 2])
def test_a(shelf, mode, n): pass

@pytest.mark.parametrize("mode", ["parallel_streaming", "sequential"])
def test_b(mode): pass

def test_c(): pass
"""


def collected(pytester, root, *arguments, cover=False, scenes=SCENES):
    pytester.makepyfile(test_scenes=scenes)
    pytester.makeconftest(f"""
from greenroom_tests import leave_out
def pytest_collection_modifyitems(config, items): leave_out(config, items, 1, cover={cover})
""")
    pytester.makepyfile(greenroom_tests="from tests.support.covering import leave_out")
    pytester.syspathinsert(root)
    lines = pytester.runpytest("--collect-only", "-q", *arguments).outlines
    return [line.partition("::")[2] for line in lines if "::" in line]


SLOW_TESTS = """
import pytest

@pytest.mark.slow
@pytest.mark.parametrize("n", range(8))
def test_d(n): pass

def test_e(): pass
"""


@pytest.mark.parametrize(("words", "count"), [("", 3), ("test_slow_tests.py", 9), ("test_slow_tests.py::test_d", 8)])
def test_a_session_plays_a_part_of_the_slow_tests_and_all_of_a_file_that_it_names(pytester, root, words, count):
    pytester.makepyfile(test_slow_tests=SLOW_TESTS)
    pytester.makeini("[pytest]\nmarkers = slow")
    assert len(collected(pytester, root, *words.split(), scenes="")) == count


def test_a_session_leaves_out_variants_of_fixtures_only(pytester, root):
    found = collected(pytester, root)
    assert found[-3:] == ["test_b[parallel_streaming]", "test_b[sequential]", "test_c"]
    assert {"test_a[memory-sequential-1]", "test_a[memory-sequential-2]"} <= set(found)
    assert 2 < len(found[:-3]) < 8


def test_what_the_command_line_names_runs_on_all_pairs(pytester, root):
    assert len(collected(pytester, root, "test_scenes.py::test_a")) == 8
    assert collected(pytester, root, "test_scenes.py::test_a[sqlite-sequential-2]") == ["test_a[sqlite-sequential-2]"]


def test_a_session_that_covers_has_each_store_and_each_mode(pytester, root):
    found = collected(pytester, root, cover=True)
    for case in "12":
        words = [name.removeprefix("test_a[").split("-") for name in found if name.startswith("test_a")]
        mine = [word for word in words if word[2] == f"{case}]"]
        assert {word[0] for word in mine} == {"memory", "sqlite"}
        assert {word[1] for word in mine} == {"sequential", "parallel_streaming"}
