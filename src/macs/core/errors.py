"""Mistakes that a user can mend, and results that a user should doubt."""


class MacsError(Exception):
    """Says in one sentence what was wrong, where, and what to do next. The command line exits with code 2."""


class MacsWarning(UserWarning):
    """Says in one sentence what a careful colleague would point out. The work goes on."""
