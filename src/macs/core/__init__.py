"""The base of macs: errors, files, registries, settings, devices, the console. It knows no images and no networks."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

__version__ = "0.1.0"


def lazily(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`; `names` maps each name to the module that defines it, or that it is."""

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(names[name])
        return module if names[name] == f"{package}.{name}" else getattr(module, name)

    return __getattr__
