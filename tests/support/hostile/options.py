"""The options of every command, asked of the command line itself, so that a new one is tried without an edit here."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from cyclopts import App

from macs.cli._app import app

# A command line for each command on which everything but the option in question is in order, and cheap.
TRAINING = "--id mine --size 16 --net wrn-10-1 --epochs 1 --batch-in 16 --precision float32"
GOOD = {
    "calibrate": "calibrate run --keep 0.8 --out new.safetensors",
    "data check": "data check digits",
    "data get": "data get cifar10 --mirror file:///nowhere",
    "data list": "data list",
    "demo": "demo --out file.txt/below",
    "doctor": "doctor",
    "evaluate": "evaluate run --ood unknown",
    "export": "export detector.safetensors new.onnx --int8 --images nowhere.npy --ood unknown",
    "finetune": f"finetune {TRAINING} --outliers outliers.npy --batch-out 16 --run new",
    "inspect": "inspect detector.safetensors",
    "predict": "predict good.png --detector detector.safetensors",
    "pretrain": f"pretrain {TRAINING} --run new",
    "push": "push nowhere.safetensors org/name",
    "quickstart": "quickstart mine --net wrn-10-1 --checkpoint nowhere.pt --out new",
    "report": "report run --ood unknown --out new.html",
    "reproduce": "reproduce table1 --checkpoint nowhere.pt --out new",
    "serve": "serve nowhere.onnx --port 0",
    "sweep": f"sweep {TRAINING} --outliers outliers.npy --run new --margins 0.1",
}


WRITTEN = ("new", "new/*", "new.*")  # what these may write


def with_option(words: list[str], name: str, value: str) -> list[str]:
    """The words with an option set to a value, in place of the one that was there."""
    if name not in words:
        return [*words, name, value]
    place = words.index(name) + 1
    return [*words[:place], value, *words[place + 1 :]]


@dataclass(frozen=True)
class Option:
    command: str
    name: str  # "--lr", or "RUN" for what has no name
    kinds: frozenset[type]

    def given(self, value: str) -> list[str]:
        """The command's good line with this option set to a value."""
        words = GOOD[self.command].split()
        start = len(self.command.split())
        if not self.name.startswith("-"):
            place = start + (self.name == "OUT")
            return [*words[:place], value, *words[place + 1 :]]
        return with_option(words, self.name, value)


def commands(node: App = app, path: tuple[str, ...] = ()) -> Iterator[tuple[str, App]]:
    for name in node:
        if not name.startswith("-"):
            yield from commands(node[name], (*path, name))
    if node.default_command:
        yield " ".join(path), node


def kinds_of(hint: Any) -> frozenset[type]:
    """The plain types in a type, such as float in `list[float] | None`."""
    inner = [kind for kind in get_args(hint) if not isinstance(kind, str)]
    return frozenset().union(*map(kinds_of, inner)) if inner else frozenset({hint} if isinstance(hint, type) else ())


OPTIONS = [
    Option(command, argument.names[0], kinds_of(argument.hint))
    for command, node in commands()
    for argument in node.assemble_argument_collection()
    if argument.names[0] != "*"
]


def varied(options: list[Option], values: list[str], few: int) -> Iterator[tuple[Option, str]]:
    """Every value for an option where it first appears; a few, each time others, where another command has it too."""
    seen: dict[str, int] = {}
    for option in options:
        again = seen.setdefault(option.name, 0)
        shift = again * few
        yield from ((option, value) for value in (values if not again else (values * 2)[shift % len(values) :][:few]))
        seen[option.name] += 1
