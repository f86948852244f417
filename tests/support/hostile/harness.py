"""Calls of macs that cannot do harm, hundreds of them in a minute.

A warm process, this file run as a script, imports everything once and runs no network. For each call it forks a child
that loses its rights (root becomes nobody), gets limits, streams and a working folder of its own, and runs the command,
or a line of Python. `Workshop` is the side of the tests: it keeps two working folders, each a copy of the prepared one,
compares them with it after every call and mends what was changed.

    fine = case("predict", "good.png", "--detector", "detector.safetensors", codes=0)
    check(workshop.run(fine.call), fine)
"""

import contextlib
import encodings
import fnmatch
import gc
import hashlib
import importlib
import io
import os
import pkgutil
import resource
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Client, Connection
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

NOBODY = 65534
SECONDS = 20  # of rest, or of computing, after which a call hangs
PATIENCE = 30  # times as long for a call that wants to compute, on a machine that is busy with something else
MEMORY, FILE_SIZE = 8 << 30, 64 << 20
WORKERS = 2
NOTED = "modules"
EVERY_CASE = os.environ.get("MACS_HOSTILE") == "all"


Forge = Callable[[Path], bytes]  # from the prepared folder to the content of a file


@dataclass(frozen=True)
class Call:
    """One call of the package: arguments of the command, or a line of Python.

    A file to put into the working folder is given by its content, by the name of a prepared one, or by a function.
    """

    arguments: tuple[str, ...] = ()
    python: str = ""
    stdin: str = "/dev/null"
    stdout: str = "file"  # or "closed", "broken", or a path
    encoding: str = "utf-8"  # of the terminal
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, "bytes | str | Forge"] = field(default_factory=dict)  # put into the working folder first
    seconds: float = SECONDS
    trusted: bool = False  # keeps its rights, and notes which modules it imported

    def __str__(self) -> str:
        return self.python or " ".join(["macs", *(a if len(a) < 99 else f"{a[:50]}..." for a in self.arguments)])


@dataclass(frozen=True, eq=False)
class Case:
    """A call and what may become of it: the exit codes, and the files that it may write."""

    call: Call
    codes: tuple[int, ...]
    changed: tuple[str, ...] = ()
    name: str = ""
    warned: bool = False  # a success must come with a warning

    def __str__(self) -> str:
        return (self.name or str(self.call)).encode("unicode_escape").decode()[:150]


def case(
    *arguments: object,
    codes: int | tuple[int, ...] = 2,
    changed: str | tuple[str, ...] = (),
    name: str = "",
    warned: bool = False,
    **how: Any,
) -> Case:
    """A command that must fail with one sentence, unless other codes are named."""
    call = Call(tuple(map(str, arguments)), **how)
    allowed = (codes,) if isinstance(codes, int) else codes
    return Case(call, allowed, (changed,) if isinstance(changed, str) else changed, name, warned)


@dataclass(frozen=True)
class Outcome:
    """What became of a call."""

    call: Call
    code: int | None  # negative for a signal, None if it hung and was killed
    out: str
    err: str
    changed: Mapping[str, str]  # path -> "new", "changed" or "gone"

    def __str__(self) -> str:
        end = "hung" if self.code is None else f"code {self.code}"
        return f"{self.call!s}\n{end}, changed {dict(self.changed)}\nout: {self.out[-600:]}\nerr: {self.err[-3000:]}"


def check(outcome: Outcome, case: Case) -> None:
    """No traceback, no hang, the right exit code, one sentence for a mistake, and no file touched but those named."""
    assert outcome.code is not None, f"It hangs: {outcome}"
    assert "Traceback" not in outcome.err + outcome.out, f"It shows a traceback: {outcome}"
    assert outcome.code in case.codes, f"The exit code is none of {case.codes}: {outcome}"
    lines = outcome.err.strip().splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    if outcome.code == 2:
        assert len(errors) == 1 and lines[-1] == errors[0], f"It is not one sentence: {outcome}"
        assert len(errors[0]) > len("error: ..."), f"The sentence says nothing: {outcome}"
    else:
        assert not errors, f"It complains, yet goes on: {outcome}"
    if outcome.code == 0 and case.warned:
        assert any(line.startswith("warning: ") for line in lines), f"It says nothing: {outcome}"
    assert all(sign.isprintable() or sign in "\n\r" for sign in outcome.err), f"It steers the terminal: {outcome}"
    touched = [path for path in outcome.changed if not any(fnmatch.fnmatchcase(path, each) for each in case.changed)]
    assert not touched, f"It touched {touched}: {outcome}"
    assert not any(path.endswith(".part") for path in outcome.changed), f"It left half a file: {outcome}"


class Workshop:
    """The warm process, and the working folders in which it runs calls."""

    def __init__(self, prepare: Callable[["Workshop", Path], None], finish: Callable[[Path], None]) -> None:
        """`prepare` makes the prepared folder by calls of its own; `finish` adds what cannot be copied, as sockets."""
        self.root = Path(tempfile.mkdtemp(prefix="macs-hostile-"))
        self.root.chmod(0o755)
        self.template = self._owned("template")
        self.finish: Callable[[Path], None] = lambda _: None
        address = str(self.root / "socket")
        self.server = subprocess.Popen([sys.executable, __file__, address], stdin=subprocess.PIPE)
        self.free: Queue[Worker] = Queue()
        self._wait_for(address)
        maker = Worker(Client(address), self.template, self._owned("home"))
        self.maker = maker
        self._may_read_the_package()
        prepare(self, self.template)
        self.finish = finish
        for path in maker.home.rglob("*"):
            own(path)
        for number in range(WORKERS):
            folder = self.root / f"work{number}"
            self._renew(folder)
            self.free.put(Worker(Client(address), folder, maker.home))
        self.before = snapshot(folder)

    def make(self, *arguments: object, python: str = "", codes: tuple[int, ...] = (0,)) -> None:
        """Run a call that makes a part of the prepared folder."""
        outcome = self._send(Call(tuple(map(str, arguments)), python, seconds=120, trusted=True), self.maker)
        assert outcome.code in codes, f"The prepared folder cannot be made: {outcome}"

    def run(self, call: Call) -> Outcome:
        worker = self.free.get()
        try:
            for name, content in call.files.items():
                self._put(worker.folder / name, content)
            known = snapshot(worker.folder) if call.files else self.before
            outcome = self._send(call, worker)
            after = snapshot(worker.folder)
            self._mend(worker.folder, difference(self.before, after))
            return replace(outcome, changed=difference(known, after))
        finally:
            self.free.put(worker)

    def run_all(self, calls: Iterable[Call]) -> list[Outcome]:
        """Several calls, as many at a time as there are working folders."""
        with ThreadPoolExecutor(WORKERS) as pool:
            return list(pool.map(self.run, calls))

    def close(self) -> None:
        self.server.communicate()  # closes its standard input, at which it ends
        remove(self.root)

    def _send(self, call: Call, worker: "Worker") -> Outcome:
        worker.connection.send((replace(call, files={}), str(worker.folder), str(worker.home)))
        code, out, err = worker.connection.recv()
        return Outcome(call, code, out, err, {})

    def _wait_for(self, address: str) -> None:
        while not Path(address).exists():
            assert self.server.poll() is None, "The warm process ended before its first call."
            time.sleep(0.05)

    def _may_read_the_package(self) -> None:
        """Skip everything where root's files are hidden from the user that calls run as."""
        outcome = self._send(Call(python="Path(macs.__file__).read_bytes()"), self.maker)
        assert outcome.code == 0 or "PermissionError" in outcome.err, str(outcome)
        if outcome.code != 0:
            self.close()
            pytest.skip("nobody, as whom hostile calls run, may not read the package here")

    def _owned(self, name: str) -> Path:
        folder = self.root / name
        folder.mkdir()
        own(folder)
        return folder

    def _put(self, path: Path, content: "bytes | str | Forge") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            content = (self.template / content).read_bytes()
        path.write_bytes(content(self.template) if callable(content) else content)
        own(path.parent)
        own(path)

    def _mend(self, folder: Path, changed: Mapping[str, str]) -> None:
        """Undo what a call did: delete what is new, or copy everything again."""
        if set(changed.values()) - {"new"}:
            self._renew(folder)
            return
        for name in sorted(changed, reverse=True):
            path = folder / name
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()

    def _renew(self, folder: Path) -> None:
        remove(folder)
        shutil.copytree(self.template, folder, symlinks=True)
        self.finish(folder)
        for path in [folder, *folder.rglob("*")]:
            own(path)


@dataclass(frozen=True)
class Worker:
    connection: Any
    folder: Path
    home: Path


def own(path: Path) -> None:
    """Give a path to the user that calls run as."""
    if os.getuid() == 0:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def remove(folder: Path) -> None:
    """Delete a folder, even if parts of it may not be entered."""
    if not folder.exists():
        return
    for parent, folders, _ in os.walk(folder):
        for name in folders:
            path = Path(parent) / name
            if not path.is_symlink():
                path.chmod(0o755)
    shutil.rmtree(folder)


def snapshot(folder: Path) -> dict[str, tuple[object, ...]]:
    """Every path in a folder, with what it is and what it holds."""
    found: dict[str, tuple[object, ...]] = {}
    waiting = [str(folder)]
    while waiting:
        with contextlib.suppress(PermissionError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                content: object = None
                if entry.is_symlink():
                    content = str(Path(entry.path).readlink())
                elif entry.is_dir():
                    waiting.append(entry.path)
                elif entry.is_file():
                    with contextlib.suppress(PermissionError):
                        content = hashlib.sha1(Path(entry.path).read_bytes()).digest()
                name = os.path.relpath(entry.path, folder)
                found[name] = (stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode), content)
    return found


def difference(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, str]:
    gone = {path: "gone" for path in before if path not in after}
    new = {path: "new" for path in after if path not in before}
    return gone | new | {path: "changed" for path in before if path in after and before[path] != after[path]}


# The warm process.


def serve(address: str) -> None:
    """Import everything, then give each connection a process that runs its calls one after the other."""
    warm_up()
    gc.freeze()  # or every child would copy the memory that the collector looks at
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{address}.new")
        listener.listen()
        Path(f"{address}.new").rename(address)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:  # until the tests end, however they do
            connection = Connection(listener.accept()[0].detach())
            import_noted(Path(address).with_name("home") / NOTED)
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                with contextlib.suppress(EOFError, OSError):
                    while True:
                        connection.send(run_child(connection, *connection.recv()))
                os._exit(0)
            connection.close()


def warm_up() -> None:
    """Import what commands import, and nothing that runs a network: threads would not survive a fork."""
    import PIL.Image
    import torch

    import macs

    for name in ("lightning_fabric", "scipy.special", "scipy.stats", "requests", "kit"):
        importlib.import_module(name)
    torch.set_num_threads(1)
    PIL.Image.init()
    for package in (encodings, macs):  # nobody may not be allowed to read the standard library
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(("__main__", "mbcs", "oem", "cp65001")):  # the last three are for Windows
                importlib.import_module(module.name)


def import_noted(file: Path) -> None:
    """Import what the trusted calls did: later ones are quicker, and nobody may not be allowed to read the library."""
    for name in file.read_text().split() if file.exists() else ():
        if name not in sys.modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def run_child(connection: Connection, call: Call, folder: str, home: str) -> tuple[int | None, str, str]:
    """Run a call in a child; its exit code, negative for a signal or None for a hang, and what it printed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            code = 99
            try:
                connection.close()
                code = become(call, folder, home, out.fileno(), err.fileno())
            finally:
                os._exit(code)
        watch = os.pidfd_open(child)
        ended: list[Any] = []
        for _ in range(PATIENCE):
            ended = select.select([watch], [], [], call.seconds)[0]
            if ended or at_rest(child):
                break
        os.close(watch)
        with contextlib.suppress(ProcessLookupError):  # what the child may have started goes with it
            os.killpg(child, signal.SIGKILL)
        if not ended:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "backslashreplace"))
        return (os.waitstatus_to_exitcode(status) if ended else None), texts[0], texts[1]


def at_rest(session: int) -> bool:
    """Whether, for a second, every thread of a session's processes waits, and not for a processor or a disk."""
    for _ in range(10):
        for status in Path("/proc").glob("[0-9]*/task/[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has ended by now
                state, _, _, its_session = status.read_text().rpartition(")")[2].split()[:4]
                if int(its_session) == session and state in "RD":
                    return False
        time.sleep(0.1)
    return True


def become(call: Call, folder: str, home: str, out: int, err: int) -> int:
    """Turn this fresh child into the process that a user would have started, run the call, and end as Python does."""
    os.setsid()
    signal.alarm(int(call.seconds) * PATIENCE + 5)  # should the warm process be killed before it can end this one
    for limit, value in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, FILE_SIZE),
        (resource.RLIMIT_CPU, int(call.seconds) + 1),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    os.chdir(folder)
    os.dup2(os.open(call.stdin, os.O_RDONLY | os.O_NONBLOCK), 0)
    os.dup2(err, 2)
    redirect_stdout(call.stdout, out)
    os.closerange(3, 256)
    os.umask(0o022)
    for name in [name for name in os.environ if name.startswith(("MACS", "XDG"))]:
        del os.environ[name]
    private = {"HOME": home, "TMPDIR": folder, "MPLCONFIGDIR": home, "COLUMNS": "120", "MACS_DATA": "nodata"}
    os.environ.update({**private, **call.environment})
    tempfile.tempdir = None
    if os.getuid() == 0 and not call.trusted:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    socket.socket.connect = no_network  # type: ignore[method-assign]
    for number, name in ((1, "stdout"), (2, "stderr")):
        closed = number == 1 and call.stdout == "closed"
        errors = "strict" if number == 1 else "backslashreplace"
        raw = None if closed else os.fdopen(number, "wb", closefd=False)
        setattr(sys, name, raw and io.TextIOWrapper(raw, call.encoding, errors, write_through=number == 2))
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv = ["macs", *call.arguments]
    code = ending((lambda: run_python(call.python)) if call.python else run_command)
    if call.trusted:
        with Path(home, NOTED).open("a") as file:
            print(*sys.modules, file=file)
    return code


def redirect_stdout(where: str, out: int) -> None:
    if where == "closed":
        os.close(1)
    elif where == "broken":
        reader, writer = os.pipe()
        os.dup2(writer, 1)
        os.close(reader)
        os.close(writer)
    else:
        os.dup2(out if where == "file" else os.open(where, os.O_WRONLY), 1)


def no_network(*_: object) -> None:
    raise OSError("Network is unreachable")


def run_command() -> None:
    from macs.__main__ import main

    main()


def run_python(line: str) -> None:
    from macs import MacsError
    from macs.__main__ import prepare_warnings
    from macs.core.text import printable

    prepare_warnings()
    names: dict[str, Any] = {}
    exec("from kit import *", names)
    try:
        exec(line, names)
    except (MacsError, TypeError) as error:
        kind = "error" if isinstance(error, MacsError) else "TypeError"
        print(printable(f"{kind}: {error}"), file=sys.stderr)
        sys.exit(2 if isinstance(error, MacsError) else 3)


def ending(run: Callable[[], None]) -> int:
    """The exit code that Python itself would give."""
    code: Any = 0
    try:
        run()
    except SystemExit as end:
        code = end.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except OSError as error:
        os.write(2, f"Exception ignored on flushing sys.stdout: {error!r}\nTraceback of Python's own\n".encode())
        return 120
    return (code or 0) & 255


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.path[:0] = map(str, Path(__file__).parents[:2])  # for kit.py and tiny.py
    # Calls are pickled as `harness.Call`, while this module is called __main__ here.
    sys.modules["harness"] = sys.modules["__main__"]
    serve(sys.argv[1])
    os._exit(0)  # torch takes seconds to say goodbye
