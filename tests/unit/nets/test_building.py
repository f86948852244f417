"""From names to networks, and from mistaken names to one sentence."""

import sys
import textwrap
import types
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from macs import MacsError, nets
from macs.nets.wrn import WideResNet

PARAMETERS = {  # with 10, 100 and 1000 classes, as published
    "wrn-40-2": (2_243_546, 2_255_156, 2_371_256),
    "allconv": (1_409_674, 1_427_044, 1_600_744),
    "resnet-18": (11_173_962, 11_220_132, 11_681_832),
    "densenet-121": (6_956_298, 7_048_548, 7_971_048),
}


class Mine(nn.Module):
    def __init__(self, classes: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.classes, self.rate = classes, dropout
        self.body = nn.Linear(3, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x.mean(dim=(2, 3)))


@pytest.fixture
def users_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = types.ModuleType("users_networks")
    module.Mine = Mine
    module.plain = lambda classes: nn.Linear(1, classes)
    module.no_module = lambda classes: "not a network"
    module.other_arguments = lambda width: nn.Linear(1, width)
    module.layered = lambda classes: nn.Sequential(nn.Dropout(0.5), nn.Linear(1, classes))
    module.number = 3
    monkeypatch.setitem(sys.modules, "users_networks", module)


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize(("column", "classes"), [(0, 10), (1, 100), (2, 1000)])
def test_parameters_are_as_many_as_published(name: str, column: int, classes: int) -> None:
    with torch.device("meta"):
        net = nets.build(name, classes)
    assert sum(parameter.numel() for parameter in net.parameters()) == PARAMETERS[name][column]
    assert isinstance(net, nets.Net) and (net.name, net.classes) == (name, classes)


def test_every_name_on_offer_can_be_built() -> None:
    assert set(PARAMETERS) <= set(nets.available())
    for name in nets.available():
        if name.startswith(("hf/", "clip/")):
            continue  # it would be downloaded
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
        ("wrn-10-\n2", "There is no network"),
        ("vit", "There is no network"),
    ],
)
def test_mistaken_names_are_told_what_to_write(name: str, hint: str) -> None:
    with pytest.raises(MacsError, match=hint) as caught:
        nets.build(name, classes=10)
    assert repr(name) in str(caught.value)


def test_dropout_and_classes_are_checked() -> None:
    assert nets.build("resnet-18", 2, dropout=0.0).dropout == 0
    with pytest.raises(MacsError, match="resnet-18 has no dropout"):
        nets.build("resnet-18", 2, dropout=0.3)
    for dropout in (-0.1, 1.0, float("nan")):
        with pytest.raises(MacsError, match="dropout must be"):
            nets.build("wrn-10-1", 2, dropout=dropout)
    with pytest.raises(MacsError, match="at least 2 classes, not 1"):
        nets.build("wrn-10-1", 1)
    for classes in (True, 2.5, "10", None):
        with pytest.raises(MacsError, match="must be a whole number"):
            nets.build("wrn-10-1", cast(Any, classes))
    assert nets.build("wrn-10-1", cast(Any, np.int64(3))).classes == 3


@pytest.mark.parametrize(
    ("name", "classes", "complaint"),
    [
        ("wrn-10-1000", 10, r"would have about 1e\+11 parameters"),
        ("wrn-10-100000", 10, "would have about .* parameters"),
        ("wrn-1000000000-1", 10, "would have about .* parameters"),
        ("wrn-10-100", 10**6, "would have about .* parameters"),
        ("wrn-" + "9" * 5000 + "-1", 10, "There is no network called"),
        ("wrn-40-2", 10**9, "at most 1,000,000 classes, not 1,000,000,000"),
        ("densenet-121", 10**9, "at most 1,000,000 classes"),
    ],
)
def test_what_would_take_all_memory_is_refused_at_once(name: str, classes: int, complaint: str) -> None:
    with pytest.raises(MacsError, match=complaint) as caught:
        nets.build(name, classes)
    assert len(str(caught.value)) < 350


def test_what_is_refused_would_really_have_so_many_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("macs.nets.wrn.MOST_PARAMETERS", 2_243_546 * 1.1)  # of wrn-40-2
    nets.build("wrn-40-2", classes=10)
    monkeypatch.setattr("macs.nets.wrn.MOST_PARAMETERS", 2_243_546 * 0.9)
    with pytest.raises(MacsError, match="would have about"):
        nets.build("wrn-40-2", classes=10)


@pytest.mark.usefixtures("users_module")
def test_a_users_own_class_or_function_is_built_with_the_classes() -> None:
    net = nets.build("users_networks:Mine", classes=7)
    assert type(net) is Mine
    assert (net.classes, net.rate) == (7, 0.1)
    assert nets.build("users_networks:Mine", classes=7, dropout=0.2).rate == 0.2
    assert nets.build("users_networks:plain", classes=4).out_features == 4


@pytest.mark.usefixtures("users_module")
@pytest.mark.parametrize("name", ["no_module", "other_arguments", "number", "absent"])
def test_what_is_no_network_is_refused(name: str) -> None:
    with pytest.raises(MacsError, match=f"users_networks:{name}"):
        nets.build(f"users_networks:{name}", classes=4)
    with pytest.raises(MacsError, match="no_such_module"):
        nets.build("no_such_module:Net", classes=4)


MODULES = {
    "broken": "def f(:\n",
    "raising": "raise RuntimeError('first line\\nsecond line')\n",
    "leaving": "import sys\nsys.exit(0)\n",
    "bare": "",
    "keywords": """
        def inner(num_classes=10):
            pass
        def resnet18(*, weights=None, **kwargs):
            return inner(**kwargs)
        def leaves(classes):
            raise SystemExit
        def fails(classes):
            return 1 / 0
        class Outer:
            from torch.nn import Linear as Inner
    """,
}


@pytest.fixture
def users_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in MODULES.items():
        (tmp_path / f"users_{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("users_files")
@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("users_broken:Net", "as a network: SyntaxError: invalid syntax"),
        ("users_raising:Net", "as a network: RuntimeError: first line."),
        ("users_leaving:Net", r"as a network: it calls sys.exit\(0\)"),
        ("users_bare:Net", "has no attribute 'Net'"),
        ("users_bare:", "write module:Name"),
        (":Net", "write module:Name"),
        (":", "write module:Name"),
        (".:Net", "as a network: TypeError"),
        (".users_bare:Net", "as a network: TypeError"),
        ("users\0bare:Net", "as a network: "),
        ("users bare;rm:Net", "No module named"),
        ("users_bare:a..b", "has no attribute"),
        ("u" * 100_000 + ":Net", "as a network: "),
        ("users_keywords:resnet18", "with classes=10: TypeError: .* unexpected keyword argument 'classes'"),
        ("users_keywords:leaves", "it calls sys.exit"),
        ("users_keywords:fails", "ZeroDivisionError: division by zero"),
        ("users_keywords:inner", "called with classes=... alone"),
        ("users_keywords:Outer", "called with classes=... alone"),
        ("users_keywords:Outer.Inner", "called with classes=... alone"),
        ("macs.nets.wrn:WideResNet", "called with classes=... alone"),
    ],
)
def test_own_code_that_fails_is_one_sentence(name: str, complaint: str) -> None:
    with pytest.raises(MacsError, match=complaint) as caught:
        nets.build(name, classes=10)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


@pytest.mark.usefixtures("users_module")
def test_dropout_of_a_users_function_is_set_in_its_layers() -> None:
    for rate in (0.25, 0):
        net = nets.build("users_networks:layered", classes=4, dropout=rate)
        assert isinstance(net, nn.Sequential) and net[0].p == rate


def test_a_name_that_is_taken_is_an_error_that_names_both() -> None:
    class Other(nets.Net):
        pass

    with pytest.raises(MacsError, match=r"'wrn' is taken by macs.nets.wrn:WideResNet; give .*Other another name"):
        nets.net("wrn")(Other)
    assert nets.net["wrn"] is WideResNet
    assert nets.net("wrn")(WideResNet) is WideResNet  # a notebook's cell that is run again


@pytest.mark.usefixtures("users_module")
def test_a_users_function_without_dropout_refuses_it() -> None:
    with pytest.raises(MacsError, match="has no dropout"):
        nets.build("users_networks:plain", classes=4, dropout=0.5)
