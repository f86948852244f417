"""What the benchmarks share: interleaved repeats, medians with their spread, a table, and a JSON file.

Absolute times mean little on shared machines. Every case of a comparison is therefore run in turn, round by round, and
what counts is the ratio of medians.
"""

import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

RESULTS = Path("runs/bench")
WRN_40_2 = 0.655e9  # operations (two to a multiply-add) of WRN-40-2's forward pass on a 32 x 32 image


@dataclass(frozen=True)
class Case:
    name: str
    values: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> str:
        return f"{min(self.values):.4g} to {max(self.values):.4g}"


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(cases: Mapping[str, Callable[[], float]], repeats: int, warm_up: bool = True) -> dict[str, Case]:
    """Each case once to warm up, then all of them in turn, `repeats` times; a case returns what it measured."""
    for measure in cases.values() if warm_up else ():
        measure()
    values: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, measure in cases.items():
            values[name].append(measure())
    return {name: Case(name, found) for name, found in values.items()}


def in_new_process(script: str, *arguments: str) -> float:
    """The number that a script prints last: what a case does to its process must not help or harm the next case."""
    command = [sys.executable, script, *arguments]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def standing(script: str, *arguments: str, source: Path | None = None) -> Callable[[], float]:
    """Start a process of its own that measures as often as it is asked, and ends with this one.

    `source` is a folder to import macs from, where it is not to be the installed one.

    So cases that must not share a process can still take turns every few seconds, as the machine's speed changes.
    """
    command = [sys.executable, script, *arguments]
    path = [*([str(source)] if source else []), str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask() -> float:
        print(file=process.stdin, flush=True)
        return float(process.stdout.readline())

    return ask


def answer(measure: Callable[[], float]) -> None:
    """The other end of `standing`: a number for every line."""
    for _ in sys.stdin:
        print(measure(), flush=True)


def multiply_rate(dtype: torch.dtype, size: int = 2048, times: int = 4) -> float:
    """Operations a second of this machine's matrix multiplication: the limit of every network."""
    a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
    return 2 * size**3 * times / seconds(lambda: [a @ b for _ in range(times)])


def memory_peak(work: Callable[[], object]) -> int:
    """The most resident memory, in bytes above the start, that the process had while it did the work.

    What was freed before goes back to the system first; the work would use it again, and seem to take nothing.
    """
    peak, done = 0, threading.Event()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    start = resident()

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, resident() - start)
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
        peak = max(peak, resident() - start)
    finally:
        done.set()
        watcher.join()
    return peak


def resident() -> int:
    """Resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def machine() -> dict[str, object]:
    model = next((x.partition(":")[2].strip() for x in _cpuinfo() if x.startswith("model name")), platform.processor())
    flags = next((x.split() for x in _cpuinfo() if x.startswith("flags")), [])
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "bf16 instructions": [flag for flag in ("avx512_bf16", "amx_bf16") if flag in flags],
        "torch": torch.__version__,
        "system": platform.system(),
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def report(name: str, title: str, cases: Mapping[str, Case], unit: str, ratios: Mapping[str, float | str]) -> None:
    """Print a comparison and write it to runs/bench/NAME.json."""
    table = Table("case", title=title, title_justify="left", min_width=len(title))
    for column in (f"median, {unit}", "lowest to highest"):
        table.add_column(column, justify="right")
    for case in cases.values():
        table.add_row(case.name, f"{case.median:.4g}", case.spread)
    console = Console(width=110)
    console.print(table)
    for what, ratio in ratios.items():
        console.print(f"  {what}: {ratio if isinstance(ratio, str) else f'{ratio:.3g}'}", highlight=False)
    console.print()
    RESULTS.mkdir(parents=True, exist_ok=True)
    value = {
        "title": title,
        "unit": unit,
        "machine": machine(),
        "cases": [{**asdict(case), "median": case.median} for case in cases.values()],
        "ratios": dict(ratios),
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(value, indent=2) + "\n")
