"""docs/architecture.md beside the code: its rooms are those of the import check, in order, and its paths exist."""

import re
import tomllib

from repository import ROOT

TEXT = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src/macs"


def test_the_rooms_stand_in_the_order_of_the_import_check() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = [re.findall(r"macs\.(\w+)", layer) for layer in reversed(linter["contracts"][0]["layers"])]
    table = TEXT.partition("## Rooms")[2].partition("## ")[0]
    rooms = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.splitlines() if row.startswith("| `")]
    level = {room: number for number, layer in enumerate(layers) for room in layer}
    levels = [level[room] for row in rooms for room in row]
    assert levels == sorted(levels) and len(levels) == len(level)


def test_every_path_is_there() -> None:
    paths = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", TEXT))
    assert len(paths) > 20
    places = (PACKAGE, PACKAGE.parent, ROOT)
    assert not [path for path in paths if not any((place / path).exists() for place in places)]


def test_every_name_in_python_is_there() -> None:
    """Names such as `Method.step` or `users_code` stand in some file of the package."""
    code = "\n".join(file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py"))
    dotted = re.findall(r"`(?:\w+\.)+(\w+)`", TEXT)
    single = re.findall(r"\*\*(\w+)\*\*|`([A-Z]\w+|\w+_\w+)`", TEXT)
    names = {*dotted, *(name for pair in single for name in pair if name)}
    assert not [name for name in sorted(names) if not re.search(rf"\b{name}\b", code)]
