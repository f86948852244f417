"""The hash of a loss's code: another line of a loss changes the cells of the methods that use it, and no others."""

import importlib
import inspect
from types import ModuleType

import pytest

from macs import losses, methods
from macs.research import study_cells as code

METHODS = ("oe", "energy", "mixoe", "divoe", "msp", "macs")
OUTLIER_EXPOSURE = (
    "return _mean(logits_out.logsumexp(1) - logits_out.mean(1))",
    "return _mean(logits_out.logsumexp(1))",
)
CHANGES = [
    ("macs.methods.energy", ("weight: Weight = 0.1", "weight: Weight = 0.2"), {"energy"}),
    ("macs.methods.macs", ("return -mcd(", "return mcd("), {"macs"}),
    ("macs.losses", OUTLIER_EXPOSURE, {"oe", "mixoe", "divoe", "macs"}),
    ("macs.losses", ("excess_in = torch.relu(energy(logits_in) - m_in)", "excess_in = energy(logits_in)"), {"energy"}),
    ("macs.losses", ("return flat.dot(flat)", "return 2 * flat.dot(flat)"), {"macs"}),  # used by what macs.py uses
]


def hashes() -> dict[str, str]:
    code.loss_code.cache_clear()
    return {name: code.loss_code(name) for name in METHODS}


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Modules whose source reads differently, by name."""
    texts: dict[str, str] = {}
    read = inspect.getsource
    monkeypatch.setattr(inspect, "getsource", lambda of: texts.get(getattr(of, "__name__", ""), "") or read(of))
    return texts


@pytest.mark.parametrize(("module", "change", "changed"), CHANGES)
def test_a_changed_line_changes_only_the_methods_that_use_it(
    module: str, change: tuple[str, str], changed: set[str], edited: dict[str, str]
) -> None:
    before, source = hashes(), inspect.getsource(importlib.import_module(module))
    assert source.count(change[0]) == 1
    edited[module] = source.replace(*change)
    after = hashes()
    assert {name for name in METHODS if before[name] != after[name]} == changed


def test_comments_docstrings_and_layout_do_not_count(edited: dict[str, str]) -> None:
    before = hashes()
    of: tuple[ModuleType, ...] = (losses, importlib.import_module("macs.methods.oe"))
    for module in of:
        source = inspect.getsource(module)
        assert source.startswith('"""')
        edited[module.__name__] = source.replace('"""', '"""Another sentence. ', 1) + "\n\n# A comment.\n"
    assert hashes() == before


def test_every_method_has_a_hash_of_its_own() -> None:
    found = [code.loss_code(name) for name in methods.available()]
    assert len(set(found)) == len(found) and all(found)
    assert code.loss_code("") == ""
