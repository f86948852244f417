"""Scores as modules: settings that are fixed and checked, fits that are copies, states that travel."""

import copy
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from clustered_features import READ_FEATURES, TEST, asked, known
from macs import nets, scores
from macs.core.errors import MacsError
from macs.core.settings import Span
from macs.data import ImageSet
from macs.inference import Outputs, outputs_of
from macs.scores import Known, Score
from macs.scores.knn import KNN
from tiny import stripes


@dataclass
class Shifted(Score):
    """A user's own, with a plain @dataclass."""

    reads = "features"
    fitted_to = "training images"
    by: Annotated[float, Span(0, 10)] = 1
    middle: Tensor = field(init=False)

    def learn(self, known: Known) -> dict[str, Tensor]:
        return {"middle": known.features.mean()}

    def confidence(self, outputs: Outputs) -> Tensor:
        return outputs.features.mean(1) - self.middle + self.by


@pytest.mark.parametrize("name", READ_FEATURES)
def test_a_fit_is_a_copy_and_the_first_score_stays_unfitted(name: str) -> None:
    score = scores.get(name)
    fitted = score.fit(known())
    assert repr(score).endswith(" [unfitted]") and not score.fitted and not score.state_dict()
    assert repr(score) == f"{fitted!r} [unfitted]" and fitted.fitted and fitted is not score
    before = asked(fitted)
    fitted.fit(known(features=known().features.numpy()[:100]))
    assert (asked(fitted) == before).all()


@pytest.mark.parametrize("name", READ_FEATURES)
def test_a_state_travels_into_an_unfitted_score(name: str, tmp_path: Path) -> None:
    fitted = scores.get(name).fit(known())
    torch.save(fitted.state_dict(), tmp_path / "state.pt")
    other = scores.get(name)
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert (asked(other) == asked(fitted)).all() and other.fitted
    assert (asked(copy.deepcopy(fitted)) == asked(fitted)).all()
    inside = scores.get(name)
    holder = torch.nn.ModuleDict({"inside": inside})
    holder.load_state_dict({f"inside.{key}": tensor for key, tensor in fitted.state_dict().items()})
    assert (asked(inside) == asked(fitted)).all()
    halved = copy.deepcopy(fitted).to(torch.float32)
    assert {tensor.dtype for tensor in halved.buffers()} == {torch.float32}
    assert {tensor.device.type for tensor in copy.deepcopy(fitted).to("meta").buffers()} == {"meta"}


def test_settings_are_checked_and_fixed() -> None:
    assert repr(scores.get("knn", k=7)) == "KNN(k=7) [unfitted]"
    assert repr(scores.get("knn", k=50)) == "KNN() [unfitted]"  # the default
    assert scores.get("knn").settings == {"k": 50, "bank": 0, "reduce": "random", "normalise": True}
    for settings, words in (({"k": 0}, "k must be at least 1"), ({"k": math.nan}, "k must be a whole number")):
        with pytest.raises(MacsError, match=f"Among the settings of knn, {words}"):
            scores.get("knn", **settings)
    with pytest.raises(MacsError, match="no setting of knn called 'kk'.*did you mean 'k'"):
        scores.get("knn", kk=3)
    with pytest.raises(MacsError, match="no setting of knn called 'vectors'"):
        scores.get("knn", vectors=torch.zeros(1))
    for score in (KNN(k=3), KNN(k=3).fit(known())):
        with pytest.raises(MacsError, match=r"k of KNN\(k=3\).* cannot be changed; make another: KNN\(k=4\)"):
            score.k = 4
        assert score.k == 3
    assert scores.get(KNN(k=3), k=5).k == 5 and scores.get(KNN, k=6).k == 6


def test_a_setting_goes_to_the_scores_that_have_it() -> None:
    found = scores.get_all(["knn", "ash", "scale", "msp"], {"percentile": 70, "k": 4})
    assert [each.written for each in found.values()] == [
        "KNN(k=4)",
        "ASH(percentile=70.0)",
        "Scale(percentile=70.0)",
        "MSP()",
    ]
    with pytest.raises(MacsError, match="no setting of knn, msp called 'percentile'; .* bank, k, normalise, reduce"):
        scores.get_all(["knn", "msp"], {"percentile": 70})


def test_a_plain_dataclass_stays_a_module() -> None:
    one, other = Shifted(), Shifted()
    assert one != other and len({one, other}) == 2 and len(list(torch.nn.ModuleList([one, other]).modules())) == 3
    assert repr(Shifted(by=2)) == "Shifted(by=2.0) [unfitted]"
    assert scores.name_of(one) == f"{__name__}:Shifted" and scores.name_of(scores.get("ash-b")) == "ash-b"
    expected = TEST.mean(1) - known().features.numpy().mean() + 2
    assert asked(Shifted(by=2).fit(known())) == pytest.approx(expected)


def test_every_score_is_a_class_of_the_package() -> None:
    assert scores.KNN is KNN and scores.KNN(k=3).k == 3
    for name in scores.available():
        assert getattr(scores, type(scores.get(name)).__name__) is type(scores.get(name))
    with pytest.raises(AttributeError, match="module 'macs.scores' has no attribute 'Nothing'"):
        _ = scores.Nothing


def test_learning_something_else_than_was_declared_is_said() -> None:
    class Forgetful(Shifted):
        def learn(self, known: Known) -> dict[str, Tensor]:
            return {"center": known.features.mean()}

    with pytest.raises(MacsError, match="Forgetful declares the buffers middle, but `learn` returns center"):
        Forgetful().fit(known())


def test_a_fitted_score_is_bound_to_its_network(known_test: ImageSet) -> None:
    torch.manual_seed(0)
    net, other = nets.build("wrn-10-1", classes=3), nets.build("wrn-10-1", classes=3)
    fitted = KNN().fit(scores.know(net, stripes(40, seed=1)))
    assert len(scores.ask(net, known_test, fitted)) == len(known_test)
    with pytest.raises(MacsError, match=r"KNN\(\) is fitted to another network or to other weights than"):
        scores.ask(other, known_test, fitted)
    with torch.no_grad():
        net.get_parameter("conv1.weight")[0, 0, 0, 0] += 1
    with pytest.raises(MacsError, match="fitted to another network"):
        scores.ask(net, known_test, fitted)
    with pytest.raises(MacsError, match=r"KNN\(\) \[unfitted\] has to be fitted first"):
        scores.ask(net, known_test, "knn")


def test_one_pass_takes_a_set_or_batches(known_test: ImageSet) -> None:
    net: Any = nets.build("wrn-10-1", classes=3)
    pixels = torch.from_numpy(known_test.pixels[:])
    whole = torch.cat([each.logits for each in outputs_of(net, known_test)])
    parts = [each.features for each in outputs_of(net, pixels.split(50), features=True)]
    assert [len(part) for part in parts] == [50, 50, 20]
    assert torch.allclose(net.head(torch.cat(parts).clone()), whole, atol=1e-5)
    assert net.training  # as it was
    with pytest.raises(MacsError, match="hold no features"):
        _ = next(outputs_of(net, known_test)).features


def test_a_score_takes_logits_and_says_what_else_it_needs() -> None:
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(scores.get("energy")(logits), logits.logsumexp(1))
    assert torch.equal(scores.get("msp")(logits), scores.get("msp").confidence(Outputs(logits)))
    with pytest.raises(MacsError, match="These outputs hold no features"):
        scores.get("knn").fit(known())(logits)


def test_a_loader_and_a_tensor_fit_and_ask_a_score_as_their_image_set_does() -> None:
    net, train = nets.build("wrn-10-1", 3), stripes(40, seed=1)
    x, y = torch.from_numpy(train.pixels[:]).permute(0, 3, 1, 2) / 255, torch.from_numpy(train.labels)
    loader = DataLoader(TensorDataset(x, y), batch_size=16)
    by_set, by_loader = (scores.know(net, images, images) for images in (train, loader))
    for name in ("features", "logits", "labels"):
        assert torch.equal(getattr(by_set, name), getattr(by_loader, name))
    assert by_loader.held_out is not None and len(by_loader.held_out) == 40
    fitted = scores.get("mahalanobis").fit(by_loader)
    expected = scores.ask(net, train, fitted).confidence
    for form in (x, loader, train.pixels[:], list(x)):
        assert (scores.ask(net, form, fitted).confidence == expected).all()
