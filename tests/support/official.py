"""Writes small files in the datasets' official formats, byte for byte as their authors' programs did."""

import pickle
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat


def python2_pickle(value: object, core: str = "numpy.core") -> bytes:
    """Protocol 2 as Python 2 and numpy 1 wrote it: text and bytes are both plain strings (opcodes U and T)."""
    return b"\x80\x02" + _opcodes(value, core) + b"."


def _opcodes(value: object, core: str) -> bytes:
    match value:
        case int():
            code = b"J" + struct.pack("<i", value)
        case str():
            code = _opcodes(value.encode("latin1"), core)
        case bytes() if len(value) < 256:
            code = b"U" + bytes([len(value)]) + value
        case bytes():
            code = b"T" + struct.pack("<i", len(value)) + value
        case list():
            code = b"](" + b"".join(_opcodes(item, core) for item in value) + b"e"
        case dict():
            code = b"}(" + b"".join(_opcodes(part, core) for item in value.items() for part in item) + b"u"
        case np.ndarray(dtype=np.uint8):
            start = f"c{core}.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR".encode("latin1")
            shape = b"(" + b"".join(_opcodes(edge, core) for edge in value.shape) + b"t"
            dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
            code = start + b"(K\x01" + shape + dtype + b"\x89" + _opcodes(value.tobytes(), core) + b"tb"
        case _:
            raise TypeError(f"cannot write {type(value)}")
    return code


def images(count: int, seed: int = 0, size: int = 32) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def rows(pixels: np.ndarray) -> np.ndarray:
    """One row per image: all red values, then all green ones, then all blue ones."""
    return np.concatenate([pixels[..., channel].reshape(len(pixels), -1) for channel in range(3)], axis=1)


def write_cifar10(root: Path, per_batch: int = 4) -> dict[str, tuple[np.ndarray, list[int]]]:
    """All six batches and the class names; returns what was written, by split."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    folder.joinpath("batches.meta").write_bytes(python2_pickle({"label_names": names, "num_vis": 3072}))
    written: dict[str, tuple[np.ndarray, list[int]]] = {}
    for number, file in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        pixels, labels = images(per_batch, seed=number), [(number + i) % 10 for i in range(per_batch)]
        batch = {"batch_label": file, "labels": labels, "data": rows(pixels), "filenames": ["a.png"] * per_batch}
        folder.joinpath(file).write_bytes(python2_pickle(batch))
        split = "test" if file == "test_batch" else "train"
        before = written.get(split, (np.empty((0, 32, 32, 3), np.uint8), []))
        written[split] = np.concatenate([before[0], pixels]), before[1] + labels
    return written


def write_svhn(path: Path, pixels: np.ndarray, labels: list[int], compress: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    y = np.array(labels, np.uint8)[:, None]
    savemat(path, {"X": pixels.transpose(1, 2, 3, 0), "y": y}, do_compression=compress)


def write_png(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def write_cifar100(root: Path, splits: Sequence[str] = ("train", "test")) -> None:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    (folder / "meta").write_bytes(python2_pickle({"fine_label_names": [f"class {i}" for i in range(100)]}))
    for seed, split in enumerate(splits):
        batch = {"data": rows(images(3, seed)), "fine_labels": [0, 99, 5], "coarse_labels": [0, 1, 2]}
        (folder / split).write_bytes(python2_pickle(batch))


def write_imagenet32(folder: Path, per_batch: int = 3) -> None:
    folder.mkdir(parents=True)
    for number in range(1, 12):
        name = "val_data" if number == 11 else f"train_data_batch_{number}"
        labels = [1, 1000, number][:per_batch]
        batch = {"data": rows(images(per_batch, number)), "labels": labels, "mean": np.zeros(3072)}
        (folder / name).write_bytes(pickle.dumps(batch, 4))


def write_tiny_imagenet(root: Path) -> None:
    for split, names in {
        "train": ["n02/images/n02_0.JPEG", "n01/images/n01_0.JPEG", "n01/images/n01_1.JPEG"],
        "val/images": ["val_1.JPEG", "val_0.JPEG"],
        "test/images": ["test_0.JPEG"],
    }.items():
        for i, name in enumerate(names):
            write_png(root / "tiny-imagenet-200" / split / name, images(1, i, size=64)[0])
    lines = "val_0.JPEG\tn02\t0\t0\t63\t63\nval_1.JPEG\tn01\t5\t5\t60\t60\n"
    (root / "tiny-imagenet-200" / "val" / "val_annotations.txt").write_text(lines)
