"""Mistakes that a user can correct, and results that a user should doubt."""


class MacsError(ValueError):
    """Says in one sentence what was wrong, where, and what to do next. The command line exits with code 2.

    It is a ValueError, so that code that knows nothing of macs can catch it.

    `details` are further lines below it, such as steps to take or a list of similar problems.
    """

    def __init__(self, sentence: str, details: str = "") -> None:
        super().__init__(f"{sentence}\n{details}" if details else sentence)
        self.sentence: str = sentence
        self.details: str = details


class MacsWarning(UserWarning):
    """Says in one sentence what is likely a mistake. The work goes on."""


def last_line(error: object) -> str:
    """Return the last line of an error's message, which says what happened in a traceback, without a full stop."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1].strip().rstrip(".")


def first_line(error: object) -> str:
    """Return the first line of an error's message, without a full stop; the name of its type if there is no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
