"""Our metrics, scores and losses beside those of pytorch-ood: equal to rounding, or different by a known factor.

Runs in an environment of its own, where pytorch-ood is installed: `make test-peers`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, normalize

from macs import losses, nets, scores
from macs.data import ImageSet
from macs.inference import Outputs, inference
from macs.metrics import fit_temperature, ood_metrics
from macs.scores import Known
from tiny import noise, stripes

pytestmark = pytest.mark.peers
theirs = pytest.importorskip("pytorch_ood.detector", reason="pytorch-ood is not installed here: `make test-peers`")
their_losses = pytest.importorskip("pytorch_ood.loss")
their_metrics = pytest.importorskip("pytorch_ood.metrics")

CLASSES, FEATURES = 5, 64


def grainy(count: int, seed: int) -> ImageSet:
    """Stripes with noise on them, so that every feature of a network varies."""
    pixels = stripes(count, seed).pixels[:] // 2 + noise(count, seed).pixels[:] // 3
    return ImageSet.from_array(pixels, np.arange(count) % CLASSES, name="grainy")


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    net = nets.build("wrn-10-1", classes=CLASSES)
    nn.init.normal_(net.get_parameter("fc.bias"), std=0.1)
    return net.eval()


@pytest.fixture(scope="module")
def known(net: nn.Module) -> Known:
    """What the network says of training images."""
    return scores.know(net, grainy(600, seed=1), precision="float32")


@pytest.fixture(scope="module")
def asked(net: nn.Module) -> Outputs:
    """Logits and features of images known and unknown."""
    pixels = np.concatenate([grainy(40, seed=2).pixels[:], noise(40, seed=3).pixels[:]])
    with inference(net, "float32", features=True) as run:
        outputs = run(torch.from_numpy(pixels))
    return Outputs(outputs.logits.clone(), outputs.features.clone())


@pytest.mark.parametrize("distinct", [2, 7, 10_000])
def test_metrics(distinct: int) -> None:
    random = np.random.default_rng(distinct)
    conf_in, conf_out = (random.integers(low, low + distinct, n) / 8 for low, n in ((distinct // 3, 700), (0, 400)))
    collected = their_metrics.OODMetrics()
    collected.update(torch.from_numpy(-np.r_[conf_in, conf_out]), torch.tensor([0] * 700 + [-1] * 400))
    found = collected.compute()
    ours = ood_metrics(conf_in, conf_out)
    assert found["AUROC"] == pytest.approx(ours.auroc, abs=1e-12)
    assert found["FPR95TPR"] == pytest.approx(ours.fpr95, abs=1e-12)
    assert found["AUPR-OUT"] == pytest.approx(ours.aupr_trapezoid, abs=1e-12)
    assert found["AUPR-IN"] == pytest.approx(ours.aupr_trapezoid_id, abs=1e-12)


def assert_same(found: Tensor, expected: Tensor, rounding: float = 1e-5) -> None:
    """Up to rounding of the largest differences between confidences, which are what counts."""
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=rounding, atol=rounding * np.ptp(expected.numpy()))


def as_maps(features: Tensor) -> Tensor:
    return features[:, :, None, None]


def shaped(kind: Callable[..., Any], known: Known, **settings: object) -> Callable[..., Tensor]:
    """One of their detectors of feature maps, of which ours are the 1 x 1 case."""
    made = kind(backbone=None, head=lambda maps: linear(maps.flatten(1), known.weight, known.bias), **settings)
    if hasattr(made, "fit_feature_maps"):
        made.fit_feature_maps(as_maps(known.features), known.labels)
    return lambda logits, features: made.predict_feature_maps(as_maps(features))


def fitted(made: Any, known: Known) -> Callable[..., Tensor]:
    """One of their detectors of features."""
    made.fit_features(known.features, known.labels)
    return lambda logits, features: made.predict_features(features)


PEERS: dict[str, Callable[[Known], Callable[..., Tensor]]] = {
    "msp": lambda k: lambda logits, features: theirs.MaxSoftmax(None).predict_logits(logits),
    "maxlogit": lambda k: lambda logits, features: theirs.MaxLogit(None).predict_logits(logits),
    "energy": lambda k: lambda logits, features: theirs.EnergyBased(None).predict_logits(logits),
    "ash": lambda k: shaped(theirs.ASH, k, variant="ash-s", percentile=0.9),
    "ash-b": lambda k: shaped(theirs.ASH, k, variant="ash-b", percentile=0.65),
    "ash-p": lambda k: shaped(theirs.ASH, k, variant="ash-p", percentile=0.65),
    "scale": lambda k: shaped(theirs.SCALE, k, percentile=0.85),
    "react": lambda k: shaped(theirs.ReAct, k, percentile=0.9),
    "dice": lambda k: fitted(theirs.DICE(None, k.weight, k.bias, p=0.9), k),
    "knn": lambda k: fitted(theirs.KNN(None, k=50), k),
    "vim": lambda k: fitted(theirs.ViM(None, d=FEATURES // 2, w=k.weight, b=k.bias), k),
}


@pytest.mark.parametrize("name", PEERS)
def test_scores_are_the_negative_of_theirs(name: str, known: Known, asked: Outputs) -> None:
    rounding = 1e-3 if name == "vim" else 1e-5  # they find the eigenvectors in float32, we in float64
    assert_same(
        scores.get(name).fit(known).confidence(asked), -PEERS[name](known)(asked.logits, asked.features), rounding
    )


@pytest.fixture(scope="module")
def sure(known: Known) -> Known:
    """The same features with a random last layer around their mean, which predicts every class, always correctly."""
    weight = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(5))
    bias = -weight @ known.features.mean(0)
    logits = linear(known.features, weight, bias)
    assert len(logits.argmax(1).unique()) == CLASSES
    return replace(known, weight=weight, bias=bias, logits=logits, labels=logits.argmax(1))


def head_of(known: Known) -> nn.Linear:
    head = nn.Linear(FEATURES, CLASSES)
    head.load_state_dict({"weight": known.weight, "bias": known.bias})
    return head.requires_grad_(False)


# The name of the peer's class, and its settings where ours has others by default; some came after version 0.4.0.
OF_CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "fdbd": ("fDBD", {}),
    "nci": ("NCI", {"alpha": 1e-4}),
    "she": ("SHE", {}),
    "caref": ("CARef", {}),
    "neco": ("NECO", {"d": FEATURES // 2, "use_max_logit": False}),
}


@pytest.mark.parametrize("name", OF_CLASSES)
def test_scores_of_the_predicted_class_are_the_negative_of_theirs(name: str, sure: Known, asked: Outputs) -> None:
    kind, settings = OF_CLASSES[name]
    if not hasattr(theirs, kind):
        pytest.skip(f"this pytorch-ood has no {kind}")
    peer = getattr(theirs, kind)(None, head_of(sure), **settings).fit_features(sure.features, sure.labels)
    ours = Outputs(linear(asked.features, sure.weight, sure.bias), asked.features)
    assert_same(scores.get(name).fit(sure).confidence(ours), -peer.predict_features(asked.features), 1e-4)


@pytest.mark.filterwarnings("ignore:NNGuide")  # random energies are also negative
def test_nnguide_with_a_bank_of_all_images_is_the_negative_of_theirs(sure: Known, asked: Outputs) -> None:
    peer = theirs.NNGuide(None, head_of(sure), k=10).fit_features(sure.features, sure.labels)
    ours = Outputs(linear(asked.features, sure.weight, sure.bias), asked.features)
    found = scores.get("nnguide", k=10, bank=0).fit(sure).confidence(ours)
    assert_same(found, -peer.predict_features(asked.features), 1e-4)


def test_mcm_is_the_negative_of_theirs(sure: Known, asked: Outputs) -> None:
    """Theirs takes cosines itself, ours as logits, as they come from a zero-shot network."""
    if not hasattr(theirs, "MCM"):
        pytest.skip("this pytorch-ood has no MCM")
    cosines = normalize(asked.features) @ normalize(sure.weight).T
    for temperature in (1.0, 0.01):
        expected = -theirs.MCM(None, sure.weight, temperature).predict_features(asked.features)
        assert_same(scores.get("mcm", temperature=temperature).confidence(Outputs(cosines)), expected)


def test_no_temperature_of_theirs_is_better(sure: Known) -> None:
    """Theirs stops after 50 steps, not always at the optimum."""
    labels = sure.labels.roll(1).where(torch.arange(len(sure.labels)) % 7 == 0, sure.labels)  # a seventh is wrong
    peer = theirs.TemperatureScaling(None).fit_logits(sure.logits, labels)
    found = fit_temperature(sure.logits, labels)
    losses_of = [cross_entropy(sure.logits.double() / t, labels).item() for t in (found, peer.t.item())]
    assert losses_of[0] <= losses_of[1] + 1e-9


def test_odin_steps_the_same_way(net: nn.Module) -> None:
    pixels = torch.from_numpy(grainy(30, seed=4).pixels[:]).permute(0, 3, 1, 2).float() / 255
    found = scores.get("odin").confidence(Outputs(torch.zeros(len(pixels), CLASSES), pixels=pixels, net=net))
    expected = -theirs.ODIN(net, eps=0.0014, temperature=1000).predict(pixels)
    assert_same(found, expected)


def test_gen_is_a_sum_where_theirs_is_a_mean(asked: Outputs) -> None:
    assert_same(scores.get("gen").confidence(asked), -CLASSES * theirs.GEN(None).predict_logits(asked.logits))


@pytest.fixture
def in_float64(known: Known, asked: Outputs) -> Iterator[tuple[Known, Tensor]]:
    """Scaled up, since pytorch-ood adds a ridge of 1e-6 to covariances, and with its tensors in double precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield replace(known, features=1000 * known.features.double()), 1000 * asked.features.double()
    torch.set_default_dtype(before)


@pytest.mark.parametrize(
    ("name", "peer", "factor"), [("mahalanobis", "Mahalanobis", 2), ("relative-mahalanobis", "RMD", 1)]
)
def test_mahalanobis_has_a_covariance_where_theirs_has_a_sum(
    name: str, peer: str, factor: int, in_float64: tuple[Known, Tensor], asked: Outputs
) -> None:
    """They do not divide the scatter matrix by the number of images, and halve one distance; the order is the same."""
    wide, features = in_float64
    expected = getattr(theirs, peer)(None).fit_features(wide.features, wide.labels).predict_features(features)
    assert_same(scores.get(name).fit(wide).confidence(Outputs(asked.logits, features)), -factor * len(wide) * expected)


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    logits_in, logits_out = (9 * torch.randn(count, CLASSES, generator=random) for count in (12, 20))
    return logits_in, torch.arange(12) % CLASSES, logits_out


def test_the_energy_loss_is_theirs(batch: tuple[Tensor, Tensor, Tensor]) -> None:
    logits_in, labels, logits_out = batch
    peer = their_losses.EnergyRegularizedLoss(alpha=0.1, margin_in=-23, margin_out=-5)
    expected = peer(torch.cat([logits_in, logits_out]), torch.cat([labels, torch.full((20,), -1)]))
    found = cross_entropy(logits_in, labels) + 0.1 * losses.energy_margin(logits_in, logits_out, -23, -5)
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_outlier_exposure_is_theirs_up_to_the_means(batch: tuple[Tensor, Tensor, Tensor]) -> None:
    """Theirs is one mean over all images of the batch; ours, as its authors', a mean of each kind."""
    logits_in, labels, logits_out = batch
    peer = their_losses.OutlierExposureLoss(alpha=0.5)
    expected = peer(torch.cat([logits_in, logits_out]), torch.cat([labels, torch.full((20,), -1)]))
    parts = 12 * cross_entropy(logits_in, labels) + 0.5 * 20 * losses.outlier_exposure(logits_out)
    assert (parts / 32).item() == pytest.approx(expected.item(), rel=1e-6)
