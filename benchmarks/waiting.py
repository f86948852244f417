"""Where users wait: one table of ratios to a peer or to the machine's limit, before and after.

    python benchmarks/waiting.py [FOLDER [ROW ...]]     FOLDER: the src of another version; ROW: such as files or bank

Every case of every version is a process of its own that measures when it is asked; the versions take turns. Rates are
those of processor time, of all threads together, so that other programs disturb them little; training alone is timed.
"""

import asyncio
import atexit
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import macs
import serving
import training
from bench import WRN_40_2, Case, answer, interleaved, machine, multiply_rate, report, standing
from exported import images
from macs import nets, scores
from macs.data.image_files import find_images
from macs.data.preparation import Preparation
from macs.detector import Detector, FeatureDetector
from macs.detector.base import decoded
from macs.detector.runtime import FeatureRuntime, Runtime, session
from macs.inference import Outputs, inference
from predicting import ask_bare, ask_of_files, exhaust, pictures
from starting import processor_seconds

ROUNDS, FILES, BANK, FEATURES, ROWS = 3, 256, 50_000, 512, 256
SOURCE = Path(__file__).parents[1] / "src"
Measure = Callable[[], float]


class Row(NamedTuple):
    """A line of the table: what is measured in which process, and the aim."""

    what: str
    prepare: Callable[[Path], Measure]
    goal: str


def export_detectors(folder: Path) -> None:
    """What the rows share: exporting takes longer than measuring."""
    torch.manual_seed(0)
    Detector(nets.build("wrn-40-2", classes=10)).calibrate(images(64)).export(folder / "d.onnx")
    random = np.random.default_rng(0)
    vectors, new = (random.normal(size=(rows, FEATURES)) for rows in (BANK, 500))
    FeatureDetector("knn").fit(vectors, rows=0).calibrate(new).export(folder / "knn.onnx")


def spent(work: Callable[[], object]) -> float:
    """The processor time of all threads of this process; on busy machines the time that passes says little."""
    start = time.process_time()
    work()
    return time.process_time() - start


def files(folder: Path) -> Measure:
    """Files to verdicts, in the rate of decoding alone or of bare ONNX Runtime, whichever is slower."""
    paths, runtime = pictures(folder, FILES), Runtime(folder / "d.onnx")
    pixels = np.stack([Preparation().read(path) for path in paths])
    bare = session((folder / "d.onnx").read_bytes())

    def measure() -> float:
        decoding = spent(lambda: exhaust(decoded(find_images(paths), Preparation())))
        network = spent(lambda: ask_bare(bare, pixels))
        return max(decoding, network) / spent(lambda: ask_of_files(runtime, paths))

    return measure


def service(folder: Path) -> Measure:
    """Single-image requests of 64 clients, in the rate of bare ONNX Runtime in batches of 32."""
    path = folder / "d.onnx"
    bare, served = session(path.read_bytes()), serving.Service(path)
    atexit.register(served.stop)
    requests = [serving.request_for(content) for content in serving.pictures(64)]
    batch = images(serving.BATCH).pixels[:]

    def used() -> float:
        fields = Path(f"/proc/{served.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def measure() -> float:
        alone = spent(lambda: [bare.run(serving.OUTPUTS, {"images": batch}) for _ in range(16)]) / 16 / len(batch)
        before = used()
        load = asyncio.run(serving.closed_load(served.port, requests, serving.CLIENTS, 5))
        assert set(load.statuses) == {200}, load.statuses
        return alone / ((used() - before) / load.statuses[200])

    return measure


def evaluating(folder: Path) -> Measure:
    """PyTorch's pass over images, in the rate of ONNX Runtime, with one thread and in processor time."""
    net = nets.build("wrn-40-2", classes=10)
    bare, batch = session((folder / "d.onnx").read_bytes(), threads=1), images(256).pixels[:]
    torch.set_num_threads(1)

    def measure() -> float:
        with inference(net) as run:
            return spent(lambda: ask_bare(bare, batch)) / spent(lambda: run(batch))

    return measure


def training_step(folder: Path) -> Measure:
    """Images per second of fine-tuning WRN-40-2, in what float32 multiplication alone would allow."""
    torch.manual_seed(0)
    net = nets.build("wrn-40-2", classes=10)
    return lambda: training.ours(net) / (multiply_rate(torch.float32) / (3 * WRN_40_2))


def bank(folder: Path) -> Measure:
    """KNN with 50,000 x 512 vectors, in the processor time of the bare matrix product."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    vectors, new = torch.randn(BANK, FEATURES), torch.randn(ROWS, FEATURES)
    known = scores.Known(torch.zeros(BANK, 0), vectors, None, torch.zeros(0, FEATURES), torch.zeros(0))
    fitted = scores.get("knn").fit(known)
    outputs = Outputs(torch.zeros(ROWS, 0), new)

    def measure() -> float:
        start = time.thread_time()
        new @ fitted.vectors.T
        between = time.thread_time()
        fitted(outputs)
        return (time.thread_time() - between) / (between - start)

    return torch.no_grad()(measure)


def exported_bank(folder: Path) -> Measure:
    """The same for an exported detector, whose bare product is ONNX Runtime's own."""
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    vectors = random.normal(size=(BANK, FEATURES)).astype(np.float32)
    new = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
    runtime = FeatureRuntime(folder / "knn.onnx", threads=1)
    product = helper.make_graph(
        [helper.make_node("MatMul", ["features", "bank"], ["products"])],
        "product",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["rows", FEATURES])],
        [helper.make_tensor_value_info("products", TensorProto.FLOAT, ["rows", BANK])],
        [numpy_helper.from_array(np.ascontiguousarray(vectors.T), "bank")],
    )
    model = helper.make_model(product, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    bare = session(model.SerializeToString(), threads=1)

    def measure() -> float:
        start = time.process_time()
        bare.run(None, {"features": new})
        between = time.process_time()
        runtime.predict(new)
        return (time.process_time() - between) / (between - start)

    return measure


def command(*arguments: str) -> Callable[[Path], Measure]:
    """A command's processor time, in starts of a bare interpreter."""

    def prepare(folder: Path) -> Measure:
        source = str(Path(macs.__file__).parents[1])
        bare = partial(processor_seconds, [sys.executable, "-c", ""], "")
        return lambda: processor_seconds([sys.executable, "-m", "macs", *arguments], source) / bare()

    return prepare


def one_image(folder: Path) -> Measure:
    """Processor time of a whole `macs predict x.jpg`, in seconds."""
    (photo,) = pictures(folder, 1)
    source = str(Path(macs.__file__).parents[1])
    arguments = ["predict", str(photo), "--detector", str(folder / "d.onnx")]
    return lambda: processor_seconds([sys.executable, "-m", "macs", *arguments], source)


ROWS_OF_TABLE = {
    "files": Row("`macs predict` on small JPEGs / the slower of decoding and bare ONNX Runtime", files, "0.92"),
    "service": Row("service, single-image requests / bare ONNX Runtime", service, "0.85"),
    "evaluating": Row("evaluating by PyTorch / ONNX Runtime", evaluating, "1"),
    "help": Row("`macs --help`, in bare interpreters", command("--help"), "10"),
    "flag": Row("a wrong flag, in bare interpreters", command("predict", "x.jpg", "--detctor", "d.onnx"), "10"),
    "image": Row("one image, processor time in s", one_image, "1"),
    "bank": Row("KNN, 50,000 x 512, PyTorch / bare product", bank, "1.3"),
    "exported": Row("KNN, 50,000 x 512, exported / bare product", exported_bank, "1.3"),
    "training": Row("training step of WRN-40-2 / float32 multiplication", training_step, "0.75"),
}


def child(name: str, shared: Path) -> None:
    """Measure one row whenever the parent asks."""
    macs.keep_freed_memory()  # as every command does
    with tempfile.TemporaryDirectory() as own:
        for file in shared.iterdir():
            Path(own, file.name).symlink_to(file)
        answer(ROWS_OF_TABLE[name].prepare(Path(own)))


def main() -> None:
    if sys.argv[1:2] == ["row"]:
        child(sys.argv[2], Path(sys.argv[3]))
        return
    versions = {"before": Path(sys.argv[1])} if len(sys.argv) > 1 else {}
    versions["now"] = SOURCE
    table = Table("what a user waits for", *versions, "goal", title=str(machine()), title_justify="left")
    found: dict[str, Case] = {}
    with tempfile.TemporaryDirectory() as folder:
        export_detectors(Path(folder))
        for name in sys.argv[2:] or ROWS_OF_TABLE:
            row = ROWS_OF_TABLE[name]
            asked = {
                version: standing(__file__, "row", name, folder, source=source) for version, source in versions.items()
            }
            cases = interleaved(asked, ROUNDS)
            table.add_row(row.what, *(f"{case.median:.2f} ({case.spread})" for case in cases.values()), row.goal)
            found |= {f"{name}, {version}": Case(f"{name}, {version}", case.values) for version, case in cases.items()}
            print(*(f"{name}, {version}: {case.median:.3g}" for version, case in cases.items()), sep="; ", flush=True)
    report("waiting", "Where users wait", found, "units as below", {})
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
