"""The examples of losses and metrics in other people's programs, run as they stand."""

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import nn

import macs
from repository import ROOT

pytestmark = pytest.mark.docs

EXAMPLES = ROOT / "examples"


def test_the_loss_is_that_of_the_paper_computed_pair_by_pair() -> None:
    loss_of = runpy.run_path(str(EXAMPLES / "your_loop.py"))["loss_of"]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).double()
    images, outliers = torch.rand(5, 3, 2, 2, dtype=torch.float64), torch.rand(4, 3, 2, 2, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 0, 1])
    p_in, p_out = net(images).softmax(1), net(outliers).softmax(1)
    entropy = -sum(p_in[i, labels[i]].log() for i in range(5)) / 5
    exposure = -sum(p_out[j, k].log() / 3 for j in range(4) for k in range(3)) / 4
    gaps = [(p_in[i].max() - p_out[j].max()).clamp(min=0) ** 2 for i in range(5) for j in range(4)]
    expected = entropy + 0.5 * exposure + 0.5 * (0.5 - torch.stack(gaps).mean()).clamp(min=0)
    assert loss_of(net, images, labels, outliers).item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_metrics_of_batches_are_those_of_all_images_together() -> None:
    separation = runpy.run_path(str(EXAMPLES / "your_loop.py"))["Separation"]()
    logits, is_ood = torch.randn(90, 4), torch.rand(90) < 0.4
    for start in range(0, 90, 32):
        separation.update(logits[start : start + 32], is_ood[start : start + 32])
    confidences = logits.softmax(1).amax(1).numpy()
    found = separation.compute()
    assert found.auroc == pytest.approx(roc_auc_score(is_ood, -confidences))
    assert found.aupr == pytest.approx(average_precision_score(is_ood, -confidences))


def test_the_loop_learns_and_measures_what_macs_evaluate_does(capsys: pytest.CaptureFixture[str]) -> None:
    net, result = runpy.run_path(str(EXAMPLES / "your_loop.py"))["main"](epochs=2)
    first, second = (float(line.split()[-1]) for line in capsys.readouterr().out.splitlines() if "epoch" in line)
    assert second < first
    unknown = macs.data.load("digits-8-9", "test")
    evaluation = macs.evaluate(net, macs.data.load("digits", "test"), {"new": unknown}, precision="float32")
    assert dict(result) == pytest.approx(dict(evaluation.sets[0].full), abs=1e-3)


def test_confidences_in_files_are_measured_without_torch(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    known, unknown = random.normal(1, 1, 200), random.normal(0, 1, 150)
    np.save(tmp_path / "known.npy", known)
    np.save(tmp_path / "unknown.npy", unknown)
    code = (
        f"import sys, runpy; sys.argv = ['your_scores.py', {str(tmp_path / 'known.npy')!r}, "
        f"{str(tmp_path / 'unknown.npy')!r}]; "
        f"runpy.run_path({str(EXAMPLES / 'your_scores.py')!r}, run_name='__main__'); "
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    is_ood = np.r_[np.zeros(200), np.ones(150)]
    auroc = 100 * roc_auc_score(is_ood, -np.r_[known, unknown])
    assert f"{auroc:6.2f}%  AUROC: probability that an ID image" in done.stdout
