"""Where trainings of several networks find their starting weights."""

from pathlib import Path

SUFFIXES = (".pt", ".pth", ".safetensors")


def for_all(path: Path) -> bool:
    """Whether this is one file of weights, or the folder of one run, and not a folder of files called ID-NET.pt."""
    return path.is_file() or (path / "net.safetensors").is_file()


def checkpoint_of(path: Path, id: str, net: str) -> Path | None:
    """The weights of one network: the path itself if it stands for all networks, else the file called ID-NET.pt in it,
    if there is one."""
    if for_all(path):
        return path
    files = (path / f"{id}-{net}{suffix}" for suffix in SUFFIXES)
    return next((file for file in files if file.is_file()), None)
