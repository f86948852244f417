"""Mirror: a folder of results behind a URL, with a copy of it on this machine.

    s3://bucket/sweep/macs-m0.5-seed0/KEY/net.safetensors      FOLDER/macs-m0.5-seed0/KEY/net.safetensors

Cells are trained in files. With a mirror, a worker pulls the files of its cell, trains, and pushes what has changed
after each epoch; the driver pulls finished cells and pushes its tables. Stores write whole objects, and the file that
marks a cell as finished is written last, so that a worker may be lost at any moment.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from macs.core.errors import MacsError, first_line
from macs.core.files import write_atomically
from macs.data.stores import store_of, writable_store
from macs.training.runs import RunFolder

STATE, FINISHED = (file.name for file in (RunFolder(Path()).state_file, RunFolder(Path()).net_file))


@dataclass
class Mirror:
    url: str
    folder: Path
    known: dict[Path, tuple[int, int]] = field(default_factory=dict)  # time and size of files that are behind the URL

    def named(self, file: Path) -> str:
        """Return the URL of a file in the folder."""
        return f"{self.url.rstrip('/')}/{file.relative_to(self.folder).as_posix()}"

    def check_writable(self) -> None:
        writable_store(self.url)

    def pull(self, below: Path | None = None, wanted: Callable[[str], bool] = lambda name: True) -> None:
        """Fetch the `wanted` files below a folder, unless they are here in the same size."""
        top = self.folder if below is None else below
        store = store_of(self.url if below is None else self.named(below))
        root = store.path.rstrip("/")
        try:
            store.system.invalidate_cache()  # others write there, too
            remote_files = store.system.find(root, detail=True)
            for path, entry in sorted(remote_files.items()):
                name = path[len(root) :].lstrip("/")
                if not name or not wanted(name):
                    continue
                file = top / name
                if not file.exists() or file.stat().st_size != entry["size"]:
                    write_atomically(file, partial(_fetch, store.system, path))
                self.known[file] = _stamp(file)
        except MacsError:
            raise
        except Exception as error:  # every store has errors of its own
            raise MacsError(f"Cannot read {self.url}: {first_line(error)}; check the address and the rights.") from None

    def push(self) -> None:
        """Upload the files that have changed here, except hidden ones, such as locks."""
        files = [file for file in self.folder.rglob("*") if file.is_file() and not file.name.startswith(".")]
        for file in sorted(files, key=lambda file: (file.name == FINISHED, file)):
            stamp = _stamp(file)
            if self.known.get(file) == stamp:
                continue
            store = store_of(self.named(file))
            try:
                store.system.makedirs(store.path.rpartition("/")[0], exist_ok=True)
                store.system.put_file(str(file), store.path)
            except Exception as error:
                raise MacsError(f"Cannot write {self.named(file)}: {first_line(error)}.") from None
            self.known[file] = stamp


def _fetch(system: Any, path: str, file: Path) -> None:
    system.get_file(path, str(file))


def to_read(name: str) -> bool:
    """Return whether the driver needs a file: it continues no training, and measures nothing."""
    file = name.rpartition("/")[2]
    return file != STATE and not file.startswith("confidences-")


def _stamp(file: Path) -> tuple[int, int]:
    about = file.stat()
    return about.st_mtime_ns, about.st_size
