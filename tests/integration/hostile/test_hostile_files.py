"""Files that are not what their names say: arrays, pictures, checkpoints, states, recipes."""

import re

import pytest

import spoiled
from harness import Call, Case, Outcome, Workshop, case, check
from macs.training.spec import TrainingOptions
from options import WRITTEN

pytestmark = pytest.mark.hostile

RESUME = "finetune --id mine --size 16 --net wrn-10-1 --batch-in 16 --lr 0.01 --outliers outliers.npy --batch-out 16"
RESUME += " --epochs 2 --run new --resume"  # the options of the interrupted run


def made(script: str, pattern: str) -> list[str]:
    """The names of the files that a script makes, where they are keys of its tables."""
    return [f"bad/{name}" for name in re.findall(pattern, script, re.MULTILINE)]


KEYS = r'^    "([\w-]+)": '
ARRAYS = [f"{name}.npy" for name in made(spoiled.ARRAYS, KEYS)]
ARRAYS += [f"bad/{name}.npy" for name in ("objects", "zipped", "huge", "overflow", "negative", "random")]
ARRAYS += [
    f"bad/{name}.npy" for name in ("code", "nested", "empty", "list", "cut0", "cut5", "cut10", "cut60", "cut129")
]
PICTURES = made(spoiled.PICTURES, r'"bad/([\w.-]+\.(?:png|jpg|ppm|tiff))"')
CHECKPOINTS = [f"{name}.pt" for name in made(spoiled.CHECKPOINTS.split("Path(")[0], KEYS)]
CHECKPOINTS += made(spoiled.CHECKPOINTS, r'"bad/([\w-]+\.pt)"')
LABELS = [
    f"bad/label-{name}.safetensors" for name in re.findall(KEYS, spoiled.CHECKPOINTS.split("metadata in")[1], re.M)
]
# These may be taken, since every tensor fits.
HARMLESS = [
    "bad/half.pt",
    "bad/prefix.pt",
    "bad/integers.pt",
    "bad/bools.pt",
    "bad/expanded.pt",
    "bad/label-classes.safetensors",
]
RECORDS = ("net", "optimizer", "method", "history")
STATES = [f"bad/state-no-{key}.pt" for key in RECORDS]
STATES += [f"bad/state-{key}-{k}.pt" for key in RECORDS for k in ("none", "number", "text", "list", "dict", "empty")]
STATES += ["bad/state-net-nan.pt", "bad/state-history-long.pt", "bad/state-history-more.pt", "bad/state-net-other.pt"]
STATES += [
    "bad/random.pt",
    "bad/empty.pt",
    "bad/trap.pt",
    "bad/pickle.pt",
    "bad/number.pt",
    "bad/none.pt",
    "bad/nothing.pt",
    "bad/swelling.pt",
    "bad/bomb.pt",
]

EVALUATE = ("evaluate", "--net", "wrn-10-1", "--id", "mine", "--size", "16", "--ood", "unknown", "--checkpoint")
CASES = [case("evaluate", "run", "--ood", name) for name in ARRAYS]
CASES += [
    case("predict", name, "--detector", "detector.safetensors", codes=1) for name in ARRAYS if "oblong" not in name
]
CASES += [case("predict", name, "--detector", "detector.safetensors", codes=(0, 1)) for name in PICTURES]
CASES += [case(*EVALUATE, name, codes=(0, 2) if name in HARMLESS else 2, name=name) for name in CHECKPOINTS + LABELS]


def resumed(state: str) -> Case:
    """The interrupted run with another state."""
    files = {f"new/{name}": f"interrupted/{name}" for name in ("recipe.toml", "metrics.jsonl")}
    may_be_taken = state in ("bad/state-history-empty.pt", "bad/state-method-empty.pt")
    codes = 0 if state == "interrupted/state.pt" else (0, 2) if may_be_taken else 2
    return case(
        *RESUME.split(),
        codes=codes,
        changed=WRITTEN,
        files={**files, "new/state.pt": state},
        name=f"resumed from {state}",
    )


CASES += [resumed(state) for state in ["interrupted/state.pt", *STATES]]
RUN = {"hurt/recipe.toml": "run/recipe.toml", "hurt/net.safetensors": "run/net.safetensors"}
REPORT = ("report", "hurt", "--ood", "unknown", "--out", "new.html")
METRICS = [b"", b"x", b"{}\n", b"[]\n", b"null\n", b'{"epoch": "x"}\n', b"\xff\xfe", b"[" * 50_000, b'{"epoch": NaN']
CASES += [
    case(
        *REPORT,
        codes=(0, 2),
        changed="new.html",
        files={**RUN, "hurt/metrics.jsonl": text},
        name=f"metrics {text[:9]!r}",
    )
    for text in METRICS
]

WRONG = [
    "'x'",
    "5",
    "-1",
    "1.5",
    "true",
    "[]",
    "{}",
    "inf",
    "nan",
    "1" + "0" * 5000,
    "1e400",
    "1979-05-27",
    "''",
    "[[[]]]",
]
TEXTS = {
    "binary": b"\x00\xff\x00",
    "latin-1": "id = 'caf\xe9'".encode("latin-1"),
    "a BOM": b"\xef\xbb\xbfepochs = 1\n",
    "utf-16": "epochs = 1".encode("utf-16"),
    "deep": b"options = " + b"[" * 50_000 + b"]" * 50_000,
    "deep keys": b".".join([b"options"] * 10_000) + b" = 1",
    "twice": b"epochs = 1\nepochs = 2\n",
    "unknown": b"epoch = 1\n",
    "a table": b"[training]\nepochs = 1\n",
    "json": b'{"epochs": 1}',
    "a newline in a key": b'"new\\nline" = 1\n',
    "steering": b'"\\u001b[2J" = 1\n',
}
PRETRAIN = ("pretrain", "--id", "nowhere/", "--recipe", "hurt.toml")
CASES += [
    case(*PRETRAIN, files={"hurt.toml": f"{name} = {value}\n".encode()}, name=f"recipe {name} = {value[:20]}")
    for i, name in enumerate(TrainingOptions().flat())
    for value in (WRONG[i % 4 :: 4] if i else WRONG)
]
CASES += [case(*PRETRAIN, files={"hurt.toml": text}, name=f"a recipe with {name}") for name, text in TEXTS.items()]
RECIPES = {**TEXTS, "empty": b"", "of another size": b"net = 'wrn-10-1'\nid = 'mine'\nsize = 999999999999\n"}
CASES += [
    case(
        "evaluate", "hurt", "--ood", "unknown", files={**RUN, "hurt/recipe.toml": text}, name=f"a run's recipe: {name}"
    )
    for name, text in RECIPES.items()
]


def test_a_spoiled_file_gets_one_sentence(case: Case, outcome: Outcome) -> None:
    check(outcome, case)


@pytest.mark.parametrize("name", ["trap", "pickle", "protocol0", "zip"])
def test_the_traps_are_sharp(workshop: Workshop, name: str) -> None:
    """Without this, a trap that cannot go off would prove nothing."""
    if name == "zip":
        line = "pickle.loads(zipfile.ZipFile('bad/zip.pt').read('archive/data.pkl'))"
    elif name == "trap":
        line = "torch.load('bad/trap.pt', weights_only=False)"
    else:
        line = f"pickle.loads(Path('bad/{name}.pt').read_bytes())"
    assert workshop.run(Call(python=line)).changed == {"pwned": "new"}
