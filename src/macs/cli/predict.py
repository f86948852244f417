"""`macs predict`."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from macs.cli._app import ANY_HARDWARE, Hardware, HardwareOptions, Json, Provider, detector_file
from macs.core.console import tell
from macs.core.errors import MacsError

if TYPE_CHECKING:
    from macs.predictions import Count, Verdict


def predict(
    *paths: str,
    detector: Path,
    out: str | None = None,
    format: str | None = None,
    threshold: float | None = None,
    fdr: float | None = None,
    provider: Provider = None,
    net: str | None = None,
    score: str | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    hardware: HardwareOptions = ANY_HARDWARE,
    json: Json = False,
) -> None:
    """Decide for each image or row whether it is ID or OOD, with its most likely class, confidence and p-value.

    A file that cannot be read gets a row with the reason; the others are still judged, and the exit code is 1. Memory
    does not grow with the number of files.

        macs predict photos/ --detector detector.safetensors
        macs predict 'photos/**/*.jpg' more.npy --detector detector.safetensors --out verdicts.csv
        macs predict embeddings.npz --detector of-features.onnx
        macs predict s3://bucket/photos/ --detector detector.onnx --engine ray --out s3://bucket/verdicts/

    Parameters
    ----------
    paths
        Images, folders (with all folders inside), globs in quotes, .npy files of uint8 images N x H x W x 3, WebDataset
        shards (.tar), Parquet files of encoded images, or URLs of any of these but .npy, in a store that fsspec knows.
        For a detector of features or logits: .npz, .npy, .parquet or .csv files (docs/features.md).
    detector
        File from `macs calibrate`, or from `macs export`; the latter runs without torch. From the Hugging Face hub:
        hf://org/name, hf://org/name@COMMIT, or hf://org/name/detector.onnx.
    out
        File for the results; its suffix gives the format: .csv, .jsonl, .parquet or .txt. With --engine ray, a folder
        or a URL, for one Parquet file per 500 images.
    format
        table, csv, jsonl, parquet, or your own as module:Name [default: table on a terminal, csv elsewhere].
    threshold
        Overrides the calibrated threshold, for every class.
    fdr
        Decide by p-values instead, for all images of this call together: of the images called OOD, the expected share
        that are in fact ID is at most this. The verdicts are written once all images have been read.
    net
        A network of your own, as module:Class; no other module that the file names is imported.
    score
        A score of your own, likewise.
    engine
        local: this process. ray: tasks of a Ray cluster with --threads CPUs each (default 1), for an exported detector;
        the same command continues a job that was interrupted.
    address
        For --engine ray: an existing cluster, as HOST:PORT or auto [default: $RAY_ADDRESS, else this machine].
    json
        Print JSON lines, as --format jsonl does.
    """
    from macs.core.files import is_url, output_file, write_atomically
    from macs.detector.base import check_promise
    from macs.detector.formats import choose_format
    from macs.predictions import Count

    if not paths:
        raise MacsError("Name at least one image, folder, glob or .npy file.")
    if engine == "ray":
        return _on_ray(paths, detector, out, format, threshold, fdr, (provider, net, score), address, hardware)
    if address is not None:
        raise MacsError("--address is for --engine ray; add that, or leave --address out.")
    if out is not None and is_url(out):
        raise MacsError(f"{out} is a URL, which --engine ray writes to; name a file, or add --engine ray.")
    file_out = None if out is None else Path(out)
    form = choose_format("jsonl" if json and format is None else format, file_out, sys.stdout.isatty())
    if file_out is not None:
        output_file(file_out, inputs=[detector, *paths])
    metadata, open_detector = detector_file(detector, net, score, provider, hardware)
    check_promise(metadata.calibration, threshold, fdr)  # before torch is imported
    opened = open_detector()
    # Pillow warns of broken images as it meets them; the verdicts give the reason.
    warnings.filterwarnings("ignore", module="PIL")
    unit = metadata.calibration.unit
    read, count = Count(unit), Count(unit)
    with progress(shown=out is not None or not sys.stdout.isatty()) as update:

        def on_row(row: "Verdict") -> None:
            read.add(row)
            update(read)

        rows = opened.predict_files(paths, threshold=threshold, fdr=fdr, on_row=on_row)
        counted = count.through(rows)
        if file_out is not None:
            write_atomically(file_out, lambda temporary: form.write_file(counted, temporary))
        else:
            form.write_stream(counted, sys.stdout)
    if out is not None:
        tell(f"{out} holds {count}.")
    elif count.failed:
        tell(f"{count.failed:,} of {count.rows:,} {unit} could not be read; the verdicts give the reason for each.")
    if count.failed:
        sys.exit(1)
    return None


def _on_ray(
    paths: tuple[str, ...],
    detector: Path,
    out: str | None,
    format: str | None,
    threshold: float | None,
    fdr: float | None,
    own: tuple[object, ...],
    address: str | None,
    hardware: Hardware,
) -> None:
    from macs.detector.ray_predict import predict_on_ray

    if detector.suffix != ".onnx":
        raise MacsError(f"--engine ray runs an exported detector; make one from {detector} with: macs export.")
    if out is None:
        raise MacsError("--engine ray writes Parquet files; name a folder or a URL for them with --out.")
    if format not in (None, "parquet"):
        raise MacsError(f"--engine ray writes Parquet files, not {format}; leave --format out.")
    if fdr is not None:
        raise MacsError("A false discovery rate is about all images together, which --engine ray never holds; drop it.")
    if any(own):
        raise MacsError("--engine ray runs an exported detector on CPUs; leave --provider, --net and --score out.")
    detector_file(detector, None, None, None, hardware)  # a file that is no detector is refused here
    with progress(shown=True) as heard:
        threads = hardware.threads or 1
        count = predict_on_ray(
            detector,
            paths,
            out,
            threshold=threshold,
            threads=threads,
            address=address,
            heard=lambda count, before: heard(count),
        )
    tell(f"{out} holds {count}.")
    if count.failed:
        sys.exit(1)


@contextmanager
def progress(shown: bool) -> "Iterator[Callable[[Count], None]]":
    """A function that shows the counts on a line of the terminal; the total is not known before the end."""
    if not (shown and sys.stderr.isatty()):
        yield lambda count: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from macs.core.console import terminal

    console = terminal(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("0", total=None)

        def update(count: "Count") -> None:
            if count.rows % 100 == 0:
                bar.update(task, description=f"{count.rows:,} {count.unit}, {count.failed:,} unreadable")

        yield update
