"""Where pytorch-ood is installed, it can be imported from here on."""

from importlib.util import find_spec

if find_spec("pytorch_ood") is not None:
    from cpu_torchvision import make_importable

    make_importable()
