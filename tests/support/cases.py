"""Cases of parametrised tests that `make test` leaves to .ci/run."""

from typing import Any

import pytest


def slow(*cases: object) -> list[Any]:
    """The cases, each marked as slow; a tuple is a case of several parameters."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow) for case in cases]
