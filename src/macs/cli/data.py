"""`macs data`: the datasets by name, fetched and checked."""

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

from macs.cli._app import Data, Json, app, show
from macs.core.console import Terminal
from macs.core.errors import MacsError
from macs.core.files import output_folder

if TYPE_CHECKING:
    from macs.data import folder
    from macs.data.checking import Bars, SplitCheck
    from macs.data.download import Got
    from macs.data.loading import CatalogRow

data_app = App(name="data", help="The datasets: what there is, what is on disk, and how to get the rest.")
app.command(data_app)

SHOWN = 5  # broken files that the table names; --json names all
COLOURS = {"complete": "green", "partial": "yellow", "larger": "yellow", "broken": "red", "missing": "dim"}


@data_app.command(name="list")
def data_list(*, data: Data = None, json: Json = False) -> None:
    """Every dataset by name: its role, its splits, and whether it is on disk."""
    from macs.data import catalog_rows

    rows = catalog_rows(data)
    show(catalog_table(rows), {"datasets": [asdict(row) for row in rows]}, json)


@data_app.command(name="get")
def data_get(
    *names: Annotated[str, Parameter(required=True)],
    mirror: str | None = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Download datasets into the data root: `macs data get cifar10 svhn textures`.

    Nothing that is there is replaced. A download that was interrupted goes on where it stopped, is verified by its
    published size and checksum, and appears under its name only when it is whole. Where the authors ask for a
    registration, the steps to take are printed instead.

    Parameters
    ----------
    names
        Names from `macs data list`.
    mirror
        Fetch from here instead: a URL (https://host/folder, or file:///folder for files that you have) under which the
        files lie by the names that their authors gave them.
    """
    from macs.data.download import check_mirror, get
    from macs.data.loading import data_root, dataset_called

    data_root(data)
    check_mirror(mirror)
    for name in names:  # a misspelt name shall not come to light after hours
        dataset_called(name)
    output_folder(data_root(data))
    got: list[Got] = []
    failures: list[MacsError] = []
    with bars(DownloadColumn()) as shown:
        for name in dict.fromkeys(names):
            try:
                got.append(get(name, data, mirror, shown))
            except MacsError as error:  # the other datasets need not wait for this one
                failures.append(error)
    if got:
        value = {"datasets": [{**asdict(each), "splits": rows(each.splits)} for each in got]}
        show("\n".join(map(got_line, got)), value, json)
    if failures:
        raise MacsError(str(failures[0]), "\n".join(map(str, failures[1:])))


@data_app.command(name="check")
def data_check(*names: str, data: Data = None, json: Json = False) -> None:
    """Read what is on disk and compare it with the official numbers; exit code 1 if a file is broken.

    Parameters
    ----------
    names
        Datasets to check [default: all].
    """
    from macs.data.checking import check

    with bars(MofNCompleteColumn()) as shown:
        found = check(names, data, shown)
    show(found_table(found), {"splits": rows(found)}, json)
    if any(each.broken for each in found):
        sys.exit(1)


@contextmanager
def bars(*columns: ProgressColumn) -> "Iterator[Bars]":
    """A bar on standard error for each piece of work, while it goes on in a terminal."""
    console = Terminal(stderr=True)
    layout = (TextColumn("{task.description}"), BarColumn(), *columns, TimeRemainingColumn())
    with Progress(*layout, console=console, disable=not console.is_terminal, transient=True) as progress:

        def bar(title: str) -> "folder.Progress":
            task = progress.add_task(title, total=None)

            def update(done: int, total: int) -> None:
                progress.update(task, completed=done, total=total or None, visible=total == 0 or done < total)

            return update

        yield bar


def rows(found: "Sequence[SplitCheck]") -> list[dict[str, object]]:
    return [{**asdict(each), "status": each.status} for each in found]


def got_line(got: "Got") -> str:
    splits = ", ".join(f"{each.split} {count(each)}" for each in got.splits)
    did = f"fetched {', '.join(got.fetched)};" if got.fetched else "is there already;"
    return "\n".join([f"{got.name} {did} images: {splits}", *got.kept])


def count(found: "SplitCheck") -> str:
    return f"{found.images:,}" + (f" of {found.official:,}" if found.images != found.official else "")


def found_table(found: "Sequence[SplitCheck]") -> Table:
    """A line for each split: how many images of how many, and what is wrong."""
    from macs.data.dataset import listed

    made = Table(title_justify="left")
    for name in ("name", "split", "state", "images", "official", "what is missing or broken"):
        made.add_column(name, justify="right" if name in ("images", "official") else "left", overflow="fold")
    for each in found:
        more = len(each.broken) - SHOWN
        remarks = [*each.broken[:SHOWN], *([f"... and {more:,} more"] if more > 0 else [])]
        remarks += [f"lacks {listed(each.lacks)}"] if each.lacks else []
        state = f"[{COLOURS[each.status]}]{each.status}"
        images, official = f"{each.images:,}", f"{each.official:,}"
        made.add_row(each.name, each.split, state, images, official, escape("\n".join(remarks)))
    return made


def catalog_table(rows: "Sequence[CatalogRow]") -> Table:
    """Every dataset: what it is for, its official size, and what is on disk."""
    made = Table(title_justify="left")
    made.add_column("name", no_wrap=True)
    for name in ("role", "images", "on disk", "what it is"):
        made.add_column(name)
    for row in rows:
        images = ", ".join(f"{split} {count:,}" for split, count in row.images.items())
        made.add_row(row.name, row.role, images, ", ".join(row.found) or "-", row.title)
    return made
