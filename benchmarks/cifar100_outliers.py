"""Leave images that may show CIFAR-100's objects out of a file of outliers, for trainings with CIFAR-100 as ID.

    python benchmarks/cifar100_outliers.py outliers_train.npy lite0.safetensors clean.npy

An ImageNet classifier (timm's tf_efficientnet_lite0) sees each 32 x 32 image at 128 x 128 pixels. An image is left out
if the classes in SHOWN, whose names have one of CIFAR-100's objects in them, get a tenth of the probability together.
The classifier is unsure about such small images, so the limit is low: too many are left out rather than too few.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from cpu_torchvision import make_importable

SHOWN = """
apple Granny_Smith goldfish tench coho anemone_fish clownfish bear beaver bed studio_couch bassinet cradle
crib bee beetle ladybug bicycle mountain_bike bottle bowl bus trolleybus minibus butterfly monarch
cabbage_butterfly camel can castle palace caterpillar ox cattle bison buffalo bull chair rocker throne stool
chimpanzee clock cockroach couch crab crocodile alligator cup mug espresso triceratops dugong elephant fox
hamster house boathouse wallaby kangaroo keyboard lamp lampshade lawn_mower mower leopard jaguar cheetah lion
lizard iguana chameleon gecko agama lobster crayfish maple motor_scooter moped alp volcano mouse mushroom
agaric bolete orange lemon slipper orchid otter palm pear pickup tow_truck plate porcupine possum hare rabbit
raccoon badger ray stingray rocket missile rose seal sea_lion shark skunk weasel mink polecat skyscraper snail
slug snake viper rattlesnake boa cobra python mamba spider tarantula black_widow squirrel streetcar daisy
bell_pepper dining_table desk tank dial_telephone pay-phone cellular_telephone television monitor screen tiger
tractor harvester bullet_train steam_locomotive freight_car passenger_car turtle terrapin tortoise wardrobe
chiffonier whale wolf coyote worm nematode bridge viaduct aqueduct seashore lakeside cliff
"""  # names of ImageNet classes, with _ for a space


def main(outliers: str, weights: str, out: str) -> None:
    net, names = classifier(weights)
    wanted = [word.lower().replace("_", " ") for word in SHOWN.split()]
    shown = [any(f" {word} " in f" {' '.join(_words(name))} " for word in wanted) for name in names]
    images, kept = np.load(outliers, mmap_mode="r"), []
    for logits in seen(net, images, 128):
        kept += (logits.softmax(1)[:, torch.tensor(shown)].sum(1) < 0.1).tolist()
    clean = np.array(images)[np.array(kept)]
    np.save(Path(out), clean)
    counts = f"kept {len(clean):,} of {len(images):,} images"
    print(f"{sum(shown)} of 1,000 ImageNet classes show CIFAR-100's objects; {counts}")


def classifier(weights: str) -> tuple[Any, list[str]]:
    """Return timm's EfficientNet-Lite0 with these weights, and the names of ImageNet's classes."""
    make_importable()
    import timm
    from safetensors.torch import load_file
    from timm.data.imagenet_info import ImageNetInfo

    info = ImageNetInfo()
    net = timm.create_model("tf_efficientnet_lite0")
    net.load_state_dict(load_file(weights))
    return net.eval(), [info.index_to_description(index).lower() for index in range(1000)]


@torch.inference_mode()
def seen(see: Callable[[Tensor], Tensor], images: NDArray[np.uint8], size: int) -> Iterator[Tensor]:
    """Yield what a network says of batches of images, enlarged to `size` pixels."""
    for start in range(0, len(images), 250):
        pixels = torch.from_numpy(np.array(images[start : start + 250])).permute(0, 3, 1, 2).float() / 127.5 - 1
        yield see(interpolate(pixels, size=size, mode="bicubic", antialias=True))


def _words(name: str) -> list[str]:
    return "".join(sign if sign.isalnum() or sign == "-" else " " for sign in name).split()


if __name__ == "__main__":
    main(*sys.argv[1:])
