"""The C library's memory is left alone by the library and kept by the command line."""

import subprocess
import sys

import pytest

COUNTED = """
import ctypes, sys
calls = []
class Library:
    def mallopt(self, *given):
        calls.append(given)
ctypes.CDLL = lambda name: Library()
{}
print(calls)
"""


def calls(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", COUNTED.format(code)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told")
def test_a_program_decides_for_itself_and_a_command_asks_for_it() -> None:
    kept = "[(-1, -1), (-4, 0)]"
    assert calls("import macs; macs.keep_freed_memory(); assert 'torch' not in sys.modules") == kept
    assert calls("import macs, macs.core.memory") == "[]"
    command = "sys.argv = ['macs', '--version']\nfrom macs.__main__ import main\ntry: main()\nexcept SystemExit: pass"
    assert calls(command) == kept
