"""How the values of options are read: each function takes the text, and refuses with the reason."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

N = TypeVar("N", int, float)
Kind = Callable[[str], Any]
HIDDEN: Final = argparse.SUPPRESS


def seconds(text: str) -> float:
    """Parse a pause."""
    return _within(text, float, 0, 60, "between 0 and 60")


def count(text: str) -> int:
    """Parse a number of runs."""
    return _within(text, int, 1, 1000, "between 1 and 1000")


def workers(text: str) -> int:
    """Parse a number of processes."""
    return _within(text, int, 1, 64, "between 1 and 64")


def port(text: str) -> int:
    """Parse a port."""
    return _within(text, int, 0, 65_535, "between 0 and 65535")


def metrics_port(text: str) -> int:
    """Parse the first of several ports."""
    return _within(text, int, 1, 65_472, "between 1 and 65472")


def moment(text: str) -> datetime:
    """Parse a time: an age (30m, 2h, 3d), or a date with or without a time of day, in local time without a zone."""
    ago = re.fullmatch(r"([0-9]{1,6})([mhd])", text)
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):  # OverflowError: outside of the years 1 to 9999
        raise argparse.ArgumentTypeError(f"{text} is no time: write 30m, 2h, 3d, or 2026-01-31T09:30") from None


_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}


def sequence(text: str) -> int:
    """Parse the number of an event."""
    return _within(text, int, 0, 2**53 - 1, "the number of an event")


def _within(text: str, kind: Callable[[str], N], low: int, high: int, description: str) -> N:
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{text} is not {description}")
    return value


def age(text: str) -> timedelta:
    """Parse an age, such as 30d."""
    seconds = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and len(number) <= 9 and unit in seconds):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write a whole number and m, h, d or w, such as 30d")
    try:
        return timedelta(seconds=int(number) * seconds[unit])
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text} is too long; give a shorter time") from None


def expiry(text: str) -> timedelta | datetime:
    """Parse the end of something: an age from now on, such as 90d, or a date, in local time without a zone."""
    if re.fullmatch(r"[0-9]+[mhdw]", text):
        return age(text)
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r:.60} is no time; write 90d, 8w, or 2027-01-31") from None


def queue(text: str) -> str:
    """Parse the name of a queue."""
    if not text.isprintable() or " " in text or not 0 < len(text) <= 128:
        raise argparse.ArgumentTypeError(f"{text!r:.150} names no queue: a name has 1 to 128 characters, and no spaces")
    return text


def limit(text: str) -> int | None:
    """Parse the limit of a queue; None for no limit."""
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 1_000_000):
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 1,000,000; write none for no limit")
    return int(text)
