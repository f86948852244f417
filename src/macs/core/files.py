"""Writing files whole or not at all."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from macs.core.errors import MacsError


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Call `write` on a temporary neighbour of `path`, then put it in place: a reader never sees half a file."""
    path = Path(path)
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    # torch and safetensors report a full disk as a RuntimeError of their own.
    except (OSError, RuntimeError) as error:
        raise MacsError(f"Cannot write {path}: {error}. What was there before is unchanged.") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole or not at all."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
