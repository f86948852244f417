"""Mistakes that a user can mend, and results that a user should doubt."""


class MacsError(Exception):
    """Says in one sentence what was wrong, where, and what to do next. The command line exits with code 2.

    `details` are lines below it: steps to take, or several sentences of one kind.
    """

    def __init__(self, sentence: str, details: str = "") -> None:
        super().__init__(f"{sentence}\n{details}" if details else sentence)
        self.sentence, self.details = sentence, details


class MacsWarning(UserWarning):
    """Says in one sentence what a careful colleague would point out. The work goes on."""
