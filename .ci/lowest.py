"""Prints, as constraints for pip, the lowest version that pyproject.toml allows of every package.

What constraints.txt pins stays pinned: of torch, the index may have a single build for the CPU.
"""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
lines = [line for line in Path("constraints.txt").read_text(encoding="utf-8").splitlines() if "==" in line]
pinned = dict(line.split("==") for line in lines)
for requirements in (project["dependencies"], *project["optional-dependencies"].values()):
    for requirement in requirements:
        if found := re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement):
            name, lowest = found.groups()
            if name in pinned:
                print(f"{name} is tested at {pinned[name]}, not at its lower bound {lowest}.", file=sys.stderr)
            print(f"{name}=={pinned.get(name, lowest)}")
