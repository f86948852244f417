"""Command lines that nobody would type, and some that many do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import EVERY_CASE, Call, Case, Outcome, Workshop, case, check
from options import GOOD, OPTIONS, WRITTEN

pytestmark = pytest.mark.hostile

LONG = "x" * 100_000
CASES = [
    case(*line, name=" ".join(line)) for line in (["evaluat"], ["-"], ["--"], ["--x"], ["-x"], [""], [" "], ["\0"])
]
CASES += [
    case(*line, name=" ".join(line)[:60])
    for line in (
        ["data", "lis"],
        ["data", "get"],
        ["data", "get", "cifar11"],
        ["data", "get", "cifar10", "--mirror", "x"],
        ["data", "get", "cifar10", "--mirror", "file:///nowhere"],
        ["data", "get", "cifar10", "--mirror", "ftp://x"],
        ["data", "get", "cifar10", "--mirror", "http://"],
        ["data", "get", "cifar10", "--mirror", "file:///proc/self"],
        ["data", "get", ""],
        ["calibrate", "", "--out", "x.safetensors"],  # the current folder may be a run
        ["calibrate", "run", "--out="],
        ["data", "check", "cifar11"],
        ["data", "check", "../x"],
        ["evaluate"],
        ["evaluate", "run"],
        ["evaluate", "run", "--ood"],
        ["evaluate", "run", "run", "--ood", "unknown"],
        ["evaluate", "run", "--ood", "unknown", "--score", "mps"],
        ["evaluate", "run", "--ood", "unknown", "--score", ""],
        ["evaluate", "run", "--ood", "unknown", "--precision", "float16"],
        ["evaluate", "run", "--ood", "unknown", "--fpr-rule", "last"],
        ["evaluate", "--", "run", "--ood", "unknown"],
        ["evaluate", "run", "--ood=unknown", "--no-json"],
        ["evaluate", "run", "--ood", "unknown", "--margin", "0.5"],
        ["calibrate"],
        ["calibrate", "run"],
        ["calibrate", "run", "--out", "new.safetensors", "--split", "train"],
        ["calibrate", "run", "--out", "new.safetensors", "--classes", "one"],
        ["calibrate", "run", "--out", "new.safetensors", "--score", "odin"],
        ["calibrate", "interrupted", "--out", "new.safetensors"],
        ["calibrate", "mine", "--out", "new.safetensors"],
        ["export"],
        ["export", "detector.safetensors"],
        ["export", "detector.safetensors", "new.onnx", "more.onnx"],
        ["export", "detector.safetensors", "new.onnx", "--int8"],
        ["export", "detector.safetensors", "new.onnx", "--images", "mine"],
        ["predict"],
        ["predict", "good.png"],
        ["predict", "--detector", "detector.safetensors"],
        ["predict", "good.png", "--detector", "detector.safetensors", "--format", "xml"],
        ["predict", "good.png", "--detector", "detector.safetensors", "--format", "parquet"],
        ["predict", "good.png", "--detector", "detector.safetensors", "--net", "nowhere:Net"],
        ["predict", "good.png", "--detector", "detector.safetensors", "--net", ":"],
        ["predict", "good.png", "--detector", "detector.safetensors", "--net", "own:"],
        ["predict", "good.png", "--detector", "detector.safetensors", "--net", "..:x"],
        ["predict", "good.png", "--detector", "detector.safetensors", "--net", "own:torch"],
        ["report"],
        ["report", "interrupted", "--ood", "unknown"],
        ["report", "run", "run", "--ood", "unknown"],
        ["reproduce", "table0"],
        ["reproduce"],
        ["reproduce", "table1", "--ids", "mnist"],
        ["reproduce", "table1", "--nets", "vgg"],
        ["reproduce", "table1", "--scale", "huge"],
        ["finetune", "--resume", "--run", "nowhere/"],
        ["finetune", "--json", "x"],
        ["finetune", "--options.", "x"],
        ["finetune", "--options.weight"],
        ["finetune", "--options", "x"],
        ["finetune", "--id", "mine", "--outliers", "outliers.npy", "--options.wieght", "1"],
        ["finetune", "--id", "mine", "--outliers", "outliers.npy", "--method", "macs:"],
        ["finetune", "--id", "mine", "--outliers", "outliers.npy", "--method", "../x"],
        ["finetune", "--id", "mine", "--outliers", "outliers.npy", "--net", "wrn-11-1"],
        ["finetune", "--id", "mine", "--outliers", "outliers.npy", "--net", "wrn-10-0"],
        ["finetune", "--id", "mine", "--outliers", "outliers.npy", "--net", f"wrn-10-{9**20}"],
        ["finetune", "--id", "mine", "--outliers", "outliers.npy", "--net", f"wrn-{'9' * 5000}-1"],
        ["finetune", "--id", "mine", "--outliers", "outliers.npy", "--net", "wrn-10-\N{SUPERSCRIPT TWO}"],
        ["finetune", "--id", "mine", "--outliers", "outliers.npy", "--net", ""],
        ["finetune", "--id", "mine", "--outliers", "outliers.npy", "--net", "wrn"],
        ["finetune", "--id", "mine", "--outliers", "outliers.npy", "--net", "wrn-10-1-1"],
        ["pretrain", "--method", "macs"],
        ["sweep", "--margin", "0.5"],
        ["sweep", "--id", "mine", "--outliers", "outliers.npy", "--margins", "1", "2"],
        ["sweep", "--id", "mine", "--outliers", "outliers.npy", "--choose", "test"],
        ["demo", "x"],
        ["demo", "--data", "x"],
    )
]
CASES += [case(command, LONG, name=f"{command} with a long argument") for command in ("evaluate", "data", "demo")]
CASES += [case(LONG, name="a long command"), case(f"--{LONG}", name="a long option"), case(*["x"] * 5000, name="many")]
CASES += [
    case(
        *line.split(),
        "--lr" if line.split()[0] not in ("finetune", "pretrain", "sweep", "reproduce") else "--keep",
        "1",
    )
    for command, line in GOOD.items()
    if command != "demo"
]
TWICE = [(option, value) for option in OPTIONS for value in ("1",) if option.kinds <= {int, float} and option.kinds]
CASES += [
    case(
        *GOOD[option.command].split(),
        option.name,
        "x",
        option.name,
        value,
        name=f"{option.command} {option.name} twice",
    )
    for option, value in TWICE[::3]
]
CASES += [case(*command.split(), "--help", codes=0, name=f"{command} --help") for command in [*GOOD, "", "data"]]
# What the other cases are spoiled versions of is in order.
# These have no cheap line that is in order.
NOT_FINE = ("data get", "demo", "export", "push", "quickstart", "reproduce", "serve")
FINE = [command for command in GOOD if command not in NOT_FINE]
CASES += [case(*GOOD[command].split(), codes=0, changed=WRITTEN, name=f"a good {command}") for command in FINE]
CASES += [case(*line, codes=0, name=f"help for {line}") for line in ([], ["data"])]

NAMES = sorted({option.name for option in OPTIONS if option.name.startswith("--")})
WORDS = [
    "x",
    "",
    "-1",
    "1e999",
    "--",
    "-",
    "run",
    "mine",
    "good.png",
    "unknown",
    "outliers.npy",
    "file.txt",
    "fifo",
    "loop",
]
WORDS += [
    "=",
    "--=",
    "--json=",
    "--json=maybe",
    "--no-json",
    "-h",
    "--help",
    "--version",
    "*",
    "[",
    "{}",
    "$HOME",
    "\x1b[0m",
]
WORDS += ["detector.safetensors", "new.onnx", "\N{SNOWMAN}", "\udcff"]
LENGTHY = ("demo", "reproduce", "finetune", "pretrain", "sweep")  # commands that may train, if by chance all is right
MAY_WORK = {command.split()[0] for command in GOOD}.difference(LENGTHY, ["serve"])  # no word is a file to serve
PIECES = st.sampled_from([*NAMES, *WORDS]) | st.text(max_size=8)
LINES = st.tuples(st.sampled_from([*GOOD, *WORDS]), st.lists(PIECES, max_size=6))


def line(command: str, rest: list[str]) -> Call:
    poison = ["--lr", "x", "--out", "file.txt/below"] if command in LENGTHY else []
    return Call((*command.split(), *poison, *rest))


@settings(max_examples=250 if EVERY_CASE else 25, derandomize=True, database=None, deadline=None)
@given(first=LINES, second=LINES)
def test_random_words_get_one_sentence_at_most(
    workshop: Workshop, first: tuple[str, list[str]], second: tuple[str, list[str]]
) -> None:
    for outcome in workshop.run_all([line(*first), line(*second)]):
        words = outcome.call.arguments
        helps = not words or not {"--help", "-h", "--version"}.isdisjoint(words)  # `macs` alone shows its help
        allowed = (0, 1, 2) if helps or words[0] in MAY_WORK else (2,)
        check(outcome, Case(outcome.call, allowed, ("new*",)))


def test_a_command_line_is_understood_or_gets_one_sentence(case: Case, outcome: Outcome) -> None:
    check(outcome, case)
