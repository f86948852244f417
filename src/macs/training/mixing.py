"""Mixing of outliers with each other, before a method sees them; it works with every method.

diverseMix mixes each outlier o with another one o' of its batch, and gives more weight to the one that looks more like
ID to the network:

    mixed = w o + (1 - w) o',   w ~ Beta(4 c_0 + 0.01, 4 c_1 + 0.01),   c = softmax([e(o), e(o')] / 10),

where o' comes from a random permutation of the batch and e = logsumexp(z), the negative energy, from a pass in
evaluation mode without gradient. It costs one more forward pass of the outliers. Its authors train with the loss of
Energy, weight 0.01, m_in -25 and m_out -7; with any other method, the combination is ours.

Yao, Han, Fu, Peng, Hu, Zhang: Out-Of-Distribution Detection with Diversification (Provably), NeurIPS 2024.
"""

import numpy as np
import torch
from torch import Tensor, nn

from macs.core.processes import ALONE, Processes

SHARPNESS = 4.0  # of the Beta distribution
TEMPERATURE = 10.0  # of the energies


@torch.no_grad()
def diverse_mix(
    net: nn.Module,
    outliers: Tensor,
    random: np.random.Generator,
    processes: Processes = ALONE,
    count: int | None = None,
) -> Tensor:
    """The outliers, each mixed with another one of the batch; the network ends in the mode that it was in.

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
