"""Leave images that may show CIFAR-100's objects out of a file of outliers, for trainings with CIFAR-100 as ID.

    python benchmarks/cifar100_outliers.py outliers_train.npy lite0.safetensors clean.npy

An ImageNet classifier (timm's tf_efficientnet_lite0) sees each 32 x 32 image at 128 x 128 pixels. An image is left out
if the classes in SHOWN, whose names have one of CIFAR-100's objects in them, get a tenth of the probability together.
The classifier is unsure about such small images, so the limit is low: too many are left out rather than too few.
"""

import sys
from pathlib import Path

import numpy as np
import torch
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
    make_importable()
    import timm
    from safetensors.torch import load_file
    from timm.data.imagenet_info import ImageNetInfo

    info = ImageNetInfo()
    names = [info.index_to_description(index).lower() for index in range(1000)]
    wanted = [word.lower().replace("_", " ") for word in SHOWN.split()]
    shown = [any(f" {word} " in f" {' '.join(_words(name))} " for word in wanted) for name in names]
    net = timm.create_model("tf_efficientnet_lite0")
    net.load_state_dict(load_file(weights))
    net.eval()
    images, kept = np.load(outliers, mmap_mode="r"), []
    with torch.inference_mode():
        for start in range(0, len(images), 250):
            pixels = torch.from_numpy(np.array(images[start : start + 250])).permute(0, 3, 1, 2).float() / 127.5 - 1
            pixels = interpolate(pixels, size=128, mode="bicubic", antialias=True)
            known = net(pixels).softmax(1)[:, torch.tensor(shown)].sum(1)
            kept += (known < 0.1).tolist()
    clean = np.array(images)[np.array(kept)]
    np.save(Path(out), clean)
    print(f"{sum(shown)} ImageNet classes show CIFAR-100's objects; kept {len(clean):,} of {len(images):,} images")


def _words(name: str) -> list[str]:
    return "".join(sign if sign.isalnum() or sign == "-" else " " for sign in name).split()


if __name__ == "__main__":
    main(*sys.argv[1:])
