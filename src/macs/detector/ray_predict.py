"""Verdicts for any number of images on a Ray cluster, by an exported detector.

The images are cut into chunks, and each chunk is a task that writes one Parquet file, whole or not at all, whose name
says which images, which detector and which threshold it belongs to:

    OUT/part-000012-4f1c09ab77de.parquet

So a task whose worker is lost is repeated without a trace, every image has one row, and the same command continues a
job that was interrupted: chunks whose file is there are not computed again. Paths are listed as they are needed, and
rows never pass through the driver.
"""

import hashlib
import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from macs.core import __version__
from macs.core.clusters import TRIES, connected, ended_tasks, same_version, slots
from macs.core.errors import MacsError, first_line, last_line
from macs.core.files import is_url, output_folder, user_path, write_atomically
from macs.data.image_files import walk
from macs.data.stores import SHARDS, found_in, store_of, writable_store
from macs.predictions import Count

CHUNK = 500  # images of one task, unless they are in a shard, which is a task of its own
AHEAD = 2  # chunks per slot that wait for a worker
READERS = 8  # threads of a task that read from a store: they wait for it, and take little of the processor


class Job(NamedTuple):
    """What every task is told beside its chunk."""

    out: str
    sha256: str  # of the detector
    threshold: float | None
    threads: int
    version: str


@dataclass(frozen=True)
class Chunk:
    number: int
    paths: tuple[str, ...]

    def file(self, job: Job) -> str:
        """The name of its file, which is another one for other images, another detector or another threshold."""
        told = "\n".join([job.sha256, repr(job.threshold), *self.paths])
        return f"part-{self.number:06}-{hashlib.sha256(told.encode()).hexdigest()[:12]}.parquet"


def predict_on_ray(
    detector: Path,
    paths: Sequence[str],
    out: str,
    *,
    threshold: float | None = None,
    threads: int = 1,
    address: str | None = None,
    heard: Callable[[Count, int], Any] = lambda count, chunks: None,
    chunk: int = CHUNK,
) -> Count:
    """Judge all images that the paths name, and write the verdicts below the folder `out`; returns what was written.

    `heard` is called after each chunk, with the count so far and the number of chunks that were there before.
    """
    content = detector.read_bytes()
    job = Job(out, hashlib.sha256(content).hexdigest(), threshold, threads, __version__)
    there = files_in(out)
    ray = connected(address)
    room = AHEAD * slots(ray, threads)
    task = ray.remote(num_cpus=threads, max_retries=TRIES - 1)(judge_chunk)
    shipped = ray.put(content)
    count, before = Count(), 0

    def start(each: Chunk) -> Any:
        nonlocal before
        done = each.file(job) in there
        before += done
        return task.remote(each, shipped, job, done)  # one that is done is read again for its counts alone

    with closing(ended_tasks(ray, chunks_of(paths, chunk), start, room)) as tasks:
        for ended, reference in tasks:
            try:
                rows, ood, failed = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                raise MacsError(told_by(error)) from None
            except ray.exceptions.RayError as error:
                raise MacsError(
                    f"{ended.paths[0]} and {len(ended.paths) - 1} other paths were tried {TRIES} times, and their "
                    f"worker was lost each time ({first_line(error)}); the same command continues."
                ) from None
            count.rows, count.ood, count.failed = count.rows + rows, count.ood + ood, count.failed + failed
            heard(count, before)
    return count


def chunks_of(paths: Sequence[str], size: int) -> Iterator[Chunk]:
    """The chunks of what the paths name, in order; a shard is a chunk of its own."""
    number = 0
    for path in paths:
        waiting = single_paths(path)
        while piece := list(islice(waiting, size)):
            shards = [each for each in piece if each.lower().endswith(SHARDS)]
            images = tuple(each for each in piece if not each.lower().endswith(SHARDS))
            for group in (*((shard,) for shard in shards), *([images] if images else [])):
                yield Chunk(number, group)
                number += 1


def single_paths(path: str) -> Iterator[str]:
    """The files below a folder or behind a glob, each by a path of its own; anything else is the worker's business."""
    if is_url(path):
        yield from found_in(store_of(path))
    elif user_path(path).is_dir():
        yield from (str(found.path.absolute()) for found in walk(user_path(path)))
    else:
        yield path if any(sign in path for sign in "*?[") else str(user_path(path).absolute())


def files_in(out: str) -> set[str]:
    """The names of the files that a folder holds; it is created if need be, and refused if it cannot be written to."""
    if not is_url(out):
        folder = output_folder(out)
        folder.mkdir(parents=True, exist_ok=True)
        return {path.name for path in folder.iterdir()}
    store = writable_store(out)  # a mistake shall not wait for the first chunk
    try:
        names = store.system.ls(store.path, detail=False)
    except FileNotFoundError:  # where folders are no more than a part of names, an empty one does not exist
        return set()
    except Exception as error:
        raise MacsError(f"Cannot list {out}: {first_line(error)}.") from None
    return {name.rpartition("/")[2] for name in names}


def judge_chunk(chunk: Chunk, content: bytes, job: Job, done: bool) -> tuple[int, int, int]:
    """In a worker: judge the images of a chunk and write its file; returns how many rows, OOD and failures it has."""
    from macs.data.batches import set_workers
    from macs.data.image_files import find_images, listed_images
    from macs.detector.formats import formats

    same_version(job.version)
    file = f"{job.out.rstrip('/')}/{chunk.file(job)}"
    if done:
        return numbers_of(file)
    remote = is_url(chunk.paths[0])
    set_workers(max(READERS, job.threads) if remote else job.threads)
    parquet = formats["parquet"]
    count = Count()
    items = listed_images(chunk.paths) if remote else find_images(chunk.paths)
    rows = count.through(runtime(content, job.threads).predict_items(items, job.threshold))
    if is_url(file):
        with tempfile.TemporaryDirectory() as folder:
            parquet.write_file(rows, Path(folder) / "rows")
            store = store_of(file)
            try:
                store.system.pipe_file(store.path, (Path(folder) / "rows").read_bytes())  # stores put whole objects
            except Exception as error:
                raise MacsError(f"Cannot write {file}: {first_line(error)}.") from None
    else:
        write_atomically(file, lambda temporary: parquet.write_file(rows, temporary))
    return count.rows, count.ood, count.failed


@cache
def runtime(content: bytes, threads: int) -> Any:
    """The detector of this worker, which is opened once."""
    from macs.detector.runtime import Runtime

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "detector.onnx"
        path.write_bytes(content)
        return Runtime(path, threads=threads)


def numbers_of(file: str) -> tuple[int, int, int]:
    """Rows, OOD verdicts and failures in a file that is there already."""
    from pyarrow.parquet import read_table

    from macs.data.stores import content_of

    source = io.BytesIO(content_of(file)) if is_url(file) else file
    verdicts = read_table(source, columns=["is_ood"]).column("is_ood")
    values = verdicts.to_pylist()
    return len(values), values.count(True), values.count(None)


def told_by(error: Any) -> str:
    """The sentence of an error in a worker."""
    cause = getattr(error, "cause", None)
    return str(cause) if isinstance(cause, MacsError) else f"A worker failed: {last_line(cause or error)}."
