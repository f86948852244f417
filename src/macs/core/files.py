"""The user's files: paths that may be read, and files that are written whole or not at all.

Every path that a user names comes through here. `input_file` and `input_folder` refuse what cannot be read (a FIFO
would hang, an empty string would mean the current folder); `output_file` refuses, before any work is done, what must
not or cannot be written; `write_atomically` writes.
"""

import glob
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from macs.core.errors import MacsError

try:
    import fcntl
except ImportError:  # Windows: abandoned temporary files are then left alone
    fcntl = None  # type: ignore[assignment]

RUN_FILES = ("recipe.toml", "metrics.jsonl", "state.pt", "net.safetensors")  # what a run folder consists of
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def user_path(path: str | Path) -> Path:
    """A path as the user wrote it, with ~ expanded; refused where no file can have that name."""
    if not isinstance(path, str | Path):
        raise MacsError(f"A path is a text, not a {type(path).__name__}; name a file or a folder.")
    text = str(path)
    if not text.strip():
        raise MacsError("A path is empty; name a file or a folder (. is the current one).")
    if "\0" in text:
        raise MacsError(f"No file can be called {text!r}, since that contains a NUL character; check the path.")
    try:
        os.fsencode(text)
        return Path(text).expanduser()
    except UnicodeEncodeError:
        raise MacsError(
            f"No file can be called {text!r}, since that contains half a character; check the path."
        ) from None
    except RuntimeError:
        raise MacsError(f"Cannot find the home folder that {text} starts with; write the whole path.") from None


def input_file(path: str | Path, what: str = "file", hint: str = "check the path") -> Path:
    """The path of a regular file that exists and may be read, or the sentence that says why it is none."""
    path = user_path(path)
    kind = kind_of(path)
    if kind is None:
        raise MacsError(f"There is no {what} at {path}; {hint}.")
    if kind != "a file":
        raise MacsError(f"{path} is {kind}, not a {what}; {hint}.")
    if not os.access(path, os.R_OK):
        raise MacsError(f"Cannot read {path}: Permission denied.")
    return path


def input_folder(path: str | Path, hint: str = "check the path") -> Path:
    """The path of a folder that exists and may be listed, or the sentence that says why it is none."""
    path = user_path(path)
    kind = kind_of(path)
    if kind is None:
        raise MacsError(f"There is no folder {path}; {hint}.")
    if kind != "a folder":
        raise MacsError(f"{path} is {kind}, not a folder; {hint}.")
    if not os.access(path, os.R_OK | os.X_OK):
        raise MacsError(f"Cannot read the folder {path}: Permission denied.")
    return path


def kind_of(path: Path) -> str | None:
    """What a path leads to, in words: "a file", "a folder", "a FIFO", ...; None if there is nothing."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # a name that is too long, a loop of links, a folder that may not be entered
        raise MacsError(f"Cannot read {path}: {reason(error)}.") from None
    return KINDS.get(stat.S_IFMT(mode), "a file")


def output_file(path: str | Path) -> Path:
    """Where a file is to be written, checked before the work that gives its content.

    A link stands for what it points at. No file of a run is ever overwritten by something else.
    """
    path = user_path(path)
    kind = kind_of(path)
    if kind == "a folder":
        raise MacsError(f"{path} is a folder; name a file to write.")
    target = path.resolve()
    folder = target.parent
    if target.name in RUN_FILES and (folder / "recipe.toml").exists():
        raise MacsError(f"{path} belongs to the run in {folder}, which is never overwritten; name another file.")
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise MacsError(f"Cannot write {path}: {folder} is a file, not a folder.")
    writable = os.access(folder, os.W_OK | os.X_OK) if kind in (None, "a file") else os.access(target, os.W_OK)
    if not writable:
        raise MacsError(f"Cannot write {path}: Permission denied for {folder}.")
    return target


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Call `write` on a temporary file, then put it in place: a reader never sees half a file.

    What is no regular file, such as /dev/null or a FIFO, cannot be replaced; it is written to.
    """
    path = Path(path).resolve()
    device = path.exists() and not path.is_file()
    try:
        if not device:
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(path)
        with _temporary(path if not device else Path(tempfile.gettempdir()) / path.name) as temporary:
            write(temporary)
            if device:
                with temporary.open("rb") as source, path.open("wb") as sink:
                    shutil.copyfileobj(source, sink)
            else:
                temporary.chmod(0o666 & ~_umask())
                temporary.replace(path)
    # torch and safetensors report a full disk as a RuntimeError of their own.
    except (OSError, RuntimeError) as error:
        why = reason(error) if isinstance(error, OSError) else _disk_full(path) or str(error).splitlines()[0]
        raise MacsError(f"Cannot write {path}: {why}. What was there before is unchanged.") from error


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def remove_abandoned(path: Path) -> None:
    """Delete temporary files for this path whose process was killed: nobody holds their lock any more."""
    if fcntl is None:
        return
    for file in path.parent.glob(f".{glob.escape(path.name[:100])}.*.part"):
        try:
            with file.open("rb") as handle:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.unlink()
        except OSError:  # still being written, or not ours to delete
            continue


def reason(error: OSError) -> str:
    """Why the system refused, in its own words."""
    return (error.strerror or str(error)).rstrip(".")


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """A hidden file beside `path`, locked for as long as this process is at work on it, and gone afterwards."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part")
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield Path(name)
    finally:
        os.close(handle)
        Path(name).unlink(missing_ok=True)


def _disk_full(path: Path) -> str:
    """ "no space left" if that is so: torch and safetensors do not say it."""
    try:
        return "No space left on device" if shutil.disk_usage(path.parent).free < 2**20 else ""
    except OSError:
        return ""


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
