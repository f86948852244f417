"""On real images, with a public-format WRN-40-2 for CIFAR-10 at $MACS_WEIGHTS: known answers, and every method."""

import json
from pathlib import Path

import numpy as np
import pytest

from command import run
from macs.training.spec import METHODS

pytestmark = pytest.mark.data

# Computed by other code, in float32, from these weights and the first images of each set: MSP, all images.
ACCURACY = 91.90
AUROC = {"svhn": 85.37, "textures": 87.86, "places365": 85.75, "cifar100": 85.48}
FPR95 = {"svhn": 33.78, "textures": 38.19, "places365": 44.56, "cifar100": 41.07}
FPR95_ID = {"svhn": 79.82, "textures": 63.50, "places365": 68.97, "cifar100": 71.38}
IMAGES = {"svhn": 5000, "textures": 1200, "places365": 4000, "cifar100": 5000}


def test_the_public_checkpoint_gives_the_known_answers(
    data_root: Path, public_weights: str, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = ["--net", "wrn-40-2", "--checkpoint", public_weights]
    run("evaluate", *checkpoint, "--id", "cifar10", "--ood", *AUROC, "--data", data_root, "--json")
    value = json.loads(capsys.readouterr().out)
    assert {name: each["images"] for name, each in value["ood"].items()} == IMAGES
    assert 100 * value["id"]["accuracy"] == pytest.approx(ACCURACY, abs=0.1)
    for metric, expected in (("auroc", AUROC), ("fpr95", FPR95), ("fpr95_id", FPR95_ID)):
        found = {name: 100 * each["full"][metric] for name, each in value["ood"].items()}
        assert found == pytest.approx(expected, abs=0.3)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_fine_tunes_it(
    method: str, data_root: Path, public_weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--checkpoint", public_weights, "--id", "cifar10", "--data", data_root]
    short = ["--epochs", 1, "--epoch-size", 128, "--dropout", 0, "--run", tmp_path / "run", "--json"]
    run("finetune", "--method", method, *options, "--outliers", data_root / "outliers_train.npy", *short)
    (epoch,) = json.loads(capsys.readouterr().out)["history"]
    assert np.isfinite(epoch["loss"]) and epoch["accuracy"] > 0.8
    assert (tmp_path / "run/net.safetensors").exists()
