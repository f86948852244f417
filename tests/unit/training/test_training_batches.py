"""Training on the features of a frozen backbone: the same weights as on pixels, and each image passes only once."""

from dataclasses import replace

from torch import Tensor, nn

from macs import methods
from macs.methods import Batch, Method, Step
from macs.training.training_batches import features_suffice
from short_training import SHORT, TwoLayers

HEAD = replace(SHORT, freeze="backbone", lr=0.1)


def test_features_do_where_nothing_before_the_last_layer_changes() -> None:
    class Scaled(TwoLayers):
        def forward(self, pixels: Tensor) -> Tensor:
            return 2 * super().forward(pixels)

    macs_method = methods.build("macs")
    assert features_suffice(TwoLayers(), macs_method, HEAD, (3, 16, 16))
    assert features_suffice(TwoLayers(), macs_method, replace(HEAD, augment="none"), (3, 16, 16))
    assert not features_suffice(TwoLayers(), macs_method, replace(HEAD, augment="crop-flip"), (3, 16, 16))
    assert not features_suffice(TwoLayers(), macs_method, replace(HEAD, freeze="layers.1", augment="none"), (3, 16, 16))
    assert not features_suffice(Scaled(), macs_method, HEAD, (3, 16, 16))
    for name in methods.available():
        assert features_suffice(TwoLayers(), methods.build(name), HEAD, (3, 16, 16)) == (name not in ("mixoe", "divoe"))
    assert not features_suffice(TwoLayers(), Stepping(), HEAD, (3, 16, 16))
    assert features_suffice(TwoLayers(), Harmless(), HEAD, (3, 16, 16))


class Stepping(Method):
    """A method of the user's own that does not say what it does to the pixels."""

    def step(self, net: nn.Module, batch: Batch) -> Step:
        return super().step(net, batch)


class Harmless(Stepping):
    changes_pixels = False

    def step(self, net: nn.Module, batch: Batch) -> Step:
        return super().step(net, batch)
