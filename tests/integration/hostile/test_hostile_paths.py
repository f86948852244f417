"""Every option that names a file or a folder to read, with everything that a path may lead to."""

import pytest

from harness import Case, Outcome, case, check
from options import OPTIONS, WRITTEN, Option, varied

pytestmark = pytest.mark.hostile

LONG = "x" * 5000
NOWHERE = ["", "nowhere.npy", "~nouser/x", LONG, "nul\0.npy", "dangling", "loop", "file.txt/below"]
NO_FILES = ["fifo", "fifo.npy", "socket", "/dev/zero", "/dev/stdin", "/proc/self/mem"]
OTHERS = ["locked", "locked.npy", "locked/good.png", "file.txt", "into-itself", "names/new\nline.png", "\udcff\x1b[2J"]
VALUES = NOWHERE + NO_FILES + OTHERS

READ = ["--checkpoint", "--detector", "--id", "--images", "--ood", "--outliers", "--recipe", "--val-outliers", "--data"]
READ += ["RUN", "DETECTOR", "PATHS"]
FEW = 2


def path_case(option: Option, value: str) -> Case:
    words = option.given(value)
    codes: tuple[int, ...] = (2,)
    if option.name in ("--data", "--ood", "--outliers", "--val-outliers", "--id", "--images"):
        codes = (0, 2)  # a folder of images is one, whatever its name, and a data root may be empty
    elif option.name == "PATHS":
        codes = (0, 1, 2)  # what cannot be read gets a row
    name = f"{option.command} {option.name} {value[:40]!r}"
    return case(*words, codes=codes, changed=WRITTEN, name=name)


READING = [option for option in OPTIONS if option.name in READ]
CASES = [path_case(option, value) for option, value in varied(READING, VALUES, FEW)]
CASES += [
    case("predict", "good.png", "--detector", "/dev/stdin", codes=codes, stdin=source, name=f"a detector from {source}")
    for source, codes in (("fifo", (2,)), ("detector.safetensors", (0, 2)), ("good.png", (2,)))
]
CASES += [
    case("predict", value, "--detector", "detector.safetensors", codes=(1, 2), name=f"predict {value!r}")
    for value in ("*", "**", "[", "[!", "locked/*", "**/nothing", "mine/**/*.pn[", "fifo*", "?" * 3000, "~nouser/*")
]
CASES += [
    case(
        "predict", "good.png", *rest, codes=codes, environment={"MACS_DATA": root, "HOME": root}, name=f"HOME={root!r}"
    )
    for root in ("", "loop", "file.txt", "locked", LONG)
    for rest, codes in ((["--detector", "detector.safetensors"], 0), (["--detector", "~/d.safetensors"], 2))
]
CASES += [
    case("data", "list", codes=(0, 2), environment={"MACS_DATA": root}, name=f"MACS_DATA={root[:20]!r}")
    for root in ("", "loop", "file.txt", "locked", "fifo", LONG, "~nouser", "/proc/self/mem")
]


def test_a_path_is_read_or_gets_one_sentence(case: Case, outcome: Outcome) -> None:
    check(outcome, case)
