"""Names for methods, networks, scores and datasets: a decorator and a dict.

Each kind has a package of its own. A file in that package registers itself when the registry is first used, so that a
new method is one new file and no edit elsewhere.
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

from macs.core.errors import MacsError, first_line

T = TypeVar("T")
LONGEST = 100  # characters of a name that a message shows
STOPPED = (129, 143)  # exit codes of our own handlers of SIGHUP and SIGTERM


def modules_in(package: str) -> list[str]:
    """Return names of the modules of an imported package, found without importing them."""
    return [m.name for m in pkgutil.iter_modules(sys.modules[package].__path__) if not m.name.startswith("_")]


def unknown(kind: str, name: str, known: list[str]) -> MacsError:
    """Return the error for an unknown name, with the most similar known one."""
    near = get_close_matches(name[:LONGEST], known, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return MacsError(f"There is no {kind} called {quoted(name)}{hint}; choose one of {', '.join(known)}.")


def quoted(name: str) -> str:
    """Return a name in quotes, shortened if it is very long."""
    return repr(name if len(name) <= LONGEST else f"{name[:LONGEST]}...")


def import_from(reference: str, kind: str) -> Any:
    """Return the object that 'module:Name' refers to; the module may also lie in the working folder."""
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise MacsError(f"{quoted(reference)} is not a valid {kind} name; write module:Name, for example my_code:Mine.")
    with users_code(f"Cannot use {quoted(reference)} as {'an' if kind[0] in 'aeiou' else 'a'} {kind}"):
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
        return attrgetter(attribute)(importlib.import_module(module_name))


@contextmanager
def users_code(failed: str) -> Iterator[None]:
    """Turn whatever the user's own code raises, even SystemExit, into a MacsError that begins with `failed`."""
    try:
        yield
    except (MacsError, MemoryError, KeyboardInterrupt, BrokenPipeError):
        raise
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in STOPPED:
            raise
        raise MacsError(f"{failed}: {_message(error)}.") from error


def _message(error: BaseException) -> str:
    """Return the first line of an error's message."""
    if isinstance(error, SystemExit):
        return f"it calls sys.exit({error.code!r:.200})"
    first, kind = first_line(error), type(error).__name__
    return kind if first == kind else f"{kind}: {first:.500}"


class Registry(Generic[T]):
    """`@registry("name")` adds an entry; `registry["name"]` gets it; `registry["module:Name"]` imports one."""

    def __init__(self, package: str, kind: str) -> None:
        self.package: str = package
        self.kind: str = kind
        self._entries: dict[str, T] = {}
        self._complete = False

    def __call__(self, name: str) -> Callable[[T], T]:
        def add(entry: T) -> T:
            existing = self._entries.get(name, entry)
            if _definition(existing) != _definition(entry):  # equal if a notebook's cell ran again
                raise MacsError(
                    f"The {self.kind} name {name!r} is taken by {_definition(existing)}; "
                    f"give {_definition(entry)} another name."
                )
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
        """Return all registered names, sorted."""
        return sorted(self.entries())

    def entries(self) -> dict[str, T]:
        """Return all entries by name, in the order of their registration."""
        if not self._complete:
            for module in modules_in(self.package):
                importlib.import_module(f"{self.package}.{module}")
            self._complete = True
        return self._entries


def _definition(entry: object) -> str:
    """Return where an entry, or the `__wrapped__` function of a record, is defined, as module:Name."""
    entry = getattr(entry, "__wrapped__", entry)
    return f"{getattr(entry, '__module__', '?')}:{getattr(entry, '__qualname__', repr(entry))}"
