"""Names for methods, networks, scores and datasets: a decorator and a dict.

Every kind lives in a package of its own. A file dropped into that package registers itself when the package is first
asked for a name, so that adding one edits nothing else.
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar

from macs.core.errors import MacsError

T = TypeVar("T")


def modules_in(package: str) -> list[str]:
    """Names of the modules of an imported package, found without importing them."""
    return [m.name for m in pkgutil.iter_modules(sys.modules[package].__path__) if not m.name.startswith("_")]


def unknown(kind: str, name: str, known: list[str]) -> MacsError:
    """The sentence for a name that does not exist, with the nearest one that does."""
    near = get_close_matches(name, known, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return MacsError(f"There is no {kind} called {name!r}{hint}; choose one of {', '.join(known)}.")


def import_from(reference: str, kind: str) -> Any:
    """The object that 'module:Name' points at, looked up in the working folder too."""
    module_name, _, attribute = reference.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:  # TypeError: "..:name"
        raise MacsError(f"Cannot use {reference!r} as a {kind}: {error}.") from None


class Registry(Generic[T]):
    """`@registry("name")` adds an entry; `registry["name"]` finds it; `registry["module:Name"]` finds one outside."""

    def __init__(self, package: str, kind: str) -> None:
        self.package, self.kind = package, kind
        self._entries: dict[str, T] = {}

    def __call__(self, name: str) -> Callable[[T], T]:
        def add(entry: T) -> T:
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        if ":" in name:
            entry: T = import_from(name, self.kind)
            return entry
        if name not in self.available():
            raise unknown(self.kind, name, self.available())
        return self._entries[name]

    def available(self) -> list[str]:
        """Every registered name."""
        for module in modules_in(self.package):
            importlib.import_module(f"{self.package}.{module}")
        return sorted(self._entries)
