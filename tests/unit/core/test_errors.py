"""A mistake is a sentence, perhaps with lines below it."""

import pickle

import pytest

from macs.core.errors import MacsError, MacsWarning, first_line, last_line


def test_the_sentence_comes_first_and_details_below() -> None:
    error = MacsError("Nothing is there.", "Step 1.\nStep 2.")
    assert str(error).split("\n") == ["Nothing is there.", "Step 1.", "Step 2."]
    assert (error.sentence, error.details) == ("Nothing is there.", "Step 1.\nStep 2.")
    assert str(MacsError("Nothing is there.")) == "Nothing is there."


def test_an_error_comes_back_from_another_process_saying_the_same() -> None:
    for error in (MacsError("One sentence."), MacsError("One sentence.", "And details.")):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_code_that_knows_nothing_of_macs_can_catch_it() -> None:
    assert issubclass(MacsError, ValueError)


def test_a_warning_can_be_told_from_those_of_others() -> None:
    assert issubclass(MacsWarning, UserWarning) and MacsWarning is not UserWarning


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("one line."), "one line"),
        (ValueError("\n  one line\nand another"), "one line"),
        (ValueError(), "ValueError"),
        (KeyError("key"), "'key'"),
        ("a text without an error.", "a text without an error"),
    ],
)
def test_the_first_line_of_a_message_or_the_type_of_an_error(error: object, line: str) -> None:
    assert first_line(error) == line


def test_the_last_line_of_a_message_or_the_type_of_an_error() -> None:
    assert last_line(ValueError("a traceback\n  and what it ends with.\n")) == "and what it ends with"
    assert last_line(KeyError()) == "KeyError"
