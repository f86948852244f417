"""Whether a test notices a change of the code: `python tests/mutations.py losses metrics --sample 25 --seed 0`.

A mutant is a source file with one change: another operator, number or truth value, no `not`, no minus, `min` for `max`,
or the branches of `a if b else c` exchanged. It is killed if one of the tests of its target fails, does not end, or
cannot even import it; else it survives. Strings, annotations and errors that are raised stay as they are. A sample is
drawn from all mutants of a target.

This process imports torch and other people's packages once, but nothing of macs and no test. Each mutant is tested in a
fork of it, in which the changed code is imported in place of the file, so that it costs no more than its tests. It may
use three times the processor time that the tests take without a change.
"""

import argparse
import ast
import importlib
import os
import random
import resource
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"

TARGETS = {  # files in src/macs, and the tests that should notice a change of them
    "losses": ("losses.py", "tests/unit/test_losses.py"),
    "metrics": ("metrics/*.py", "tests/unit/test_metrics.py"),
    "calibration": ("detector/calibration.py", "tests/unit/detector/test_calibration.py"),
    "methods": ("methods/*.py", "tests/unit/methods"),
    "scores": ("scores/*.py", "tests/unit/scores"),
    "batches": (
        "training/training_batches.py",
        " ".join(
            f"tests/unit/training/test_{name}.py" for name in ("training_batches", "sampling", "mixing", "accumulation")
        ),
    ),
}
SLOW = (  # tests, or those that start another process, which would import the file without the change
    "random_cases_equal",
    "a_million_confidences",
    "a_large_batch_is_differentiated",
    "importing_the_metrics",
    "gamma_holds_the_shift",
    "a_resumed_run_continues",
    "evaluation_holds_out",
    "the_command_says",
)
WARM = (  # what the tests import, or macs for them
    *(
        "torch",
        "torch.func",
        "numpy",
        "scipy.stats",
        "scipy.special",
        "sklearn.metrics",
        "lightning_fabric",
        "PIL.Image",
    ),
    *("rich.console", "cyclopts", "safetensors.torch", "hypothesis", "pytest"),
)

OPERATORS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Div,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.LShift: (ast.RShift,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
PAIRS = (
    ("min", "max"),
    ("amin", "amax"),
    ("argmin", "argmax"),
    ("minimum", "maximum"),
    ("any", "all"),
    ("ceil", "floor"),
)
NAMES = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}


@dataclass(frozen=True)
class Mutant:
    """One change of a file's syntax tree: `parent.field`, or an element of that list, becomes `changed`."""

    path: Path
    tree: ast.Module
    line: int
    parent: Any
    field: str
    index: int | None
    changed: object

    def apply(self) -> None:
        container, key = self.place
        container[key] = self.changed

    def unchanged(self) -> "Mutant":
        """The mutant that leaves this place as it is."""
        container, key = self.place
        return replace(self, changed=container[key])

    @property
    def place(self) -> tuple[Any, Any]:
        return (vars(self.parent), self.field) if self.index is None else (vars(self.parent)[self.field], self.index)

    def __str__(self) -> str:
        code, unchanged = ast.unparse(self.parent).splitlines()[0], self.unchanged()
        self.apply()
        changed = ast.unparse(self.parent).splitlines()[0]
        unchanged.apply()
        return f"{self.path.relative_to(ROOT)}:{self.line}  {code}  ->  {changed}"


def changes(node: ast.AST) -> Iterator[object]:
    """What may stand in the place of a node."""
    match node:
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
            if value:
                yield ast.Constant(-value)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Call(func=ast.Name(id="abs"), args=[inner]):
            yield inner
        case ast.Name(id=name) if name in NAMES:
            yield ast.Name(NAMES[name], ast.Load())
        case ast.Attribute(value=owner, attr=name) if name in NAMES:
            yield ast.Attribute(owner, NAMES[name], ast.Load())
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.operator() | ast.cmpop() | ast.boolop():
            yield from (other() for other in OPERATORS.get(type(node), ()))


def mutants(path: Path) -> list[Mutant]:
    """All mutants of a file, in the order of its lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: list[Mutant] = []

    def visit(parent: ast.AST, line: int) -> None:
        for field, value in ast.iter_fields(parent):
            if field in ("annotation", "returns") or isinstance(parent, ast.Raise):
                continue
            for index, node in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(node, ast.AST):
                    here = getattr(node, "lineno", line)
                    place = index if isinstance(value, list) else None
                    found.extend(Mutant(path, tree, here, parent, field, place, each) for each in changes(node))
                    if not (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)):  # -1 is 1 mutant
                        visit(node, here)

    visit(tree, 1)
    return found


class Loader(SourceFileLoader):
    """Imports a syntax tree in place of the file that it was read from."""

    tree: ast.Module

    def get_code(self, fullname: str) -> CodeType:
        return compile(ast.fix_missing_locations(self.tree), self.path, "exec")


class Finder(MetaPathFinder):
    """Finds the mutant under the name of its module, before Python finds the file."""

    def __init__(self, mutant: Mutant) -> None:
        parts = mutant.path.relative_to(SOURCE).with_suffix("").parts
        self.name, self.mutant = ".".join(parts).removesuffix(".__init__"), mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        loader = Loader(fullname, str(self.mutant.path))
        loader.tree = self.mutant.tree
        return spec_from_file_location(fullname, self.mutant.path, loader=loader)


def run_tests(tests: str, mutant: Mutant, seconds: int) -> tuple[bool, float]:
    """Whether the tests pass in a fork of this process, and the processor time that they take."""
    child = os.fork()
    if child == 0:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        signal.alarm(60 * seconds)  # for a mutant that waits, and so uses no processor time
        mutant.apply()
        sys.meta_path.insert(0, Finder(mutant))
        import pytest

        skipped = " and ".join(f"not {name}" for name in SLOW)
        os._exit(pytest.main([*tests.split(), "-x", "-q", "-p", "no:cacheprovider", "-k", skipped]))
    _, status, used = os.wait4(child, 0)
    return status == 0, used.ru_utime + used.ru_stime


def try_target(target: str, sample: int, seed: int) -> None:
    """Test a sample of a target's mutants, and print the survivors and how many were killed."""
    pattern, tests = TARGETS[target]
    every = [mutant for path in sorted((SOURCE / "macs").glob(pattern)) for mutant in mutants(path)]
    count = min(sample or len(every), len(every))
    passed, seconds = run_tests(tests, every[0].unchanged(), 600)  # imported as mutants are
    if not passed:
        sys.exit(f"{tests} fails without a change; see to that first.")
    print(f"{target}: {count} of {len(every)} mutants, seed {seed}; their tests take {seconds:.1f} s", flush=True)
    killed = 0
    for position in sorted(random.Random(seed).sample(range(len(every)), count)):
        if run_tests(tests, every[position], 5 + int(3 * seconds))[0]:
            print(f"  survived  {every[position]}", flush=True)
        else:
            killed += 1
    print(f"{target}: {killed} of {count} killed", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts the changes of the code that no test notices.")
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; all if none is named")
    parser.add_argument("--sample", type=int, default=25, help="mutants per target; 0 tests all of them")
    parser.add_argument("--seed", type=int, default=0, help="which of them")
    options = parser.parse_args()
    os.chdir(ROOT)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # no plugin is needed, and some take a second to import
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # as tests/conftest.py does, before torch starts
    for name in WARM:
        importlib.import_module(name)
    importlib.import_module("torch").set_num_threads(1)  # a fork has only one of its parent's threads
    for target in options.targets or TARGETS:
        try_target(target, options.sample, options.seed)


if __name__ == "__main__":
    main()
