"""A tiny trained run and a report on it, whose names are as hostile as names can be."""

from dataclasses import replace

import numpy as np
import pytest

import macs
from macs import report
from macs.data import ImageSet
from macs.training import starting_net
from macs.training.recipe import Recipe
from tiny import noise, stripes
from written import Written

HOSTILE = (
    "</script><script>window.pwned = 1</script>",
    '"><img src=x onerror="window.pwned = 1">',
    "javascript:alert`1`//{{ 7 * 7 }}&lt;",
)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("report")
    test = replace(stripes(150, seed=2), classes=HOSTILE, name="</title><b>stripes</b>")
    files = tuple(f"{index}<i onclick=x>\udcff.png" for index in range(90))  # \udcff: a byte that is not UTF-8
    ood = {
        "noise": noise(120, seed=4),
        HOSTILE[1]: replace(noise(90, seed=5), files=files),
        "dim stripes": ImageSet.from_array(stripes(40, seed=6).pixels[:] // 3, np.arange(40) % 2, ["dark", "dim"]),
    }
    recipe = Recipe(margin=0.3, epochs=3, batch_in=32, batch_out=32, lr=0.05, precision="float32")
    net = starting_net("wrn-10-1", classes=3)
    macs.finetune(net, stripes(192, seed=1), noise(192, seed=3), recipe=recipe, run=folder / "run", progress=False)
    path = folder / "page.html"
    numbers = report.write(path, net, test, ood, run=folder / "run", precision="float32", progress=False)
    return Written(path, folder / "run", net, test, ood, numbers)
