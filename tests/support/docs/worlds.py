"""Small stand-ins for the files that command lines on the pages name, each under the name that the page uses.

`WORLDS` has, for each page, what is written into the folder that its commands run in. What commands would download is
in the caches of the libraries that download it (`write_downloads`), and the datasets are in a data root (`write_data`).
"""

import io
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import macs
from official import images, write_cifar10, write_cifar100, write_png, write_svhn
from openood_folder import write_openood
from shortened import PUBLISHED
from small_clip import write_clip
from snippets import ROOT, blocks_of
from stand_ins import two_classes
from tiny import noise, save

OPENOOD = "results/cifar10_resnet18_32x32_base_e100_lr0.1_default/s0/best.ckpt"


def write_data(root: Path) -> None:
    """The sets that the pages name, in the formats of their authors, with few images."""
    write_cifar10(root, per_batch=100)
    write_cifar100(root)
    for split, count in (("train", 30), ("test", 30)):
        write_svhn(root / f"svhn/{split}_32x32.mat", images(count), [1 + i % 10 for i in range(count)])
    np.save(root / "300K_random_images.npy", images(100, 1))
    for index, pixels in enumerate(images(30, 2, size=48)):
        write_png(root / f"dtd/images/{('banded', 'woven')[index % 2]}/{index}.jpg", pixels)
        write_png(root / f"places365/val_256/Places365_val_{index:08}.jpg", pixels)


def write_downloads(folder: Path) -> dict[str, str]:
    """Random weights where timm and torchvision keep what they have downloaded; returns how to find them."""
    import timm

    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    net, config = timm.create_model("resnet50"), timm.get_pretrained_cfg("resnet50")
    repository = folder / "hub" / f"models--{config.hf_hub_id.rstrip('/').replace('/', '--')}"
    if config.hf_hub_id.endswith("/"):
        repository = repository.with_name(f"{repository.name}--{config.architecture}.{config.tag}")
    commit = "0" * 40
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    (repository / "snapshots" / commit).mkdir(parents=True)
    save_file(net.state_dict(), repository / "snapshots" / commit / "model.safetensors")
    url = torchvision.models.ResNet50_Weights.DEFAULT.url
    (folder / "torch/hub/checkpoints").mkdir(parents=True)
    torch.save(torchvision.models.resnet50().state_dict(), folder / "torch/hub/checkpoints" / url.rpartition("/")[2])
    return {"HF_HOME": str(folder), "HF_HUB_OFFLINE": "1", "TORCH_HOME": str(folder / "torch")}


def classifier(folder: Path, name: str = "classifier.pt") -> None:
    """A network for CIFAR-10, with random weights, in the format of the public checkpoints."""
    torch.manual_seed(0)
    torch.save(macs.nets.build("wrn-40-2", classes=10).state_dict(), folder / name)


def photographs(folder: Path) -> None:
    """Two known classes, unknown images, and new ones to be judged."""
    for split, count, seed in (("train", 24, 1), ("val", 100, 2), ("test", 16, 3)):
        save(two_classes(count, seed), folder / "photos/known" / split)
    save(noise(16, 6), folder / "photos/unknown")
    save(noise(16, 7), folder / "photos/other")
    for name in ("new", "holiday-photos", "other_unknowns"):
        save(two_classes(4, 8), folder / name)


def a_detector(folder: Path) -> None:
    torch.manual_seed(0)
    detector = macs.Detector(macs.nets.build("wrn-10-1", classes=3)).calibrate(noise(40, 1))
    detector.export(folder / "detector.onnx")


def a_detector_of_photographs(folder: Path) -> None:
    """A detector file, photographs of its classes, and unknown ones."""
    torch.manual_seed(0)
    detector = macs.Detector(macs.nets.build("wrn-10-1", classes=2)).calibrate(two_classes(40, 1))
    detector.save(folder / "detector.safetensors")
    save(two_classes(16, 3), folder / "photos/test")
    save(noise(8, 6), folder / "unknown")


def digits(folder: Path) -> None:
    """Photographs of digits, scans and others for the detector of docs/detector.md."""
    for index in range(16):
        write_png(folder / f"photos/test/{index % 8}/{index}.png", noise(1, index).pixels[:][0])
    save(noise(4, 20), folder / "scans/2024/may")
    save(noise(8, 21), folder / "unknown")
    np.save(folder / "more.npy", noise(3, 22).pixels[:])


def own_method(folder: Path) -> None:
    """The method of CONTRIBUTING.md in the reader's file."""
    (block,) = (each for each in blocks_of(ROOT / "CONTRIBUTING.md") if '@method("flatten")' in each.text)
    (folder / "mine.py").write_text(block.text)


def own_network(folder: Path) -> None:
    shutil.copy(ROOT / "examples" / "your_model.py", folder)


def unknown_images(folder: Path) -> None:
    np.save(folder / "unknown.npy", noise(12, 9, size=32).pixels[:])


def equalised_flowers(folder: Path) -> None:
    """What examples/equal_sharpness.py writes, and the weights of EfficientNet-Lite0."""
    import timm

    for split, count, seed in (("train", 24, 1), ("val", 100, 2), ("test", 12, 3)):
        save(two_classes(count, seed), folder / "equal/flowers" / split)
    for place, seed in (("outliers/train", 4), ("outliers/val", 5), ("unknown/scenes", 6), ("unknown/textures", 7)):
        save(noise(12, seed), folder / "equal" / place)
    torch.manual_seed(0)
    torch.save(timm.create_model("tf_efficientnet_lite0").state_dict(), folder / "lite0.pth")


def of_hugging_face(folder: Path) -> None:
    """Tiny networks and datasets in folders that are called like those of the hub."""
    import datasets
    import transformers

    small: Any = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    small |= {"image_size": 32, "num_labels": 4}
    config = transformers.ViTConfig(**small)
    for name in ("google/vit-base-patch16-224", "my-vit"):
        transformers.ViTForImageClassification(config).save_pretrained(folder / name)
        size = {"height": 32, "width": 32}
        transformers.ViTImageProcessor(size=size).save_pretrained(folder / name)
    write_clip(folder / "openai/clip-vit-base-patch32", 32)
    save(noise(40, 1, size=32), folder / "pets")
    pixels = [Image.fromarray(each) for each in images(20)]
    kind, labels = datasets.ClassLabel(names=["cat", "dog"]), [0, 1] * 10

    def written(*columns: str) -> Any:
        features = datasets.Features({"img": datasets.Image(), **dict.fromkeys(columns, kind)})
        return datasets.Dataset.from_dict({"img": pixels, **dict.fromkeys(columns, labels)}, features=features)

    for name, columns in {"uoft-cs/cifar10": ("label",), "uoft-cs/cifar100": ("fine_label", "coarse_label")}.items():
        for split in ("train", "test"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            written(*columns).to_parquet(folder / name / f"{split}-00000-of-00001.parquet")
    (folder / "org/name/inner").mkdir(parents=True)
    written("label").to_parquet(folder / "org/name/inner/train.parquet")
    (folder / "org/name/README.md").write_text(
        "---\nconfigs:\n- config_name: config\n  data_files: inner/*.parquet\n---\n"
    )
    written("label").save_to_disk(folder / "path/to/folder")


def of_openood(folder: Path) -> None:
    write_openood(folder / "OpenOOD" / "data")
    (folder / OPENOOD).parent.mkdir(parents=True)
    torch.manual_seed(0)
    torch.save(macs.nets.build("resnet-18", classes=10).state_dict(), folder / OPENOOD)


def of_torchvision(folder: Path) -> None:
    """A published file, and the reader's code, whose flowers are those of stand_ins.flowers."""
    from stand_ins import flowers

    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    torch.save(torchvision.models.resnet50().state_dict(), folder / "resnet50.pth")
    with pytest.MonkeyPatch.context() as patched:
        flowers(folder, patched)
    (block,) = (each for each in blocks_of(ROOT / "docs/torchvision.md") if "def photos(split)" in each.text)
    files = "torchvision.datasets.Flowers102._file_dict"
    unchecked = f"{files}.update({{name: (file, None) for name, (file, _) in {files}.items()}})"
    (folder / "my_code.py").write_text(f"import torchvision\n{unchecked}\n{block.text}\n")


def outliers_file(folder: Path) -> None:
    np.save(folder / "outliers_train.npy", images(60, 3))


def other_classifiers(folder: Path) -> None:
    """The same under other names, once in a folder that machines share."""
    (folder / "shared").mkdir()
    for name in ("cifar10_wrn_baseline.pt", "shared/classifier.pt"):
        classifier(folder, name)


def shard(folder: Path) -> None:
    """A shard as WebDataset writes it."""
    with tarfile.open(folder / "shard-0001.tar", "w") as packed:
        for index, pixels in enumerate(images(3, 4)):
            member = tarfile.TarInfo(f"{index}.png")
            member.size = len(encoded(pixels))
            packed.addfile(member, io.BytesIO(encoded(pixels)))


def fill_bucket() -> None:
    """What docs/scaling.md finds in the bucket."""
    import pyarrow.parquet
    import s3fs

    store = s3fs.S3FileSystem()
    for index, pixels in enumerate(images(6, 5)):
        for place in (f"photos/{index}.png", f"2024-01/{index}.jpg"):
            store.pipe_file(f"bucket/{place}", encoded(pixels))
    table = pyarrow.table({"image": [encoded(pixels) for pixels in images(3, 6)]})
    with store.open("bucket/part.parquet", "wb") as file:
        pyarrow.parquet.write_table(table, file)


def encoded(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def publish_datasets(folder: Path) -> None:
    """The archives of some datasets in miniature, as a mirror has them."""
    from published import publish

    for name in PUBLISHED:
        (folder / "made" / name).mkdir(parents=True)
        for file, content in publish(name, folder / "made" / name).items():
            (folder / "mirror").mkdir(exist_ok=True)
            (folder / "mirror" / file).write_bytes(content)


def rows(folder: Path) -> None:
    """Features and logits of some model, as the page on features names them."""
    random = np.random.default_rng(0)
    for name, count in (("train", 200), ("val", 100), ("new", 10)):
        np.savez(folder / f"{name}.npz", features=random.normal(size=(count, 6)).astype(np.float32))
    np.save(folder / "logits.npy", random.normal(size=(100, 4)))


World = Callable[[Path], None]
WORLDS: dict[str, tuple[World, ...]] = {
    "CONTRIBUTING.md": (own_method,),
    "README.md": (photographs,),
    "choosing.md": (photographs, classifier),
    "command-line.md": (photographs, classifier, unknown_images),
    "data.md": (publish_datasets,),
    "deploy.md": (a_detector,),
    "detector.md": (digits,),
    "drift.md": (a_detector,),
    "export.md": (digits,),
    "features.md": (rows,),
    "flowers.md": (equalised_flowers,),
    "hub.md": (a_detector_of_photographs,),
    "hugging-face.md": (photographs, of_hugging_face),
    "index.md": (a_detector_of_photographs,),
    "methods.md": (classifier,),
    "openood.md": (of_openood,),
    "paper.md": (classifier,),
    "promises.md": (a_detector_of_photographs,),
    "scaling.md": (classifier, other_classifiers, outliers_file, a_detector, shard),
    "score-tables.md": (classifier,),
    "scores.md": (photographs, classifier, outliers_file),
    "study-tables.md": (equalised_flowers,),
    "study.md": (classifier,),
    "timm.md": (photographs,),
    "torchvision.md": (photographs, of_torchvision),
    "your-model.md": (photographs, own_network),
}
