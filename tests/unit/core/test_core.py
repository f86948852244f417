"""Names that are imported when they are first asked for."""

import sys
from pathlib import Path
from typing import Any

import pytest

from macs.core import lazily


@pytest.fixture
def lookup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "lazy_house").mkdir()
    (tmp_path / "lazy_house/__init__.py").touch()
    (tmp_path / "lazy_house/attic.py").write_text("trunk = 'old'")
    monkeypatch.syspath_prepend(tmp_path)
    yield lazily("lazy_house", {"trunk": "lazy_house.attic", "attic": "lazy_house.attic", "ghost": "lazy_house.attic"})
    for name in ("lazy_house", "lazy_house.attic"):
        sys.modules.pop(name, None)


def test_nothing_is_imported_before_it_is_asked_for(lookup: Any) -> None:
    assert "lazy_house.attic" not in sys.modules
    assert lookup("trunk") == "old" and "lazy_house.attic" in sys.modules


def test_a_name_may_be_the_module_itself(lookup: Any) -> None:
    assert lookup("attic") is sys.modules["lazy_house.attic"]


@pytest.mark.parametrize(("name", "module"), [("cellar", "lazy_house"), ("ghost", "lazy_house.attic")])
def test_a_name_that_is_not_there_is_missed_as_python_does(lookup: Any, name: Any, module: Any) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute '{name}'"):
        lookup(name)
