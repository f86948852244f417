"""What a network of another library must go through: training, every score, a detector, its file and its ONNX file."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import macs
from macs import nets, scores
from macs.data import ImageSet
from macs.detector.runtime import Runtime
from macs.evaluation import evaluate_scores
from macs.training import FROM_LIBRARY
from tiny import STRIPES, noise, stripes

CLASSES = len(STRIPES)
SIGNED = {"ash", "ash-b", "scale"}  # refused if features have both signs


def built(name: str, size: int, seed: int = 0) -> nets.LibraryNet:
    """A network with random weights for small images."""
    torch.manual_seed(seed)
    net = nets.build(name, CLASSES, preparation=nets.usual_preparation(name).at_size(size)).eval()
    assert isinstance(net, nets.LibraryNet) and nets.name_of(net) == name and net.preparation.size == size
    return net


@torch.no_grad()
def check_split(net: nets.LibraryNet) -> None:
    """Features times the head's weights, and the library's own answer to normalised pixels, are the logits."""
    pixels = torch.rand(3, 3, net.preparation.size, net.preparation.size)
    features, logits = nets.features_of(net, pixels)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in net.preparation.normalisation)
    theirs = net.wrapped((pixels - mean) / std)
    by_hand = features @ net.head.weight.T + net.head.bias
    assert logits.shape == (3, net.classes) and features.shape == (3, net.head.in_features)
    for each in (getattr(theirs, "logits", theirs), by_hand, nets.logits_of(net, pixels)):
        assert torch.allclose(each, logits, atol=1e-5, rtol=1e-4)


def check_training(net: nets.LibraryNet, train: ImageSet, outliers: ImageSet) -> None:
    """One epoch changes every parameter that has a gradient, wherever the backbone is not frozen."""
    recipe = replace(FROM_LIBRARY, epochs=1, batch_in=16, batch_out=16, precision="float32")
    before = {name: value.clone() for name, value in net.named_parameters()}
    macs.finetune(net, train, outliers, recipe=replace(recipe, freeze="backbone"), progress=False)
    changed = {name for name, value in net.named_parameters() if not torch.equal(value, before[name])}
    assert {id(parameter) for name, parameter in net.named_parameters() if name in changed} == {
        id(parameter) for parameter in net.head.parameters()
    }
    (epoch,) = macs.finetune(net, train, outliers, recipe=recipe, progress=False)
    changed = {name for name, value in net.named_parameters() if not torch.equal(value, before[name])}
    assert changed == {*before} and np.isfinite(epoch.loss)
    net.eval()


def check_everything(net: nets.LibraryNet, folder: Path, signed: bool) -> None:
    """A few training steps, every score, and equal verdicts of the detector, its file and its ONNX file.

    A copy is trained: after so few steps, batch norm of some networks gives all images the same features, and then
    rounding decides a verdict.
    """
    size = net.preparation.size
    train, known, unknown = stripes(160, 1, size), stripes(40, 2, size), noise(12, 3, size)
    check_training(copy.deepcopy(net), train.subset(range(32)), noise(32, 4, size))
    check_split(net)
    ranking = evaluate_scores(net, known, {"noise": unknown}, scores.get_all(scores.available(), {}), train=train)
    few = {"vim", "neco"}  # they want more images than features, or than dimensions
    assert {*ranking.left_out} - few == (SIGNED if signed else set())
    detector = macs.Detector(net, score="knn").fit(train).calibrate(known, keep=0.8)
    detector.save(folder / "d.safetensors")
    again = macs.Detector.load(folder / "d.safetensors")
    assert nets.name_of(again.net) == net.name and again.preparation == net.preparation
    again.export(folder / "d.onnx")
    ours, loaded, exported = (judge.predict(unknown) for judge in (detector, again, Runtime(folder / "d.onnx")))
    assert np.array_equal(ours.confidence, loaded.confidence)
    assert np.allclose(ours.confidence, exported.confidence, atol=1e-4, rtol=1e-4)
    for other in (loaded, exported):
        assert np.array_equal(ours.is_ood, other.is_ood) and np.array_equal(ours.index, other.index)
