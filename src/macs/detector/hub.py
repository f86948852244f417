"""Detectors from the Hugging Face hub: their addresses, and how they are downloaded and checked.

    hf://org/name                        the detector of a repository, in the file that suits: PyTorch's or ONNX
    hf://org/name@1f3a...                pinned to a commit (or a branch, or a tag)
    hf://org/name/detector.onnx          one of its files

A published detector is a few files: detector.safetensors and, if asked for, detector.onnx; config.json, which records
the size and the SHA-256 of both; README.md, the model card. Files are kept in the cache folder of `huggingface_hub`
($HF_HOME) and are used from there without a connection. Nothing is run: config.json is only read, and a detector file
runs no code. A file that differs from its record is deleted from the cache and refused.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from macs.core.console import one_line_about_the_hub, shows_progress, tell
from macs.core.errors import MacsError, first_line
from macs.core.files import input_file, user_path

log = logging.getLogger(__name__)

PYTORCH, ONNX, CONFIG, CARD = "detector.safetensors", "detector.onnx", "config.json", "README.md"
MOST_CONFIG = 2**20  # bytes; a hundred times what macs writes
ADDRESS = re.compile(r"hf:/{1,2}(?P<repo>[^/@]+/[^/@]+)(@(?P<revision>[^/]+))?(/(?P<file>.+?))?/?")
COMMIT = re.compile("[0-9a-f]{40}")
NAME_IN_CACHE = re.compile(r"[\w-]{1,128}")  # of a commit or a blob: no part of a path
BUSY = 429  # too many requests


class Address(NamedTuple):
    """A repository of the hub, a revision of it, and one of its files if one is named."""

    repo: str
    revision: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision else ""
        return f"hf://{self.repo}{revision}" + (f"/{self.file}" if self.file else "")


class FileRecord(NamedTuple):
    """What config.json records about a file."""

    bytes: int
    sha256: str


def is_address(path: str | Path) -> bool:
    """Return whether a path is an address of the hub; a `Path` has lost one of the two slashes."""
    return _plain(path).startswith("hf:/")


def parse(path: str | Path) -> Address:
    """Return the parts of an address."""
    match = ADDRESS.fullmatch(_plain(path))
    if match is None:
        raise MacsError(f"{path} is no address of the hub; write hf://org/name, or hf://org/name@revision.")
    if match["file"] not in (None, PYTORCH, ONNX):
        raise MacsError(f"{path} names the file {match['file']}, but a detector is in {PYTORCH} or {ONNX}.")
    revision = match["revision"]
    return Address(match["repo"], None if revision is None else unquote(revision), match["file"])


def _plain(path: str | Path) -> str:
    return str(path).replace("\\", "/")


def local_file(path: str | Path, wanted: Sequence[str] = ()) -> Path:
    """Return the file on disk that a path, a folder of a published detector or an address stands for.

    `wanted` are the files that will do, in order of preference, where the address names none: by default both, and
    PyTorch's first if torch is installed.
    """
    if not isinstance(path, str | Path):  # is refused by whoever reads it
        return path
    if is_address(path):
        return download(parse(path), wanted)
    with suppress(OSError):  # a name that is too long, or a folder that nobody may enter: reading it says so
        if (user_path(path) / CONFIG).is_file():
            return in_folder(user_path(path), wanted)
    return Path(path)


def in_folder(folder: Path, wanted: Sequence[str] = ()) -> Path:
    """Return the detector file in a folder that `save_pretrained` wrote, if it is the one that config.json records."""
    files = read_config(input_file(folder / CONFIG, "record", "write one with: detector.save_pretrained"))
    name = choose(files, wanted, folder)
    file = input_file(folder / name, "detector", "copy the whole folder")
    if why := differing(file, files[name]):
        raise MacsError(f"{file} {why}; copy the whole folder again.")
    return file


def download(address: Address, wanted: Sequence[str] = ()) -> Path:
    """Return the file of a published detector in the cache, downloaded if it is not there, and always checked."""
    if find_spec("huggingface_hub") is None:
        raise MacsError(f"{address} is on the Hugging Face hub: pip install 'macs-ood[hub]'.")
    with explaining(address), quiet_hub():
        config = _fetch(address, CONFIG, None)
        commit = config.parent.name
        with _forgetting(config):
            files = read_config(config, str(address))
            name = choose(files, [address.file] if address.file else wanted, address)
        pinned = Address(address.repo, commit, name)
        file = _fetch(pinned, name, files[name].bytes)
        with _forgetting(file, config):
            if why := differing(file, files[name]):
                raise MacsError(f"{pinned} {why}, so it was deleted; try again, or ask its makers to push it again.")
    log.info("%s is %s, at commit %s", address, name, commit)
    return file


def _fetch(address: Address, name: str, size: int | None) -> Path:
    """A file in the cache; its size on the hub is compared with the record before the download."""
    import huggingface_hub as hub
    from huggingface_hub import constants, errors

    repo, revision = address.repo, address.revision
    if revision is not None and COMMIT.fullmatch(revision):  # what a commit holds never changes
        kept = hub.try_to_load_from_cache(repo, name, revision=revision)
        if isinstance(kept, str):
            return Path(kept)
    if constants.HF_HUB_OFFLINE:
        return Path(hub.hf_hub_download(repo, name, revision=revision, local_files_only=True))
    try:
        found = hub.get_hf_file_metadata(hub.hf_hub_url(repo, name, revision=revision))
    except Exception as error:
        if not _unreachable(error):
            raise
        with suppress(errors.LocalEntryNotFoundError):
            kept = hub.hf_hub_download(repo, name, revision=revision, local_files_only=True)
            tell(f"The hub does not answer; {name} of {address} is taken from the cache, as of the last download.")
            return Path(kept)
        raise
    if not all(NAME_IN_CACHE.fullmatch(each or "") for each in (found.commit_hash, found.etag)):
        raise MacsError(
            f"The hub's answer for {name} of {address} names no commit and hash that a file can be kept under; nothing "
            "was downloaded, so check HF_ENDPOINT."
        )
    most = MOST_CONFIG if size is None else size
    if found.size is None or found.size > most or (size is not None and found.size != size):
        told = "does not say how many bytes it has" if found.size is None else f"has {found.size:,} bytes"
        raise MacsError(
            f"{name} of {address} {told} on the hub, but a record {'has' if size is not None else 'may have at most'} "
            f"{most:,}; nothing was downloaded, so ask its makers to push it again."
        )
    return Path(hub.hf_hub_download(repo, name, revision=revision, tqdm_class=_refusing_beyond(most)))


def _refusing_beyond(most: int) -> Any:
    """A silent progress bar that ends a download which brings more bytes than there should be."""
    from tqdm.auto import tqdm

    class Meter(tqdm):  # type: ignore[type-arg,misc,unused-ignore]
        def __init__(self, *args: Any, **options: Any) -> None:
            self.arrived = 0
            options.pop("name", None)
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            self.arrived += int(n or 0)
            if self.arrived > most:
                raise MacsError(
                    f"The hub sends more than the {most:,} bytes that it announced, so the download was stopped and "
                    "deleted; try again later."
                )
            return None

    return Meter


def read_config(path: Path, of: str = "") -> dict[str, FileRecord]:
    """Return the detector files that config.json records; raise if macs did not write it."""
    try:
        content = path.read_bytes() if path.stat().st_size <= MOST_CONFIG else b""
        values = json.loads(content)["files"]
        files = {name: FileRecord(int(values[name]["bytes"]), str(values[name]["sha256"])) for name in values}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        files = {}
    if not files or not set(files) <= {PYTORCH, ONNX} or any(record.bytes <= 0 for record in files.values()):
        raise MacsError(f"{of or path.parent} holds no detector: its {CONFIG} is not one that `macs push` writes.")
    return files


def choose(files: dict[str, FileRecord], wanted: Sequence[str], of: object) -> str:
    """Return the first of the wanted files that there is; by default PyTorch's if torch is installed, else ONNX."""
    wanted = wanted or ((PYTORCH, ONNX) if find_spec("torch") else (ONNX, PYTORCH))
    for name in wanted:
        if name in files:
            return name
    remedy = "push it with --onnx" if wanted[0] == ONNX else "load it with macs.Runtime"
    raise MacsError(f"{of} has no {wanted[0]}, only {' and '.join(files)}; {remedy}.")


def differing(file: Path, record: FileRecord) -> str:
    """Return how a file differs from its record; empty if it does not."""
    size = file.stat().st_size
    if size != record.bytes:
        return f"has {size:,} bytes, but its record says {record.bytes:,}"
    with file.open("rb") as content:
        same = hashlib.file_digest(content, "sha256").hexdigest() == record.sha256
    return "" if same else "is not the file that its record names: the SHA-256 differs"


@contextmanager
def _forgetting(*files: Path) -> Iterator[None]:
    """Delete files from the cache if they turn out to be wrong, so that the next attempt downloads them again.

    A link in the cache that leads out of it is deleted, what it leads to is not.
    """
    try:
        yield
    except MacsError:
        for file in files:
            blob = file.resolve()
            file.unlink(missing_ok=True)
            if blob.parent == (file.parents[2] / "blobs").resolve():
                blob.unlink(missing_ok=True)
        raise


@contextmanager
def explaining(address: Address, doing: str = "get {} from") -> Iterator[None]:
    """Turn whatever the hub's client raises into one sentence."""
    from huggingface_hub import errors

    try:
        yield
    except MacsError:
        raise
    except errors.GatedRepoError:
        raise MacsError(
            f"{address} is given only to those whom its makers accept; ask for access on its page."
        ) from None
    except errors.RepositoryNotFoundError:
        raise MacsError(
            f"The hub has no repository {address.repo} for you to read; check the name, or log in: hf auth login."
        ) from None
    except errors.RevisionNotFoundError:
        raise MacsError(
            f"{address.repo} has no revision {address.revision}; check the commit, branch or tag."
        ) from None
    except errors.LocalEntryNotFoundError:
        raise MacsError(
            f"{address} is not in the cache and the hub is not asked or does not answer; connect, and unset "
            "HF_HUB_OFFLINE if it is set."
        ) from None
    except errors.EntryNotFoundError:
        raise MacsError(f"{address} holds no detector: it has no {CONFIG}, which `macs push` writes.") from None
    except errors.HFValidationError as error:
        raise MacsError(f"{address} is no address of the hub: {first_line(error)}.") from None
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "an error")
        if status in (401, 403):
            raise MacsError(
                f"The hub does not let you do this with {address.repo}; log in with: hf auth login."
            ) from None
        raise MacsError(f"The hub answers {status} for {address}; try again later.") from None
    except Exception as error:  # of the HTTP library, of TLS, of the disk
        why = " ".join(str(error).split()) or first_line(error)
        raise MacsError(f"Cannot {doing.format(address)} the hub: {why.rstrip('.')}; try again later.") from None


def _unreachable(error: Exception) -> bool:
    """Return whether the hub did not answer at all, or only that it cannot answer now."""
    from huggingface_hub import errors

    if isinstance(error, errors.HfHubHTTPError):
        status = getattr(error.response, "status_code", 0)
        return status == BUSY or status >= 500
    return not isinstance(error, MacsError | ValueError)


@contextmanager
def quiet_hub() -> Iterator[None]:
    """Leave out the lines of the hub's client about every attempt, and its bars where no terminal shows them."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    logger = logging.getLogger("huggingface_hub.file_download")
    level = logger.level
    logger.setLevel(logging.ERROR)
    hidden = not (are_progress_bars_disabled() or shows_progress())
    if hidden:
        disable_progress_bars()
    try:
        with one_line_about_the_hub():
            yield
    finally:
        logger.setLevel(level)
        if hidden:
            enable_progress_bars()
