"""Archives made of names and bytes, in the formats in which datasets are given out."""

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any, cast


def tar(files: dict[str, bytes], mode: str = "gz", *others: tarfile.TarInfo) -> bytes:
    """A tar, with members of other kinds after the files."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=cast(Any, f"w:{mode}")) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in others:
            archive.addfile(member)
    return made.getvalue()


def zipped(files: dict[str, bytes], *others: tuple[zipfile.ZipInfo, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        for member, content in others:
            archive.writestr(member, content)
    return made.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    """A member of a tar that is a link, a device or a folder."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
