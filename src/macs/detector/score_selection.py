"""Choosing a score for a network, without a test set: on held-out ID images and on several kinds of unknown images.

For each kind, the candidates are ranked by the share of its images that would pass as ID if 95% of the held-out ID
images are kept (FPR95 with ID as positive); equal candidates are ranked by AUROC. The best mean rank over all kinds
wins, unless a cheaper candidate is equivalent to it:

- its mean rank is at most half a rank worse, and
- in at least 95% of 500 bootstrap draws of the images, it lets at most 2 percentage points more of the unknown images
  pass, as the mean over kinds.

Fewer than 100 held-out images cannot show that two candidates are equivalent, so the best mean rank wins.

A candidate may be excluded before all this because it is too slow. Its time per image, beyond the network's own pass,
is the shortest of several passes over the outputs for some held-out images, divided by their number, with the device
and the threads of this process. Times differ between machines and runs, so they are measured only if there is a limit,
and have no other part in the choice.

The reasons for this rule, whose numbers were set without measuring any test set:

- A detector that keeps 95% of ID images lets exactly that share pass; other metrics average over thresholds that it
  does not use.
- Ranks give every kind the same weight. A mean of shares would be decided by a kind on which scores differ widely,
  such as noise.
- There are several kinds because each favours some scores: outliers like those that a network was trained with favour
  scores of the logits, noise favours distances.
- If two scores are equivalent, the one that reads less and stores less is preferred: logits to features, and a few
  numbers to a bank of features.
- Equivalence has to be shown. A difference that few images cannot show is not a difference that is small. It is a
  difference of shares and not of ranks, since the ranks of two scores that are equally good change places at random,
  however many images there are.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from macs.core.console import warn
from macs.core.errors import MacsError
from macs.core.settings import Span
from macs.data import ImageSet
from macs.data.synthetic_ood import unknowns_for
from macs.metrics import OODMetrics, ood_metrics

if TYPE_CHECKING:
    from torch import nn

    from macs.inference import Outputs
    from macs.scores import Score

AUTO = "auto"  # in place of a score's name: the score that is chosen
SUMS = ("energy+knn", "energy+vim", "gen+knn", "msp+vim")  # each adds a score of the logits and one of the features
TOLERANCE = 0.5  # ranks
MORE_PASS = 0.02  # share of unknown images that an equivalent score may let pass in addition
DRAWS, SURE = 500, 0.95  # bootstrap draws, and the share of them in which this has to hold
ENOUGH = 100  # held-out images; fewer cannot show that scores are equivalent
TIMED, PASSES = 256, 5  # held-out images that scores are timed on, and passes over them

Pair = tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]


@dataclass(frozen=True)
class Candidate:
    """The result of a score: its mean rank, and the metrics that it was ranked by, per kind of unknown images."""

    rank: float
    fpr95_id: dict[str, float]
    auroc: dict[str, float]


@dataclass(frozen=True)
class Choice:
    """The chosen score, the candidates, and the images that they were compared on."""

    score: str
    data: str  # the held-out ID images
    images: int
    unknown: dict[str, int]  # number of images of each kind
    candidates: dict[str, Candidate]  # in the order of their mean rank
    left_out: dict[str, str] = field(default_factory=dict)  # score or kind -> reason

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        kinds = list(self.unknown)
        longest, widths = max(map(len, self.candidates)), [max(8, len(kind)) for kind in kinds]
        headings = "  ".join(f"{kind:>{width}}" for kind, width in zip(kinds, widths, strict=True))
        sizes = ", ".join(f"{kind} {count:,}" for kind, count in self.unknown.items())
        lines = [
            f"Chosen: {self.score}, among {len(self.candidates)} scores, on {self.images:,} images of {self.data} and "
            f"unknown images ({sizes}).",
            "Unknown images that would pass as ID if 95% of ID images are kept, in percent:",
            f"  {'score':<{longest}}  mean rank  {headings}",
        ]
        for name, candidate in self.candidates.items():
            shares = (
                f"{100 * candidate.fpr95_id[kind]:>{width}.1f}" for kind, width in zip(kinds, widths, strict=True)
            )
            lines.append(f"  {name:<{longest}}  {candidate.rank:>9.2f}  {'  '.join(shares)}")
        first = next(iter(self.candidates))
        if self.candidates[first].rank < self.candidates[self.score].rank:
            lines.append(f"{self.score} is cheaper than {first}, and equivalent to it on these images.")
        lines += [f"Without {name}: {reason}" for name, reason in self.left_out.items()]
        return "\n".join(lines)


def candidate_names() -> list[str]:
    """Every single score that a detector can hold, and a few sums."""
    from macs import scores

    return [name for name in scores.available() if scores.get(name).reads != "pixels"] + list(SUMS)


def choose(
    net: "nn.Module",
    train: ImageSet | None,
    held_out: ImageSet,
    unknown: Mapping[str, ImageSet],
    candidates: "Mapping[str, Score]",
    *,
    max_cost: float | None = None,
    images: int,
    seed: int,
    precision: str,
    progress: bool,
) -> "tuple[Score, Choice]":
    """The chosen score, fitted, and the record of the choice; all candidates share one pass over each set.

    Candidates that take more than `max_cost` microseconds per image are left out.
    """
    from macs import scores

    @cache
    def known() -> scores.Known:
        return scores.know(net, train, held_out, limit=images, seed=seed, precision=precision, progress=progress)

    scores.enough_held_out(len(held_out), "To choose a score")
    made, missing = unknowns_for(held_out, seed)
    for name in unknown:
        if name in made:
            raise MacsError(f"{name} is a kind of unknown images that macs makes itself; give yours another name.")
    kinds = {**unknown, **made}
    fitted, left_out = {}, {}
    for name, score in candidates.items():
        try:
            fitted[name] = score if score.fitted else score.fit(known())
        except MacsError as error:
            left_out[name] = str(error)
    if max_cost is not None:
        left_out |= too_slow(net, held_out, fitted, allowed_cost(max_cost), precision)
        fitted = {name: score for name, score in fitted.items() if name not in left_out}
    answers = []
    for image_set in (held_out, *kinds.values()):
        by_score, failed = scores.ask_all(net, image_set, fitted, precision, progress)
        answers.append(by_score)
        left_out |= failed
        fitted = {name: score for name, score in fitted.items() if name not in failed}
    if not fitted:
        raise MacsError(f"No score can be chosen: {' '.join(dict.fromkeys(left_out.values()))}")
    known_answers, *unknown_answers = answers
    measured = {
        name: {
            kind: ood_metrics(known_answers[name].confidence, by_score[name].confidence)
            for kind, by_score in zip(kinds, unknown_answers, strict=True)
        }
        for name in fitted
    }
    ranks = mean_ranks(measured)
    costs = {name: cost(score) for name, score in fitted.items()}
    if len(held_out) < ENOUGH:
        warn(
            f"Only {len(held_out)} held-out images decide on the score, so that mean ranks are uncertain; give at "
            f"least {ENOUGH} (`macs calibrate` holds out a quarter of its images, so give it at least {4 * ENOUGH})."
        )
    chosen = best(
        ranks,
        costs,
        lambda name, other: equivalent(
            (known_answers[name].confidence, known_answers[other].confidence),
            [(by_score[name].confidence, by_score[other].confidence) for by_score in unknown_answers],
            seed,
        ),
    )
    record = Choice(
        score=chosen,
        data=held_out.name,
        images=len(held_out),
        unknown={kind: len(image_set) for kind, image_set in kinds.items()},
        candidates={
            name: Candidate(
                rank=ranks[name],
                fpr95_id={kind: metrics.fpr95_id for kind, metrics in measured[name].items()},
                auroc={kind: metrics.auroc for kind, metrics in measured[name].items()},
            )
            for name in sorted(ranks, key=ranks.__getitem__)
        },
        left_out={**left_out, **missing},
    )
    return fitted[chosen], record


def mean_ranks(measured: Mapping[str, Mapping[str, OODMetrics]]) -> dict[str, float]:
    """Each score's rank, 1 for the best, averaged over kinds; scores that tie share the mean of their ranks."""
    names = list(measured)
    ranks = []
    for kind in measured[names[0]]:
        keys = [(measured[name][kind].fpr95_id, -measured[name][kind].auroc) for name in names]
        ranks.append([sum(other < key for other in keys) + (keys.count(key) + 1) / 2 for key in keys])
    return {name: float(mean) for name, mean in zip(names, np.mean(ranks, axis=0), strict=True)}


def best(
    ranks: Mapping[str, float], costs: Mapping[str, Any], equivalent: Callable[[str, str], bool] | None = None
) -> str:
    """The score with the best mean rank, or the cheapest within the tolerance that is equivalent to it.

    Without `equivalent`, the tolerance alone decides; so it does where only means are known, as in the study.
    """
    first = min(ranks, key=lambda name: (ranks[name], costs[name]))
    near = [name for name in ranks if ranks[name] <= ranks[first] + TOLERANCE and costs[name] < costs[first]]
    near = sorted(near, key=lambda name: (costs[name], ranks[name]))
    return next((name for name in near if equivalent is None or equivalent(name, first)), first)


def equivalent(known: Pair, unknown: Sequence[Pair], seed: int = 0) -> bool:
    """Whether the first of two scores lets hardly more unknown images pass than the second, whichever images are drawn.

    A pair holds the confidences of both scores for the same images: of the held-out ID images, and of each kind.
    """
    ids, kinds = np.stack(known), [np.stack(pair) for pair in unknown]
    count = ids.shape[1]
    if count < ENOUGH:
        return False
    lost = count - (95 * count + 99) // 100  # ID images below the threshold that keeps 95%
    random = np.random.default_rng(seed)
    more = []
    for _ in range(DRAWS):
        drawn = ids[:, random.integers(count, size=count)]
        thresholds = np.partition(drawn, lost)[:, lost, None]
        sizes = (kind.shape[1] for kind in kinds)
        drawn_kinds = (kind[:, random.integers(size, size=size)] for kind, size in zip(kinds, sizes, strict=True))
        share, others_share = np.mean([(kind >= thresholds).mean(axis=1) for kind in drawn_kinds], axis=0)
        more.append(share - others_share)
    return bool(np.mean(np.array(more) <= MORE_PASS) >= SURE)


def cost(score: "Score") -> tuple[bool, int]:
    """Whether a score needs more than the logits, then how many numbers it stores."""
    return score.reads != "logits", sum(buffer.numel() for buffer in score.buffers())


def allowed_cost(microseconds: float) -> float:
    """The time that a score may take per image, or an error if it is no such number."""
    return Span(0, 10**9, open="least").hold("The microseconds that a score may take per image", microseconds)


def too_slow(
    net: "nn.Module", held_out: ImageSet, fitted: "Mapping[str, Score]", max_cost: float, precision: str
) -> dict[str, str]:
    """The scores that take more than `max_cost` microseconds per image, with the reason; an error if all do."""
    from macs.inference import outputs_of

    features = any(score.reads == "features" for score in fitted.values())
    some = held_out.subset(range(min(TIMED, len(held_out))))
    outputs = next(outputs_of(net, some, features=features, precision=precision))
    times = {}
    for name, score in fitted.items():
        with suppress(MacsError):  # a score that fails is left out for that, when all images are scored
            times[name] = microseconds(score, outputs)
    if times and (fastest := min(times, key=times.__getitem__)) and times[fastest] > max_cost:
        raise MacsError(
            f"No score takes at most {max_cost:,.6g} microseconds per image beyond the network's own pass; {fastest}, "
            f"the fastest, takes {times[fastest]:,.2g}; allow more."
        )
    return {
        name: f"it takes {taken:,.1f} microseconds per image, and {max_cost:,.6g} are allowed."
        for name, taken in times.items()
        if taken > max_cost
    }


def microseconds(score: "Score", outputs: "Outputs") -> float:
    """The time that a score takes per image: the shortest of several passes, which other programs disturb least."""
    from macs.scores import answer

    def timed() -> float:
        begin = time.perf_counter()
        answer(score, outputs)  # with its copy to the CPU, which waits for a GPU
        return time.perf_counter() - begin

    answer(score, outputs)  # the first pass allocates
    return 1e6 * min(timed() for _ in range(PASSES)) / len(outputs)
