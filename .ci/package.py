"""Builds wheel and sdist and tries them as a user does, in new environments: `make package`, or

    python .ci/package.py [--python python3.13] [--extras demo,onnx] [--exported FOLDER] [--each-extra [EXTRA ...]]

1. Every file of src/macs is in both archives, and nothing else is in the wheel.
2. Core: the wheel with its dependencies. `macs doctor` works, and `import macs` does not import torch.
3. With --extras: these are added, and the commands and Python lines of docs/tutorial.md are run; with demo among them,
   also `macs reproduce`.
4. Runtime: runtime.txt and the wheel without its dependencies, so without torch. With --exported, a folder that
   tests/runtime/exported_files.py wrote, every command that runs an exported detector is tried.

It prints the sizes of the environments and the time of an import. With --each-extra, which needs --exported, it does
something else after the first step: each extra, or each that is named, is installed alone into a new environment, and
.ci/extras.py does there what the documentation shows of it (`make package-extras`).
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOT_OURS = ("PYTHONPATH", "MACS_DATA", "HF_HOME", "TORCH_HOME")  # what a new environment must not find
CONSTRAINTS = ["-c", str(ROOT / "constraints.txt")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable, help="the Python of the new environments")
    parser.add_argument("--extras", default="")
    parser.add_argument("--exported", type=Path)
    parser.add_argument("--each-extra", nargs="*", metavar="EXTRA")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheel, sdist = build(folder / "dist")
        check_contents(wheel, sdist)
        tell("wheel", kB=round(wheel.stat().st_size / 1000))
        if options.each_extra is None:
            try_package(wheel, options.python, options.extras, options.exported, folder)
        else:
            try_each(options.each_extra or extras(), wheel, options.python, options.exported.resolve(), folder)


def try_package(wheel: Path, python: str, extras: str, exported: Path | None, folder: Path) -> None:
    """The wheel with its dependencies, with some extras, and without torch."""
    core = Environment(folder / "core", python)
    core.install(*CONSTRAINTS, str(wheel))
    assert core.doctor()["torch"]["device"]
    tell("core", **core.examined())
    if extras:
        core.install(*CONSTRAINTS, f"{wheel}[{extras}]")
        core.output(str(ROOT / "tests" / "support" / "docs" / "follow_tutorial.py"), cwd=make(folder / "tutorial"))
        if "demo" in extras.split(","):
            print(
                core.output(str(ROOT / "tests" / "runtime" / "reproduced.py"), cwd=make(folder / "reproduced")), end=""
            )
        tell(f"core with {extras}", **core.examined())
    shutil.rmtree(core.folder)

    runtime = Environment(folder / "runtime", python)
    runtime.install(*CONSTRAINTS, "-r", str(ROOT / "runtime.txt"))
    runtime.install("--no-deps", str(wheel))
    assert str(runtime.doctor()["torch"]).startswith("not installed")
    if exported:
        runtime.output(str(ROOT / "tests" / "runtime" / "without_torch.py"), str(exported.resolve()))
    tell("runtime", **runtime.examined())


def extras() -> list[str]:
    """The extras that are there for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [name for name in project["optional-dependencies"] if name != "dev"]


def try_each(names: list[str], wheel: Path, python: str, exported: Path, folder: Path) -> None:
    """Each extra alone, one environment at a time; what fails is told, and the others are still tried."""
    failed = []
    for name in names:
        start = time.perf_counter()
        environment = Environment(folder / "extra", python)
        try:
            environment.install("--no-cache-dir", "--no-compile", *CONSTRAINTS, f"{wheel}[{name}]")
            environment.output(str(ROOT / ".ci" / "extras.py"), name, str(exported), cwd=make(folder / name))
            tell(name, passed=f"after {time.perf_counter() - start:.0f} s", **environment.examined())
        except SystemExit as error:
            failed.append(name)
            tell(name, failed=str(error))
        shutil.rmtree(environment.folder)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def tell(what: str, **findings: float | str) -> None:
    print(f"{what}:", ", ".join(f"{name} {value}" for name, value in findings.items()), flush=True)


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def build(target: Path) -> tuple[Path, Path]:
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(target), str(ROOT)], check=True, capture_output=True)
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    files = [path for path in (ROOT / "src" / "macs").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    expected = {path.relative_to(ROOT / "src").as_posix() for path in files}
    assert {Path(name).suffix for name in expected} >= {".py", ".html", ".css", ".js", ".json", ".typed"}
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert inside == expected, f"missing: {expected - inside}; too many: {inside - expected}"
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {f"src/{name}" for name in expected} | {"LICENSE", "README.md", "pyproject.toml", "constraints.txt"}
    assert needed <= names, f"the sdist lacks {needed - names}"


class Environment:
    """A new virtual environment, which sees neither this repository nor the caller's packages."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        self.python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"

    def install(self, *arguments: str) -> None:
        self.output("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments)

    def output(self, *arguments: str, cwd: Path | None = None) -> str:
        clean = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
        command = [str(self.python), *arguments]
        done = subprocess.run(
            command, cwd=cwd or self.folder, env=clean, capture_output=True, text=True, check=False, timeout=1800
        )
        if done.returncode:
            sys.exit(f"{' '.join(command)} ends with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def doctor(self) -> dict[str, Any]:
        examination: dict[str, Any] = json.loads(self.output("-m", "macs", "doctor", "--json"))
        assert Path(examination["location"]).is_relative_to(self.folder.resolve())
        return examination

    def examined(self) -> dict[str, float | str]:
        """Its Python, its size in MB, and the seconds of `import macs` and `macs --version`, the best of three."""
        size = sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file() and not path.is_symlink())
        timed = "import time; start = time.perf_counter(); import macs; print(time.perf_counter() - start)"
        assert self.output("-c", "import macs, sys; print('torch' in sys.modules)").strip() == "False"
        seconds = min(float(self.output("-c", timed)) for _ in range(3))
        command = []
        for _ in range(3):
            start = time.perf_counter()
            self.output("-m", "macs", "--version")
            command.append(time.perf_counter() - start)
        version, best = self.output("-V").split()[1], min(command)
        return {"Python": version, "MB": round(size / 1e6), "import_s": round(seconds, 3), "version_s": round(best, 2)}


if __name__ == "__main__":
    main()
