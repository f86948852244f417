"""The start: from a folder of class folders to a calibrated detector, its report and what to do next.

It is a list of single commands, made from the number of photographs and from what is installed, which `macs quickstart`
prints and runs one after the other. Nothing is done here that these commands do not do.
"""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from macs.core.errors import MacsError
from macs.core.files import input_folder, is_run
from macs.data.image_files import folders_in, walk_names
from macs.data.loading import HELD_OUT, VALIDATION, Place
from macs.data.preparation import SUFFIXES
from macs.detector.calibration import images_needed, share_to_keep

NET = "timm/tf_efficientnet_lite0"  # small, quick on a CPU, and its weights are Apache-2.0
PRETRAINED = "pretrained"
CHECK = 0.2  # the share of the validation photographs on which the promise is checked
# The score, by the number of photographs to calibrate on, of which the first two hold out a quarter. On fewer than 100
# held-out photographs, `auto` could not show that two scores are equivalent; docs/choosing.md says what the others are
# worth.
SCORES = ((400, "auto"), (80, "gen+knn"), (0, "knn"))
NEIGHBOURS = 50  # of knn by default; with more than a class has, it ranks images worse
FEW = 10  # training photographs of a class below which a word of caution is due
NO_UNKNOWN_MEASURED = (
    "No unknown photographs are given, so the report measures on pictures that come with scikit-image; name yours with "
    "--unknown."
)
NO_UNKNOWN = (
    "There is no report, since no unknown photographs are given; name some with --unknown, or install pictures to "
    "measure on: pip install 'macs-ood[demo]'."
)
EMBEDDED = ("digits-textures", "digits-faces")  # unknown pictures that come with scikit-image


@dataclass(frozen=True)
class Command:
    """One of the commands that the quickstart stands for, and what it is for."""

    purpose: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return "macs " + shlex.join(self.words)


@dataclass(frozen=True)
class Plan:
    """The commands to run, what is worth saying before, and the commands to go on with."""

    commands: tuple[Command, ...]
    remarks: tuple[str, ...]
    next: tuple[Command, ...]


@dataclass(frozen=True)
class Photographs:
    """What a folder holds: its classes, and the number of photographs that train, validate and test."""

    classes: int
    fewest: int  # photographs of the class that has the fewest, for training
    train: int
    val: int
    test: int


def plan(
    folder: str | Path,
    *,
    outliers: str | None = None,
    unknown: Sequence[str] = (),
    net: str = NET,
    checkpoint: str = PRETRAINED,
    keep: float = 0.95,
    out: str | Path = "runs/quickstart",
) -> Plan:
    """Decide on the commands for a folder; an error says what it lacks.

    Parameters
    ----------
    folder
        One folder of photographs per class, or train, val and test folders of these.
    outliers
        Photographs that show none of the classes, to train with.
    unknown
        Other such photographs, to measure with.
    net, checkpoint
        The network to start from, and its weights.
    keep
        Share of new photographs of the classes that the detector is to keep.
    out
        Folder for the run, the detector and the report.

    Returns
    -------
    Plan
        The commands, remarks, and what to do next.

    Examples
    --------
    >>> from macs.quickstart import plan
    >>> steps = plan("photos/known", net="timm/resnet50", checkpoint="resnet50.safetensors")
    >>> [command.words[0] for command in steps.commands]
    ['finetune', 'calibrate', 'report']
    """
    share_to_keep(keep)
    found = photographs_in(Path(folder))
    require_start(net, checkpoint)
    run, detector, report = (str(Path(out) / name) for name in ("run", "detector.safetensors", "report.html"))
    measured = (list(unknown) or embedded()) if found.test else []
    if Path(report if measured else detector).exists():
        raise MacsError(
            f"{out} holds the results of an earlier quickstart, which are never overwritten; name another --out."
        )
    remarks = [
        f"{folder} holds {found.classes} classes: {found.train} photographs to train on, {found.val} to "
        f"calibrate on, {found.test} to test on."
    ]
    if found.val < images_needed(keep):
        raise MacsError(too_few(folder, found, keep))
    unchecked = found.val - round(CHECK * found.val)
    check = CHECK if 0.75 * unchecked >= images_needed(keep) else 0.0
    score = next(score for least, score in SCORES if (unchecked if check else found.val) >= least)
    if score != "knn" and 0.75 * found.val < images_needed(keep):
        score = "knn"  # with a quarter held out, too few photographs would be left to calibrate on
    settings: tuple[str, ...] = ()
    if "knn" in score and (neighbours := max(1, found.train // found.classes)) < NEIGHBOURS:
        settings = ("--score.k", str(neighbours))
    if not check:
        remarks.append("There are too few photographs to hold some back and check the promise on them.")
    if found.fewest < FEW:
        remarks.append(
            f"The smallest class has {found.fewest} photographs to train on; a class of fewer than {FEW} is often "
            "confused with others."
        )
    id = str(folder)
    again = ["--resume"] if is_run(Path(run)) else []  # an interrupted quickstart continues
    method = ["--outliers", str(outliers), "--method", "auto"] if outliers else ["--method", "msp"]
    start = ["--net", net, "--checkpoint", checkpoint]
    commands = [
        Command(
            "Train the last layer of the network" + (" with the outliers" if outliers else ""),
            ("finetune", "--id", id, *start, *method, "--freeze", "backbone", "--run", run, *again),
        ),
        Command(
            "Choose a score and a threshold" if score == "auto" else "Find the threshold",
            (
                *("calibrate", run, "--keep", f"{keep:g}", *(["--check", f"{check:g}"] if check else [])),
                *("--score", score, *settings, "--out", detector),
            ),
        ),
    ]
    if measured:
        on = ("--id", id, "--ood", *measured)
        commands.append(
            Command("Measure it and write the report", ("report", "--detector", detector, *on, "--out", report))
        )
    if not unknown:
        remarks.append(NO_UNKNOWN_MEASURED if measured else NO_UNKNOWN)
    onnx = str(Path(out) / "detector.onnx")
    following = (
        Command("judge photographs", ("predict", "PHOTOGRAPHS", "--detector", detector)),
        Command("make a file that needs no torch", ("export", detector, onnx)),
        Command("answer over HTTP", ("serve", onnx)),
        Command("publish it", ("push", detector, "ORG/NAME")),
    )
    return Plan(tuple(commands), tuple(remarks), following)


def require_start(net: str, checkpoint: str) -> None:
    """Raise if the weights to start from cannot be had, and say how to get them."""
    library = net.partition("/")[0] if "/" in net else ""
    package = {"timm": "timm", "torchvision": "torchvision", "hf": "transformers"}.get(library)
    if package is not None and find_spec(package) is None:
        raise MacsError(
            f"The quickstart starts from a pretrained network, here {net}, which needs {package}: "
            f"pip install 'macs-ood[{library}]', or name another with --net and --checkpoint."
        )
    if not library and checkpoint == PRETRAINED:
        raise MacsError(f"{net} has no published weights; name a file with --checkpoint.")


def photographs_in(folder: Path) -> Photographs:
    """Count the photographs of a folder, without reading them; raise if it is not one of class folders."""
    folder = input_folder(folder)
    place = Place(folder)
    parts = {split: folder / split for split in place.splits} or {"": folder}
    if "" not in parts and "train" not in parts:
        raise MacsError(f"{folder} is divided into {', '.join(parts)} but has no train; add it, or name one folder.")
    counted = {split: {name: count(part / name) for name in folders_in(part)} for split, part in parts.items()}
    first = parts.get("train", folder)
    classes = counted.get("train", counted.get("", {}))
    if not sum(classes.values()):
        if count(first):
            raise MacsError(
                f"{folder} holds photographs but no folders; put the photographs of each class into a folder "
                f"with its name, for example {folder / 'daisy'} and {folder / 'rose'}."
            )
        raise MacsError(
            f"{folder} holds no photographs ({', '.join(SUFFIXES)}); name a folder that has one folder of photographs "
            "per class."
        )
    if len(classes) == 1:
        (name,) = classes
        raise MacsError(
            f"{folder} holds one class, {name}, but a classifier tells at least two apart; add a folder of photographs "
            "of another class."
        )
    if empty := [name for name, number in classes.items() if not number]:
        raise MacsError(f"The class folder {first / empty[0]} holds no photographs; add some, or move it away.")
    sums = {split: sum(numbers.values()) for split, numbers in counted.items()}
    fewest = min(classes.values())
    if "" not in sums:
        val = sums.get("val", sums.get("test", 0))
        return Photographs(len(classes), fewest, sums["train"], val, sums.get("test", 0))
    held = round(HELD_OUT * sums[""])
    val = round(VALIDATION * held)
    return Photographs(len(classes), round((1 - HELD_OUT) * fewest), sums[""] - held, val, held - val)


def count(folder: Path) -> int:
    return sum(not trouble for _, trouble in walk_names(folder))


def too_few(folder: str | Path, found: Photographs, keep: float) -> str:
    """Return why a folder is too small for a threshold, and how many photographs it takes."""
    needed = images_needed(keep)
    if Place(folder).splits:
        return (
            f"To keep {keep:g} of new photographs takes at least {needed} in {folder}/val, but there are {found.val}; "
            "add some, or keep less with --keep."
        )
    whole = math.ceil(needed / (HELD_OUT * VALIDATION) - 1e-9)
    have = found.train + found.val + found.test
    return (
        f"{folder} holds {have} photographs, which is too few: a fifth of them calibrates the threshold, and to keep "
        f"{keep:g} of new ones takes {needed} of these; add photographs until there are {whole}, or keep less with "
        "--keep."
    )


def embedded() -> list[str]:
    """Return the sets of unknown pictures that come with packages, if these are installed."""
    return list(EMBEDDED) if find_spec("skimage") and find_spec("sklearn") else []
