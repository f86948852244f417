"""Checkpoints written and read: ours, the public ones, and the broken ones."""

import errno
import json
import pickle
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from macs import MacsError, nets


class Tied(nn.Module):
    """A user's network, with two names for one weight."""

    def __init__(self, classes):
        super().__init__()
        self.first = nn.Linear(classes, classes, bias=False)
        self.second = nn.Linear(classes, classes, bias=False)
        self.second.weight = self.first.weight


class Bomb:
    """Unpickled, it would create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def net():
    torch.manual_seed(1)
    return nets.build("wrn-10-1", classes=10, dropout=0.2)


@pytest.fixture
def tied_name(monkeypatch):
    module = types.ModuleType("users_checkpoints")
    module.Tied = Tied
    monkeypatch.setitem(sys.modules, "users_checkpoints", module)
    return "users_checkpoints:Tied"


def equal(one, other):
    one, other = one.state_dict(), other.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_our_files_know_what_they_hold(net, tmp_path):
    nets.save(net.to(memory_format=torch.channels_last), tmp_path / "new" / "net.safetensors")
    for path in (tmp_path / "new" / "net.safetensors", tmp_path / "new"):
        loaded = nets.load(path)
        assert equal(loaded, net)
        assert (loaded.name, loaded.classes, loaded.dropout) == ("wrn-10-1", 10, 0.2)
    assert nets.load(tmp_path / "new", dropout=0.0).dropout == 0
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["net.safetensors"]


def test_a_dropout_of_integer_zero_comes_back(net, tmp_path):
    nets.set_dropout(net, 0)
    nets.save(net, tmp_path / "net.safetensors")
    assert nets.load(tmp_path).dropout == 0


def test_the_same_network_gives_the_same_bytes(net, tmp_path):
    for name in ("a.safetensors", "b.safetensors"):
        nets.save(net, tmp_path / name)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_the_label_is_json_that_other_tools_can_read(net, tmp_path):
    nets.save(net, tmp_path / "net.safetensors")
    with (tmp_path / "net.safetensors").open("rb") as file:  # the format: the header's length in 8 bytes, then JSON
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    label = json.loads(header["__metadata__"]["macs"])
    assert label == {
        "format": "macs-net",
        "version": 1,
        "name": "wrn-10-1",
        "classes": 10,
        "dropout": 0.2,
        "class_names": [],
    }


@pytest.mark.parametrize("suffix", ["pt", "pth", "ckpt"])
@pytest.mark.parametrize("wrapper", [None, "state_dict", "model", "net"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_public_files_load(net, tmp_path, suffix, wrapper, prefix):
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
def test_public_names_become_ours(tmp_path, name, ours, public):
    net = nets.build(name, classes=3)
    renames = (("trunk.", "features."), ("fc.", "classifier.")) if name == "allconv" else (("fc.", "linear."),)
    state = net.state_dict()
    for old, new in renames:
        state = {new + key.removeprefix(old) if key.startswith(old) else key: value for key, value in state.items()}
    assert public in state
    torch.save(state, tmp_path / "public.pt")
    loaded = nets.load(tmp_path / "public.pt", name, classes=3)
    assert torch.equal(loaded.state_dict()[ours], state[public])
    assert equal(loaded, net)


def test_files_older_than_the_counting_of_batches_load(net, tmp_path):
    old = {key: value for key, value in net.state_dict().items() if not key.endswith("num_batches_tracked")}
    assert len(old) < len(net.state_dict())
    torch.save(old, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert equal(nets.load(tmp_path / "old.pt", "wrn-10-1", classes=10), net)


def test_a_users_network_is_loaded_by_the_name_that_the_user_gives(tmp_path, tied_name):
    net, path = Tied(classes=3), tmp_path / "mine.safetensors"
    nets.save(net, path)
    assert equal(nets.load(path, tied_name, classes=3), net)
    with pytest.raises(MacsError, match="your own network; give its name"):
        nets.load(path)
    with pytest.raises(MacsError, match="number of classes"):
        nets.load(path, tied_name)


def test_a_name_in_a_file_imports_nothing(net, tmp_path, monkeypatch):
    (tmp_path / "sly.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    monkeypatch.chdir(tmp_path)
    label = {"format": "macs-net", "version": 1, "name": "sly:Net", "classes": 2, "dropout": None}
    safetensors.torch.save_file(net.state_dict(), "sly.safetensors", {"macs": json.dumps(label)})
    with pytest.raises(MacsError, match="your own network"):
        nets.load("sly.safetensors")
    assert not Path("ran").exists()


def test_safetensors_of_others_need_a_name(net, tmp_path):
    safetensors.torch.save_file(net.state_dict(), tmp_path / "theirs.safetensors")
    assert equal(nets.load(tmp_path / "theirs.safetensors", "wrn-10-1", 10), net)
    with pytest.raises(MacsError, match="does not say what it holds"):
        nets.load(tmp_path / "theirs.safetensors")


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_files_that_do_not_fit_say_why(net, tmp_path, suffix):
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


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(MacsError, match="no checkpoint at"):
        nets.load(tmp_path / "absent.pt", "wrn-10-1", 10)
    with pytest.raises(MacsError, match=r"no net\.safetensors in"):
        nets.load(tmp_path)


@pytest.mark.parametrize("name", ["net.safetensors", "net.pt", "legacy.pt"])
@pytest.mark.parametrize("share", [0.0, 0.0001, 0.01, 0.5, 0.99])
def test_truncated_files_are_damaged(net, tmp_path, name, share):
    path = tmp_path / name
    if path.suffix == ".pt":
        torch.save(net.state_dict(), path, _use_new_zipfile_serialization=name == "net.pt")
    else:
        nets.save(net, path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(MacsError, match=f"{name} is damaged or no checkpoint"):
        nets.load(path, "wrn-10-1", 10)


@pytest.mark.parametrize("name", ["other.pt", "other.safetensors"])
@pytest.mark.parametrize("content", [b"# A readme, not a checkpoint\n" * 9, b"\x89PNG\r\n\x1a\n" + bytes(range(256))])
def test_files_of_another_kind(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(MacsError, match=f"{name} is damaged or no checkpoint"):
        nets.load(tmp_path / name, "wrn-10-1", 10)


@pytest.mark.parametrize("content", [3, [torch.zeros(2)], {}, {"epoch": 3}, {"state_dict": {}}, {1: torch.zeros(2)}])
def test_other_things_that_torch_saves(tmp_path, content):
    torch.save(content, tmp_path / "other.pt")
    with pytest.raises(MacsError, match="something other than a state dict"):
        nets.load(tmp_path / "other.pt", "wrn-10-1", 10)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_that_wants_to_run_code_is_refused_and_does_not_run(tmp_path, legacy):
    path, trace = tmp_path / "bomb.pt", tmp_path / "exploded"
    torch.save({"state_dict": Bomb(trace)}, path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(MacsError, match="can run code, and is refused"):
        nets.load(path, "wrn-10-1", 10)
    assert not trace.exists()
    torch.load(path, weights_only=False)
    assert trace.exists()  # so the file was live


def test_a_whole_pickled_network_is_refused(net, tmp_path):
    torch.save(net, tmp_path / "whole.pt")
    with pytest.raises(MacsError, match=r"save net\.state_dict\(\) there instead"):
        nets.load(tmp_path / "whole.pt", "wrn-10-1", 10)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(net, tmp_path, value):
    net.block2.layer[0].conv1.weight.data[3, 2, 1, 0] = value
    torch.save(net.state_dict(), tmp_path / "net.pt")
    with pytest.raises(MacsError, match=r"not finite \(block2.layer.0.conv1.weight\)"):
        nets.load(tmp_path / "net.pt", "wrn-10-1", 10)


@pytest.mark.parametrize(
    ("label", "complaint"),
    [
        ({"format": "macs-detector"}, "is not a network: it says that it is a macs-detector"),
        ({"version": 2, "new": 1}, "newer macs"),
        ({"classes": "10"}, "label that macs did not write"),
        ({"name": None}, "label that macs did not write"),
        ({"unheard": 1}, "damaged"),
        ({"name": "wrn-x"}, "There is no network called 'wrn-x'"),
    ],
)
def test_labels_that_are_wrong(net, tmp_path, label, complaint):
    whole = {"format": "macs-net", "version": 1, "name": "wrn-10-1", "classes": 10, "dropout": 0.2} | label
    path = tmp_path / "net.safetensors"
    safetensors.torch.save_file(net.state_dict(), path, {"macs": json.dumps(whole)})
    with pytest.raises(MacsError, match=complaint):
        nets.load(path)


def test_only_safetensors_are_written(net, tmp_path):
    with pytest.raises(MacsError, match=r"end in \.safetensors"):
        nets.save(net, tmp_path / "net.pt")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_old_file_and_nothing_else(net, tmp_path, monkeypatch):
    path = tmp_path / "net.safetensors"
    nets.save(net, path)
    before = path.read_bytes()

    def half(self, content):
        with self.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    nn.init.zeros_(net.fc.weight)
    with pytest.raises(MacsError, match="No space left on device"):
        nets.save(net, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.data
def test_a_public_classifier_keeps_its_accuracy(data_root, public_weights):
    net = nets.load(public_weights, "wrn-40-2", classes=10).eval()
    with (data_root / "cifar-10-batches-py" / "test_batch").open("rb") as file:
        batch = pickle.load(file, encoding="bytes")
    pixels = torch.from_numpy(batch[b"data"][:500].reshape(-1, 3, 32, 32) / np.float32(255))
    with torch.inference_mode():
        found = net(pixels).argmax(dim=1).tolist()
    right = sum(one == other for one, other in zip(found, batch[b"labels"][:500], strict=True))
    assert right / 500 > 0.89
