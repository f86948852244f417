"""Near unknown images are joined from two ID images of different classes."""

import numpy as np
import pytest

from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.synthetic_ood import near_unknowns_for, partners


def test_each_near_kind_holds_parts_of_two_classes() -> None:
    """Every image of a class has one grey level, so that the parts can be told apart."""
    labels = np.array([0, 1, 2, 0, 1, 2])
    pixels = np.broadcast_to((40 * labels + 10).astype(np.uint8)[:, None, None, None], (6, 8, 8, 3))
    known = ImageSet.from_array(np.array(pixels), labels, classes=("a", "b", "c"), name="known")
    others = labels[partners(labels, seed=3)]
    assert (others != labels).all()
    kinds = near_unknowns_for(known, seed=3)
    assert list(kinds) == ["cut", "mixed", "exchanged"]
    mine, theirs = 40 * labels + 10, 40 * others + 10
    cut, mixed, exchanged = (kinds[name].pixels[:] for name in kinds)
    assert (cut[:, :, :4] == mine[:, None, None, None]).all() and (cut[:, :, 4:] == theirs[:, None, None, None]).all()
    assert (mixed == ((mine + theirs) // 2)[:, None, None, None]).all()
    for rows in (slice(0, 4), slice(4, 8)):
        for columns in (slice(0, 4), slice(4, 8)):
            whose = mine if rows == columns else theirs
            assert (exchanged[:, rows, columns] == whose[:, None, None, None]).all()


@pytest.mark.parametrize("labels", [None, np.zeros(4, np.int64)])
def test_one_class_has_no_near_unknowns(labels: np.ndarray | None) -> None:
    with pytest.raises(MacsError, match="at least two"):
        partners(labels)
