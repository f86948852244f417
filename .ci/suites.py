"""Runs the suites of a check, two at a time, and ends with a table of them: `python3 .ci/suites.py [check | nightly]`.

A suite that fails or does not end in time fails the check. What a suite installs first comes from package indexes: if
they do not deliver, the suite did not run, the table says so in capitals, and the check may still pass, because no
fault of ours is behind it. Whatever a suite skips is listed at the end, with its reason.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTEST = ".venv/bin/python -m pytest"
PREPARE_DATA = ROOT.parent / "shared" / "data" / "prepare.py"  # where real datasets are at hand
COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")


@dataclass(frozen=True)
class Suite:
    """One command of a check. `installs` comes before it, and may fail; `cores` is how many of two it keeps busy."""

    name: str
    command: str
    minutes: float
    installs: str = ""
    cores: int = 1


@dataclass(frozen=True)
class Outcome:
    suite: Suite
    verdict: str  # passed, FAILED, TIMED OUT or NOT RUN
    seconds: float
    counts: dict[str, int]
    skipped: list[str]


def check_suites(data: Path) -> list[Suite]:
    """What every change has to pass."""
    suites = [
        Suite("unit and integration", "make test", 30, cores=2),
        Suite("documentation", f"{PYTEST} -m docs", 35),
        Suite("hostile calls", f"{PYTEST} -m hostile", 25),
        Suite("browser", f"{PYTEST} -m 'browser and not docs'", 20),
        Suite("further cases", f"{PYTEST} -m slow", 20),
        Suite("clusters", f"{PYTEST} -m cluster", 25),
        Suite("networks of other libraries", f"{PYTEST} -m architectures", 25),
        Suite("wheel and tutorial", "make package", 25),
        Suite("malformed requests", f"{PYTEST} -m fuzz", 20),
        Suite("without torch", "make test-runtime", 20),
        Suite("other people's packages", "make test-peers", 20, installs="make .venv-peers/installed"),
        Suite("lowest versions", "make test-lowest", 20, installs="make .venv-lowest/installed"),
    ]
    if PREPARE_DATA.exists():
        weights = PREPARE_DATA.parents[1] / "weights" / "cifar10_wrn_baseline.pt"
        real = f"MACS_DATA={data} MACS_WEIGHTS={weights} {PYTEST} -m data"
        suites.insert(1, Suite("real data", f".venv/bin/python {PREPARE_DATA} {data} && {real}", 35))
    return suites


def nightly_suites() -> list[Suite]:
    """What takes too long for every change."""
    return [
        Suite("every hostile call", f"MACS_HOSTILE=all {PYTEST} -m hostile", 60, cores=2),
        Suite("coverage", "make coverage", 60, cores=2),
        Suite("many networks", f"{PYTEST} -m nightly", 60),
        Suite("other Pythons", "make test-pythons", 30),
        Suite("every extra alone", "make package-extras", 120),
        Suite("every mutation", 'make mutations MUTATIONS="--sample 0"', 240),
    ]


def main() -> int:
    which = sys.argv[1] if len(sys.argv) > 1 else "check"
    with tempfile.TemporaryDirectory() as folder:
        suites = nightly_suites() if which == "nightly" else check_suites(Path(folder) / "data")
        started = time.monotonic()
        outcomes = run_all(suites, Path(folder))
    print(table(outcomes, time.monotonic() - started))
    return int(any(map(failed, outcomes)))


def failed(outcome: Outcome) -> bool:
    return outcome.verdict in ("FAILED", "TIMED OUT")


def run_all(suites: list[Suite], folder: Path) -> list[Outcome]:
    """Those that use both cores first, one after the other; then the others, two at a time."""
    printing = threading.Lock()

    def one(suite: Suite) -> Outcome:
        outcome, output = run(suite, folder)
        with printing:
            print(f"\n===== {suite.name}: {suite.command}\n{output}\n===== {suite.name}: {outcome.verdict}", flush=True)
        return outcome

    outcomes = [one(suite) for suite in suites if suite.cores == 2]
    with ThreadPoolExecutor(2) as lanes:
        outcomes += lanes.map(one, (suite for suite in suites if suite.cores == 1))
    return outcomes


def run(suite: Suite, folder: Path) -> tuple[Outcome, str]:
    """What became of a suite, and all that it printed."""
    started, log = time.monotonic(), folder / suite.name.replace(" ", "-")
    verdict = "passed"
    if suite.installs and ended(suite.installs, 10, log) != 0:
        verdict = "NOT RUN"
    else:
        code = ended(suite.command, suite.minutes, log)
        verdict = "TIMED OUT" if code is None else "FAILED" if code else "passed"
    output = log.read_text(encoding="utf-8", errors="replace")
    found: dict[str, int] = {}
    for line in output.splitlines():
        if re.search(r"\d+ (passed|failed|skipped|errors?)\b.* in [\d.]+s", line):
            for number, word in COUNTS.findall(line):
                kind = "failed" if word.startswith("error") else word
                found[kind] = found.get(kind, 0) + int(number)
    skipped = [line.removeprefix("SKIPPED ") for line in output.splitlines() if line.startswith("SKIPPED [")]
    return Outcome(suite, verdict, time.monotonic() - started, found, skipped), output


def ended(command: str, minutes: float, log: Path) -> int | None:
    """The exit code of a command, or None if it and its children had to be killed when the time was over."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTEST_ADDOPTS": "-rs", "PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "1"},
        )
        try:
            return process.wait(60 * minutes)
        except subprocess.TimeoutExpired:
            file.write(f"\nThis did not end within {minutes:g} minutes.\n".encode())
            return None
        finally:
            kill(process)


def kill(process: "subprocess.Popen[bytes]") -> None:
    """End the process and all that it started, gently at first; nothing to do if it has ended."""
    for number, seconds in ((signal.SIGINT, 20), (signal.SIGKILL, 20)):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                continue


def table(outcomes: list[Outcome], seconds: float) -> str:
    """A line per suite, what was skipped, and the sums."""
    lines = ["", f"{'suite':<30}{'verdict':<12}{'seconds':>8}{'passed':>8}{'skipped':>9}"]
    for outcome in outcomes:
        passed, skipped = (str(outcome.counts.get(kind, "-")) for kind in ("passed", "skipped"))
        lines.append(f"{outcome.suite.name:<30}{outcome.verdict:<12}{outcome.seconds:>8.0f}{passed:>8}{skipped:>9}")
    for outcome in outcomes:
        if outcome.verdict == "NOT RUN":
            lines.append(f"NOT RUN: {outcome.suite.name}; `{outcome.suite.installs}` failed or took too long.")
        lines += [f"SKIPPED by {outcome.suite.name}: {each}" for each in outcome.skipped]
    sums = [sum(outcome.counts.get(kind, 0) for outcome in outcomes) for kind in ("passed", "failed", "skipped")]
    lines += [f"{seconds / 60:.1f} minutes", "{} passed, {} failed, {} skipped".format(*sums)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
