"""A hash of the code that computes a method's loss, so that a changed loss makes new cells, but only for its methods.

It covers the method's module and the functions of `macs.losses` and `macs.methods` that the module uses, directly or
through others. Comments, docstrings and layout do not count.
"""

import ast
import importlib
import inspect
from functools import cache
from types import ModuleType

from macs.data.fingerprint import short_hash

FOLLOWED = ("macs.losses", "macs.methods")
INTERFACE = ("Batch", "Method", "Step", "method")  # how the training loop calls a method: no part of its loss


@cache
def loss_code(method: str) -> str:
    """The hash for a method by its name; empty for the classifier as it is."""
    if not method:
        return ""
    from macs import methods

    module = importlib.import_module(methods.method[method].__module__)
    tree = _tree(module)
    parts = {f"{module.__name__}": ast.dump(tree)}
    _follow(tree, module, parts)
    return short_hash(*(f"{name}\n{code}\n".encode() for name, code in sorted(parts.items())))


def _follow(code: ast.AST, module: ModuleType, parts: dict[str, str]) -> None:
    """Add the definitions that this code uses from the modules that are followed."""
    names = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
    for name in sorted(names):
        value = getattr(module, name, None)
        home = getattr(value, "__module__", None) or ""
        if name in INTERFACE or not home.startswith(FOLLOWED):
            continue
        where = f"{home}.{getattr(value, '__name__', name)}"
        owner = importlib.import_module(home)
        definition = _definition(_tree(owner), getattr(value, "__name__", name))
        if definition is not None and where not in parts:
            parts[where] = ast.dump(definition)
            _follow(definition, owner, parts)


def _definition(tree: ast.Module, name: str) -> ast.AST | None:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return next((node for node in tree.body if isinstance(node, kinds) and node.name == name), None)


def _tree(module: ModuleType) -> ast.Module:
    """The module's code without docstrings."""
    tree = ast.parse(inspect.getsource(module))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree
