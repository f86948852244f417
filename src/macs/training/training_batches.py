"""The batches of a training: which images a step sees, in what form, and in how many parts they pass the network.

A step sees pixels or, where the backbone is frozen and sees no random crops, features: these are computed once, and
every epoch then runs the last layer alone. `outliers_of` chooses the outliers of an epoch, `diverse_mix` mixes them,
and MicroBatched accumulates a batch from several parts.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from macs import nets, scores
from macs.core.devices import device_of
from macs.core.processes import ALONE, Processes
from macs.data import ImageSet
from macs.data.batches import AHEAD, map_ahead, to_float
from macs.data.transforms import ALL, Augment, augmented
from macs.inference import outputs_of
from macs.methods import Batch, Method
from macs.training.checks import labels_of
from macs.training.optimisation import last_layer
from macs.training.recipe import BACKBONE, Recipe
from macs.training.sources import Training

log = logging.getLogger(__name__)
POOL_SIZE = 4  # outliers in the pool of `outliers_of` for each one that an epoch takes
SHARPNESS = 4.0  # of the Beta distribution of `diverse_mix`
TEMPERATURE = 10.0  # of its energies
Batches = Callable[[int], Iterator[Batch]]  # the number of an epoch -> its batches

Positions = NDArray[np.int64]
# One random stream per purpose, so that no two share their numbers.
ORDER, DRAW, CROP_IN, CROP_OUT, POOL, MIX = range(6)


@dataclass(frozen=True)
class RawBatch:
    images: Tensor  # uint8, n x H x W x 3, augmented
    labels: Tensor  # int64, one per image of the whole batch
    outliers: Tensor  # uint8, m x H x W x 3, augmented; m is 0 without outliers
    outlier_count: int  # in the whole batch


def steps_per_epoch(images: int, batch_in: int, epoch_size: int = 0) -> int:
    """Full batches in an epoch of `epoch_size` images (0: all); a set that is smaller than a batch makes one batch."""
    return max(1, min(epoch_size or images, images) // batch_in)


def training_batches(
    train: ImageSet, outliers: ImageSet | None, recipe: Recipe, epoch: int = 0, part: slice = ALL
) -> Iterator[RawBatch]:
    """One epoch of batches, or a part of each batch: the same images and crops as in the whole batch."""
    labels, augment = labels_of(train), augmentation(recipe)
    drawn = draws(train, outliers, recipe, epoch)

    def cropped(images: ImageSet, index: Positions, stream: int, step: int) -> NDArray[np.uint8]:
        random = generator(recipe.seed, epoch, stream, step)
        return augmented(images, index, augment, random, recipe.jitter, part)

    def batch(step: int) -> RawBatch:
        index, index_out = drawn[step]
        extra = np.empty((0, *train.pixels.shape[1:]), train.pixels[:0].dtype)
        if outliers is not None:
            extra = cropped(outliers, index_out, CROP_OUT, step)
        images = cropped(train, index, CROP_IN, step)
        return RawBatch(
            torch.from_numpy(images), torch.from_numpy(labels[index]), torch.from_numpy(extra), len(index_out)
        )

    return map_ahead(batch, range(len(drawn)), threads=1, ahead=AHEAD)


def draws(
    train: ImageSet, outliers: ImageSet | None, recipe: Recipe, epoch: int = 0
) -> list[tuple[Positions, Positions]]:
    """The positions of the ID images and of the outliers in each step of an epoch.

    Each ID image comes at most once; with `balance`, each class comes equally often instead. Outliers are drawn afresh.
    """
    size, size_out, seed = recipe.batch_in, recipe.batch_out, recipe.seed
    steps = steps_per_epoch(len(train), size, recipe.epoch_size)
    count = min(recipe.epoch_size or len(train), len(train), steps * size)
    random = generator(seed, epoch, ORDER)
    order = balanced(labels_of(train), count, random) if recipe.balance else random.permutation(len(train))[:count]
    order_out = np.empty(0, np.int64)
    if outliers is not None:
        order_out = draw(len(outliers), steps * size_out, generator(seed, epoch, DRAW))
    return [(order[step * size :][:size], order_out[step * size_out :][:size_out]) for step in range(steps)]


def generator(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)


def balanced(labels: NDArray[np.int64], wanted: int, random: np.random.Generator) -> Positions:
    """Positions in random order, equally many per class; if that is impossible, random classes have one more."""
    classes = np.unique(labels)
    shares = np.full(len(classes), wanted // len(classes))
    shares[random.permutation(len(classes))[: wanted % len(classes)]] += 1
    members = (np.flatnonzero(labels == label) for label in classes)
    drawn = [own[draw(len(own), share, random)] for own, share in zip(members, shares, strict=True)]
    return random.permutation(np.concatenate(drawn))


def draw(available: int, wanted: int, random: np.random.Generator) -> Positions:
    """Positions drawn without replacement; once all have been drawn, they are shuffled and drawn again."""
    rounds = -(-wanted // available)
    return np.concatenate([random.permutation(available) for _ in range(max(1, rounds))])[:wanted]


def batches_of(
    training: Training,
    fabric: Fabric,
    model: nn.Module,
    epochs: range,
    progress: bool,
    processes: Processes = ALONE,
) -> tuple[nn.Module, Batches]:
    """Return the module that a training step runs, and its batches in the epochs to come.

    `model` is the training's network as Fabric wraps it.
    """
    net, train, outliers, recipe = training.net, training.train, training.outliers, training.recipe
    if epochs and features_suffice(net, training.method, recipe, train.input_shape):
        log.info("the backbone is frozen and sees the same pixels every time: its features are computed once")
        head = fabric.setup_module(last_layer(net, train.input_shape))
        return head, feature_batches(net, train, outliers, recipe, epochs, progress, processes)
    in_parts = MicroBatched(model, recipe.accumulate) if recipe.accumulate > 1 else model
    return in_parts, pixel_batches(in_parts, net, train, outliers, recipe, fabric.device, processes)


def pixel_batches(
    model: nn.Module,
    net: nn.Module,
    train: ImageSet,
    outliers: ImageSet | None,
    recipe: Recipe,
    device: torch.device,
    processes: Processes = ALONE,
) -> Batches:
    """Batches of augmented pixels in [0, 1] on the device, with the outliers that the recipe chooses and mixes."""

    @lru_cache(maxsize=1)  # the first epoch begins twice: for its first batch alone, then for training
    def sampled(number: int) -> ImageSet | None:
        return None if outliers is None else outliers_of(number, net, train, outliers, recipe, processes)

    def mixed(pixels: Tensor, number: int, step: int, count: int) -> Tensor:
        if recipe.outlier_mix == "none" or not count:
            return pixels
        with nets.running(net, pixels):
            return diverse_mix(model, pixels, generator(recipe.seed, number, MIX, step), processes, count)

    def epoch(number: int) -> Iterator[Batch]:
        raw = training_batches(train, sampled(number), recipe, number, processes.part)
        for step, batch in enumerate(raw):
            images, extra = to_float(batch.images, device), to_float(batch.outliers, device)
            extra = mixed(extra, number, step, batch.outlier_count)
            yield Batch.part(processes, images, batch.labels.to(device), extra, batch.outlier_count)

    return epoch


def feature_batches(
    net: nn.Module,
    train: ImageSet,
    outliers: ImageSet | None,
    recipe: Recipe,
    epochs: Iterable[int],
    progress: bool,
    processes: Processes = ALONE,
) -> Batches:
    """Batches of the features of the same images, on the network's device, for these epochs.

    Only images that this process needs in these epochs pass through the network.
    """
    part = processes.part

    needed = [step for number in epochs for step in draws(train, outliers, recipe, number)]
    labels = torch.from_numpy(labels_of(train))
    known = _features(net, train, [index[part] for index, _ in needed], recipe, progress)
    others = known
    if outliers is not None:
        others = _features(net, outliers, [index[part] for _, index in needed], recipe, progress)

    def epoch(number: int) -> Iterator[Batch]:
        for index, index_out in draws(train, outliers, recipe, number):
            features = known(index[part])
            all_labels = labels[index].to(features.device)
            yield Batch.part(processes, features, all_labels, others(index_out[part]), len(index_out))

    return epoch


def _features(
    net: nn.Module, images: ImageSet, drawn: list[Positions], recipe: Recipe, progress: bool
) -> Callable[[Positions], Tensor]:
    """A function from drawn positions to the features of the images there."""
    positions = np.unique(np.concatenate(drawn))
    passes = outputs_of(
        net,
        images.subset(positions),
        features=True,
        precision=recipe.precision,
        doing="computing features of",
        progress=progress,
    )
    table = torch.cat([outputs.features for outputs in passes])  # outside inference mode, so that layers can learn
    return lambda index: table[torch.from_numpy(np.searchsorted(positions, index))]


def features_suffice(net: nn.Module, method: Method, recipe: Recipe, shape: tuple[int, ...]) -> bool:
    """Whether a training on features is the same as on inputs of this shape: nothing before the last layer changes."""
    if recipe.freeze != BACKBONE or augmentation(recipe) != "none" or recipe.jitter or method.changes_pixels:
        return False
    if recipe.outlier_mix != "none" or recipe.outlier_sampling != "random":  # other outliers in every epoch
        return False
    with torch.no_grad():
        pixels = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)).to(device_of(net))
        head, features, logits = nets.through_head(net.eval(), pixels)
        # In a network that is not ours, something may follow the linear layer that ran last.
        return features.shape[1] == head.in_features and torch.allclose(head(features), logits, rtol=1e-4, atol=1e-5)


def augmentation(recipe: Recipe) -> Augment:
    """The augmentation of a recipe; auto means none if the backbone is frozen."""
    return "none" if (recipe.augment, recipe.freeze) == ("auto", BACKBONE) else recipe.augment


def outliers_of(
    epoch: int, net: nn.Module, train: ImageSet, outliers: ImageSet, recipe: Recipe, processes: Processes = ALONE
) -> ImageSet:
    """Return the outliers from which an epoch draws; the first of several processes ranks them for all.

        random    all of them
        hardest   those on which the network is most confident, without the very first

    `hardest` scores a pool before every epoch: four times as many outliers as the epoch takes, drawn at random, or all
    if there are fewer. They are ranked by the network's largest softmax probability, the highest first. The first
    `outlier_quantile` of the pool is left out, since the most confident outliers may well show a known class, and the
    epoch takes those that follow. Pool and quantile (0.125) are those of informative outlier mining, without its extra
    class and attacks. A pool costs about as much as one more epoch.

    Chen, Li, Wu, Liang, Jha: ATOM: Robustifying Out-of-distribution Detection Using Outlier Mining, ECML PKDD 2021.
    """
    if recipe.outlier_sampling == "random":
        return outliers
    wanted = steps_per_epoch(len(train), recipe.batch_in, recipe.epoch_size) * recipe.batch_out
    size = min(len(outliers), POOL_SIZE * wanted)
    pool = np.sort(draw(len(outliers), size, generator(recipe.seed, epoch, POOL)))
    confidences = processes.by_first(lambda: scores.ask(net, outliers.subset(pool), "msp", recipe.precision).confidence)
    ranked = pool[np.argsort(-confidences, kind="stable")]
    first = int(recipe.outlier_quantile * size)
    return outliers.subset(np.sort(ranked[first : first + wanted]))


@torch.no_grad()
def diverse_mix(
    net: nn.Module,
    outliers: Tensor,
    random: np.random.Generator,
    processes: Processes = ALONE,
    count: int | None = None,
) -> Tensor:
    """Return the outliers, each mixed with another one of the batch; the network ends in the mode that it was in.

    diverseMix mixes each outlier o with another one o' of its batch, and gives more weight to the one that looks more
    like ID to the network:

        mixed = w o + (1 - w) o',   w ~ Beta(4 c_0 + 0.01, 4 c_1 + 0.01),   c = softmax([e(o), e(o')] / 10),

    where o' comes from a random permutation of the batch and e = logsumexp(z), the negative energy, from a pass in
    evaluation mode without gradient. It costs one more forward pass of the outliers. Its authors train with the loss of
    Energy, weight 0.01, m_in -25 and m_out -7; with any other method, the combination is ours.

    Yao, Han, Fu, Peng, Hu, Zhang: Out-Of-Distribution Detection with Diversification (Provably), NeurIPS 2024.

    If several processes share the batch, `count` is the number of all its outliers; any two of them may be mixed.
    """
    count = len(outliers) if count is None else count
    partner = torch.from_numpy(random.permutation(count)).to(outliers.device)
    was_training = net.training
    net.eval()
    energies = processes.gathered(net(outliers).float().logsumexp(1), count)
    net.train(was_training)
    shares = torch.stack([energies, energies[partner]]).div(TEMPERATURE).softmax(0).double().cpu().numpy()
    drawn = np.asarray(random.beta(*(SHARPNESS * shares + 0.01)), np.float32)
    weights = torch.from_numpy(drawn).to(outliers.device)[processes.part, None, None, None]
    return weights * outliers + (1 - weights) * processes.gathered(outliers, count)[partner[processes.part]]


class MicroBatched(nn.Module):
    """A network that takes a batch in several parts, so that memory holds the activations of one part only.

    It returns the same logits as for the whole batch, so that any loss can be minimised; batch norm sees the parts.
    The forward pass keeps nothing but the pixels, and the backward pass runs the network again, part by part. Part i of
    n is every n-th image from the i-th on, so that each part has its share of ID images and of outliers.
    """

    def __init__(self, net: nn.Module, parts: int) -> None:
        super().__init__()
        self.net, self.parts = net, parts

    def forward(self, pixels: Tensor) -> Tensor:
        parts = [pixels[i :: self.parts] for i in range(min(self.parts, len(pixels)))]
        order = torch.cat([torch.arange(len(pixels))[i :: self.parts] for i in range(len(parts))])
        logits = [checkpoint(self.net, part, use_reentrant=False, context_fn=self._contexts) for part in parts]
        return torch.cat(logits)[order.argsort().to(pixels.device)]

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Contexts of the forward pass and of its repetition."""
        return nullcontext(), self._statistics_kept()

    @contextmanager
    def _statistics_kept(self) -> Iterator[None]:
        """Batch norm without another update of its running statistics."""
        norms: list[Any] = [module for module in self.modules() if hasattr(module, "num_batches_tracked")]
        before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
        try:
            for norm in norms:
                norm.momentum, norm.num_batches_tracked = 0.0, None
            yield
        finally:
            for norm, (momentum, batches) in zip(norms, before, strict=True):
                norm.momentum, norm.num_batches_tracked = momentum, batches
