"""The text of a traceback is bounded by what it has to say, not by what an exception holds."""

import pytest

from greenroom.supervision.reporting import LONGEST_MESSAGE, traceback_text


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause  # noqa: TRY301 - to be caught here, with this frame in it
    except Exception as caught:  # noqa: BLE001 - whatever is given
        return caught


LONG = "x" * (LONGEST_MESSAGE + 1)


def noted() -> ValueError:
    error = ValueError("short")
    error.add_note(LONG)
    return error


@pytest.mark.parametrize(
    "make",
    [
        lambda: raised(ValueError(LONG)),
        lambda: raised(KeyError("short"), ValueError(LONG)),
        lambda: raised(ExceptionGroup("some", [KeyError("short"), ValueError(LONG)])),
        lambda: raised(noted()),
    ],
    ids=["alone", "as the cause", "in a group", "as a note"],
)
def test_a_long_message_is_cut_and_the_frames_stay(make):
    text = traceback_text(make())
    assert "in raised" in text
    assert text.endswith("x…")
    assert len(text) < LONGEST_MESSAGE + 2_000


def test_a_message_that_is_not_long_is_formatted_with_its_causes():
    text = traceback_text(raised(KeyError("a"), ValueError("b")))
    assert text.startswith("ValueError: b\n\nThe above exception was the direct cause")
    assert text.endswith("KeyError: 'a'")
