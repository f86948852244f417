"""The one exception for mistakes that a user can mend. The command line prints its sentence and exits with code 2."""


class MacsError(Exception):
    """Says in one sentence what was wrong, where, and what to do next."""
