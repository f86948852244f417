"""Every public entry point has a numpydoc docstring, and its example runs."""

import doctest
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import macs
from macs.detector import Detector, Verdicts

ENTRY_POINTS: dict[str, Callable[..., Any]] = {
    f"{owner.__name__}.{name}": getattr(owner, name)
    for owner, names in (
        (macs, ("evaluate", "finetune", "pretrain", "Detector")),
        (
            Detector,
            (
                "fit",
                "choose",
                "calibrate",
                "predict",
                "probabilities",
                "evaluate",
                "save",
                "load",
                "export",
                "from_run",
            ),
        ),
        (Verdicts, ("to_frame",)),
        (macs.data, ("load",)),
        (macs.ImageSet, ("from_array", "from_dataset", "from_files", "from_folder", "from_hf", "from_list")),
        (macs.nets, ("build", "load", "save")),
        (macs.losses, ("outlier_exposure", "energy_margin", "mcd", "macs_penalty", "hinge_penalty")),
        (macs.metrics, ("ood_metrics", "expected_calibration_error", "risk_coverage")),
    )
    for name in names
}


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_the_parameters_are_named_and_the_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = ENTRY_POINTS[name]
    text = inspect.getdoc(entry) or ""
    for parameter in inspect.signature(entry).parameters.values():
        if parameter.name not in ("self", "cls"):
            assert re.search(rf"^(\w+, )*{parameter.name}(, \w+)*$", text, re.MULTILINE), parameter.name
    monkeypatch.chdir(tmp_path)
    module = inspect.getmodule(entry)
    names = {} if module is None or not name.startswith("macs.losses") else dict(vars(module))
    example = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    assert example.examples, "there is no example"
    failed: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example, out=failed.append)
    assert not failed, "".join(failed)
