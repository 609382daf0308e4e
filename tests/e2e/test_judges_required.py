"""Where the judges are required, none of their tests can be skipped: a green build has received every judge."""

import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.no_cover

MODULE = """
import pytest

@pytest.fixture
def program():
    pytest.skip("no program here")

@pytest.mark.judge
def test_in_its_body():
    pytest.skip("no node here")

@pytest.mark.judge
@pytest.mark.skipif(True, reason="no browser here")
def test_by_its_mark():
    pass

@pytest.mark.judge
def test_in_a_fixture(program):
    pass

@pytest.mark.judge
def test_heard():
    pass

def test_no_judge():
    pytest.skip("not on this platform")
"""
WHOLE = 'import pytest\npytest.importorskip("no_such_module", reason="no module here")\n'


@pytest.fixture
def session(root, tmp_path):
    """Runs pytest with our conftest on the two modules above."""
    (tmp_path / "conftest.py").write_text((root / "tests" / "conftest.py").read_text())
    (tmp_path / "test_some.py").write_text(MODULE)
    (tmp_path / "test_judge_whole.py").write_text(WHOLE)

    def run(judges):
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
        words += ["-c", str(root / "pyproject.toml"), "--rootdir", str(tmp_path), str(tmp_path)]
        environment = {name: value for name, value in os.environ.items() if name != "GREENROOM_JUDGES"} | judges
        command = [sys.executable, *words]
        return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=240)

    return run


@pytest.mark.slow
def test_a_judge_that_would_be_skipped_fails_where_judges_are_required(session):
    done = session({"GREENROOM_JUDGES": "required"})
    assert done.returncode == 1, done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 failed, 1 passed, 1 skipped, 3 errors")
    for reason in ("no program here", "no node here", "no browser here", "no module here"):
        assert f"required: Skipped: {reason}" in done.stdout, reason


@pytest.mark.slow
def test_elsewhere_it_is_skipped_and_says_why(session):
    done = session({})
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 passed, 5 skipped")
    for reason in ("no program here", "no node here", "no browser here", "no module here"):
        assert reason in done.stdout, reason


def test_every_program_that_a_test_needs_is_installed_in_the_ci(root):
    """Else a test that needs it fails there, or, if it skips by itself, is never played."""
    texts = [path.read_text(encoding="utf-8") for path in (root / "tests").rglob("*.py")]
    needed = {name for text in texts for name in re.findall(r"need_program\(\"([\w-]+)\"\)", text)}
    script = (root / "scripts" / "judges.sh").read_text(encoding="utf-8")
    listed = re.findall(r'^    "([\w-]+) ', script.partition("programs=(")[2].partition("\n)")[0], re.MULTILINE)
    assert {"curl", "pgbouncer"} <= needed <= {*listed}
