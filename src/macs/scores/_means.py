"""Mean features, of all training images or per class, by which several scores measure where an image lies."""

import torch
from torch import Tensor

from macs.core.console import warn
from macs.core.errors import MacsError

SMALLEST = 1e-12  # norms that are divided by; torch's `normalize` has the same limit


def mean_feature(features: Tensor) -> Tensor:
    """mu = 1/N * sum_i f_i, summed in float64."""
    return features.cpu().double().mean(0).to(features)  # not every GPU has float64


def class_means(features: Tensor, classes: Tensor, count: int) -> Tensor:
    """mu_c, the mean of each of `count` classes, in float64 on the CPU; the mean of all for a class without images."""
    wide, member = features.cpu().double(), classes.cpu()
    sums = wide.new_zeros(count, wide.shape[1]).index_add_(0, member, wide)
    sizes = member.bincount(minlength=count)[:, None]
    return (sums / sizes.clamp(min=1)).where(sizes > 0, wide.mean(0))


def means_of_answers(features: Tensor, answers: Tensor, count: int, score: str, which: str) -> Tensor:
    """The mean features of the images with each of the `count` answers, with a warning if an answer does not occur.

    `which` says in words which images these are.
    """
    if not len(answers):
        raise MacsError(f"{score} finds no training image that is {which}; give others, or use another score.")
    if missing := count - len(torch.unique(answers)):
        warn(
            f"{score} finds no training image that is {which} for {missing} of {count} classes, and takes the mean of "
            "all others for them; give more images."
        )
    return class_means(features, answers, count).to(features)
