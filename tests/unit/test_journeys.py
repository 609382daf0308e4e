"""The counter of journeys (`scripts/journeys.py`)."""

import pytest
from scripts import journeys

import greenroom as gr


def test_a_journey_through_the_checkout_is_counted(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["journeys.py", "mutation"])
    journeys.main()
    calls, functions, modules = map(int, capsys.readouterr().out.splitlines()[-1].split("|")[2:5])
    assert calls >= functions >= modules > 10


def test_an_installed_wheel_is_refused_and_not_counted_as_zero(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["journeys.py", "mutation"])
    monkeypatch.setattr(gr, "__file__", "/opt/venv/lib/python3.11/site-packages/greenroom/__init__.py")
    with pytest.raises(SystemExit) as stopped:
        journeys.main()
    assert stopped.value.code == 2
    assert "site-packages/greenroom; install the checkout instead" in capsys.readouterr().err
