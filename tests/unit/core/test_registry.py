"""Registries of a package made for the test, and what becomes of errors in a user's own code."""

import importlib
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from macs.core.errors import MacsError
from macs.core.registry import LONGEST, Registry, import_from, modules_in, quoted, unknown, users_code


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[type]]:
    """The registry of a package with two parts, none of which is imported yet."""
    code = {
        "__init__": "from macs.core.registry import Registry\npart = Registry('shop_of_parts', 'part')",
        "bolts": "from shop_of_parts import part\n@part('bolt')\nclass Bolt: pass",
        "nuts": "from shop_of_parts import part\n@part('nut')\nclass Nut: pass",
        "_tools": "raise RuntimeError('a private module registers nothing')",
    }
    (tmp_path / "shop_of_parts").mkdir()
    for name, text in code.items():
        (tmp_path / "shop_of_parts" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("shop_of_parts").part
    for name in [name for name in sys.modules if name.startswith("shop_of_parts")]:
        del sys.modules[name]


def test_the_files_of_a_package_are_its_entries(shop: Any) -> None:
    assert modules_in("shop_of_parts") == ["bolts", "nuts"] and "shop_of_parts.bolts" not in sys.modules
    assert shop.available() == ["bolt", "nut"]
    assert shop["bolt"].__name__ == "Bolt" and [*shop.entries()] == ["bolt", "nut"]


def test_a_name_that_is_unknown_brings_the_nearest_one(shop: Any) -> None:
    with pytest.raises(MacsError, match=r"^There is no part called 'blot' \(did you mean 'bolt'\?\); .* bolt, nut"):
        shop["blot"]
    with pytest.raises(MacsError, match=r"^There is no part called 'xyz'; choose one of bolt, nut\.$"):
        shop["xyz"]


def test_a_name_that_is_taken_is_refused_unless_the_same_place_takes_it_again(shop: Any) -> None:
    bolt = shop["bolt"]
    with pytest.raises(
        MacsError, match=r"'bolt' is taken by shop_of_parts\.bolts:Bolt; give tests.unit.core.test_registry:.*Other"
    ):

        @shop("bolt")
        class Other:
            pass

    assert shop["bolt"] is bolt
    again = type("Bolt", (), {"__module__": bolt.__module__, "__qualname__": bolt.__qualname__})
    assert shop("bolt")(again) is again and shop["bolt"] is again


def test_a_record_around_a_function_lies_where_the_function_does(shop: Any) -> None:
    class Record:
        def __init__(self, function: object) -> None:
            self.__wrapped__ = function

    def one() -> None: ...

    def two() -> None: ...

    first = shop("record")(Record(one))
    shop("record")(Record(one))  # as when a notebook's cell is run once more
    assert shop["record"] is not first
    with pytest.raises(
        MacsError, match=r"taken by tests.unit.core.test_registry:.*<locals>\.one; give .*<locals>\.two"
    ):
        shop("record")(Record(two))


def test_what_lies_outside_is_found_by_its_module_and_name(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside_part.py").write_text("class Box:\n    class Lid: pass")
    assert shop["outside_part:Box.Lid"].__qualname__ == "Box.Lid"
    (tmp_path / "here").mkdir()
    (tmp_path / "here/part_beside_us.py").write_text("value = 3")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert import_from("part_beside_us:value", "part") == 3


@pytest.mark.parametrize(
    ("code", "attribute", "why"),
    [
        ("1 / 0", "x", "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit('bye')", "x", r"it calls sys\.exit\('bye'\)"),
        ("x = 1", "y", "AttributeError: module 'broken_part' has no attribute 'y'"),
        ("x =", "x", "SyntaxError: invalid syntax"),
    ],
)
def test_a_file_of_the_users_own_that_fails_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: Any, attribute: Any, why: Any
) -> None:
    (tmp_path / "broken_part.py").write_text(textwrap.dedent(code))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_part", raising=False)
    with pytest.raises(MacsError, match=rf"^Cannot use 'broken_part:{attribute}' as a part: {why}"):
        import_from(f"broken_part:{attribute}", "part")
    with pytest.raises(MacsError, match="as an output format"):
        import_from(f"broken_part:{attribute}", "output format")
    sys.modules.pop("broken_part", None)


@pytest.mark.parametrize("reference", [":", "module:", ":Name"])
def test_half_a_reference_is_refused(reference: Any) -> None:
    with pytest.raises(MacsError, match=r"is not a valid part name; write module:Name"):
        import_from(reference, "part")


def test_errors_in_a_users_code_are_told_by_their_first_line() -> None:
    with pytest.raises(MacsError, match=r"^It failed: ValueError: first line\.$"), users_code("It failed"):
        raise ValueError("first line.\nsecond line")
    with pytest.raises(MacsError, match=r"^It failed: ValueError\.$"), users_code("It failed"):
        raise ValueError
    with pytest.raises(MacsError, match=r"sys\.exit\(3\)"), users_code("It failed"):
        sys.exit(3)


@pytest.mark.parametrize(
    "error", [MacsError("our own"), MemoryError(), KeyboardInterrupt(), BrokenPipeError(), SystemExit(143)]
)
def test_what_is_not_the_fault_of_a_users_code_passes_through(error: Any) -> None:
    with pytest.raises(type(error)) as caught, users_code("It failed"):
        raise error
    assert caught.value is error


def test_a_name_that_goes_on_and_on_is_cut() -> None:
    assert quoted("x" * LONGEST) == repr("x" * LONGEST)
    assert quoted("x" * (LONGEST + 1)) == repr("x" * LONGEST + "...")
    assert len(str(unknown("part", "x" * 10**6, ["bolt"]))) < 200
