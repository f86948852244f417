"""What is smaller in the process of a command: things that take long and that no option makes short.

Each function is called before the command; `BEFORE` says which, by the name of the command.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

PUBLISHED = ("cifar10", "svhn", "textures")  # what docs/data.md gets
BUDGET: Any = {"epochs": 1, "epoch_size": 32, "batch_in": 16}


def demo() -> None:
    """One epoch of each training."""
    import macs.demo

    macs.demo.PRETRAIN_EPOCHS = macs.demo.FINETUNE_EPOCHS = 1


def reproduce() -> None:
    """Both scales of the pages: digits, one tiny network, one margin and a few images."""
    from macs.research.paper_grid import SCALES, SMOKE

    tiny = replace(
        SMOKE,
        pretraining=replace(SMOKE.pretraining, **BUDGET),
        finetuning=replace(SMOKE.finetuning, **BUDGET, batch_out=16),
        nets=dict.fromkeys(SMOKE.nets, "wrn-10-1"),
        margins=(0.5,),
        limit=30,
    )
    for name in ("smoke", "full"):
        SCALES[name] = replace(tiny, name=name)


def data() -> None:
    """The catalogue expects datasets in miniature, and finds them in the folder `mirror`."""
    from published import expect

    mirror = Path("mirror").resolve()
    files = {each.name: each.read_bytes() for each in mirror.iterdir()}
    for name in PUBLISHED:
        expect(pytest.MonkeyPatch(), name, files, mirror.as_uri())


BEFORE = {each.__name__: each for each in (demo, reproduce, data)}
