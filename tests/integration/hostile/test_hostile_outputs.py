"""Every place that a result may be sent to: what is written is whole, and nothing else is touched."""

import pytest

from harness import Case, Outcome, case, check

pytestmark = pytest.mark.hostile

FILES = {
    "calibrate run --keep 0.8 --out": ".safetensors",
    "export detector.safetensors": ".onnx",
    "predict good.png --detector detector.safetensors --out": ".csv",
    "report run --ood unknown --out": ".html",
}
TRAINING = "--id mine --outliers outliers.npy --net wrn-10-1 --size 16 --epochs 1 --batch-in 16"
RUNS = [f"finetune {TRAINING} --run", "pretrain --id mine --net wrn-10-1 --size 16 --epochs 1 --batch-in 16 --run"]
COLLECTIONS = [f"sweep {TRAINING} --margins 0.1 --run", "demo --out"]  # folders of runs, beside which others may lie
HOPELESS = ["", "file.txt", "fifo", "/dev/null", "loop", "nul\0", "~nouser/x", "read-only/new", "run/state.pt"]
NEVER = ["", "file.txt/below{}", "read-only/new{}", "locked/new{}", "loop", "mine", ".", "/", "nul\0{}", "~nouser/x{}"]
NEVER += ["x" * 5000 + "{}", "y" * 300 + "{}", "/proc/new{}", "/dev/new{}", "/new{}"]
RUN_FILES = ["run/net.safetensors", "run/recipe.toml", "run/state.pt", "run/metrics.jsonl"]


def refused(command: str, ending: str, value: str) -> Case:
    where = value.format(ending)
    return case(*command.split(), where, name=f"{command.partition(' ')[0]} to {where[:30]!r}")


CASES = [refused(*command, value) for command in FILES.items() for value in NEVER + RUN_FILES]
CASES += [
    refused(command, "", value)
    for command in RUNS + COLLECTIONS
    for value in (dict.fromkeys([*HOPELESS, *NEVER]) if command in RUNS else HOPELESS)
]

PREDICT = ("predict", "good.png", "--detector", "detector.safetensors")
CASES += [
    case(*PREDICT, "--format", "csv", "--out", "/dev/null", codes=0, name="predict to /dev/null"),
    case(*PREDICT, "--format", "csv", "--out", "/dev/full", name="predict to /dev/full"),
    case(*PREDICT, "--format", "csv", "--out", "fifo", name="predict to a FIFO that nobody reads"),
    case(*PREDICT, "--format", "csv", "--out", "socket", name="predict to a socket"),
    case(*PREDICT, "--format", "parquet", "--out", "/dev/full", name="Parquet to /dev/full"),
    case(*PREDICT, "--out", "link.csv", codes=0, changed="target.csv", name="predict to what a link points at"),
    case(*PREDICT, "--out", "dangling", "--format", "csv", codes=0, changed="nothing-there", name="a dangling link"),
    case(*PREDICT, "--out", "a/b/c.csv", codes=0, changed=("a", "a/*"), name="folders that are not there yet"),
    case(*PREDICT, "--out", "byte\udcff.csv", codes=0, changed="byte\udcff.csv", name="a name that is not UTF-8"),
    case(*PREDICT, "--out", "new\nline.csv", codes=0, changed="new\nline.csv", name="a name with a newline"),
    case(*PREDICT, "--out", "out.xyz", name="an unknown ending"),
    case(*PREDICT, "--out", "good.png", "--format", "csv", name="predict over one of its own images"),
    case(*PREDICT, "--out", "detector.safetensors", "--format", "csv", name="predict over its own detector"),
    case("export", "detector.safetensors", "detector.safetensors", name="export over its own detector"),
    case("calibrate", "run", "--keep", "0.8", "--out", "file.txt", name="calibrate to a text file"),
]
CODES: dict[str, int | tuple[int, ...]] = {"closed": 2, "/dev/full": 2, "broken": (0, 141), "file": 0}
for out, codes in CODES.items():
    CASES += [
        case(*PREDICT, codes=codes, stdout=out, name=f"predict, standard output {out}"),
        case("data", "list", codes=codes, stdout=out, name=f"data list, standard output {out}"),
        case("data", "list", "--json", codes=codes, stdout=out, name=f"data list --json, standard output {out}"),
        case("--help", codes=codes, stdout=out, name=f"--help, standard output {out}"),
        case("--version", codes=codes, stdout=out, name=f"--version, standard output {out}"),
        case("evaluate", "run", "--ood", "unknown", codes=codes, stdout=out, name=f"evaluate, standard output {out}"),
        case("finetune", "--lr", "x", stdout=out, name=f"a mistake, standard output {out}"),
    ]
for encoding in ("ascii", "latin-1"):
    CASES += [
        case("evaluate", "run", "--ood", "unknown", codes=0, encoding=encoding, name=f"a table in {encoding}"),
        case(
            "predict",
            "names",
            "--detector",
            "detector.safetensors",
            codes=0,
            encoding=encoding,
            name=f"rows in {encoding}",
        ),
        case("--help", codes=0, encoding=encoding, name=f"--help in {encoding}"),
    ]


def test_a_result_is_written_whole_or_refused(case: Case, outcome: Outcome) -> None:
    check(outcome, case)
