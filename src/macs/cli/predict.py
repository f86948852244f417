"""`macs predict`."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from macs.cli._app import ANY_HARDWARE, HardwareOptions, Json, app
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
    hardware: HardwareOptions = ANY_HARDWARE,
    json: Json = False,
) -> None:
    """Decide for each image whether it is ID or OOD, with its most likely class, confidence and p-value.

    A file that cannot be read gets a row with the reason; the others are still judged, and the exit code is 1. Memory
    does not grow with the number of files.

        macs predict photos/ --detector detector.safetensors
        macs predict 'photos/**/*.jpg' more.npy --detector detector.safetensors --out verdicts.csv

    Parameters
    ----------
    paths
        Images, folders (with all folders inside), globs in quotes, or .npy files of uint8 images N x H x W x 3.
    detector
        File from `macs calibrate`, or from `macs export`; the latter runs without torch.
    out
        File for the results; its suffix gives the format: .csv, .jsonl, .parquet or .txt.
    format
        table, csv, jsonl, parquet, or your own as module:Name [default: table on a terminal, csv elsewhere].
    threshold
        Overrides the calibrated threshold, for every class.
    fdr
        Decide by p-values instead, for all images of this call together: of those called OOD, the expected share that
        are in truth ID is at most this. Verdicts come when all images are read.
    net
        A network of your own, as module:Class; no other module that the file names is imported.
    score
        A score of your own, likewise.
    json
        Print JSON lines, as --format jsonl does.
    """
    from macs.detector.judge import check_promise

    if not paths:
        raise MacsError("Name at least one image, folder, glob or .npy file.")
    form = choose_format("jsonl" if json and format is None else format, out, sys.stdout.isatty())
    if out is not None:
        output_file(out, inputs=[detector, *paths])
    file = detector_file(detector, net, score, provider, hardware)
    check_promise(file.label.calibration, threshold, fdr)
    rows = file.open().predict_files(paths, threshold=threshold)
    # Pillow warns of broken images as it meets them; their rows say why.
    warnings.filterwarnings("ignore", module="PIL")
    read, count = Count(), Count()
    with progress(shown=out is not None or not sys.stdout.isatty()) as update:
        rows = read.through(rows, lambda: update(read))
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
    """A function that shows the counts on a line of the terminal; the total is not known before the end."""
    console = Terminal(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal), transient=True) as bar:
        task = bar.add_task("0 images", total=None)

        def update(count: Count) -> None:
            if count.rows % 100 == 0:
                bar.update(task, description=f"{count.rows:,} images, {count.failed:,} unreadable")

        yield update
