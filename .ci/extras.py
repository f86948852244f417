"""What the documentation shows of one extra, in short, in the working folder:

    python .ci/extras.py EXTRA EXPORTED

`.ci/package.py --each-extra` calls it with the Python of a new environment, which has the wheel with that extra and
nothing else. EXPORTED is a folder that tests/runtime/exported_files.py wrote: a detector, its ONNX file, and images.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "support" / "docs"))

TRAINING = ("--epochs", 1, "--epoch-size", 32, "--batch-in", 16, "--precision", "float32")
TORCHVISION = "from importlib.util import find_spec\nif find_spec('torchvision'): import torchvision"
VIT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "image_size": 32}


def macs(*words: object) -> str:
    """What a command prints."""
    command = [sys.executable, *entry(), *map(str, words)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"macs {' '.join(map(str, words))} ends with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def entry() -> list[str]:
    """`macs`, or the file that docs/torchvision.md has for a torchvision that does not fit torch."""
    if subprocess.run([sys.executable, "-c", TORCHVISION], check=False, capture_output=True).returncode == 0:
        return ["-m", "macs"]
    operators = block("torchvision.md", "library.Library")
    Path("fitting.py").write_text(f"{operators}\nfrom macs.__main__ import main; main()\n")
    return ["fitting.py"]


def block(page: str, part: str) -> str:
    """The Python block of a page that has this part."""
    from snippets import blocks_of

    (found,) = (each for each in blocks_of(ROOT / "docs" / page) if each.language == "python" and part in each.text)
    return found.text


def demo(files: Path) -> None:
    from follow_tutorial import follow

    assert follow(until="export") >= 9  # the export needs the extra onnx


def report(files: Path) -> None:
    one = ("--detector", files / "one.safetensors", "--id", files / "test", "--ood", files / "noise.npy")
    macs("report", *one, "--out", "report.html")
    assert "<svg" in Path("report.html").read_text(encoding="utf-8")


def onnx(files: Path) -> None:
    macs("export", files / "one.safetensors", "detector.onnx")
    assert macs("predict", files / "test", "--detector", "detector.onnx", "--format", "csv").count(".png") == 90


def serve(files: Path) -> None:
    command = [sys.executable, "-m", "macs", "serve", str(files / "one.onnx"), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:
        try:
            events = (json.loads(line) for line in service.stderr or () if line.startswith("{"))
            (url,) = next(event["addresses"] for event in events if event["event"] == "started")
            ask(url, files)
        finally:
            service.terminate()


def ask(url: str, files: Path) -> None:
    image = next((files / "test").rglob("*.png")).read_bytes()
    request = urllib.request.Request(f"{url}/v1/predict", image, {"Content-Type": "image/png"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["images"][0]["is_ood"] in (True, False)


def parquet(files: Path) -> None:
    macs("predict", files / "test", "--detector", files / "one.safetensors", "--out", "verdicts.parquet")
    from pyarrow.parquet import read_table

    assert read_table("verdicts.parquet").num_rows == 90


def sklearn(files: Path) -> None:
    from sklearn.datasets import load_iris

    from macs.sklearn import OODDetector

    rows = load_iris().data
    assert (OODDetector(random_state=0).fit(rows).predict(rows) == 1).mean() > 0.8


def datasets(files: Path) -> None:
    import datasets as library
    from PIL import Image

    paths = sorted((files / "test").rglob("*.png"))
    columns = {"image": [Image.open(path) for path in paths], "label": [int(path.parent.name) for path in paths]}
    kinds = library.Features({"image": library.Image(), "label": library.ClassLabel(names=["a", "b", "c"])})
    library.Dataset.from_dict(columns, features=kinds).save_to_disk("path/to/folder")
    macs("pretrain", "--id", "hf/path/to/folder", "--net", "wrn-10-1", *TRAINING)


def finetuned(net: str, files: Path, *options: object) -> None:
    """From photographs in folders to verdicts, as docs/your-model.md does it."""
    for number, path in enumerate(sorted((files / "test").rglob("*.png"))):
        place = Path("known", ("train", "val")[number % 2], path.parent.name, path.name)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    sets = ("--id", "known", "--outliers", files / "noise.npy", "--size", 32, "--net", net)
    macs("finetune", *sets, *TRAINING, "--batch-out", 16, "--freeze", "backbone", "--run", "runs/mine", *options)
    macs("calibrate", "runs/mine", "--out", "detector.safetensors")
    assert macs("predict", "known/val", "--detector", "detector.safetensors", "--format", "csv").count(".png") == 45


def timm(files: Path) -> None:
    finetuned("timm/resnet18", files)


def torchvision(files: Path) -> None:
    finetuned("torchvision/resnet18", files)


def hf(files: Path) -> None:
    import transformers

    transformers.ViTForImageClassification(transformers.ViTConfig(**VIT, num_labels=4)).save_pretrained("my-vit")
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}, "resample": 2}
    values = {**processor, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    Path("my-vit/preprocessor_config.json").write_text(json.dumps(values))
    finetuned("hf/./my-vit", files, "--checkpoint", "my-vit")
    datasets(files)


def hub(files: Path) -> None:
    code = f"import macs; macs.Detector.load({str(files / 'one.safetensors')!r}).save_pretrained('published')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert json.loads(macs("inspect", "published", "--json"))["calibration"]


def stores(files: Path) -> None:
    url = (files / "test").as_uri()
    rows = macs("predict", f"{url}/", "--detector", files / "one.safetensors", "--format", "csv")
    assert rows.count(".png") == 90


def ray(files: Path) -> None:
    sets = ("--id", files / "test", "--outliers", files / "noise.npy", "--size", 16, "--net", "wrn-10-1")
    budget = (*TRAINING, "--batch-out", 16, "--margins", 0.3, 0.6)
    curve = json.loads(macs("sweep", *sets, *budget, "--engine", "ray", "--threads", 1, "--json"))["curve"]
    assert len(curve) == 2


def ray_serve(files: Path) -> None:
    os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "60"
    sys.path.append(str(ROOT / "examples"))
    written = block("deploy.md", "from ray_serve import application")
    exec(written.replace("/models/detector.onnx", str(files / "one.onnx")).replace("max_replicas=8", "max_replicas=1"))
    ask("http://127.0.0.1:8000", files)
    from ray import serve as service

    service.shutdown()


def docs(files: Path) -> None:
    here = Path.cwd()
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(here / "site")]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert (here / "site" / "index.html").is_file()


FUNCTIONS = (demo, report, onnx, serve, sklearn, parquet, datasets, timm, torchvision, hf, stores, ray, ray_serve, docs)
PATHS: dict[str, Callable[[Path], None]] = {each.__name__.replace("_", "-"): each for each in FUNCTIONS}

if __name__ == "__main__":
    PATHS[sys.argv[1]](Path(sys.argv[2]))
