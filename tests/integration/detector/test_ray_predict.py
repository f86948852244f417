"""Verdicts on a Ray cluster: one row per image, those of the local command, even if a worker is killed."""

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from command import refused, run
from macs.core import __version__
from macs.core.clusters import connected
from macs.core.errors import MacsError
from macs.detector import Detector
from macs.detector.ray_predict import Chunk, Job, chunks_of, files_in, judge_chunk, numbers_of, predict_on_ray
from s3_server import bucket

COUNT = 120


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for number in range(COUNT):
        Image.fromarray(random.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(folder / f"{number:03}.png")
    (folder / "broken.png").write_bytes(b"broken")
    return folder


@pytest.fixture
def exported(dots: Detector, tmp_path: Path) -> Path:
    dots.export(tmp_path / "d.onnx")
    return tmp_path / "d.onnx"


def rows_in(folder: str, options: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    import fsspec
    from pyarrow.parquet import read_table

    system, path = fsspec.core.url_to_fs(folder, **(options or {}))
    rows = []
    for file in sorted(system.glob(f"{path.rstrip('/')}/*.parquet")):
        with system.open(file) as content:
            rows += read_table(content).to_pylist()
    return rows


def test_chunks_are_the_same_every_time_and_named_by_all_that_they_depend_on(photos: Path, tmp_path: Path) -> None:
    chunks = list(chunks_of([str(photos), str(tmp_path / "x.tar"), "gone.png"], 50))
    assert [len(chunk.paths) for chunk in chunks] == [50, 50, 21, 1, 1] and list(range(5)) == [c.number for c in chunks]
    assert chunks == list(chunks_of([str(photos), str(tmp_path / "x.tar"), "gone.png"], 50))
    job = Job("out", "a", None, 1, "1")
    names = {chunk.file(job) for chunk in chunks}
    assert len(names) == 5 and chunks[0].file(job).startswith("part-000000-")
    others = (job._replace(sha256="b"), job._replace(threshold=0.5))
    assert not names & {chunk.file(other) for chunk in chunks for other in others}
    assert names == {chunk.file(job._replace(out="elsewhere", threads=2)) for chunk in chunks}


def test_a_chunk_has_the_rows_of_the_local_command(exported: Path, photos: Path, tmp_path: Path) -> None:
    from macs.detector import Runtime

    paths = tuple(map(str, [photos / "003.png", photos / "broken.png", photos / "004.png"]))
    job = Job(str(tmp_path / "out"), "a", None, 1, __version__)
    chunk = Chunk(0, paths)
    told = judge_chunk(chunk, exported.read_bytes(), job, done=False)
    expected = list(Runtime(exported).predict_files(list(paths)))
    rows = rows_in(job.out)
    assert [row["path"] for row in rows] == list(paths)
    assert [row["is_ood"] for row in rows] == [row.is_ood for row in expected]
    assert [row["confidence"] for row in rows] == pytest.approx([row.confidence for row in expected])
    assert told == numbers_of(f"{job.out}/{chunk.file(job)}") == (3, sum(row.is_ood is True for row in expected), 1)
    with pytest.raises(MacsError, match="and the driver 0.0.1; install the same version"):
        judge_chunk(chunk, b"", job._replace(version="0.0.1"), done=False)


def test_what_a_driver_has_listed_is_read_by_its_name_and_not_looked_up(
    exported: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a store, a second look would be one more request per image, and a name such as a[1].png would be a glob."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    names = ["a1.png", "a[1].png", "what?.png"]
    for number, name in enumerate(names):
        memory.pipe_file(f"/listed/{name}", (photos / f"{number:03}.png").read_bytes())
    (chunk,) = chunks_of(["memory://listed"], 10)

    def looked_up(self: Any, path: str, *more: Any, **others: Any) -> bool:
        raise AssertionError(path)

    for method in ("isdir", "ls", "glob"):
        monkeypatch.setattr(type(memory), method, looked_up)
    job = Job(str(tmp_path / "out"), "a", None, 1, __version__)
    assert judge_chunk(chunk, exported.read_bytes(), job, done=False)[0::2] == (3, 0)
    assert [row["path"] for row in rows_in(job.out)] == [f"memory://listed/{name}" for name in names]


def test_options(exported: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def said(*options: object, detector: Path = exported) -> str:
        return refused(capsys, "predict", tmp_path, "--detector", detector, *options)

    ray = ("--engine", "ray")
    assert "name a folder or a URL for them with --out" in said(*ray)
    assert "never holds; drop it" in said(*ray, "--out", tmp_path / "out", "--fdr", 0.1)
    assert "not csv; leave --format out" in said(*ray, "--out", tmp_path / "out", "--format", "csv")
    assert "make one from d.safetensors with: macs export" in said(*ray, detector=Path("d.safetensors"))
    assert "--address is for --engine ray" in said("--address", "auto")
    assert "is a URL, which --engine ray writes to" in said("--out", "s3://bucket/x.csv")
    assert "leave --provider, --net and --score out" in said(*ray, "--out", tmp_path / "out", "--score", "msp")
    with pytest.raises(MacsError, match="Cannot understand the URL nowhere://x"):
        files_in("nowhere://x")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    with bucket() as url:
        yield url


@pytest.fixture(scope="module")
def ray(s3: str) -> Iterator[Any]:
    """A cluster that was started after the server, whose address its workers inherit."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    os.environ.update(RAY_worker_niceness="0")  # by default, workers yield to everything else on the machine
    ray = connected(None, {"num_cpus": 2, "object_store_memory": 200_000_000})
    yield ray
    ray.shutdown()


@pytest.mark.cluster
@pytest.mark.skipif(not Path("/proc").exists(), reason="the workers are found in /proc")
def test_every_image_in_s3_has_one_row_though_a_worker_is_killed(
    ray: Any, s3: str, exported: Path, photos: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import s3fs

    system = s3fs.S3FileSystem()
    for file in photos.iterdir():
        system.pipe_file(f"bucket/photos/{file.name}", file.read_bytes())
    killed: list[int] = []

    def heard(count: Any, before: int) -> None:
        """After the first chunk, kill whatever worker is busy."""
        if not killed:
            busy = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _name(path).startswith("ray::judge_chunk")]
            for path in busy[:1]:
                killed.append(int(path.parent.name))
                os.kill(killed[0], signal.SIGKILL)

    count = predict_on_ray(exported, [f"{s3}/photos/"], f"{s3}/verdicts/", heard=heard, chunk=10)
    assert killed and (count.rows, count.failed) == (COUNT + 1, 1)
    assert capsys.readouterr().out == ""  # Ray's own words about the lost worker would spoil what a program reads
    rows = rows_in(f"{s3}/verdicts/")
    names = sorted(f"{s3}/photos/{file.name}" for file in photos.iterdir())
    assert sorted(row["path"] for row in rows) == names

    # The local command reads the same URLs, and says the same.
    run("predict", f"{s3}/photos/", "--detector", exported, "--out", tmp_path / "local.parquet", expect=1)
    local = {row["path"]: row for row in rows_in(str(tmp_path))}
    assert {row["path"]: row["is_ood"] for row in rows} == {path: row["is_ood"] for path, row in local.items()}

    # Continued: one file is gone, and only that one is computed again.
    files = sorted(system.glob("bucket/verdicts/*.parquet"))
    written = {file: system.info(file)["LastModified"] for file in files}
    system.rm(files[3])
    again = predict_on_ray(exported, [f"{s3}/photos/"], f"{s3}/verdicts/", chunk=10)
    system.invalidate_cache()  # what this process has listed before
    assert str(again) == str(count) and len(rows_in(f"{s3}/verdicts/")) == COUNT + 1
    after = {file: system.info(file)["LastModified"] for file in sorted(system.glob("bucket/verdicts/*.parquet"))}
    assert after.keys() == written.keys()
    assert [file for file in files if after[file] != written[file]] in ([files[3]], [])


def _name(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
