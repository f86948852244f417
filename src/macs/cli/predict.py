"""`macs predict`."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from macs.cli._app import Json, Workers, app
from macs.cli._detectors import Provider, detector_file
from macs.core.console import Terminal, tell
from macs.core.errors import MacsError
from macs.core.files import output_file, write_atomically
from macs.detector.counting import Count
from macs.detector.formats import choose_format
from macs.detector.verdicts import control_false_discoveries


@app.command
def predict(
    *paths: str,
    detector: Path,
    out: Path | None = None,
    format: str | None = None,
    threshold: float | None = None,
    fdr: float | None = None,
    provider: Provider = None,
    net: str | None = None,
    score: str | None = None,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Say of each image whether it is ID or OOD, which class it looks like, and how sure that is.

    Files that cannot be read get a row with the reason, and the rest goes on; the exit code is then 1. Any number of
    files takes the same memory.

        macs predict photos/ --detector detector.safetensors
        macs predict 'photos/**/*.jpg' more.npy --detector detector.safetensors --out verdicts.csv

    Parameters
    ----------
    paths
        Images, folders (with all folders inside), globs in quotes, or .npy files of uint8 images N x H x W x 3.
    detector
        File from `macs calibrate`, or from `macs export`, which is run without torch.
    out
        File for the results; its ending says the format: .csv, .jsonl, .parquet or .txt.
    format
        table, csv, jsonl, parquet, or your own as module:Name [default: table on a terminal, csv elsewhere].
    threshold
        Overrides the calibrated threshold, for every class.
    fdr
        Judge by p-values instead, over all images of this call together: of those called OOD, an expected share of at
        most this is in truth ID. Verdicts come when all images are read.
    net
        A network of your own, as module:Class; only that is imported which is named here.
    score
        A score of your own, likewise.
    json
        Print JSON lines, as --format jsonl does.
    """
    from macs.data import set_workers
    from macs.detector.judge import check_promise

    set_workers(workers)
    if not paths:
        raise MacsError("Name at least one image, folder, glob or .npy file.")
    form = choose_format("jsonl" if json and format is None else format, out, sys.stdout.isatty())
    if out is not None:
        output_file(out, inputs=[detector, *paths])
    file = detector_file(detector, net, score, provider)
    check_promise(file.label.calibration, threshold, fdr)
    rows = file.open().predict_files(paths, threshold=threshold)
    # Pillow warns of broken images as it meets them; their rows say why.
    warnings.filterwarnings("ignore", module="PIL")
    read, count = Count(), Count()
    with progress(shown=out is not None or not sys.stdout.isatty()) as heard:
        rows = read.through(rows, lambda: heard(read))
        counted = count.through(rows if fdr is None else control_false_discoveries(rows, fdr))
        if out is not None:
            write_atomically(out, lambda temporary: form.write_file(counted, temporary))
        else:
            form.write_stream(counted, sys.stdout)
    if out is not None:
        tell(f"{out} holds {count}.")
    elif count.failed:
        tell(f"{count.failed:,} of {count.rows:,} images could not be read; their rows say why.")
    if count.failed:
        sys.exit(1)


@contextmanager
def progress(shown: bool) -> Iterator[Callable[[Count], None]]:
    """A line on a terminal that counts: how many files there are is not known before the end."""
    console = Terminal(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal), transient=True) as bar:
        task = bar.add_task("0 images", total=None)

        def heard(count: Count) -> None:
            if count.rows % 100 == 0:
                bar.update(task, description=f"{count.rows:,} images, {count.failed:,} unreadable")

        yield heard
