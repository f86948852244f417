"""The state of a run between two epochs: put back whole, or refused in one sentence with nothing changed."""

import contextlib
from pathlib import Path

import pytest
import torch

from macs import methods, nets
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.training.runs import Epoch, RunFolder
from macs.training.state import images_of, restore, state_of
from short_training import EPOCH, SHORT, same, small_net, weights
from tiny import noise


def test_a_state_is_put_back_whole(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    """Weights, momenta, what the method took from the network, and the epochs; here without a loop around them."""
    net, method = small_net(), methods.build("energy", {"m_in": -3.0, "m_out": -1.0})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(torch.rand(4, 3, 16, 16)).sum().backward()
    optimizer.step()
    images = images_of(known, outliers)
    state = state_of(net, optimizer, method, [Epoch(**EPOCH)], images)
    torch.save(state, tmp_path / "state.pt")

    fresh = small_net()
    other = torch.optim.SGD(fresh.parameters(), lr=0.5, momentum=0.9)
    found = restore(RunFolder(tmp_path), fresh, other, methods.build("energy"), SHORT, images)
    assert found == (method, [Epoch(**EPOCH)], {})
    assert same(weights(fresh), weights(net)) and other.param_groups[0]["lr"] == 0.1
    for one, two in zip(net.parameters(), fresh.parameters(), strict=True):
        assert torch.equal(optimizer.state[one]["momentum_buffer"], other.state[two]["momentum_buffer"])
    assert RunFolder(tmp_path).epochs() == [Epoch(**EPOCH)]


@pytest.mark.parametrize("name", ["best", "start"])
def test_weights_aside_are_put_back_if_they_fit(name: str, known: ImageSet, tmp_path: Path) -> None:
    net, method, images = small_net(), methods.build("msp"), images_of(known)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    others = {key: value + 1 for key, value in weights(net).items()}
    for aside, words in (
        (others, ""),
        ({}, "another network"),
        (nets.build("wrn-16-1", 3).state_dict(), "another network"),
        ({key: value / 0 for key, value in others.items()}, "not finite"),
    ):
        torch.save(state_of(net, optimizer, method, [Epoch(**EPOCH)], images, {name: aside}), tmp_path / "state.pt")
        if words:
            with pytest.raises(MacsError, match=f"Cannot resume from .*{words}"):
                restore(RunFolder(tmp_path), net, optimizer, method, SHORT, images, {name: {}})
        else:
            _, _, found = restore(RunFolder(tmp_path), net, optimizer, method, SHORT, images, {name: {}})
            assert [*found] == [name] and same(found[name], others)
    with pytest.raises(MacsError, match="not the state of a run"):
        restore(RunFolder(tmp_path), net, optimizer, method, SHORT, images)  # of a run that has none


@pytest.mark.parametrize(("name", "words"), [("best", ""), ("start", "another network")])
def test_before_the_first_epoch_there_is_no_best_one(name: str, words: str, known: ImageSet, tmp_path: Path) -> None:
    net, method, images = small_net(), methods.build("msp"), images_of(known)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    torch.save(state_of(net, optimizer, method, [], images, {name: {}}), tmp_path / "state.pt")
    with pytest.raises(MacsError, match=words) if words else contextlib.nullcontext():
        restore(RunFolder(tmp_path), net, optimizer, method, SHORT, images, {name: {}})


def test_images_are_known_by_their_fingerprints_and_classes(known: ImageSet, outliers: ImageSet) -> None:
    told = images_of(known, outliers)
    assert told == {"classes": list(known.classes), "images": [known.spec.fingerprint, outliers.spec.fingerprint]}
    assert images_of(known, None)["images"] == [known.spec.fingerprint]
    validated = images_of(known, None, noise(9, seed=5))["images"]
    assert validated == [known.spec.fingerprint, noise(9, seed=5).spec.fingerprint]
