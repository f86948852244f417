"""Images behind URLs: files, folders, globs, Parquet files and WebDataset shards in any store that fsspec knows.

    s3://bucket/photos/            every image, .tar and .parquet below it
    gs://bucket/2024-*/*.jpg       a glob
    https://example.org/a.jpg      one file
    s3://bucket/shard-0001.tar     a WebDataset shard: every image in it
    s3://bucket/part.parquet       encoded images in a column `image` or `bytes`, also as Hugging Face writes them

A folder is listed one level at a time, and a shard is read as it comes.
"""

import tarfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import Any, NamedTuple

from macs.core.errors import MacsError, first_line
from macs.data.preparation import SUFFIXES

SHARDS = (".tar", ".parquet")
COLUMNS = ("image", "bytes", "png", "jpg", "jpeg")  # of encoded images in a Parquet file, by preference
NAMES = ("path", "name", "id", "__key__")  # columns of the images' names
ROWS = 64  # rows of a Parquet file in memory


class Store(NamedTuple):
    """A file system of fsspec, and a path in it; `scheme` makes a URL of a path again."""

    system: Any
    path: str
    scheme: str

    def url(self, path: str) -> str:
        return path if "://" in path else f"{self.scheme}://{path.lstrip('/') if self.scheme != 'file' else path}"


def store_of(url: str) -> Store:
    """Return the store of a URL; raise if fsspec, or its extension for this kind of URL, is not installed."""
    if find_spec("fsspec") is None:
        raise MacsError(f"URLs such as {url} need fsspec: pip install fsspec, and s3fs, gcsfs or adlfs for a cloud.")
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MacsError(f"Cannot read {url}: {str(error).splitlines()[0].rstrip('.')}.") from None
    except Exception as error:  # an unknown scheme, or a part that cannot be understood
        raise MacsError(f"Cannot understand the URL {url}: {_words(error)}.") from None
    return Store(system, path, url.partition("://")[0])


def writable_store(url: str) -> Store:
    """Return the store of a folder, which is created if need be; raise, before any work, if writing fails."""
    store = store_of(url)
    probe = f"{store.path.rstrip('/')}/.writable"
    try:
        store.system.makedirs(store.path, exist_ok=True)
        store.system.pipe_file(probe, b"")
        store.system.rm_file(probe)
        store.system.invalidate_cache()  # others write there, too
    except Exception as error:
        raise MacsError(f"Cannot write to {url}: {_words(error)}.") from None
    return store


def found_in(store: Store) -> Iterator[str]:
    """Yield the URLs of the images and shards at a path: a file, a folder with all folders inside, or a glob."""
    system, path = store.system, store.path
    try:
        if any(sign in path for sign in "*?["):
            yield from map(store.url, _matches(system, path))
        elif system.isdir(path):
            yield from map(store.url, _walk(system, path))
        else:
            yield store.url(path)
    except MacsError:
        raise
    except Exception as error:
        raise MacsError(f"Cannot list {store.url(path)}: {_words(error)}; check the address and the rights.") from None


def content_of(url: str) -> bytes:
    """Return the bytes of one file."""
    store = store_of(url)
    try:
        return _content(store)
    except Exception as error:  # every store has errors of its own
        raise MacsError(f"Cannot read {url}: {_words(error)}.") from None


def _content(store: Store) -> bytes:
    content: bytes
    try:
        # For a whole file, s3fs asks for its size first; from the first byte on, it is one request instead of two.
        content = store.system.cat_file(store.path, start=0)
    except FileNotFoundError:
        raise
    except Exception:  # an empty file has no first byte, and a server may not know of ranges
        content = store.system.cat_file(store.path)
    return content


def pictures_in(url: str) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the images in a shard, one after the other."""
    store = store_of(url)
    try:
        with store.system.open(store.path, "rb") as file:
            yield from (_in_tar if url.endswith(".tar") else _in_parquet)(file, url)
    except MacsError:
        raise
    except Exception as error:
        raise MacsError(f"Cannot read {url}: {_words(error)}.") from None


def _in_tar(file: Any, url: str) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=file, mode="r|*") as shard:
        for member in shard:
            if member.isfile() and member.name.lower().endswith(SUFFIXES):
                content = shard.extractfile(member)
                yield f"{url}/{member.name}", content.read() if content else b""


def _in_parquet(file: Any, url: str) -> Iterator[tuple[str, bytes]]:
    if find_spec("pyarrow") is None:
        raise MacsError(f"Cannot read {url} without pyarrow: pip install 'macs-ood[parquet]'.")
    from pyarrow.parquet import ParquetFile

    table = ParquetFile(file)
    columns = table.schema_arrow.names
    column = next((name for name in COLUMNS if name in columns), None)
    if column is None:
        raise MacsError(f"Cannot find images in {url}: it needs a column called {', '.join(COLUMNS)}.")
    name_column = next((name for name in NAMES if name in columns), None)
    row = 0
    for batch in table.iter_batches(ROWS, columns=[column, *([name_column] if name_column else [])]):
        names = batch.column(name_column).to_pylist() if name_column else [None] * len(batch)
        for name, value in zip(names, batch.column(column).to_pylist(), strict=True):
            content = value.get("bytes") if isinstance(value, dict) else value
            yield f"{url}/{row if name is None else name}", content if isinstance(content, bytes) else b""
            row += 1


def _walk(system: Any, folder: str) -> Iterator[str]:
    """Yield images and shards below a folder, hidden ones left out; each level is listed when it is needed."""
    entries = sorted(system.ls(folder, detail=True), key=lambda entry: entry["name"])
    for entry in entries:
        name = entry["name"].rstrip("/").rpartition("/")[2]
        if name.startswith(".") or entry["name"].rstrip("/") == folder.rstrip("/"):
            continue
        if entry["type"] == "directory":
            yield from _walk(system, entry["name"])
        elif name.lower().endswith((*SUFFIXES, *SHARDS)):
            yield entry["name"]


def _matches(system: Any, pattern: str) -> Iterator[str]:
    for path in sorted(system.glob(pattern)):
        if system.isdir(path):
            yield from _walk(system, path)
        elif path.lower().endswith((*SUFFIXES, *SHARDS)) or fnmatchcase(path, pattern):
            yield path


def _words(error: Exception) -> str:
    return "nothing is there" if isinstance(error, FileNotFoundError) else first_line(error)
