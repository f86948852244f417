"""What `macs reproduce` does where the package is installed and the repository is not at hand: python reproduced.py

It needs the extra `demo`, for the scale smoke, and runs in the working folder. `make package` runs it in an environment
that has the wheel alone.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

TABLE = ("reproduce", "table1", "--ids", "cifar10")


def macs(*arguments: str, expect: int = 0) -> str:
    """Return what a command prints; standard error where it has to fail, in one sentence."""
    nowhere = {**os.environ, "MACS_DATA": str(Path("no-data").resolve())}
    command = [sys.executable, "-m", "macs", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, env=nowhere)
    assert done.returncode == expect, f"{' '.join(arguments)}: {done.returncode}\n{done.stderr}"
    return done.stderr if expect else done.stdout


def main() -> None:
    options = ("--rows", "oe", "macs", "--epochs", "1", "--epoch-size", "64")
    (part,) = json.loads(macs(*TABLE, *options, "--out", "smoke", "--json"))["parts"]
    assert {Path(file).suffix for file in part["files"]} == {".md", ".tex", ".csv", ".json"}
    assert all(Path(file).stat().st_size for file in part["files"])
    assert {entry["row"] for entry in part["entries"] if entry["ours"] is not None} == {"OE", "MaCS, m = 0.5"}
    for scale in ("lab", "full"):
        planned = json.loads(macs(*TABLE, "--scale", scale, "--out", scale, "--dry-run", "--json"))
        assert len(planned["cells"]) == 1 + 4 + 10 and {cell["state"] for cell in planned["cells"]} == {"data missing"}
        assert "Traceback" not in (said := macs(*TABLE, "--scale", scale, "--out", scale, expect=2))
        assert "cifar" in said
    said = macs("reproduce", "study", "--out", "study", expect=2)
    assert "clone of the repository" in said and "--cells" in said and "Traceback" not in said
    print("macs reproduce: smoke, lab and full, and the study names what it needs")


if __name__ == "__main__":
    main()
