"""Every module has its tests where one looks for them: src/macs/ROOM/MODULE.py in tests/ROOM/test_MODULE.py."""

from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "macs"

ELSEWHERE = {
    # The parts of one kind are held to the same tests, each by its own formula or file.
    "methods/*": "methods/test_methods.py",
    "scores/*": "scores/test_feature_scores.py",
    "scores/_gaussians": "scores/test_feature_scores.py",
    **dict.fromkeys(("scores/msp", "scores/maxlogit", "scores/energy"), "scores/test_scores.py"),
    "data/catalog/*": "data/test_catalog.py",
    "data/catalog/digits": "data/test_digits.py",
    "detector/formats/*": "detector/test_formats.py",
    "metrics/*": "test_metrics.py",
    "figures/*": "figures/test_figures.py",
    # A command parses, calls and prints: it is tested with what it calls, and what all share in one place.
    "cli/_app": "test_cli.py",
    "cli/train": "training/test_train_command.py",
    "cli/evaluate": "evaluation/test_evaluation.py",
    "cli/report": "report/test_report_command.py",
    **dict.fromkeys(("cli/calibrate", "cli/predict", "cli/export"), "detector/test_detector_cli.py"),
    "cli/data": "data/test_checking.py",
    "cli/sweep": "experiments/test_margins.py",
    "cli/reproduce": "paper/test_reproduction.py",
    "cli/demo": "test_demo.py",
    "cli/doctor": "test_doctor.py",
    "__main__": "test_door.py",
    # Several modules do one thing together, which is what a user sees.
    "scores/_score": "scores/test_modules.py",
    "evaluation/measurement": "evaluation/test_evaluation.py",
    "training/loop": "training/test_training.py",
    "detector/saving": "detector/test_detector_files.py",
    **dict.fromkeys(("report/page", "report/findings"), "report/test_report.py"),
    "report/history": "report/test_charts.py",
    **dict.fromkeys(("paper/estimate", "paper/setup", "paper/publish"), "paper/test_reproduction.py"),
    "paper/plots": "paper/test_reproduction.py",
    # The study is tested from cells to documents.
    **dict.fromkeys(("study/cells", "study/running", "study/publish"), "study/test_study_cells.py"),
    **dict.fromkeys(("study/tables", "study/plots", "study/document"), "study/test_findings.py"),
    "paper/writing": "paper/test_comparison.py",
    "paper/scales": "paper/test_grid.py",
    # pytest wants every file of tests to have a name of its own.
    "nets/_names": "nets/test_net_names.py",
    "nets/_weights": "nets/test_net_weights.py",
    "training/spec": "training/test_training_spec.py",
    # One line that holds a number.
    "core/version": "test_cli.py",
    # An import that is guarded for Windows.
    "core/flock": "core/test_files.py",
    # The pass over images that a network makes.
    "data/reading": "data/test_batches.py",
    "data/decoding": "data/test_folder.py",
    "cli/_detectors": "detector/test_detector_cli.py",
    "cli/_engines": "experiments/test_ray_engine.py",
    "cli/inspect": "detector/test_inspection.py",
    "evaluation/networks": "evaluation/test_evaluation.py",
    "evaluation/benchmarks/openood": "evaluation/test_benchmarks.py",
    # What all networks of other libraries share is tested with each library's.
    "nets/_library": "nets/test_timm.py",
    "nets/from_timm": "nets/test_timm.py",
    "nets/from_torchvision": "nets/test_torchvision.py",
    "nets/from_transformers": "nets/test_transformers.py",
    # What a score is chosen on.
    "data/unknowns": "detector/test_choosing.py",
    "answers": "scores/test_answers.py",
    # What clients of the service see of several modules.
    **dict.fromkeys(("serve/service", "serve/schema", "serve/documents", "serve/uploads"), "serve/test_app.py"),
    "serve/logs": "serve/test_gate.py",
    # Again files of tests whose names would be taken.
    "serve/inference": "serve/test_open_inference.py",
    "serve/metrics": "serve/test_service_metrics.py",
    "serve/settings": "serve/test_serve_settings.py",
    "cli/serve": "serve/test_serve_command.py",
}
MODULES = sorted(
    path.relative_to(SOURCE).with_suffix("").as_posix() for path in SOURCE.rglob("*.py") if path.name != "__init__.py"
)


def place_of(module: str) -> Path:
    """Where the tests of a module are: where the table says, else beside those of its room, under its own name."""
    room, _, name = module.rpartition("/")
    own = TESTS / room / f"test_{name.strip('_')}.py"
    if module in ELSEWHERE or not own.exists():
        return TESTS / ELSEWHERE.get(module, ELSEWHERE.get(f"{room}/*", own))
    return own


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_its_tests(module: Any) -> None:
    place = place_of(module)
    assert place.is_file(), f"write {place.relative_to(TESTS)}, or say in ELSEWHERE where {module} is tested, and why"
    assert "\ndef test_" in place.read_text(encoding="utf-8")


def test_every_exception_is_still_needed() -> None:
    for module, tests in ELSEWHERE.items():
        room, _, name = module.rpartition("/")
        assert (TESTS / tests).is_file(), f"{tests} is gone"
        if name == "*":
            assert any(place_of(each) == TESTS / tests for each in MODULES if each.rpartition("/")[0] == room), module
        else:
            assert module in MODULES, f"{module} is gone"
            assert not (TESTS / room / f"test_{name.strip('_')}.py").exists(), f"{module} has tests of its own name"


def test_every_file_of_tests_is_collected_under_a_name_of_its_own() -> None:
    names = [path.name for path in TESTS.rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)
