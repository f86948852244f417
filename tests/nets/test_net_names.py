"""From names to networks, and from mistaken names to one sentence."""

import sys
import types

import pytest
import torch
from torch import nn

from macs import MacsError, nets

PARAMETERS = {  # with 10, 100 and 1000 classes, as published
    "wrn-40-2": (2_243_546, 2_255_156, 2_371_256),
    "allconv": (1_409_674, 1_427_044, 1_600_744),
    "resnet-18": (11_173_962, 11_220_132, 11_681_832),
    "densenet-121": (6_956_298, 7_048_548, 7_971_048),
}


class Mine(nn.Module):
    def __init__(self, classes, dropout=0.1):
        super().__init__()
        self.classes, self.rate = classes, dropout
        self.body = nn.Linear(3, classes)

    def forward(self, x):
        return self.body(x.mean(dim=(2, 3)))


@pytest.fixture
def users_module(monkeypatch):
    module = types.ModuleType("users_networks")
    module.Mine = Mine
    module.plain = lambda classes: nn.Linear(1, classes)
    module.no_module = lambda classes: "not a network"
    module.other_arguments = lambda width: nn.Linear(1, width)
    module.number = 3
    monkeypatch.setitem(sys.modules, "users_networks", module)


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize(("column", "classes"), [(0, 10), (1, 100), (2, 1000)])
def test_parameters_are_as_many_as_published(name, column, classes):
    with torch.device("meta"):
        net = nets.build(name, classes)
    assert sum(parameter.numel() for parameter in net.parameters()) == PARAMETERS[name][column]
    assert (net.name, net.classes) == (name, classes)


def test_every_name_on_offer_can_be_built():
    assert set(PARAMETERS) <= set(nets.available())
    for name in nets.available():
        with torch.device("meta"):
            assert nets.build(name, classes=2).name == name


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("wrn", "write wrn-40-2"),
        ("wrn-40", "write wrn-40-2"),
        ("wrn-40-2-1", "write wrn-40-2"),
        ("wrn-41-2", "depth"),
        ("wrn-38-2", "depth"),
        ("wrn-4-2", "depth"),
        ("wrn-40-0", "width"),
        ("wrn-40-x", "did you mean 'wrn-40-2'"),
        ("resnet18", "did you mean 'resnet-18'"),
        ("resnet-50", "write resnet-18 or resnet-34"),
        ("densenet-100", "write densenet-121"),
        ("allconv-3", "write allconv"),
        ("", "There is no network"),
        ("vit", "There is no network"),
    ],
)
def test_mistaken_names_are_told_what_to_write(name, hint):
    with pytest.raises(MacsError, match=hint) as caught:
        nets.build(name, classes=10)
    assert repr(name) in str(caught.value)


def test_dropout_and_classes_are_checked():
    assert nets.build("resnet-18", 2, dropout=0.0).dropout == 0
    with pytest.raises(MacsError, match="resnet-18 has no dropout"):
        nets.build("resnet-18", 2, dropout=0.3)
    for dropout in (-0.1, 1.0, float("nan")):
        with pytest.raises(MacsError, match="dropout must be"):
            nets.build("wrn-10-1", 2, dropout=dropout)
    with pytest.raises(MacsError, match="at least 2 classes, not 1"):
        nets.build("wrn-10-1", 1)


@pytest.mark.usefixtures("users_module")
def test_a_users_own_class_or_function_is_built_with_the_classes():
    net = nets.build("users_networks:Mine", classes=7)
    assert type(net) is Mine
    assert (net.classes, net.rate) == (7, 0.1)
    assert nets.build("users_networks:Mine", classes=7, dropout=0.2).rate == 0.2
    assert nets.build("users_networks:plain", classes=4).out_features == 4


@pytest.mark.usefixtures("users_module")
@pytest.mark.parametrize("name", ["no_module", "other_arguments", "number", "absent"])
def test_what_is_no_network_is_refused(name):
    with pytest.raises(MacsError, match=f"users_networks:{name}"):
        nets.build(f"users_networks:{name}", classes=4)
    with pytest.raises(MacsError, match="no_such_module"):
        nets.build("no_such_module:Net", classes=4)


@pytest.mark.usefixtures("users_module")
def test_a_users_function_without_dropout_refuses_it():
    with pytest.raises(MacsError, match="has no dropout"):
        nets.build("users_networks:plain", classes=4, dropout=0.5)
