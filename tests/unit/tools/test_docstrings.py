"""What a model reads of a docstring, in the three forms that people write."""

import pytest

from greenroom.actors.tools.docstrings import first_paragraph, parameter_texts

GOOGLE = """Book a seat,
    and pay for it.

    More for people.

    Args:
        row (int): the row,
            counted from the stage
        **seat: the letter

    Returns:
        row: not an argument
    """
NUMPY = """Book a seat,
    and pay for it.

    Parameters
    ----------
    row : int, optional
        the row,
        counted from the stage
    **seat
        the letter

    Returns
    -------
    row : int
        not an argument
    """
SPHINX = """Book a seat,
    and pay for it.
    :param int row: the row,
        counted from the stage
    :type row: int
    :param seat: the letter
    :returns: row: not an argument
    """


def documented(text: str | None) -> object:
    return type("Documented", (), {"__doc__": text})


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_a_docstring_describes_the_tool_and_its_arguments(text: str):
    assert first_paragraph(documented(text)) == "Book a seat, and pay for it."
    assert parameter_texts(documented(text)) == {"row": "the row, counted from the stage", "seat": "the letter"}


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        (None, {}),
        ("", {}),
        ("Args:", {}),
        ("x\n\nArgs:\n    a: one\n\nText.\n    b: two", {"a": "one"}),
        ("x\n\nArgs:\n    a: one: two", {"a": "one: two"}),
        ("x\n\nParameters\n----------\na, b : int\n    both\nNot a name : x\n", {"a": "both", "b": "both"}),
        ("x\n\nOther Parameters\n----------------\na\n    one\n", {"a": "one"}),
        ("x\n\n:arg a: one\n:keyword b: two\n:raises c: three\nd", {"a": "one", "b": "two"}),
        (":param: nothing\n:param a\nb", {}),
    ],
)
def test_unusual_docstrings_are_read_as_far_as_they_go(text: str | None, texts: dict[str, str]):
    assert parameter_texts(documented(text)) == texts


def test_a_description_ends_before_the_arguments():
    assert first_paragraph(documented("Add.\nArgs:\n    a: one")) == "Add."
    assert first_paragraph(documented(None)) == ""
