"""Networks, methods and scores of one's own that fail in every way that code can."""

import pytest

from harness import Case, Outcome, case, check
from options import TRAINING, WRITTEN

pytestmark = pytest.mark.hostile

HEAD = """
import sys
import torch
from torch import nn
from macs.methods import Method
from macs.scores import Score
from dataclasses import dataclass

class Odd(BaseException):
    pass

"""
NETWORK = """
class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.fc = nn.Linear(3 * 16 * 16, classes)
        {init}

    def forward(self, x):
        logits = self.fc(x.flatten(1))
        {forward}
"""
ON_IMPORT = {
    "a syntax error": "def",
    "an exception": "raise ValueError('on import')",
    "an error of another kind": "import nowhere",
    "an exit": "sys.exit(0)",
    "an exit with a text": "sys.exit('bye')",
    "a BaseException": "raise Odd",
    "a stop": "raise StopIteration",
    "recursion": "def f(): f()\nf()",
    "a failing print": "print('\\udcff')",
    "tabs and spaces": "if True:\n\tx = 1\n        y = 2",
    "a NUL": "x = '\0'",
    "no such name": "x = 1",
    "a number": "Net = 5",
    "a function": "def Net(classes): return None",
    "a class that is no network": "class Net: pass",
    "more arguments": "class Net(nn.Module):\n    def __init__(self, classes, depth): pass",
    "no arguments": "class Net(nn.Module):\n    def __init__(self): pass",
    "no super().__init__": "class Net(nn.Module):\n    def __init__(self, classes): self.fc = nn.Linear(1, 1)",
    "a property that fails": "class Net(nn.Module):\n    parameters = property(lambda self: 1 / 0)",
}
STATEMENTS = {
    "raises": "raise ValueError('own')",
    "raises without a word": "raise ValueError",
    "raises over lines": "raise ValueError('one\\ntwo')",
    "exits": "sys.exit(0)",
    "exits with 3": "sys.exit(3)",
    "raises a BaseException": "raise Odd('own')",
    "raises GeneratorExit": "raise GeneratorExit",
    "raises StopIteration": "raise StopIteration",
    "raises AssertionError": "assert False",
    "raises KeyError": "{}['x']",
    "raises MemoryError": "raise MemoryError",
    "recurses": "self.forward = self.forward(self)",
}
RETURNS = {
    "a tuple": "return logits, logits",
    "a dict": "return {'logits': logits}",
    "None": "return None",
    "a number": "return 5",
    "an array": "return logits.detach().numpy()",
    "a vector": "return logits[:, 0]",
    "a map": "return logits[:, :, None, None]",
    "one row": "return logits[:1].expand(7, -1)",
    "one class": "return logits[:, :1]",
    "no class": "return logits[:, :0]",
    "nan": "return logits * float('nan')",
    "infinity": "return logits + float('inf')",
    "whole numbers": "return logits.long()",
    "complex numbers": "return logits.to(torch.complex64)",
    "a meta tensor": "return logits.to('meta')",
    "a sparse tensor": "return logits.to_sparse()",
}
METHOD = """
@dataclass(frozen=True)
class Mine(Method):
    def loss(self, logits_in, labels, logits_out):
        {loss}
"""
LOSSES = {
    **{what: statement for what, statement in STATEMENTS.items() if what != "recurses"},
    "returns None": "return None",
    "returns a number": "return 5.0",
    "returns a vector": "return logits_in.sum(1)",
    "returns nan": "return logits_in.sum() * float('nan')",
    "returns no gradient": "return torch.zeros(())",
    "returns a text": "return 'x'",
}
SCORE = """
class Mine(Score):
    def confidence(self, logits, features=None):
        {confidence}
"""
CONFIDENCES = {
    **{what: statement for what, statement in STATEMENTS.items() if what != "recurses"},
    "returns None": "return None",
    "returns a number": "return 5.0",
    "returns a matrix": "return logits",
    "returns too few": "return logits[:1, 0]",
    "returns nan": "return logits[:, 0] * float('nan')",
    "returns a text": "return 'x'",
}


def module(text: str) -> dict[str, bytes]:
    return {"hurt.py": (HEAD + text).encode("utf-8", "surrogatepass")}


PRETRAIN = [*f"pretrain {TRAINING}".replace("wrn-10-1", "hurt:Net").split(), "--run", "new"]
FINETUNE = [
    *f"finetune {TRAINING} --outliers outliers.npy --batch-out 16".split(),
    "--run",
    "new",
    "--method",
    "hurt:Mine",
]
EVALUATE = ["evaluate", "run", "--ood", "unknown", "--score", "hurt:Mine"]
BROKEN = [
    *((PRETRAIN, f"a module with {what}", text) for what, text in ON_IMPORT.items()),
    *(
        (PRETRAIN, f"__init__ {what}", NETWORK.format(init=text, forward="return logits"))
        for what, text in STATEMENTS.items()
    ),
    *((PRETRAIN, f"forward {what}", NETWORK.format(init="", forward=text)) for what, text in STATEMENTS.items()),
    *((PRETRAIN, f"forward returns {what}", NETWORK.format(init="", forward=text)) for what, text in RETURNS.items()),
    *((FINETUNE, f"a method that {what}", METHOD.format(loss=text)) for what, text in LOSSES.items()),
    *((EVALUATE, f"a score that {what}", SCORE.format(confidence=text)) for what, text in CONFIDENCES.items()),
    *((FINETUNE, f"a method: {text}", text) for text in ("Mine = 5", "class Mine: pass", "class Mine(Method): pass")),
    *((EVALUATE, f"a score: {text}", text) for text in ("Mine = 5", "class Mine: pass", "class Mine(Score): pass")),
]
CASES = [
    case(*line, changed=(*WRITTEN, "__pycache__", "__pycache__/*"), files=module(text), name=name)
    for line, name, text in BROKEN
]


def test_code_of_ones_own_that_fails_gets_one_sentence(case: Case, outcome: Outcome) -> None:
    check(outcome, case)
    assert "new/net.safetensors" not in outcome.changed
