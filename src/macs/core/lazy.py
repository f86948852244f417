"""Names of a package that are imported when they are first asked for, so that `import macs` is quick and torch-free."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazily(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__`: each name is looked up in the module given for it, or is that module itself."""

    def __getattr__(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(names[name])
        return module if names[name] == f"{package}.{name}" else getattr(module, name)

    return __getattr__
