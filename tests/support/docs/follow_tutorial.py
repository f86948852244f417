"""Does what docs/tutorial.md says, in the working folder: every command as a process, every line of Python here.

    python follow_tutorial.py

It needs nothing but macs with the extras that the tutorial names, so that `make package` runs it in a new environment.
"""

import subprocess
import sys
from typing import Any

from snippets import ROOT, blocks_of, commands_in


def follow(until: str = "") -> int:
    """Run the page, as far as the first `macs` command of this name, and return the number of commands and blocks."""
    names: dict[str, Any] = {}
    steps = 0
    for block in blocks_of(ROOT / "docs" / "tutorial.md"):
        if block.language == "python":
            exec(compile(block.text, block.place, "exec"), names)
            steps += 1
        for command in commands_in(block):
            if command.words[1] == until:
                return steps
            done = subprocess.run([sys.executable, "-m", *command.words], check=False, capture_output=True, text=True)
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            print(done.stdout, end="")
            steps += 1
    return steps


if __name__ == "__main__":
    follow()
