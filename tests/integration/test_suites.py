"""The check itself: what fails, hangs or cannot be installed is not reported as passed."""

import runpy
from pathlib import Path
from typing import Any

from repository import ROOT

SUITES: dict[str, Any] = runpy.run_path(str(ROOT / ".ci/suites.py"))
Suite = SUITES["Suite"]


def test_every_suite_gets_its_verdict_and_its_counts(tmp_path: Path) -> None:
    suites = [
        Suite("good", "echo '3 passed, 2 skipped in 0.01s'; echo 'SKIPPED [2] test_x.py:1: no GPU'", 1),
        Suite("bad", "echo '1 failed, 4 passed, 1 error in 0.02s'; exit 1", 1),
        Suite("hanging", "sleep 600 & sleep 600", 0.01),
        Suite("elsewhere", "echo '9 passed in 1s'", 1, installs="exit 7"),
    ]
    outcomes = {outcome.suite.name: outcome for outcome in SUITES["run_all"](suites, tmp_path)}
    verdicts = {name: outcome.verdict for name, outcome in outcomes.items()}
    assert verdicts == {"good": "passed", "bad": "FAILED", "hanging": "TIMED OUT", "elsewhere": "NOT RUN"}
    assert outcomes["bad"].counts == {"passed": 4, "failed": 2}
    text = SUITES["table"](list(outcomes.values()), 60)
    assert text.endswith("\n1.0 minutes\n7 passed, 2 failed, 2 skipped")
    assert "SKIPPED by good: [2] test_x.py:1: no GPU" in text and "NOT RUN: elsewhere; `exit 7` failed" in text
    failed = SUITES["failed"]
    assert [name for name, outcome in outcomes.items() if failed(outcome)] == ["bad", "hanging"]
