"""The workshop in which hostile calls are made. It needs Linux: fork, /proc and /dev/full.

Of the cases every tenth is tried, and all of them where MACS_HOSTILE is "all". A file of cases has a list CASES and one
test of a `case` and its `outcome`. The cases that were asked for run first, as many at a time as there are working
folders; then each is checked as a test of its own.
"""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from folder import finish, prepare
from harness import EVERY_CASE, Case, Outcome, Workshop

collect_ignore_glob = [] if sys.platform == "linux" else ["test_*.py"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", metafunc.module.CASES[:: 1 if EVERY_CASE else 10], ids=str)


@pytest.fixture(scope="session")
def workshop() -> Iterator[Workshop]:
    made = Workshop(prepare, finish)
    yield made
    made.close()


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, workshop: Workshop) -> dict[Case, Outcome]:
    """What became of each case of the module."""
    items: list[Any] = [item for item in request.session.items if getattr(item, "module", None) is request.module]
    cases = [item.callspec.params["case"] for item in items if "case" in getattr(item, "fixturenames", ())]
    return dict(zip(cases, workshop.run_all([case.call for case in cases]), strict=True))


@pytest.fixture
def outcome(case: Case, outcomes: dict[Case, Outcome]) -> Outcome:
    return outcomes[case]
