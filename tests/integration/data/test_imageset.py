"""ImageSet: its images, labels, names and parts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import macs
import macs.report
from macs.core.errors import MacsError
from macs.data import ImageSet
from official import images


class TorchLike:
    """As torchvision's datasets are: pairs of a picture and a number."""

    def __getitem__(self, i: int) -> tuple[Image.Image, int]:
        return Image.new("RGB", (32, 32)), i

    def __len__(self) -> int:
        return 3


OTHERS = [
    (TorchLike(), r"a TorchLike; .*from_dataset\(dataset\)"),
    (DataLoader(cast(Any, TorchLike())), r"a DataLoader; .*from_dataset\(loader.dataset\)"),
    (TensorDataset(torch.zeros(3, 3, 8, 8)), r"a TensorDataset; .*from_dataset\(dataset\)"),
    (images(3), "a ndarray; .*from_array"),
    (torch.from_numpy(images(3)), "a Tensor; .*from_array"),
    (list(images(3)), "a list; .*from_array"),
    ("photos/known", "the path 'photos/known'; .*load"),
    (Path("photos"), "the path 'photos'; .*load"),
    (None, "None; .*load"),
]


@pytest.mark.parametrize(("given", "sentence"), OTHERS, ids=[type(given).__name__ for given, _ in OTHERS])
def test_every_door_says_what_it_got_instead_of_an_image_set(given: Any, sentence: str, known: ImageSet) -> None:
    net = macs.nets.build("wrn-10-1", classes=3)
    doors: list[Callable[[], object]] = [
        lambda: macs.pretrain(net, given),
        lambda: macs.finetune(net, given, known),
    ]
    if given is not None:
        doors.append(lambda: macs.finetune(net, known, given))
    for door in doors:
        with pytest.raises(MacsError, match=f"must be an ImageSet, not {sentence}"):
            door()
