"""The command line as a user meets it: results on standard output, one sentence and exit code 2 for a mistake."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from command import needs_torch, run
from macs import methods
from macs.core.devices import best_device, use_device
from tiny import save_folders

OUTSIDE = '''
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from macs.methods import Method, method


@method("flatten")
@dataclass(frozen=True)
class Flatten(Method):
    """Pull every outlier's logits to zero."""

    strength: float = 0.1

    def loss(self, logits_in: Tensor, labels: Tensor, logits_out: Tensor) -> Tensor:
        return cross_entropy(logits_in, labels) + self.strength * logits_out.square().mean()
'''


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_folders(tmp_path_factory.mktemp("images"))


def train_options(folders: Path) -> list[object]:
    options = ["--id", folders / "mine", "--size", 16, "--net", "wrn-10-1", "--epochs", 1]
    return [*options, "--batch-in", 16, "--lr", "0.01"]


def test_from_a_folder_of_images_to_a_table(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("pretrain", *train_options(folders), "--run", tmp_path / "plain")
    outliers = ["--outliers", folders / "outliers.npy", "--batch-out", 16]
    start = ["--checkpoint", tmp_path / "plain"]
    tuned = tmp_path / "tuned"
    capsys.readouterr()
    run("finetune", *train_options(folders), *outliers, *start, "--margin", "0.3", "--run", tuned, "--json")
    value = json.loads(capsys.readouterr().out)
    assert value["recipe"]["margin"] == 0.3 and len(value["history"]) == 1

    run("evaluate", tuned, "--ood", folders / "unknown", folders / "outliers.npy", "--json")
    value = json.loads(capsys.readouterr().out)
    assert value["id"]["images"] == 48
    assert [each["images"] for each in value["ood"].values()] == [20, 64]

    bare = ["--net", "wrn-10-1", "--checkpoint", tuned / "net.safetensors", "--id", folders / "mine", "--size", 16]
    run("evaluate", *bare, "--ood", folders / "unknown", folders / "outliers.npy", "--json")
    assert json.loads(capsys.readouterr().out)["ood"] == value["ood"]

    run("evaluate", tuned, "--ood", folders / "unknown")
    assert "48 ID images" in capsys.readouterr().out


def test_a_method_from_outside_the_package_touches_no_other_file(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(OUTSIDE)
    monkeypatch.chdir(tmp_path)
    outliers = ["--outliers", folders / "outliers.npy", "--options.strength", "0.2"]
    run("finetune", *train_options(folders), *outliers, "--method", "mine:Flatten", "--run", "run", "--json")
    assert json.loads(capsys.readouterr().out)["recipe"]["options"] == {"strength": 0.2}
    run("evaluate", "run", "--ood", folders / "unknown", "--score", "msp")
    methods.method._entries.pop("flatten")  # other tests count the methods of the package


def test_a_recipe_file_sets_what_the_options_leave_open(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipe.toml").write_text("epochs = 2\nlr = 0.5\nmethod = 'oe'\n")
    options = [*train_options(folders), "--outliers", folders / "outliers.npy", "--recipe", tmp_path / "recipe.toml"]
    run("finetune", *options, "--run", tmp_path / "run", "--json")
    recipe = json.loads(capsys.readouterr().out)["recipe"]
    assert (recipe["epochs"], recipe["lr"], recipe["method"]) == (1, 0.01, "oe")


def test_ctrl_c_leaves_a_run_that_goes_on(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    options = [*train_options(folders), "--outliers", folders / "outliers.npy", "--run", tmp_path / "run"]
    with monkeypatch.context() as patched:
        patched.setattr("macs.training.loop.TrainingProgress.step", interrupted)
        run("finetune", *options, expect=130)
    assert "--resume" in capsys.readouterr().err
    run("finetune", *options, "--resume")


def test_networks_run_where_and_with_as_many_threads_as_asked(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.setattr("macs.core.devices._accelerator", lambda: torch.device("meta"))
    run("pretrain", *train_options(folders), "--run", tmp_path / "run", "--device", "cpu", "--threads", 3)
    assert asked == [3] and best_device() == torch.device("cpu")
    use_device("auto")


def test_a_reader_that_stops_reading_is_no_error() -> None:
    command = f"{sys.executable} -m macs data list --json | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "{\n" and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["finetune", "--help"], ["--version"], ["data", "list"], ["finetune", "--margin", "2"], ["finetune"]],
)
def test_help_and_mistakes_do_not_import_torch(arguments: list[str]) -> None:
    assert not needs_torch(*arguments)
