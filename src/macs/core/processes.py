"""The processes that train one network together: how they share out a batch, and what they exchange.

A batch is shared out row by row: of `count` processes, the one with rank r has the rows r, r + count, r + 2 count, ...
Every process computes the loss L of the whole batch, from its own rows and from those that it got from the others. The
derivative of the sum of these `count` equal losses with respect to its own rows is count * dL, so the *average* of the
processes' gradients is the gradient of L. This also holds for a term that depends on the weights alone.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.autograd.function import Function

from macs.core.errors import MacsError

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """This process among those that train one network; alone by default."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and shows progress."""
        return self.rank == 0

    @property
    def part(self) -> slice:
        """The rows of a whole batch that belong to this process."""
        return slice(self.rank, None, self.count)

    def gathered(self, own: Tensor, rows: int) -> Tensor:
        """Return the rows of all processes, in the order of the batch; gradients flow back to this process's own."""
        if self.count == 1:
            return own
        whole: Tensor = _Gathered.apply(own, self, rows)
        return whole

    def total(self, own: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes; gradients flow back to each of them."""
        if self.count == 1:
            return own
        total: Tensor = _Total.apply(own)
        return total

    def common(self, drawn: Tensor) -> Tensor:
        """Return the first process's random draw, in every process."""
        if self.count > 1:
            dist.broadcast(drawn, 0)
        return drawn

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors, which have the same shapes in every process, by their means over the processes."""
        own = list(tensors)
        if self.count == 1 or not own:
            return
        flat = _flatten_dense_tensors(own)
        dist.all_reduce(flat)
        flat /= self.count
        for tensor, mean in zip(own, _unflatten_dense_tensors(flat, own), strict=True):
            tensor.copy_(mean)

    def by_first(self, work: Callable[[], T]) -> T:
        """Let the first process do some work, and return its result, or raise its error, in all of them."""
        if self.count == 1:
            return work()
        outcome: list[Any] = [None, None]  # the result, or the error's message
        error = None
        if self.first:
            try:
                outcome[0] = work()
            except Exception as raised:
                error = raised
                outcome[1] = str(raised) or type(raised).__name__
        dist.broadcast_object_list(outcome, 0)
        if error is not None:
            raise error
        if outcome[1] is not None:
            raise MacsError(outcome[1])
        return cast(T, outcome[0])

    def only_first(self, work: Callable[[], object]) -> None:
        """Let the first process do some work that has no result for the others, such as writing files."""

        def done() -> None:
            work()

        self.by_first(done)


ALONE = Processes()


class _Gathered(Function):
    """Own rows -> all rows. The sum of the processes' equal losses has `count` times the gradient of one."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, processes: Processes, rows: int) -> Tensor:
        ctx.processes = processes
        whole = own.new_zeros((rows, *own.shape[1:]))
        whole[processes.part] = own
        dist.all_reduce(whole)  # a sum with zeros: the values do not change, and shares may differ in length
        return whole

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad[ctx.processes.part] * ctx.processes.count, None, None


class _Total(Function):
    """Own part -> sum over the processes. Its gradient adds up the gradients of all processes' losses."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        return _added(own)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _added(grad)


def _added(own: Tensor) -> Tensor:
    total = own.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total
