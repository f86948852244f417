"""The user's files: paths that may be read, and files that are written whole or not at all.

Every path that a user names comes through here. `input_file` and `input_folder` refuse what cannot be read (a FIFO
would hang, an empty string would mean the current folder); `output_file` and `output_folder` refuse, before any work
is done, what must not or cannot be written; `write_atomically` writes.

A safetensors file holds the length of its header in 8 bytes, the header as a JSON object, and then the bytes of its
tensors. The header has an entry per tensor, and perhaps metadata; our own files keep their label there, as JSON under
"macs". `read_header` needs no torch.
"""

import errno
import glob
import json
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO

from macs.core.console import tell
from macs.core.errors import MacsError

try:
    import fcntl
except ImportError:  # on Windows, where files are not locked
    fcntl = None  # type: ignore[assignment]  # Windows has none

RUN_FILES = ("recipe.toml", "metrics.jsonl", "state.pt", "net.safetensors")  # the files of a run folder
IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pnm", ".npy")
SLACK = 2**24  # bytes by which an archive may grow when it is read, such as the code of a program in TorchScript
SWELLING = (b"bytearray", b"_rebuild_device_tensor_from_cpu_tensor")  # N bytes; a copy of one number, repeated N times
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def is_url(path: str) -> bool:
    """Return whether a path is a URL, such as s3://bucket/folder, and not the path of a file."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) is not None


def user_path(path: str | Path) -> Path:
    """Return a path as the user wrote it, with ~ expanded; refused if no file can have that name."""
    if not isinstance(path, str | Path):
        raise MacsError(f"A path must be a string, not a {type(path).__name__}; name a file or a folder.")
    text = str(path)
    if not text.strip():
        raise MacsError("A path is empty; name a file or a folder (. is the current one).")
    if "\0" in text:
        raise MacsError(f"No file can be called {text!r}, because it contains a NUL character; check the path.")
    try:
        os.fsencode(text)
    except UnicodeError:
        raise MacsError(f"No file can be called {text!r} in this system's encoding; check the path.") from None
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise MacsError(f"Cannot find the home folder that {text} starts with; write the whole path.") from None


def user_cache() -> Path:
    """Return the folder for macs among the user's caches, where this system keeps them."""
    if sys.platform == "win32":
        return user_path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local") / "macs" / "macs" / "Cache"
    if (named := Path(os.environ.get("XDG_CACHE_HOME", ""))).is_absolute():
        return named / "macs"
    return user_path("~/Library/Caches" if sys.platform == "darwin" else "~/.cache") / "macs"


def unpacked_size(path: Path) -> int:
    """Return the bytes that a ZIP archive, such as an .npz or .pt file, takes in memory; 0 for any other file."""
    with _archive(path) as archive:
        return sum(member.file_size for member in archive.infolist()) if archive else 0


def check_unpacked(path: Path, most: int) -> None:
    """Raise a ValueError if a ZIP archive takes more than so many bytes in memory."""
    if (size := unpacked_size(path)) > most:
        raise ValueError(f"{path} unpacks to {size:,} bytes instead of {most:,} at most")


def refuse_bomb(path: Path) -> None:
    """Refuse a file that torch.load would need far more memory for than the file takes; torch.save compresses nothing.

    Of the functions that torch.load lets a pickle call, even with weights_only, SWELLING take any amount.
    """
    size = unpacked_size(path)
    grows = size > path.stat().st_size + SLACK
    if grows or _pickle_says(path, SWELLING):
        raise MacsError(
            f"{path} would take {f'{size / 1e6:,.0f} MB' if grows else 'any amount'} of memory, and is not as "
            "torch.save writes state dicts; copy or download it again."
        )


def _pickle_says(path: Path, words: Sequence[bytes]) -> bool:
    """Return whether the pickle inside a file of torch.save has one of these names."""
    lines = [b"\n" + word + b"\n" for word in words]
    with _archive(path) as archive:
        if archive:  # two members may have one name, and torch would read the other one
            pickles = [archive.read(member) for member in archive.infolist() if member.filename.endswith("data.pkl")]
            return any(line in content for line in lines for content in pickles)
    with path.open("rb") as file:
        if not path.stat().st_size:
            return False
        with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            return any(content.find(line) >= 0 for line in lines)


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile | None]:
    """The ZIP archive in a file, or None; a BadZipFile if there is one that cannot be read."""
    with path.open("rb") as file:
        if file.read(4) != b"PK\3\4":  # the bytes by which torch and numpy recognise an archive
            yield None
            return
        try:
            with zipfile.ZipFile(file) as archive:
                yield archive
        except (ValueError, NotImplementedError, RuntimeError, zlib.error) as error:  # from forged entries
            raise zipfile.BadZipFile(str(error)) from None


def input_file(path: str | Path, what: str = "file", hint: str = "check the path") -> Path:
    """Return the path of a regular file that exists and may be read; a MacsError says what is wrong with any other."""
    path = user_path(path)
    kind = kind_of(path)
    if kind is None:
        raise MacsError(f"There is no {what} at {path}; {hint}.")
    if kind != "a file":
        raise MacsError(f"{path} is {kind}, not {'an' if what[0] in 'aeiou' else 'a'} {what}; {hint}.")
    if not os.access(path, os.R_OK):
        raise MacsError(f"Cannot read {path}: Permission denied.")
    return path


def input_folder(path: str | Path, hint: str = "check the path") -> Path:
    """Return the path of a folder that exists and may be listed; a MacsError says what is wrong with any other."""
    path = user_path(path)
    kind = kind_of(path)
    if kind is None:
        raise MacsError(f"There is no folder {path}; {hint}.")
    if kind != "a folder":
        raise MacsError(f"{path} is {kind}, not a folder; {hint}.")
    if not os.access(path, os.R_OK | os.X_OK):
        raise MacsError(f"Cannot read the folder {path}: Permission denied.")
    return path


def kind_of(path: Path, action: str = "read") -> str | None:
    """Return the kind of thing that a path leads to: "a file", "a folder", "a FIFO", ...; None if nothing is there."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # a name that is too long, a loop of links, a folder that may not be entered
        raise MacsError(f"Cannot {action} {path}: {reason(error)}.") from None
    return KINDS.get(stat.S_IFMT(mode), "a file")


def output_file(path: str | Path, inputs: Iterable[str | Path] = ()) -> Path:
    """Return the path of a file to write, checked before the work that produces its content.

    A link stands for its target. Files of a run and `inputs` are never overwritten. Nor are pictures and arrays: no
    result is one, and they might lie in a folder that is being read.
    """
    path = user_path(path)
    kind = kind_of(path, "write")
    if kind == "a folder":
        raise MacsError(f"{path} is a folder; name a file to write.")
    if kind not in (None, "a file"):
        # Written to, not replaced, and not resolved: /dev/stdout may resolve to something that is not a path.
        if kind == "a socket" or not os.access(path, os.W_OK):
            raise MacsError(f"Cannot write {path}: it is {kind} that cannot be written to; name a file to write.")
        return path
    target = path.resolve()
    if target.name.casefold() in RUN_FILES and is_run(target.parent):
        raise MacsError(f"{path} belongs to the run in {target.parent}, which is never overwritten; name another file.")
    if kind == "a file" and any(same_path(target, input_path) for input_path in inputs):
        raise MacsError(f"{path} would be overwritten while it is read; name another file to write.")
    if kind == "a file" and target.name.lower().endswith(IMAGE_ENDINGS):
        raise MacsError(f"{path} holds images, which are never overwritten; name another file to write.")
    if kind == "a file" and not os.access(target, os.W_OK):
        raise MacsError(f"Cannot write {path}: Permission denied.")
    _refuse_unwritable(target.parent, path)
    return target


def output_folder(path: str | Path) -> Path:
    """Return a folder to write into, checked before the work: it holds no run, and files can be created in it."""
    path = user_path(path)
    kind = kind_of(path, "write")
    if kind not in (None, "a folder"):
        raise MacsError(f"{path} is {kind}, not a folder; name another folder to write.")
    if is_run(path):
        raise MacsError(f"{path} holds a run, which is never overwritten; name another folder.")
    _refuse_unwritable(path.resolve(), path)
    return path


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a training run."""
    return (folder / "recipe.toml").exists()


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Call `write` on a temporary file, then move that into place: a reader never sees half a file.

    A device or a FIFO, such as /dev/null, cannot be replaced; it is written to.
    """
    path = user_path(path)
    kind = kind_of(path, "write")
    if kind == "a folder":
        raise MacsError(f"{path} is a folder; name a file to write.")
    try:
        if kind in (None, "a file"):
            _replace(path.resolve(), write)
        else:
            _write_into(path, write)
    except BrokenPipeError:  # a reader that stops early is not an error
        raise
    except OSError as error:
        unchanged = " The file that was there is unchanged." if kind == "a file" else ""
        raise MacsError(f"Cannot write {path}: {reason(error)}.{unchanged}") from error


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def reason(error: OSError) -> str:
    """Return why the system refused, in its own words."""
    return (error.strerror or str(error)).rstrip(".")


def same_path(path: Path, other: str | Path) -> bool:
    """Return whether two paths lead to the same file or folder; False if either does not exist."""
    try:
        return path.samefile(Path(other).expanduser())
    except (OSError, RuntimeError, ValueError):  # `other` is not a path, perhaps the name of a dataset
        return False


def _refuse_unwritable(folder: Path, path: Path) -> None:
    """Raise if `path` cannot be created in its folder, or in the nearest existing folder above it."""
    while (kind := kind_of(folder, "write")) is None:
        folder = folder.parent
    if kind != "a folder":
        raise MacsError(f"Cannot write {path}: {folder} is {kind}, not a folder.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise MacsError(f"Cannot write {path}: Permission denied for {folder}.")


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Put a new file at `path`, with the permissions of the file that it replaces."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path)
    with _temporary(path) as temporary:
        try:
            write(temporary)
        except RuntimeError:
            _raise_disk_error(temporary)
            raise
        with temporary.open("rb") as written:
            os.fsync(written.fileno())  # otherwise a power cut could leave the new name without its content
        if path.exists():
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        temporary.replace(path)


def _write_into(path: Path, write: Callable[[Path], object]) -> None:
    """Write to a device or FIFO once the content is complete."""
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / "content"
        write(temporary)
        try:
            handle = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            if error.errno == errno.ENXIO:  # waiting for a reader could take for ever
                raise OSError(errno.ENXIO, "No process reads from it") from None
            raise
        os.set_blocking(handle, True)
        with temporary.open("rb") as source, os.fdopen(handle, "wb") as sink:
            shutil.copyfileobj(source, sink)


@contextmanager
def _temporary(path: Path) -> Iterator[Path]:
    """A hidden file beside `path`, locked while this process works on it, and deleted afterwards."""
    name = path.with_name(f"{_prefix(path)}{secrets.token_hex(4)}.part")
    handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        if fcntl is None:  # Windows cannot rename a file that is open
            os.close(handle)
        else:
            with suppress(OSError):  # some network file systems have no locks
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield name
    finally:
        if fcntl is not None:
            os.close(handle)
        name.unlink(missing_ok=True)


@contextmanager
def locked(file: Path, waiting: str) -> Iterator[None]:
    """Hold a lock file; if another process holds it, print `waiting` and wait until that process lets go or ends."""
    with _opened(file) as handle:
        if not _taken(handle):
            tell(waiting)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def claimed(file: Path) -> Iterator[bool]:
    """Hold a lock file if nobody else does, and tell whether it is held, so that processes can share out work."""
    with _opened(file) as handle:
        yield _taken(handle)


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield handle
    finally:
        os.close(handle)  # this releases the lock, as the system does when a process is killed


def _taken(handle: int) -> bool:
    """Lock an open file unless another process holds it; Windows and some network file systems have no such locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def remove_abandoned(path: Path) -> None:
    """Delete temporary files for this path whose process was killed: nobody holds their lock any more."""
    if fcntl is None:
        return
    for file in path.parent.glob(f"{glob.escape(_prefix(path))}{'[0-9a-f]' * 8}.part"):
        try:
            handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # a link, or another user's file
            continue
        with os.fdopen(handle), suppress(OSError):  # still being written
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.unlink()


def _prefix(path: Path) -> str:
    """Return the start of the names of a path's temporary files: its own name, cut to leave room within 255 bytes."""
    return f".{os.fsencode(path.name)[:200].decode('utf-8', 'ignore')}."


def _raise_disk_error(temporary: Path) -> None:
    """Write a little more, which raises the system's OSError if the disk is full: torch's own error does not say so."""
    with temporary.open("ab") as file:
        file.write(bytes(2**16))
        file.flush()
        os.fsync(file.fileno())


LONGEST_HEADER = 100_000_000  # bytes, the limit of safetensors itself


def read_header(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """Return the header, and the position at which the tensors begin; a ValueError if there is no such header."""
    length = int.from_bytes(file.read(8), "little")
    try:
        header = json.loads(file.read(length) if length <= LONGEST_HEADER else b"")
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")  # noqa: TRY004 - the file is wrong, not the call
    return header, 8 + length


def label_text(header: dict[str, Any]) -> str | None:
    """Return the JSON text of our label, None in a file that is not ours; raise for metadata of another form."""
    metadata = header.get("__metadata__", {})
    text = metadata.get("macs") if isinstance(metadata, dict) else metadata
    if not isinstance(text, str | None):
        raise ValueError("its metadata are not strings")  # noqa: TRY004 - likewise
    return text
