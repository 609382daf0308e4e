"""One huge text: as much of it is read as may be, and nothing is shown that was not read."""

import pytest

from greenroom.actors.contract.secrets.redaction import MASK, WHOLE, Redactor

pytestmark = pytest.mark.no_cover

SECRET = "canary-7f3a9"
REDACTOR = Redactor([SECRET])
LEFT_OUT = "characters left out ...]\n"


@pytest.mark.parametrize("redactor", [REDACTOR, REDACTOR.within("/srv/work")], ids=["runtime", "run"])
@pytest.mark.parametrize("behind", [SECRET, "password=hunter2-hunter2", "plain"])
def test_text_beyond_the_redacted_part_of_a_huge_text_is_left_out(redactor, behind):
    text = "so " * (WHOLE // 3 + 1) + behind
    shown = redactor.text(text)
    assert shown.endswith(f" of {len(text)} {LEFT_OUT}")
    assert behind not in shown
    assert len(shown) <= WHOLE
    assert redactor.value({"a": [text]}) == {"a": [shown]}
    assert redactor.schema({"description": text}) == {"description": shown}
    assert redactor.text(shown) == shown


@pytest.mark.parametrize("before", range(6, len(SECRET) + 3))
def test_the_cut_shows_no_part_of_a_secret(before):
    text = "." * (REDACTOR.text("." * 2 * WHOLE).index("\n") - before) + SECRET + "." * WHOLE
    shown = REDACTOR.text(text)
    assert MASK in shown
    assert SECRET[:6] not in shown


def test_a_text_that_is_redacted_as_a_whole_is_the_same_object():
    text = "a" * WHOLE
    assert REDACTOR.text(text) is text
    assert REDACTOR.value([text])[0] is text
