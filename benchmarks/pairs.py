"""The pair loss of MaCS, forward and backward, against the N x N matrix in plain PyTorch."""

import math
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from bench import Case, in_new_process, interleaved, memory_peak, report, seconds
from macs.losses import macs_penalty


def dense(conf_in: Tensor, conf_out: Tensor) -> Tensor:
    gaps = torch.relu(conf_in[:, None] - conf_out[None, :])
    return torch.relu(0.9 - gaps.square().mean())


def ours(conf_in: Tensor, conf_out: Tensor) -> Tensor:
    return macs_penalty(conf_in, conf_out, 0.9)


FORMS = {"dense": dense, "ours": ours}


def both_ways(penalty: Callable[[Tensor, Tensor], Tensor], n: int, times: int = 1) -> None:
    torch.manual_seed(0)
    conf_in, conf_out = (torch.rand(n, requires_grad=True) for _ in range(2))
    for _ in range(times):
        penalty(conf_in, conf_out).backward()


def timed(n: int, repeats: int, times: int = 1) -> dict[str, Case]:
    measures = {
        name: lambda penalty=penalty: seconds(lambda: both_ways(penalty, n, times)) / times * 1000
        for name, penalty in FORMS.items()
    }
    return interleaved(measures, repeats)


def main() -> None:
    if sys.argv[1:]:
        penalty, n = FORMS[sys.argv[1]], int(sys.argv[2])
        both_ways(penalty, 2)  # what the first call takes for itself is not the pairs'
        print(memory_peak(lambda: both_ways(penalty, n)))
        return
    for n, repeats, times in ((128, 9, 200), (16_384, 3, 1)):
        found = timed(n, repeats, times)
        ratios: dict[str, float | str] = {"dense / ours": found["dense"].median / found["ours"].median}
        if n > 1000:
            used = {name: in_new_process(__file__, name, str(n)) for name in FORMS}  # here, freed memory would serve
            ratios["memory, ours / dense"] = used["ours"] / used["dense"]
            ratios["memory"] = f"dense {used['dense'] / 1e6:,.0f} MB, ours {used['ours'] / 1e6:,.1f} MB"
        report(f"pairs-{n}", f"Pair loss, forward and backward, N = {n:,}", found, "ms", ratios)

    sizes = [4_096, 65_536, 1_048_576]
    measures = {f"N = {n:,}": lambda n=n: seconds(lambda: both_ways(ours, n)) * 1000 for n in sizes}
    growth = interleaved(measures, 5)
    medians = [case.median for case in growth.values()]
    exponent = math.log(medians[-1] / medians[0]) / math.log(sizes[-1] / sizes[0])
    report("pairs-growth", "Pair loss, ours alone", growth, "ms", {"growth exponent": exponent})


if __name__ == "__main__":
    main()
