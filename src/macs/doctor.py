"""What is installed here, what it gives, and what to do about the rest: the content of `macs doctor`.

Nothing here fails because something is missing: a part that cannot be examined says why.
"""

import importlib
import importlib.metadata
import platform
import sys
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from macs.core import __version__
from macs.core.errors import MacsError, first_line


@dataclass(frozen=True)
class Extra:
    """An optional part of macs: what it gives, and the packages (as pip names them) with the modules that they hold."""

    gives: str
    modules: Mapping[str, str]


SERVING = {
    "onnxruntime": "onnxruntime",
    "fastapi": "fastapi",
    "uvicorn": "uvicorn",
    "httptools": "httptools",
    "uvloop": "uvloop",
    "python-multipart": "python_multipart",
    "prometheus-client": "prometheus_client",
}
EXTRAS = {
    "demo": Extra(
        "macs demo, and the embedded images of digits",
        {"scikit-learn": "sklearn", "scikit-image": "skimage", "matplotlib": "matplotlib"},
    ),
    "report": Extra("plots in macs report and macs reproduce", {"matplotlib": "matplotlib"}),
    "onnx": Extra(
        "macs export, and detectors that run without torch",
        {"onnx": "onnx", "onnxruntime": "onnxruntime", "onnxscript": "onnxscript"},
    ),
    "serve": Extra("macs serve: a detector behind an HTTP address", SERVING),
    "sklearn": Extra("macs.sklearn: a detector behind scikit-learn's interface", {"scikit-learn": "sklearn"}),
    "parquet": Extra("macs predict --out verdicts.parquet, and Parquet files of images", {"pyarrow": "pyarrow"}),
    "datasets": Extra("images from Hugging Face datasets, as hf/NAME", {"datasets": "datasets"}),
    "timm": Extra("networks called timm/NAME, with their weights", {"timm": "timm"}),
    "torchvision": Extra("networks called torchvision/NAME, with their weights", {"torchvision": "torchvision"}),
    "hf": Extra(
        "networks called hf/NAME, with their weights", {"transformers": "transformers", "datasets": "datasets"}
    ),
    "hub": Extra("detectors on the Hugging Face hub, as hf://org/name", {"huggingface_hub": "huggingface_hub"}),
    "stores": Extra("images behind URLs such as s3://bucket/photos/", {"fsspec": "fsspec"}),
    "ray": Extra(
        "sweeps, reproductions and predictions on a Ray cluster",
        {
            "ray": "ray",
            "onnx": "onnx",
            "onnxruntime": "onnxruntime",
            "onnxscript": "onnxscript",
            "pyarrow": "pyarrow",
            "fsspec": "fsspec",
        },
    ),
    "ray-serve": Extra("the service in replicas of Ray Serve", {"ray": "ray.serve", "fsspec": "fsspec", **SERVING}),
}
NOT_ON_WINDOWS = ("uvloop",)
TRAINING = "training, evaluating and calibrating need it; an exported detector (.onnx) runs without it"


@dataclass(frozen=True)
class ExtraState:
    """The state of an extra: the versions of its packages, which of them are missing, and which do not work."""

    name: str
    gives: str
    versions: dict[str, str]
    missing: list[str]
    broken: dict[str, str]  # the error of a package that is installed, but cannot be imported

    @property
    def install(self) -> str:
        return f"pip install 'macs-ood[{self.name}]'"


@dataclass(frozen=True)
class Torch:
    """The torch that is installed, and where and how networks run by default."""

    version: str
    threads: int
    device: str
    device_reason: str
    precision: str
    precision_reason: str


@dataclass(frozen=True)
class OnnxRuntime:
    version: str
    providers: list[str]


@dataclass(frozen=True)
class DataOnDisk:
    """The data root, and the splits of each dataset that are there."""

    root: str
    found: dict[str, list[str]]
    missing: list[str]


@dataclass(frozen=True)
class CachedOutputs:
    """The folder in which the outputs of networks are kept, how many bytes it holds, and how many it may hold."""

    folder: str
    bytes: int
    limit: int


@dataclass(frozen=True)
class Diagnosis:
    """All findings. `torch`, `onnxruntime`, `data` and `cache` are a sentence where they cannot be examined."""

    macs: str
    python: str
    platform: str
    location: str
    torch: Torch | str
    onnxruntime: OnnxRuntime | str
    extras: list[ExtraState]
    data: DataOnDisk | str
    cache: CachedOutputs | str
    advice: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "extras": [{**asdict(extra), "install": extra.install} for extra in self.extras]}


def examine(data: str | Path | None = None) -> Diagnosis:
    """Look at everything; packages are really imported, since one that is installed may still not work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other people's packages
        torch, onnxruntime = examine_torch(), examine_onnxruntime()
        extras = [examine_extra(name, extra) for name, extra in EXTRAS.items()]
    on_disk = examine_data(data)
    return Diagnosis(
        __version__,
        platform.python_version(),
        platform.platform(),
        str(Path(__file__).parent),
        torch,
        onnxruntime,
        extras,
        on_disk,
        examine_cache(),
        advice(torch, extras, on_disk),
    )


def version_line() -> str:
    """Return the versions that a bug report needs, in one line and without importing what they belong to."""
    named = [("Python", platform.python_version())]
    named += [(name, version) for name in ("torch", "onnxruntime") if (version := version_of(name))]
    return ", ".join([f"macs {__version__}", *(f"{name} {version}" for name, version in named)])


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def failure_of(module: str) -> str:
    """Return why a module that is installed cannot be imported; empty if it can be."""
    try:
        importlib.import_module(module)
    except Exception as error:  # a package that does not fit its neighbours may raise anything
        return f"{type(error).__name__}: {first_line(error)}"
    return ""


def examine_torch() -> Torch | str:
    if find_spec("torch") is None:
        return f"not installed: {TRAINING}."
    if failure := failure_of("torch"):
        return f"installed, but cannot be imported: {failure}."
    import torch

    from macs.core.devices import best_device, bf16_on

    device = best_device()
    bf16 = bf16_on(device)
    reason = "torch finds no GPU" if device.type == "cpu" else f"torch finds {device_name(device.type)}"
    precision = "bf16" if bf16.faster else "float32"
    return Torch(torch.__version__, torch.get_num_threads(), str(device), reason, precision, bf16.reason)


def device_name(kind: str) -> str:
    import torch

    return torch.cuda.get_device_name() if kind == "cuda" else f"an accelerator of the kind {kind}"


def examine_onnxruntime() -> OnnxRuntime | str:
    if find_spec("onnxruntime") is None:
        return "not installed: exported detectors and macs serve need it."
    if failure := failure_of("onnxruntime"):
        return f"installed, but cannot be imported: {failure}."
    import onnxruntime

    return OnnxRuntime(onnxruntime.__version__, onnxruntime.get_available_providers())


def examine_extra(name: str, extra: Extra) -> ExtraState:
    versions, missing, broken = {}, [], {}
    for package, module in extra.modules.items():
        if package in NOT_ON_WINDOWS and sys.platform == "win32":
            continue
        if (version := version_of(package)) is None:
            missing.append(package)
        else:
            versions[package] = version
            if failure := failure_of(module):
                broken[package] = failure
    return ExtraState(name, extra.gives, versions, missing, broken)


def examine_data(root: str | Path | None) -> DataOnDisk | str:
    try:
        from macs.data.loading import catalog_rows, data_root

        rows = catalog_rows(root)
        on_disk = {row.name: list(row.found) for row in rows if row.found}
        return DataOnDisk(str(data_root(root)), on_disk, [row.name for row in rows if not row.found])
    except MacsError as error:
        return error.sentence
    except ImportError as error:
        return f"cannot be listed without the package {error.name}, which reading datasets needs."


def examine_cache() -> CachedOutputs | str:
    try:
        from macs.core.cache import Cache, cache_folder

        cache = Cache(cache_folder())
        return CachedOutputs(str(cache.folder), sum(size for _, size, _ in cache.files()), cache.limit)
    except MacsError as error:
        return error.sentence
    except ImportError as error:
        return f"cannot be examined without the package {error.name}."


def advice(torch: Torch | str, extras: list[ExtraState], data: DataOnDisk | str) -> list[str]:
    """Return what to do next, most important first."""
    steps = []
    if isinstance(torch, str):
        steps.append("To train, evaluate or calibrate networks: pip install macs-ood, with all of its dependencies.")
    packages_by_failure: dict[str, list[str]] = {}
    for package, failure in {p: failure for extra in extras for p, failure in extra.broken.items()}.items():
        packages_by_failure.setdefault(failure, []).append(package)
    fitting = "" if isinstance(torch, str) else f", perhaps with torch {torch.version}"
    for failure, packages in packages_by_failure.items():
        if "torchvision::" in failure and isinstance(torch, Torch):  # an operator
            from macs.nets import fitting_torchvision

            steps.append(
                f"{' and '.join(packages)} cannot be imported, because the installed torchvision does not fit torch "
                f"{torch.version}; {fitting_torchvision(torch.version)}"
            )
            continue
        steps.append(
            f"{' and '.join(packages)} cannot be imported ({failure}); install versions that fit together{fitting}."
        )
    for extra in extras:
        if extra.missing:
            steps.append(f"For {extra.gives}: {extra.install}")
    if isinstance(data, DataOnDisk) and data.missing:
        steps.append(
            f"For datasets that are not on disk: macs data get NAME ({', '.join(data.missing)}), or name the folder "
            "that holds them with --data or $MACS_DATA."
        )
    return steps
