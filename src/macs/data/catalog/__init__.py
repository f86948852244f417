"""The public datasets: one file per dataset, whose reader is decorated with `@dataset(...)`."""

from collections.abc import Callable, Mapping

from macs.core.registry import Registry
from macs.data.dataset import Dataset, Remote, Role, Source, Split, under
from macs.data.imageset import ImageSet

__all__ = ["Remote", "Source", "Split", "catalog", "dataset", "under"]

catalog = Registry[Dataset]("macs.data.catalog", "dataset")


def dataset(
    name: str,
    *,
    title: str,
    role: Role,
    splits: Mapping[str, Split],
    home: str,
    licence: str,
    citation: str,
    mirror: bool = True,
    packages: tuple[str, ...] = (),
    by_hand: str = "",
) -> Callable[[Callable[[Source], ImageSet]], Dataset]:
    """Register the decorated reader as a dataset of the catalogue."""

    def add(reader: Callable[[Source], ImageSet]) -> Dataset:
        entry = Dataset(name, title, role, splits, home, licence, citation, reader, mirror, packages, by_hand)
        return catalog(name)(entry)

    return add
