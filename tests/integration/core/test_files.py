"""Files are written whole or not at all, where they may be written, and that is known before the work."""

import errno
import multiprocessing
import os
import resource
import subprocess
import sys
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from macs.core.files import write_atomically, write_text

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def test_torch_on_a_full_disk_says_what_the_system_says(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: torch says "unexpected pos" to both."""
    code = f"""
import resource, torch
from macs.core.files import write_atomically
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
write_atomically({str(tmp_path / "state.pt")!r}, lambda path: torch.save(torch.zeros(10**6), path))
"""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith(f"Cannot write {tmp_path / 'state.pt'}: {os.strerror(errno.EFBIG)}.")
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_of_the_shell_is_written_to() -> None:
    code = "from macs.core.files import *; write_text(output_file('/dev/stdout'), 'through the pipe')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "through the pipe"


@needs_root
def test_what_another_user_may_not_write_is_found_before_the_work(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):  # pytest's own folders are closed to others
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    (tmp_path / "readonly").mkdir()
    (tmp_path / "readonly").chmod(0o555)
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed").chmod(0o700)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open" / "theirs").write_text("x")
    (tmp_path / "open" / "theirs").chmod(0o444)
    code = """
import os, sys
from macs.core.errors import MacsError
from macs.core.files import output_file, output_folder
os.setgid(65534); os.setuid(65534)
output_file(os.path.dirname(sys.argv[-1]) + "/new")
for path in sys.argv[1:]:
    for check in (output_file, output_folder) if not path.endswith("theirs") else (output_file,):
        try:
            check(path)
        except MacsError as error:
            assert "Cannot write" in str(error) and "ermission denied" in str(error), error
        else:
            sys.exit(f"{path} would be written")
"""
    refused = ("readonly/new", "readonly/new/deeper", "closed/new", "open/theirs")
    paths = [tmp_path / name for name in refused]
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _write_slowly(path: Path, begun: Event, may_end: Event) -> None:
    def write(temporary: Path) -> None:
        temporary.write_text("whole")
        begun.set()
        may_end.wait()

    write_atomically(path, write)


def test_files_of_killed_processes_are_removed_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    path, context = tmp_path / "results.txt", multiprocessing.get_context("spawn")
    living, killed = [(context.Event(), context.Event()) for _ in range(2)]
    processes = [context.Process(target=_write_slowly, args=(path, *events)) for events in (living, killed)]
    for process, (begun, _) in zip(processes, (living, killed), strict=True):
        process.start()
        begun.wait()
    assert len(list(tmp_path.iterdir())) == 2
    processes[1].kill()
    processes[1].join()
    assert len(list(tmp_path.iterdir())) == 2
    alike = [tmp_path / name for name in (".results.txt.mine.part", ".results.txtx.00000000.part", "results.txt.part")]
    for each in alike:
        each.touch()
    os.mkfifo(tmp_path / ".results.txt.00000000.part")  # would hang whoever opens it to read
    write_text(path, "other")
    parts = set(tmp_path.iterdir()) - {path, *alike}
    assert len(parts) == 1, parts
    living[1].set()
    processes[0].join()
    assert path.read_text() == "whole" and set(tmp_path.iterdir()) == {path, *alike}
