"""A mistake is a sentence, perhaps with lines below it."""

import pickle

from macs.core.errors import MacsError, MacsWarning


def test_the_sentence_comes_first_and_details_below() -> None:
    error = MacsError("Nothing is there.", "Step 1.\nStep 2.")
    assert str(error).split("\n") == ["Nothing is there.", "Step 1.", "Step 2."]
    assert (error.sentence, error.details) == ("Nothing is there.", "Step 1.\nStep 2.")
    assert str(MacsError("Nothing is there.")) == "Nothing is there."


def test_an_error_comes_back_from_another_process_saying_the_same() -> None:
    for error in (MacsError("One sentence."), MacsError("One sentence.", "And details.")):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_warning_can_be_told_from_those_of_others() -> None:
    assert issubclass(MacsWarning, UserWarning) and MacsWarning is not UserWarning
