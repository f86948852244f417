"""Checkpoints written and read: ours, the public ones, and the broken ones."""

import copy
import errno
import json
import os
import pickle
import sys
import tracemalloc
import types
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from macs import MacsError, nets
from macs.data.preparation import Normalisation


class Tied(nn.Module):
    """A user's network, with two names for one weight."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(classes, classes, bias=False)
        self.second = nn.Linear(classes, classes, bias=False)
        self.second.weight = self.first.weight


class Bomb:
    """Unpickled, it would create a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.fixture
def net() -> nets.Net:
    torch.manual_seed(1)
    made = nets.build("wrn-10-1", classes=10, dropout=0.2)
    assert isinstance(made, nets.Net)
    return made


@pytest.fixture
def tied_name(monkeypatch: pytest.MonkeyPatch) -> str:
    module: Any = types.ModuleType("users_checkpoints")
    module.Tied = Tied
    monkeypatch.setitem(sys.modules, "users_checkpoints", module)
    return "users_checkpoints:Tied"


def equal(one: nn.Module, other: nn.Module) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_our_files_know_what_they_hold(net: nets.Net, tmp_path: Path) -> None:
    cast(Any, net).to(memory_format=torch.channels_last)
    nets.save(net, tmp_path / "new" / "net.safetensors")
    for path in (tmp_path / "new" / "net.safetensors", tmp_path / "new"):
        loaded = nets.load(path)
        assert equal(loaded, net)
        assert isinstance(loaded, nets.Net)
        assert (loaded.name, loaded.classes, loaded.dropout) == ("wrn-10-1", 10, 0.2)
    assert nets.load(tmp_path / "new", dropout=0.0).dropout == 0
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["net.safetensors"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every name is text")
def test_a_folder_whose_name_is_no_text(net: nets.Net, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"b\xff")
    folder.mkdir()
    nets.save(net, folder / "net.safetensors")
    again = nets.load(folder / "net.safetensors")
    assert torch.equal(again.get_parameter("fc.weight"), net.get_parameter("fc.weight"))


def test_a_dropout_of_integer_zero_comes_back(net: nets.Net, tmp_path: Path) -> None:
    nets.set_dropout(net, 0)
    nets.save(net, tmp_path / "net.safetensors")
    assert nets.load(tmp_path).dropout == 0


def test_the_same_network_gives_the_same_bytes(net: nets.Net, tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        nets.save(net, tmp_path / name)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_the_label_is_json_that_other_tools_can_read(net: nets.Net, tmp_path: Path) -> None:
    nets.save(net, tmp_path / "net.safetensors")
    with (tmp_path / "net.safetensors").open("rb") as file:  # the format: the header's length in 8 bytes, then JSON
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    label = json.loads(header["__metadata__"]["macs"])
    expected = {"format": "macs-net", "version": 3, "name": "wrn-10-1", "classes": 10, "dropout": 0.2}
    preparation = label.pop("preparation")
    assert preparation.pop("mean") == pytest.approx([125.3 / 255, 123.0 / 255, 113.9 / 255], rel=1e-6)
    assert preparation.pop("std") == pytest.approx([63.0 / 255, 62.1 / 255, 66.7 / 255], rel=1e-6)
    assert preparation == {"size": 32, "resize": 32, "interpolation": "bilinear"}
    assert label == {**expected, "class_names": []}


def test_class_names_travel_with_the_weights(net: nets.Net, tmp_path: Path) -> None:
    names = ("cat", "dog", "Käfer", *map(str, range(7)))
    nets.save(net, tmp_path / "net.safetensors", names)
    assert nets.class_names(tmp_path / "net.safetensors") == nets.class_names(tmp_path) == names
    assert equal(nets.load(tmp_path), net)
    nets.save(net, tmp_path / "none.safetensors")
    assert nets.class_names(tmp_path / "none.safetensors") == ()
    safetensors.torch.save_file(net.state_dict(), tmp_path / "theirs.safetensors")
    assert nets.class_names(tmp_path / "theirs.safetensors") == ()
    torch.save(net.state_dict(), tmp_path / "theirs.pt")
    assert nets.class_names(tmp_path / "theirs.pt") == ()
    with pytest.raises(MacsError, match="no checkpoint at"):
        nets.class_names(tmp_path / "absent.safetensors")


def test_a_preparation_in_a_file_is_kept_unless_another_is_given(net: nets.Net, tmp_path: Path) -> None:
    label: dict[str, Any] = {"format": "macs-net", "version": 3, "name": "wrn-10-1", "classes": 10, "dropout": 0.2}
    label["preparation"] = {"mean": [0.5, 0.25, 0.125], "std": [0.5, 0.5, 1.0]}
    safetensors.torch.save_file(net.state_dict(), tmp_path / "net.safetensors", {"macs": json.dumps(label)})
    assert nets.load(tmp_path).preparation == nets.Preparation(mean=(0.5, 0.25, 0.125), std=(0.5, 0.5, 1.0))
    assert nets.class_names(tmp_path) == ()
    mine = nets.load(tmp_path, preparation=nets.Preparation(64, 72, "bicubic"))
    assert mine.preparation == nets.Preparation(64, 72, "bicubic")
    nets.save(mine, tmp_path / "net.safetensors")
    assert nets.load(tmp_path).preparation == mine.preparation


@pytest.mark.usefixtures("tied_name")
def test_the_preparation_of_a_users_own_network_travels_too(tmp_path: Path) -> None:
    net: Any = nets.build("users_checkpoints:Tied", 2)
    assert nets.preparation_of(net) is None
    net.preparation = nets.Preparation(24, 28, "bicubic")
    nets.save(net, tmp_path / "net.safetensors")
    assert nets.preparation_of(nets.load(tmp_path, "users_checkpoints:Tied", 2)) == net.preparation


@pytest.mark.parametrize("suffix", ["pt", "ckpt"])
@pytest.mark.parametrize("wrapper", [None, "state_dict", "model", "net", "model_state_dict", "ema", "my_own"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module.", "model.backbone.", "encoder.net."])
def test_public_files_load(net: nets.Net, tmp_path: Path, suffix: str, wrapper: str | None, prefix: str) -> None:
    state = {prefix + key: value for key, value in net.state_dict().items()}
    path = tmp_path / f"public.{suffix}"
    torch.save({wrapper: state, "epoch": 3} if wrapper else state, path)
    loaded = nets.load(path, "wrn-10-1", classes=10)
    assert equal(loaded, net)
    assert loaded.dropout == 0.3


@pytest.mark.parametrize(
    ("name", "ours", "public"),
    [
        ("allconv", "trunk.28.weight", "features.28.weight"),
        ("allconv", "fc.bias", "classifier.bias"),
        ("resnet-18", "fc.weight", "linear.weight"),
        ("densenet-121", "fc.weight", "linear.weight"),
    ],
)
def test_public_names_become_ours(tmp_path: Path, name: str, ours: str, public: str) -> None:
    net = nets.build(name, classes=3)
    renames = (("trunk.", "features."), ("fc.", "classifier.")) if name == "allconv" else (("fc.", "linear."),)
    state = net.state_dict()
    for old, new in renames:
        state = {new + key.removeprefix(old) if key.startswith(old) else key: value for key, value in state.items()}
    assert public in state
    torch.save(state, tmp_path / "public.pt")
    loaded = nets.load(tmp_path / "public.pt", name, classes=3, normalisation="kuangliu")
    assert torch.equal(loaded.state_dict()[ours], state[public])
    assert equal(loaded, net)


def test_a_prefix_that_the_network_has_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrapped(nn.Module):
        def __init__(self, classes: int) -> None:
            super().__init__()
            self.model = nn.Sequential(nn.Flatten(), nn.Linear(3, classes))

    module: Any = types.ModuleType("users_wrapped")
    module.Wrapped = Wrapped
    monkeypatch.setitem(sys.modules, "users_wrapped", module)
    net = Wrapped(2)
    for prefix in ("", "module."):
        torch.save({prefix + key: value for key, value in net.state_dict().items()}, tmp_path / "net.pt")
        assert equal(nets.load(tmp_path / "net.pt", "users_wrapped:Wrapped", 2), net)


def test_averaged_and_compiled_models_and_wrappers_in_wrappers_load(net: nets.Net, tmp_path: Path) -> None:
    averaged = torch.optim.swa_utils.AveragedModel(net)
    optimizer = torch.optim.SGD(net.parameters(), momentum=0.9)
    torch.save({"model": {"state_dict": averaged.state_dict()}, "optimizer": optimizer.state_dict()}, tmp_path / "a.pt")
    assert equal(nets.load(tmp_path / "a.pt", "wrn-10-1", 10), net)
    endless: dict[str, Any] = {"epoch": 3}
    endless["model"] = endless
    torch.save(endless, tmp_path / "endless.pt")
    with pytest.raises(MacsError, match="something other than a state dict"):
        nets.load(tmp_path / "endless.pt", "wrn-10-1", 10)


def test_resnets_of_timm_and_torchvision(tmp_path: Path) -> None:
    net = nets.build("resnet-18", classes=3)
    theirs = {key.replace("shortcut", "downsample"): value for key, value in net.state_dict().items()}
    assert "layer2.0.downsample.1.running_mean" in theirs
    torch.save(theirs, tmp_path / "timm.pt")
    assert equal(nets.load(tmp_path / "timm.pt", "resnet-18", 3, normalisation="imagenet"), net)
    torch.save(theirs | {"conv1.weight": torch.zeros(64, 3, 7, 7)}, tmp_path / "imagenet.pt")
    with pytest.raises(MacsError, match="begins with a 7 x 7 convolution, the stem .* 3 x 3 stem"):
        nets.load(tmp_path / "imagenet.pt", "resnet-18", 3)
    torch.save(theirs | {"linear.weight": theirs["fc.weight"] + 1}, tmp_path / "two.pt")
    with pytest.raises(MacsError, match=r"too many \(the first is layer2.0.downsample|too many \(the first is linear"):
        nets.load(tmp_path / "two.pt", "resnet-18", 3)


OTHER = nets.Normalisation((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


@pytest.mark.parametrize("given", ["openood-cifar100", OTHER])
def test_normalisation_travels_with_the_weights(tmp_path: Path, given: Normalisation | str) -> None:
    net: Any = nets.build("wrn-10-1", classes=2, normalisation=given).eval()
    values = nets.NORMALISATIONS[given] if isinstance(given, str) else given
    pixels = torch.rand(2, 3, 8, 8)
    mean, std = (torch.tensor(part)[:, None, None] for part in (values.mean, values.std))
    assert torch.allclose(net.normalise(pixels), (pixels - mean) / std)
    nets.save(net, tmp_path / "net.safetensors")
    loaded = nets.load(tmp_path).eval()
    assert torch.equal(loaded(pixels), net(pixels))
    assert loaded.preparation == net.preparation
    assert loaded.preparation.mean == pytest.approx(values.mean)
    assert torch.equal(nets.load(tmp_path, "wrn-10-1", normalisation=values).eval()(pixels), net(pixels))
    assert not torch.equal(nets.load(tmp_path, normalisation="none").eval()(pixels), net(pixels))


def test_a_normalisation_changed_by_hand_is_saved(net: nets.Net, tmp_path: Path) -> None:
    net.normalise.mean.fill_(0.25)
    net.normalise.std = torch.tensor(0.75)
    nets.save(net, tmp_path / "net.safetensors")
    assert nets.preparation_of(nets.load(tmp_path)).normalisation == nets.Normalisation((0.25,) * 3, (0.75,) * 3)
    cast(Any, net).normalise = nn.Identity()
    with pytest.raises(MacsError, match=r"replaced by Identity; make it a nets.Normalise"):
        nets.save(net, tmp_path / "net.safetensors")


@pytest.mark.parametrize(("name", "warns"), [("resnet-18", True), ("densenet-121", True), ("wrn-10-1", False)])
def test_a_file_that_may_expect_another_normalisation_is_pointed_out(tmp_path: Path, name: str, warns: bool) -> None:
    path = tmp_path / "best.ckpt"
    torch.save(nets.build(name, classes=2).state_dict(), path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = nets.load(path, name, 2).preparation
        assert [str(w.message).startswith(f"{path} does not say how") for w in caught] == [True] * warns
        assert found == nets.build(name, 2).preparation
        told = nets.load(path, name, 2, normalisation="openood-cifar10")
        nets.save(told, tmp_path / "net.safetensors")
        nets.load(tmp_path)
        assert len(caught) == warns


@pytest.mark.usefixtures("tied_name")
def test_normalisations_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MacsError, match="no normalisation called 'openood' .*did you mean 'openood-cifar10'"):
        nets.build("wrn-10-1", 2, normalisation="openood")
    for mean in ((0.1, 0.2), (0.1, 0.2, 125.0), (0.1, 0.2, -0.1), (0.1, 0.2, float("nan")), 0.5, ("a", "b", "c")):
        with pytest.raises(MacsError, match=r"mean(\[\d\])? must be (a list of 3|a number|at least 0 and at most 1)"):
            nets.build("wrn-10-1", 2, normalisation=nets.Normalisation(cast(Any, mean), (1, 1, 1)))
    with pytest.raises(MacsError, match=r"std\[1\] must be above 0"):
        nets.build("wrn-10-1", 2, normalisation=nets.Normalisation((0, 0, 0), (1, 0, 1)))
    with pytest.raises(MacsError, match="normalises its pixels itself"):
        nets.build("users_checkpoints:Tied", 2, normalisation="oe")


ODD: dict[str, Callable[[Tensor], Tensor]] = {
    "sparse": lambda x: x.to_sparse(),
    "quantised": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    "without values": lambda x: x.to("meta"),
    "complex": lambda x: x.to(torch.complex64),
    "int64 instead of floating-point": lambda x: x.long(),
    "bool instead of floating-point": lambda x: x.bool(),
    "is 99 x 64 x 64 x 3 x 3": lambda x: x.expand(99, *x.shape),
    "1000000000000": lambda x: x.view(-1)[:1].expand(10**12),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ODD)
def test_tensors_of_another_kind_are_refused(net: nets.Net, tmp_path: Path, kind: str) -> None:
    state = net.state_dict()
    key = "block3.layer.0.conv2.weight"
    torch.save({**state, key: ODD[kind](state[key])}, tmp_path / "odd.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the sentence is enough
        with pytest.raises(MacsError, match=kind) as caught:
            nets.load(tmp_path / "odd.pt", "wrn-10-1", 10)
    assert key in str(caught.value)


def test_half_precision_loads(net: nets.Net, tmp_path: Path) -> None:
    torch.save({key: value.half() for key, value in net.state_dict().items()}, tmp_path / "half.pt")
    loaded = nets.load(tmp_path / "half.pt", "wrn-10-1", 10)
    assert torch.equal(loaded.get_parameter("fc.weight"), net.head.weight.half().float())


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.pt")
    for read in (nets.class_names, lambda path: nets.load(path, "wrn-10-1", 10)):
        with pytest.raises(MacsError, match="is a FIFO, not a checkpoint"):
            read(tmp_path / "fifo.pt")
        with pytest.raises(MacsError, match="is a device, not a checkpoint"):
            read("/dev/zero")
        with pytest.raises(MacsError, match="path is empty"):
            read("")
        with pytest.raises(MacsError, match="NUL"):
            read("a\0b.pt")
    (tmp_path / "net.safetensors").mkdir()
    with pytest.raises(MacsError, match="is a folder, not a checkpoint"):
        nets.load(tmp_path)


def test_files_older_than_the_counting_of_batches_load(net: nets.Net, tmp_path: Path) -> None:
    old = {key: value for key, value in net.state_dict().items() if not key.endswith("num_batches_tracked")}
    assert len(old) < len(net.state_dict())
    torch.save(old, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert equal(nets.load(tmp_path / "old.pt", "wrn-10-1", classes=10), net)


def test_a_users_network_is_loaded_by_the_name_that_the_user_gives(tmp_path: Path, tied_name: str) -> None:
    net, path = Tied(classes=3), tmp_path / "mine.safetensors"
    nets.save(net, path)
    assert equal(nets.load(path, tied_name, classes=3), net)
    with pytest.raises(MacsError, match="your own network; give its name"):
        nets.load(path)
    with pytest.raises(MacsError, match="number of classes"):
        nets.load(path, tied_name)


def test_a_name_in_a_file_imports_nothing(net: nets.Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sly.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    monkeypatch.chdir(tmp_path)
    label = {"format": "macs-net", "version": 3, "name": "sly:Net", "classes": 2, "dropout": None}
    safetensors.torch.save_file(net.state_dict(), "sly.safetensors", {"macs": json.dumps(label)})
    with pytest.raises(MacsError, match="your own network"):
        nets.load("sly.safetensors")
    assert not Path("ran").exists()


def test_safetensors_of_others_need_a_name(net: nets.Net, tmp_path: Path) -> None:
    safetensors.torch.save_file(net.state_dict(), tmp_path / "theirs.safetensors")
    assert equal(nets.load(tmp_path / "theirs.safetensors", "wrn-10-1", 10), net)
    with pytest.raises(MacsError, match="does not say what it holds"):
        nets.load(tmp_path / "theirs.safetensors")


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_files_that_do_not_fit_say_why(net: nets.Net, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"net.{suffix}"
    if suffix == "pt":
        torch.save(net.state_dict(), path)
    else:
        nets.save(net, path)
    with pytest.raises(MacsError, match="does not fit wrn-10-1 with 100 classes: it has 10 classes"):
        nets.load(path, "wrn-10-1", classes=100)
    # Three more blocks of two convolutions and two batch norms, whose four tensors count and whose counters do not.
    with pytest.raises(MacsError, match=r"does not fit wrn-16-1 .* it lacks 30 tensors \(the first is block1.layer.1"):
        nets.load(path, "wrn-16-1", classes=10)
    with pytest.raises(MacsError, match="it lacks .* and has .* too many") as caught:
        nets.load(path, "allconv", classes=10)
    assert ("it was saved as wrn-10-1" in str(caught.value)) == (suffix == "safetensors")
    with pytest.raises(MacsError, match="does not fit wrn-10-2"):
        nets.load(path, "wrn-10-2", classes=10)
    wide = nets.build("wrn-10-2", classes=10).state_dict()
    wider = {key: torch.cat([value, value]) if key == "bn1.bias" else value for key, value in wide.items()}
    torch.save(wider, tmp_path / "wider.pt")
    with pytest.raises(MacsError, match=r"its bn1\.bias is 256 instead of 128"):
        nets.load(tmp_path / "wider.pt", "wrn-10-2", classes=10)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(MacsError, match="no checkpoint at"):
        nets.load(tmp_path / "absent.pt", "wrn-10-1", 10)
    with pytest.raises(MacsError, match=r"no net\.safetensors in"):
        nets.load(tmp_path)


@pytest.mark.parametrize("name", ["net.safetensors", "net.pt", "legacy.pt"])
@pytest.mark.parametrize("share", [0.0, 0.0001, 0.01, 0.5, 0.99])
def test_truncated_files_are_damaged(net: nets.Net, tmp_path: Path, name: str, share: float) -> None:
    path = tmp_path / name
    if path.suffix == ".pt":
        torch.save(net.state_dict(), path, _use_new_zipfile_serialization=name == "net.pt")
    else:
        nets.save(net, path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(MacsError, match=f"{name} is damaged or not a checkpoint"):
        nets.load(path, "wrn-10-1", 10)


@pytest.mark.parametrize("name", ["other.pt", "other.safetensors"])
@pytest.mark.parametrize("content", [b"# A readme, not a checkpoint\n" * 9, b"\x89PNG\r\n\x1a\n" + bytes(range(256))])
def test_files_of_another_kind(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(MacsError, match=f"{name} is damaged or not a checkpoint"):
        nets.load(tmp_path / name, "wrn-10-1", 10)


@pytest.mark.parametrize("content", [3, [torch.zeros(2)], {}, {"epoch": 3}, {"state_dict": {}}, {1: torch.zeros(2)}])
def test_other_things_that_torch_saves(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "other.pt")
    with pytest.raises(MacsError, match="something other than a state dict"):
        nets.load(tmp_path / "other.pt", "wrn-10-1", 10)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_that_wants_to_run_code_is_refused_and_does_not_run(tmp_path: Path, legacy: bool) -> None:
    path, trace = tmp_path / "bomb.pt", tmp_path / "exploded"
    torch.save({"state_dict": Bomb(trace)}, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(MacsError, match="can run code, and is refused"):
        nets.load(path, "wrn-10-1", 10)
    assert not trace.exists()
    torch.load(path, weights_only=False)
    assert trace.exists()  # so the file was live


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_an_archive_that_unpacks_to_far_more_than_the_file_is_refused(
    net: nets.Net, tmp_path: Path, compression: int
) -> None:
    """One tensor of 64 MB that is compressed; or, stored once, a tensor of 1 MB that 64 entries share."""
    torch.save({"x": torch.zeros(2**24)}, tmp_path / "plain.pt")
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(tmp_path / "bomb.pt", "w") as bomb:
        for name in plain.namelist():
            if compression == zipfile.ZIP_DEFLATED:
                bomb.writestr(name, plain.read(name), compression)
            elif name.endswith("data/0"):
                bomb.writestr(name, bytes(2**20))
                shared = bomb.getinfo(name)
            else:
                bomb.writestr(name, plain.read(name))
        if compression == zipfile.ZIP_STORED:
            bomb.filelist += [copy.copy(shared) for _ in range(63)]
    assert (tmp_path / "bomb.pt").stat().st_size < 2**21
    with pytest.raises(MacsError, match=r"bomb\.pt would take 67 MB of memory, and is not as torch\.save writes"):
        nets.load(tmp_path / "bomb.pt", "wrn-10-1", 10)
    with pytest.raises(MacsError, match=r"plain\.pt does not fit"):
        nets.load(tmp_path / "plain.pt", "wrn-10-1", 10)


class Swelling:
    """Unpickled, it takes as much memory as it likes; torch.load allows this, even with weights_only."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[int]]:
        return bytearray, (2**26,)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_that_asks_for_memory_is_refused(tmp_path: Path, legacy: bool) -> None:
    torch.save({"x": Swelling()}, tmp_path / "bomb.pt", _use_new_zipfile_serialization=not legacy)
    assert len(torch.load(tmp_path / "bomb.pt", weights_only=True)["x"]) == 2**26
    tracemalloc.start()
    with pytest.raises(MacsError, match=r"bomb\.pt would take any amount of memory"):
        nets.load(tmp_path / "bomb.pt", "wrn-10-1", 10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24


class Repeated:
    """Unpickled, it copies a tensor that repeats one number; its pickle and its storage hold 4 bytes of it."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Tensor, torch.dtype, torch.device, bool]]:
        rebuild = torch._utils._rebuild_device_tensor_from_cpu_tensor
        return rebuild, (torch.zeros(1).expand(2**24), torch.float64, torch.device("cpu"), False)


def test_a_pickle_that_copies_a_repeated_number_is_refused(tmp_path: Path) -> None:
    torch.save({"x": Repeated()}, tmp_path / "bomb.pt")
    assert torch.load(tmp_path / "bomb.pt", weights_only=True)["x"].untyped_storage().nbytes() == 2**27
    with pytest.raises(MacsError, match=r"bomb\.pt would take any amount of memory"):
        nets.load(tmp_path / "bomb.pt", "wrn-10-1", 10)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_pickle_that_asks_for_memory_does_not_hide_behind_another(tmp_path: Path) -> None:
    torch.save({"x": Swelling()}, tmp_path / "bomb.pt")
    torch.save({"x": torch.zeros(1)}, tmp_path / "plain.pt")
    with zipfile.ZipFile(tmp_path / "plain.pt") as plain, zipfile.ZipFile(tmp_path / "bomb.pt", "a") as bomb:
        bomb.writestr("bomb/data.pkl", plain.read("plain/data.pkl"))
    with pytest.raises(MacsError, match=r"bomb\.pt would take any amount of memory"):
        nets.load(tmp_path / "bomb.pt", "wrn-10-1", 10)


def test_an_archive_that_only_torch_might_read_is_damaged(net: nets.Net, tmp_path: Path) -> None:
    torch.save(net.state_dict(), tmp_path / "net.pt")
    first, *entries = (tmp_path / "net.pt").read_bytes().split(b"PK\1\2")
    newer = (entry[:2] + b"\xff\xff" + entry[4:] for entry in entries)  # the version that is needed to read it
    (tmp_path / "net.pt").write_bytes(b"PK\1\2".join([first, *newer]))
    assert torch.load(tmp_path / "net.pt", weights_only=True).keys() == net.state_dict().keys()
    with pytest.raises(MacsError, match=r"net\.pt is damaged or not a checkpoint"):
        nets.load(tmp_path / "net.pt", "wrn-10-1", 10)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_program_in_torchscript_is_refused(tmp_path: Path) -> None:
    torch.jit.script(nn.Linear(2, 2)).save(str(tmp_path / "script.pt"))
    with pytest.raises(
        MacsError, match=r"script\.pt is a program in TorchScript, which is refused; save net\.state_dict"
    ):
        nets.load(tmp_path / "script.pt", "wrn-10-1", 10)


def test_a_whole_pickled_network_is_refused(net: nets.Net, tmp_path: Path) -> None:
    torch.save(net, tmp_path / "whole.pt")
    with pytest.raises(MacsError, match=r"save net\.state_dict\(\) there instead"):
        nets.load(tmp_path / "whole.pt", "wrn-10-1", 10)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(net: nets.Net, tmp_path: Path, value: float) -> None:
    net.get_parameter("block2.layer.0.conv1.weight").data[3, 2, 1, 0] = value
    torch.save(net.state_dict(), tmp_path / "net.pt")
    with pytest.raises(MacsError, match=r"not finite \(block2.layer.0.conv1.weight\)"):
        nets.load(tmp_path / "net.pt", "wrn-10-1", 10)


@pytest.mark.parametrize(
    ("label", "complaint"),
    [
        ({"format": "macs-detector"}, "is not a network: it says that it is a macs-detector"),
        ({"version": 4, "new": 1}, "newer macs"),
        ({"classes": "10"}, "label that macs did not write"),
        ({"classes": True}, "label that macs did not write"),
        ({"dropout": [0.1]}, "label that macs did not write"),
        ({"name": None}, "label that macs did not write"),
        ({"format": ["macs-net"]}, "label that macs did not write"),
        ({"version": "2"}, "label that macs did not write"),
        ({"class_names": "cat"}, "label that macs did not write"),
        ({"class_names": [1, 2]}, "label that macs did not write"),
        ({"preparation": [0.5, 0.5, 0.5]}, "label that macs did not write"),
        ({"preparation": {"mean": [0, 0, 0], "std": [0, 1, 1]}}, "label that macs did not write"),
        ({"unheard": 1}, "label that macs did not write"),
        ({"name": "wrn-x"}, "There is no network called 'wrn-x'"),
    ],
)
def test_labels_that_are_wrong(net: nets.Net, tmp_path: Path, label: dict[str, Any], complaint: str) -> None:
    whole = {"format": "macs-net", "version": 3, "name": "wrn-10-1", "classes": 10, "dropout": 0.2} | label
    path = tmp_path / "net.safetensors"
    safetensors.torch.save_file(net.state_dict(), path, {"macs": json.dumps(whole)})
    with pytest.raises(MacsError, match=complaint):
        nets.load(path)


def headed(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header


@pytest.mark.parametrize(
    "content",
    [
        headed(b"[]"),
        headed(b"null"),
        headed(b'{"__metadata__": 3}'),
        headed(b'{"__metadata__": {"macs": 3}}'),
        headed(b'{"__metadata__": {"macs": "{"}}'),
        headed(b'{"__metadata__": {"macs": "' + b"[" * 100_000 + b'"}}'),
        headed(b"[" * 100_000),
        headed(b'{"a": "' + b"\xff" + b'"}'),
        (2**63).to_bytes(8, "little") + b"{}",
    ],
)
def test_forged_headers_are_damage(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "net.safetensors").write_bytes(content)
    for read in (nets.load, nets.class_names):
        with pytest.raises(MacsError, match="damaged or not a checkpoint"):
            read(tmp_path)


@pytest.mark.parametrize("label", ["3", "[]", "null", '"macs-net"'])
def test_labels_that_are_no_object(net: nets.Net, tmp_path: Path, label: str) -> None:
    safetensors.torch.save_file(net.state_dict(), tmp_path / "net.safetensors", {"macs": label})
    with pytest.raises(MacsError, match="label that macs did not write"):
        nets.load(tmp_path)


def test_only_safetensors_are_written(net: nets.Net, tmp_path: Path) -> None:
    with pytest.raises(MacsError, match=r"end in \.safetensors"):
        nets.save(net, tmp_path / "net.pt")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    net: nets.Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.safetensors"
    nets.save(net, path)
    before = path.read_bytes()

    def half(self: Path, content: bytes) -> None:
        with self.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    nn.init.zeros_(net.head.weight)
    with pytest.raises(MacsError, match="No space left on device"):
        nets.save(net, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.data
def test_a_public_classifier_keeps_its_accuracy(data_root: Path, public_weights: str) -> None:
    net = nets.load(public_weights, "wrn-40-2", classes=10).eval()
    with (data_root / "cifar-10-batches-py" / "test_batch").open("rb") as file:
        batch = pickle.load(file, encoding="bytes")
    pixels = torch.from_numpy(batch[b"data"][:500].reshape(-1, 3, 32, 32) / np.float32(255))
    with torch.inference_mode():
        found = net(pixels).argmax(dim=1).tolist()
    right = sum(one == other for one, other in zip(found, batch[b"labels"][:500], strict=True))
    assert right / 500 > 0.89
