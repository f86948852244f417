"""One way to a trained network: a run folder, parts of which may be given otherwise, or all its parts."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from macs import nets
from macs.cli.train import FinetuneOptions, finetuning_from, wanted_from
from macs.core.errors import MacsError
from macs.data.preparation import Preparation
from macs.data.spec import DataSpec
from macs.report.findings import read_training
from macs.training.recipe import Recipe
from macs.training.runs import load_run
from macs.training.spec import PRETRAINING_OPTIONS, Start, TrainingOptions, TrainingSpec


def test_without_a_run_every_part_is_given(tmp_path: Path) -> None:
    (tmp_path / "x.pt").touch()
    parts: Any = {"net": "wrn-10-1", "checkpoint": tmp_path / "x.pt", "id": "digits"}
    found = load_run(None, **parts)
    assert (found.preparation.size, found.score, found.spec, found.trained_on) == (32, "msp", None, None)
    for missing in parts:
        with pytest.raises(MacsError, match="Name a run folder, or give --net, --checkpoint and --images"):
            load_run(None, **{**parts, missing: None}, images="--images")
    with pytest.raises(MacsError, match="size must be at least 1"):
        load_run(None, **parts, size=0)


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run of a stranger, whose record names a module of the working folder; importing it leaves a trace."""
    (tmp_path / "sly.py").write_text("open('imported', 'w')\n")
    monkeypatch.chdir(tmp_path)
    spec = TrainingSpec(
        train=DataSpec("sly:images", "train", images=10, fingerprint="a"),
        outliers=None,
        net="sly:Net",
        classes=("0", "1"),
        preparation=Preparation(size=16),
        start=Start("random", "b", 0),
        method="sly:Method",
        recipe=Recipe(batch_out=0),
    )
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.toml").write_text(spec.to_toml())
    (run / "net.safetensors").write_bytes(b"")
    return run


def test_what_only_a_runs_record_names_is_not_imported(strangers: Path) -> None:
    with pytest.raises(MacsError, match=r"run/recipe\.toml names code of your own, sly:Net, .* add --net sly:Net\."):
        load_run(strangers)
    with pytest.raises(MacsError, match=r"sly:images, .* add --images sly:images\."):
        load_run(strangers, net="wrn-10-1", images="--images")
    trained = load_run(strangers, net="wrn-10-1", id="digits")
    assert trained.trained_on is None  # nor are its training images read
    with pytest.raises(MacsError, match=r"a method of your own, sly:Method, .* choose a score with --score"):
        assert trained.score
    (strangers / "metrics.jsonl").write_text("")
    assert read_training(strangers).limit is None
    assert not (strangers.parent / "imported").exists()


def test_what_is_named_twice_is_used(strangers: Path) -> None:
    trained = load_run(strangers, net="sly:Net", id="sly:images")
    assert (trained.net, trained.id, trained.trained_on) == ("sly:Net", "sly:images", "sly:images")


@pytest.mark.parametrize("option", ["net", "method", "id", "outliers"])
@pytest.mark.parametrize("command", [finetuning_from, partial(wanted_from, PRETRAINING_OPTIONS)])
def test_what_only_a_recipe_names_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, command: Callable[..., TrainingOptions]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sly.py").write_text("open('imported', 'w')\n")
    (tmp_path / "r.toml").write_text(f"{option} = 'sly:Part'\n")
    given: Any = FinetuneOptions
    with pytest.raises(MacsError, match=rf"^r\.toml names code of your own, sly:Part, .*; add --{option} sly:Part\.$"):
        command(Path("r.toml"), given())
    named = command(Path("r.toml"), given(**{option: "sly:Part"}))
    assert getattr(named, option) == "sly:Part"
    assert not (tmp_path / "imported").exists()


def test_images_are_prepared_as_the_file_of_the_network_says(tmp_path: Path) -> None:
    preparation = nets.Preparation(24, 28, "bicubic", *nets.NORMALISATIONS["half"])
    nets.save(nets.build("wrn-10-1", 2, preparation=preparation), tmp_path / "net.safetensors")
    parts: Any = {"net": "wrn-10-1", "checkpoint": tmp_path / "net.safetensors", "id": "digits"}
    assert load_run(None, **parts).preparation == preparation
    larger = load_run(None, **parts, size=48)
    assert larger.preparation == nets.preparation_of(larger.network(2)) == preparation.at_size(48)
