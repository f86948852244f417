"""The part of a process, and what it is when it is alone; several are tested in training/test_distributed.py."""

import pytest
import torch

from macs.core.errors import MacsError
from macs.core.processes import ALONE, Processes


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("rows", [7, 12])
def test_every_row_belongs_to_one_process(count: int, rows: int) -> None:
    parts = [list(range(rows)[Processes(rank, count).part]) for rank in range(count)]
    assert sorted(row for part in parts for row in part) == list(range(rows))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_alone_everything_stays_as_it_is() -> None:
    rows = torch.rand(3, 2, requires_grad=True)
    assert ALONE.gathered(rows, 3) is rows and ALONE.total(rows) is rows and ALONE.common(rows) is rows
    before = rows.detach().clone()
    ALONE.average([rows.detach()])
    assert torch.equal(rows, before) and ALONE.first
    assert ALONE.by_first(lambda: 3) == 3

    def fails() -> None:
        raise MacsError("no")

    with pytest.raises(MacsError, match="no"):
        ALONE.only_first(fails)
