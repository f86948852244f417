"""The commands, and the page of `macs --help`: it imports nothing heavy, since people wait for it."""

import shutil
from collections.abc import Mapping
from textwrap import fill

WIDEST = 100  # columns

ABOUT = """Equip an image classifier with out-of-distribution (OOD) detection.

Four commands make a detector from a classifier, with the datasets in $MACS_DATA:

    macs finetune --id cifar10 --outliers 300k --checkpoint classifier.pt --run runs/mine
    macs evaluate runs/mine --ood svhn textures places365
    macs calibrate runs/mine --out detector.safetensors
    macs predict photos/ --detector detector.safetensors

Every command takes `--help`; `--quiet`, which hides progress and messages; `--verbose`, which logs what was read,
which device and precision were chosen and why, and how long each stage took; and `--traceback`, which shows where
an error happened."""

COMMANDS = {  # in the order in which a user needs them; a command's file is imported when the command is called
    "Start": {
        "quickstart": (
            "quickstart:quickstart",
            "Make a detector from a folder of photographs, with one folder per class: train, calibrate, check, and "
            "report.",
        ),
        "demo": ("demo:demo", "Show the paper's idea on embedded images: no download, a minute on two cores."),
        "doctor": (
            "doctor:doctor",
            "Report what is installed, where networks run and why, which data is on disk, and how to get what is "
            "missing.",
        ),
    },
    "Data": {
        "data": ("data:commands", "List the datasets, check those on disk, and download others."),
    },
    "Train": {
        "pretrain": (
            "train:pretrain",
            "Train a classifier from scratch, without outliers: the baseline MSP, from which all methods start.",
        ),
        "finetune": ("train:finetune", "Fine-tune a classifier with its own images and auxiliary outliers."),
        "sweep": (
            "sweep:sweep",
            "Choose the margin of MaCS: fine-tune with each one from the same weights, and compare on held-out images.",
        ),
    },
    "Measure": {
        "evaluate": (
            "evaluate:evaluate",
            "Measure how well a classifier's confidence tells its own test images from unknown ones.",
        ),
        "report": (
            "report:report",
            "Write a report on what a network knows and does not know: one HTML page that opens in any browser.",
        ),
    },
    "Use": {
        "calibrate": (
            "calibrate:calibrate",
            "Turn a classifier into a detector: find the threshold that keeps a share of ID images.",
        ),
        "predict": (
            "predict:predict",
            "Decide for each image or row whether it is ID or OOD, with its most likely class, confidence and p-value.",
        ),
        "export": ("export:export", "Write a detector as one ONNX file that needs neither macs nor torch."),
        "inspect": (
            "inspect:inspect",
            "Show the content of a detector file, without torch and without running code from it.",
        ),
        "serve": (
            "serve:serve",
            "Serve a detector over HTTP, without torch: verdicts, metrics, and a web page to try it.",
        ),
        "push": (
            "push:push",
            "Publish a detector on the Hugging Face hub, with a model card; others then use it as hf://org/name.",
        ),
    },
    "Paper": {
        "reproduce": (
            "reproduce:reproduce",
            "Reproduce tables and figures of the paper, with the paper's numbers beside ours.",
        ),
    },
}
OPTIONS = {
    "--help, -h": "Show this page; after a command, its own.",
    "--version": "Show the versions of macs, Python, torch and ONNX Runtime.",
    "--install-completion": "Let the shell complete the commands and options of macs.",
}


def page(own: Mapping[str, str]) -> str:
    """The page: what macs is, then the commands (`own` are the user's) and options, as wide as the terminal allows."""
    width = min(shutil.get_terminal_size().columns, WIDEST)
    parts = [part if part.startswith(" ") else fill(part, width) for part in ABOUT.split("\n\n")]
    groups = {title: {name: line for name, (_, line) in group.items()} for title, group in COMMANDS.items()}
    for title, group in [*groups.items(), ("Yours", own), ("Options", OPTIONS)]:
        indented = 4 + max(map(len, group), default=0)
        lines = [
            fill(line, width, initial_indent=f"  {name}".ljust(indented), subsequent_indent=" " * indented)
            for name, line in group.items()
        ]
        parts += ["\n".join([title, *lines])] if lines else []
    return "\n\n".join(["Usage: macs COMMAND", *parts])
