"""Every numeric option of every command, with every kind of number that is none, or that is too much."""

import pytest

from harness import Case, Outcome, case, check
from options import OPTIONS, WRITTEN, Option, varied, with_option

pytestmark = pytest.mark.hostile

NEVER = ["nan", "inf", "-inf", "1e999", "", "x", "0x10"]  # no option takes these
AT_TIMES = ["-1", "0", "99999999999999999999", "1.5", " 1", "1_000", "\N{ARABIC-INDIC DIGIT THREE}"]
NUMERIC = [option for option in OPTIONS if option.kinds & {int, float} and option.name != "--options"]

# Most calls stop at data that are not there, after the numbers were read; the value alone decides in the others.
STOP = {
    "calibrate": ("--images", "nowhere.npy"),
    "evaluate": ("--ood", "nowhere.npy"),
    "finetune": ("--id", "nowhere/"),
    "pretrain": ("--id", "nowhere/"),
    "sweep": ("--id", "nowhere/"),
}


def early(option: Option, value: str) -> Case:
    words = option.given(value)
    if option.command in STOP:
        name, nowhere = STOP[option.command]
        words = with_option(words, name, nowhere)
    codes = 2 if value in NEVER or option.command != "predict" else (0, 2)
    return case(*words, codes=codes, name=f"{option.command} {option.name} {value!r}")


# Options whose values reach arithmetic, with real images.
DEEP = {
    "evaluate run --ood unknown": {
        "--trials": ["-1", "0"],
        "--share": ["-1", "0", "1.5", "nan", "1e-300"],
        "--seed": ["-1", "99999999999999999999"],
        "--fit-images": ["-1", "99999999999999999999"],
        "--size": ["-1", "0", "1", "99999999999999999999", "1000000"],
    },
    "calibrate run --out new.safetensors": {
        "--keep": ["-1", "0", "1", "1.5", "nan", "1e-300", "0.9999999999999999"],
        "--check": ["-1", "1", "nan", "1e-300", "0.9999999999999999"],
        "--size": ["-1", "0", "1", "99999999999999999999", "1000000"],
    },
    "predict good.png --detector detector.safetensors": {"--threshold": ["nan", "inf", "1e999", "1e300", "-1e300"]},
    "finetune --id mine --outliers outliers.npy --net wrn-10-1 --size 16 --epochs 1 --batch-in 16 --run new": {
        "--batch-in": ["99999999999999999999"],
        "--batch-out": ["0", "-1", "99999999999999999999"],
        "--epoch-size": ["-1", "1"],
        "--lr": ["inf", "nan", "1e300", "-1"],
        "--final-lr": ["inf", "1e300"],
        "--momentum": ["inf", "1e300"],
        "--weight-decay": ["inf", "1e300"],
        "--margin": ["nan", "1"],
        "--dropout": ["1", "0.9999999999999999"],
        "--seed": ["-1", "99999999999999999999"],
        "--size": ["1", "99999999999999999999", "1000000"],
        "--options.weight": ["nan", "inf", "1e300", "x"],
    },
}


def deep(line: str, option: str, value: str) -> Case:
    words = with_option(line.split(), option, value)
    codes = 2 if value in NEVER or value in ("-1", "1e300") else (0, 2)
    codes = (0, 2) if option == "--threshold" and value not in NEVER else codes
    return case(*words, codes=codes, changed=WRITTEN, name=f"{words[0]} for real {option} {value!r}")


CASES = [early(option, value) for option, value in varied(NUMERIC, NEVER + AT_TIMES, 2)]
CASES += [deep(*line) for line in [(w, o, v) for w, options in DEEP.items() for o, vs in options.items() for v in vs]]


def test_a_number_is_right_or_gets_one_sentence(case: Case, outcome: Outcome) -> None:
    check(outcome, case)
