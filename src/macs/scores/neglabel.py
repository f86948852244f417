"""NegLabel: how much more a CLIP image resembles the words of the classes than words that mean something else.

The words are the nouns and adjectives of WordNet, as "the nice {}" and "This is a {} photo". For each, q is the 0.95
quantile of its cosines to the words of the classes; the 15% with the lowest q are kept, shuffled and dealt into G = 100
groups. With z_k the cosine of the image with class k, and s_j that with word j,

    confidence(x) = 1/G * sum_g  sum_k exp(100 z_k) / (sum_k exp(100 z_k) + sum_{j in g} exp(100 s_j))

It needs a zero-shot CLIP (`clip/...`) and WordNet's files (Debian: the package wordnet-base). It stores the vector of
every word that is kept, 20,800 of 139,277 with WordNet 3.0, which is 43 MB for 512 dimensions, and costs as many inner
products per image. To fit it, all words and phrases pass through the text model once. It fails where a class is rare
or abstract, so that words of other things describe its images better.

Defaults are the authors'; they also take only some of WordNet's lexicographer files.

Jiang, Liu, Fang, Chen, Liu, Zheng, Han: Negative Label Guided OOD Detection with Pretrained Vision-Language Models,
ICLR 2024.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from macs.core.errors import MacsError
from macs.core.files import input_file, user_path
from macs.core.settings import Span
from macs.inference import Outputs
from macs.nets.from_clip import ClipNet
from macs.scores import Known, Score, score

SCALE = 100  # of cosines, as in CLIP itself
FILES = {"index.noun": "the nice {}", "index.adj": "This is a {} photo"}


@score("neglabel")
@dataclass
class NegLabel(Score):
    reads = "features"
    fitted_to = "last layer"
    zero_shot = True
    words: str = "/usr/share/wordnet"  # the folder of WordNet's files
    share: Annotated[float, Span(0, 1, open="least")] = 0.15
    quantile: Annotated[float, Span(0, 1)] = 0.95
    groups: Annotated[int, Span(1, 10_000)] = 100
    negatives: Tensor = field(init=False)  # M x D, M a multiple of the number of groups

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        if not isinstance(known.net, ClipNet):
            raise MacsError("NegLabel compares images with words, so it needs a zero-shot network such as clip/NAME.")
        prompts = [prompt.format(word) for name, prompt in FILES.items() for word in self._listed(name)]
        kept = int(len(prompts) * self.share) // self.groups * self.groups
        if not kept:
            raise MacsError(f"{self.share:.0%} of {len(prompts)} words do not fill {self.groups} groups; take fewer.")
        # Some words at a time: for 1,000 classes there are 139 million cosines, and many versions of torch find no
        # quantiles of more than 16 million.
        some = [vectors.to(known.weight) for vectors in known.net.vectors_of(prompts)]
        nearness = torch.cat([(vectors @ known.weight.T).quantile(self.quantile, dim=1) for vectors in some])
        lowest = nearness.argsort(stable=True)[:kept].cpu().numpy()
        return {"negatives": torch.cat(some)[torch.from_numpy(np.random.default_rng(0).permutation(lowest))]}

    def confidence(self, outputs: Outputs) -> Tensor:
        known = (SCALE * outputs.logits).logsumexp(dim=1, keepdim=True)
        cosines = outputs.features @ self.negatives.T
        unknown = (SCALE * cosines).unflatten(1, (self.groups, -1)).logsumexp(dim=2)
        confidences: Tensor = (known - unknown).sigmoid().mean(dim=1)
        return confidences

    def _listed(self, name: str) -> list[str]:
        """Return the words and phrases of one of WordNet's index files, whose licence stands in indented lines."""
        folder: Path = user_path(self.words)
        advice = "install WordNet (Debian: wordnet-base), or name its folder with --score.words"
        lines = input_file(folder / name, "word list", advice).read_text(encoding="utf-8").splitlines()
        return [line.split(" ", 1)[0].replace("_", " ") for line in lines if line and not line.startswith(" ")]
