"""`macs data`: list, download and check the datasets."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from macs.cli._app import Data, Json, show
from macs.core.console import terminal
from macs.core.errors import MacsError
from macs.core.files import output_folder

if TYPE_CHECKING:
    from macs.data import pixels
    from macs.data.download import Bars, Got, SplitCheck
    from macs.data.loading import CatalogRow

commands = App(name="data", help="List the datasets, check those on disk, and download others.")

SHOWN = 5  # broken files that the table names; --json names all
COLOURS = {"complete": "green", "partial": "yellow", "larger": "yellow", "broken": "red", "missing": "dim"}


@commands.command(name="list")
def data_list(*, data: Data = None, json: Json = False) -> None:
    """List every dataset by name, with its role, its splits, and whether it is on disk."""
    from macs.data import catalog_rows

    rows = catalog_rows(data)
    show(catalog_table(rows), {"datasets": [asdict(row) for row in rows]}, json)


@commands.command(name="get")
def data_get(
    *names: Annotated[str, Parameter(required=True)],
    mirror: str | None = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Download datasets into the data root: `macs data get cifar10 svhn textures`.

    Files that are there are never replaced. An interrupted download continues where it stopped, is verified by its
    published size and checksum, and appears under its name only when it is complete. If the authors ask for a
    registration, the steps to take are printed instead.

    Parameters
    ----------
    names
        Names from `macs data list`.
    mirror
        Fetch from here instead: a URL (https://host/folder, or file:///folder for files that you have) of a folder that
        holds the files under their original names.
    """
    from macs.data.download import check_mirror, get
    from macs.data.loading import data_root, dataset_called

    data_root(data)
    check_mirror(mirror)
    for name in names:  # a misspelt name must not be found out only after hours
        dataset_called(name)
    output_folder(data_root(data))
    got: list[Got] = []
    failures: list[MacsError] = []
    with bars(DownloadColumn()) as progress:
        for name in dict.fromkeys(names):
            try:
                got.append(get(name, data, mirror, progress))
            except MacsError as error:  # go on with the other datasets
                failures.append(error)
    if got:
        value = {"datasets": [{**asdict(dataset), "splits": rows(dataset.splits)} for dataset in got]}
        show("\n".join(map(got_line, got)), value, json)
    if failures:
        raise MacsError(str(failures[0]), "\n".join(map(str, failures[1:])))


@commands.command(name="check")
def data_check(*names: str, data: Data = None, json: Json = False) -> None:
    """Read the datasets on disk and compare them with the official numbers; exit code 1 if a file is broken.

    Parameters
    ----------
    names
        Datasets to check [default: all].
    """
    from macs.data.download import check

    with bars(MofNCompleteColumn()) as progress:
        checks = check(names, data, progress)
    show(check_table(checks), {"splits": rows(checks)}, json)
    if any(split.broken for split in checks):
        sys.exit(1)


@contextmanager
def bars(*columns: ProgressColumn) -> "Iterator[Bars]":
    """Progress bars on standard error, one per task, if that is a terminal."""
    console = terminal(stderr=True)
    layout = (TextColumn("{task.description}"), BarColumn(), *columns, TimeRemainingColumn())
    with Progress(*layout, console=console, disable=not console.is_terminal, transient=True) as progress:

        def bar(title: str) -> "pixels.Progress":
            task = progress.add_task(title, total=None)

            def update(done: int, total: int) -> None:
                progress.update(task, completed=done, total=total or None, visible=total == 0 or done < total)

            return update

        yield bar


def rows(checks: "Sequence[SplitCheck]") -> list[dict[str, object]]:
    return [{**asdict(split), "status": split.status} for split in checks]


def got_line(got: "Got") -> str:
    splits = ", ".join(f"{split.split} {count(split)}" for split in got.splits)
    action = f"fetched {', '.join(got.fetched)};" if got.fetched else "is there already;"
    return "\n".join([f"{got.name} {action} images: {splits}", *got.kept])


def count(split: "SplitCheck") -> str:
    return f"{split.images:,}" + (f" of {split.official:,}" if split.images != split.official else "")


def check_table(checks: "Sequence[SplitCheck]") -> Table:
    """Return one row per split: its images, their official number, and what is wrong."""
    from macs.data.catalog import listed

    table = Table(title_justify="left")
    for name in ("name", "split", "state", "images", "official", "what is missing or broken"):
        table.add_column(name, justify="right" if name in ("images", "official") else "left", overflow="fold")
    for split in checks:
        more = len(split.broken) - SHOWN
        remarks = [*split.broken[:SHOWN], *([f"... and {more:,} more"] if more > 0 else [])]
        remarks += [f"lacks {listed(split.lacks)}"] if split.lacks else []
        state = f"[{COLOURS[split.status]}]{split.status}"
        images, official = f"{split.images:,}", f"{split.official:,}"
        table.add_row(split.name, split.split, state, images, official, escape("\n".join(remarks)))
    return table


def catalog_table(rows: "Sequence[CatalogRow]") -> Table:
    """Return one row per dataset: its role, its official size, and what is on disk."""
    table = Table(title_justify="left")
    table.add_column("name", no_wrap=True)
    for name in ("role", "images", "on disk", "what it is"):
        table.add_column(name)
    for row in rows:
        images = ", ".join(f"{split} {count:,}" for split, count in row.images.items())
        table.add_row(row.name, row.role, images, ", ".join(row.found) or "-", row.title)
    return table
