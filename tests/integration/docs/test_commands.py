"""Every command line in README and docs runs, page by page, with small stand-ins for the files that it names.

A line runs as it stands, apart from what the tables here replace: what takes long, and what this machine lacks. The
lines of a page run in one folder, one after the other, so that a later line uses what an earlier one wrote.
"""

import contextlib
import functools
import http.server
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from calling import called
from running import serving
from s3_server import bucket
from snippets import PAGES, ROOT, blocks_of, commands_in
from worlds import WORLDS, fill_bucket, write_data, write_downloads

PER_PAGE = {
    page.relative_to(ROOT).as_posix(): [
        shlex.join(command.words)
        for block in blocks_of(page)
        if block.language != "python"
        for command in commands_in(block, ("macs", "torchrun", "ray"))
        if "macs" in command.words
    ]
    for page in PAGES
}

# Lines that do not run here, by their beginnings, and the tests that run them, or small ones like them.
ELSEWHERE = {
    "macs reproduce study --data DATA": "tests/integration/research/test_study_cells.py",  # computes for days
    "macs reproduce table1 --scale lab": "tests/integration/research/test_paper_runs.py",  # for hours
    "macs reproduce ablation --scale lab": "tests/integration/research/test_paper_runs.py",
    "macs push": "tests/integration/detector/test_hub.py",
    "macs quickstart": "tests/unit/test_quickstart.py",  # takes minutes and pretrained weights
    "torchrun --standalone": "tests/integration/training/test_distributed.py",
}
PAGES_ELSEWHERE = {"docs/tutorial.md": "tests/integration/docs/test_tutorial.py"}

# What a line has in place of what this machine lacks, or of what the text around the line says.
INSTEAD = {
    "--device cuda:1": "--device cpu",
    "--provider cuda cpu": "--provider cpu",
    "hf://org/name": "detector.safetensors",
    "--checkpoint FILE": "--checkpoint lite0.pth",
    "--ood textures isun lsun-c svhn places365": "--ood textures svhn",
    "https://files.example.org/datasets": "{mirror}",
    "file:///media/disk/datasets": "file://{folder}/mirror",
    "/shared/": "{folder}/shared/",
    "--address head.example.org:6379": "--address {cluster}",
    "http://head.example.org:8265": "{jobs}",
    "--rendezvous head.example.org:29500": "--rendezvous 127.0.0.1:{free}",
    "finetune ...": "finetune --id cifar10 --outliers 300k --checkpoint classifier.pt",
    "sweep ...": "sweep --id cifar10 --outliers 300k --checkpoint classifier.pt",
    "--gpus 1": "--gpus 0",
    "--devices 4": "--devices 2",
    "--devices 8": "--devices 1",
}

# Options that make a command short, by the command or by its page too; they replace those of the line.
TRAINING = "--epochs 1 --epoch-size 32 --batch-in 16"
SHORT = {
    "finetune": f"{TRAINING} --batch-out 16",
    "pretrain": TRAINING,
    "sweep": f"{TRAINING} --batch-out 16 --margins 0.5 --seeds 0",
    "docs/export.md export": "--max-drop 100",  # of a network that is hardly trained
    "README.md finetune": "--size 64",
    "docs/choosing.md finetune": "--size 64",
    "docs/timm.md finetune": "--size 64",
    "docs/torchvision.md finetune": "--size 64",
    "docs/flowers.md finetune": "--size 64",
    "docs/your-model.md finetune": "--size 64",
    "docs/your-model.md pretrain": "--size 64",
}

# Lines that name a file that a line further down on their page writes: they run at the end.
LATER = ("macs inspect small.onnx",)

# Commands whose results a page takes for granted.
FIRST = {
    "docs/export.md": [
        "macs pretrain --id digits --net wrn-10-1 --run runs/known",
        "macs calibrate runs/known --out detector.safetensors",
    ],
    "docs/openood.md": ["macs finetune --net wrn-10-1 --run runs/mine"],
    "docs/score-tables.md": ["macs finetune --net wrn-10-1 --run runs/mine"],
    "docs/scores.md": ["macs finetune --net wrn-10-1 --run runs/mine"],
}


def adapted(line: str, page: str, places: dict[str, str]) -> list[str]:
    """The words of a line, with their replacements and with short options."""
    for written, instead in INSTEAD.items():
        if written in line:
            line = line.replace(written, instead.format(**places))
    words = shlex.split(line)
    command = words[words.index("macs") + 1]
    for options in (SHORT.get(command, ""), SHORT.get(f"{page} {command}", "")):
        for option in re.findall(r"--\S+(?: (?!--)\S+)*", options):
            words = with_option(words, *option.split())
    return words


def with_option(words: list[str], name: str, *values: str) -> list[str]:
    """The words with this option in place of the one that they have, or at their end."""
    if name not in words:
        return [*words, name, *values]
    at = words.index(name)
    after = next((place for place in range(at + 1, len(words)) if words[place].startswith("--")), len(words))
    return [*words[: at + 1], *values, *words[after:]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def surroundings(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What all commands find: the data root, a home of their own, what they would download, and one thread."""
    home = tmp_path_factory.mktemp("home")
    settings = {"MACS_DATA": str(data), "HOME": str(home), "SHELL": "/bin/bash", "OMP_NUM_THREADS": "1"}
    settings["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where `ray` and `macs` are
    settings |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "RAY_worker_niceness": "0"}
    settings |= write_downloads(tmp_path_factory.mktemp("downloads"))
    with pytest.MonkeyPatch.context() as patched:
        for name, value in settings.items():
            patched.setenv(name, value)
        yield


@pytest.mark.docs
@pytest.mark.parametrize("page", [page for page, lines in PER_PAGE.items() if lines and page not in PAGES_ELSEWHERE])
def test_the_commands_of_a_page_run(
    page: str, data: Path, surroundings: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for write in WORLDS.get(Path(page).name, ()):
        write(tmp_path)
    lines = [line for line in PER_PAGE[page] if not line.startswith(tuple(ELSEWHERE))]
    lines = FIRST.get(page, []) + sorted(lines, key=lambda line: line.startswith(LATER))
    failures = []
    with contextlib.ExitStack() as stack:
        places = {"data": str(data), "folder": str(tmp_path)}
        if page == "docs/data.md":
            monkeypatch.setenv("MACS_DATA", str(tmp_path / "data"))
            places["mirror"] = stack.enter_context(served(tmp_path / "mirror"))
        if page == "docs/scaling.md":
            stack.enter_context(bucket())
            fill_bucket()
            places |= {"free": str(free_port()), **stack.enter_context(ray_cluster(tmp_path))}
        for number, line in enumerate(lines):
            words = adapted(line, page, places)
            if words[1] in ("pretrain", "finetune") and "--run" not in words:  # pages show several ways to one run
                words += ["--run", f"runs/{number}"]
            start = time.perf_counter()
            code, output = run(words, tmp_path, places)
            print(f"{time.perf_counter() - start:6.1f} s  {code}  {shlex.join(words)}", flush=True)
            if code != 0:
                failures.append(f"{line}\nran as\n{shlex.join(words)}\nand ended with {code}:\n{output[-3000:]}")
    assert not failures, "\n\n".join(failures)


def run(words: list[str], folder: Path, places: dict[str, str]) -> tuple[int | None, str]:
    """The exit code of a line and what it wrote."""
    environment = dict(os.environ)
    if "--mirror" in words:  # into a data root that has nothing yet
        environment["MACS_DATA"] = tempfile.mkdtemp(dir=folder)
    if "--address auto" in shlex.join(words):
        environment["RAY_ADDRESS"] = places["cluster"]
    if words[0] != "macs":
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr
    if words[1] == "serve":
        return answered(words, folder)
    if "--nodes" in words:  # the same command on each machine
        other = folder / "other machine"
        other.mkdir()
        shutil.copy(folder / "classifier.pt", other)
        with ThreadPoolExecutor() as pool:
            here, there = pool.map(lambda place: called(words, place, environment), (folder, other))
        return here[0] or there[0], here[1] + there[1]
    return called(words, folder, environment)


def answered(words: list[str], folder: Path) -> tuple[int, str]:
    """A service is started, asked whether it lives, and stopped."""
    with serving(folder / words[2], *words[3:], blocked=False) as service:
        with urllib.request.urlopen(f"{service.url}/healthz") as answer:
            assert answer.status == 200
        return service.stop(), "".join(service.lines)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The URL of a web server for the files in a folder."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextlib.contextmanager
def ray_cluster(folder: Path) -> Iterator[dict[str, str]]:
    """The addresses of a Ray cluster of one machine."""
    ray = Path(sys.executable).with_name("ray")
    port, jobs = free_port(), free_port()
    own = tempfile.mkdtemp(prefix="ray")  # or its address would stay behind for others; short, as it holds sockets
    options = f"start --head --block --port {port} --dashboard-port {jobs} --num-cpus 2 --temp-dir {own}".split()
    log = (folder / "ray.log").open("w")
    head = subprocess.Popen([ray, *options], stdout=log, stderr=log)
    try:
        wait_for(port, head)
        yield {"cluster": f"127.0.0.1:{port}", "jobs": f"http://127.0.0.1:{jobs}"}
    finally:
        head.terminate()
        head.wait()
        log.close()
        shutil.rmtree(own, ignore_errors=True)


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port)).close()
        time.sleep(0.5)
    raise AssertionError("Ray has not started")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_no_command_line_is_left_out() -> None:
    """Counted in another way: lines of the pages that begin with `macs`, or that hand it to another program."""
    begins = re.compile(r"^ +(?:(?:torchrun|ray job submit) .*-- )?macs (?!\d)[\w-]")
    for page, lines in PER_PAGE.items():
        text = re.sub(r"^```python.*?^```", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
        assert len(lines) == sum(bool(begins.match(line)) for line in text.splitlines()), page
    assert sum(map(len, PER_PAGE.values())) > 100


def test_every_exception_is_still_needed() -> None:
    lines = [line for lines in PER_PAGE.values() for line in lines]
    for table in (ELSEWHERE, INSTEAD, LATER):
        for part in table:
            assert any(part in line for line in lines), f"no page has {part!r} any more"
    for place in (*ELSEWHERE.values(), *PAGES_ELSEWHERE, *PAGES_ELSEWHERE.values()):
        assert (ROOT / place).is_file(), f"{place} is gone"
    commands = Counter(f"{page} {line.split()[1]}" for page, lines in PER_PAGE.items() for line in lines)
    for key in SHORT:
        assert any(f" {command}".endswith(f" {key}") for command in commands), f"no line has a use for {key!r} in SHORT"
