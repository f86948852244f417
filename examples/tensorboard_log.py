"""Follow a training in TensorBoard, with a callback after each epoch; any other logger works the same way.

    pip install tensorboard 'macs-ood[demo]'        # the latter for its small images
    python examples/tensorboard_log.py logs         # trains for a minute
    tensorboard --logdir logs

The callback gets the epoch's numbers and the network in evaluation mode. It may draw random numbers or change that mode
without any influence on the training.
"""

import sys
from dataclasses import asdict
from pathlib import Path

from torch import nn
from torch.utils.tensorboard import SummaryWriter

import macs
from macs.training import Epoch


def main(logs: str | Path, epochs: int = 5) -> list[Epoch]:
    train, validation = (macs.data.load("digits", split) for split in ("train", "val"))
    outliers, others = (macs.data.load("digits-outliers", split) for split in ("train", "val"))
    net = macs.training.starting_net("wrn-10-1", classes=len(train.classes))
    recipe = macs.Recipe(epochs=epochs, batch_in=64, batch_out=64, lr=0.05, keep="best")

    with SummaryWriter(str(logs)) as writer:

        def log(epoch: Epoch, net: nn.Module) -> None:
            for name, value in asdict(epoch).items():
                if isinstance(value, float):
                    writer.add_scalar(name, value, epoch.epoch)
            for name, weights in net.named_parameters():
                writer.add_histogram(name, weights, epoch.epoch)

        return macs.finetune(
            net, train, outliers, recipe=recipe, validation=validation, validation_outliers=others, on_epoch=log
        )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "logs")
