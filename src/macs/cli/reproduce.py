"""`macs reproduce`: the tables and figures of the paper, and those of our own study."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from macs.cli._app import (
    ANY_HARDWARE,
    Data,
    Flag,
    FprRuleOption,
    HardwareOptions,
    Json,
    Several,
    Whole,
    show,
    whole_number,
)
from macs.cli._engines import SERIAL, EngineOptions
from macs.core.errors import MacsError
from macs.core.files import input_folder, is_url, kind_of, output_folder, user_path


def reproduce(
    *targets: str,
    scale: Literal["full", "lab", "smoke"] = "smoke",
    out: str | None = None,
    seeds: Annotated[list[Whole] | None, Several] = None,
    ids: Annotated[list[str] | None, Several] = None,
    nets: Annotated[list[str] | None, Several] = None,
    rows: Annotated[list[str] | None, Several] = None,
    as_released: Annotated[bool, Flag] = False,
    outliers: str | None = None,
    val_outliers: str | None = None,
    checkpoint: Path | None = None,
    cells: Path | None = None,
    epochs: Annotated[int | None, Parameter(converter=whole_number)] = None,
    epoch_size: Annotated[int | None, Parameter(converter=whole_number)] = None,
    lr: float | None = None,
    dropout: float | None = None,
    precision: Literal["auto", "bf16", "float32"] | None = None,
    normalisation: str | None = None,
    fpr_rule: FprRuleOption = "first",
    dry_run: Annotated[bool, Flag] = False,
    engine: EngineOptions = SERIAL,
    hardware: HardwareOptions = ANY_HARDWARE,
    data: Data = None,
    json: Json = False,
) -> None:
    """Reproduce tables and figures of the paper, with the paper's numbers beside ours.

    Every training is done once and shared by all tables; the same command continues where an interrupted one stopped.

        macs reproduce all                             # rehearse on embedded digits
        macs reproduce table1 --scale full --dry-run   # how long the paper's protocol takes
        macs reproduce table1 --scale lab --ids cifar10 --rows oe macs
        macs reproduce study                           # our own comparison of methods, from its stored results

    Parameters
    ----------
    targets
        table1 to table7, figure1, figure3, figure4, figure5, or all of these; several may be named. ablation: margins,
        terms without one, and pair hinges side by side. Or study, alone: the comparison of docs/study.md, written from
        its cells; with --data and --checkpoint, missing cells are computed.
    scale
        full: the paper's protocol. lab: the real data that is on disk, with a fifth of the paper's images. smoke:
        embedded digits and tiny networks stand for everything.
    out
        Folder to write [default: runs/reproduce/SCALE]; with --engine ray, perhaps a URL.
    seeds
        Training seeds; with several, their spread has a column of its own [default: 0].
    ids
        Only these of the paper's ID sets: cifar10, cifar100, svhn, imagenet32.
    nets
        Only these of the paper's networks: wrn-40-2, allconv, resnet-18, densenet-121.
    rows
        Only these rows, such as oe, energy, mixoe, divoe, macs (m = 0.5), macs-validation, macs-test.
    as_released
        Follow the authors' released code where it departs from the paper or from a method's own authors: Energy, MixOE,
        DivOE, the loop over margins and ImageNet-32's epochs (docs/paper-departures.md). A row shows OE for as long as
        MaCS.
    outliers
        Auxiliary outliers: a name from `macs data list`, a folder of images, or a .npy [default: 300k; at the scale
        lab, if that is missing, outliers_train.npy and outliers_val.npy in the data folder].
    val_outliers
        Another set of outliers to choose the margin by [default: held out from the outliers].
    checkpoint
        Pretrained weights instead of a pretraining: one file for all networks, or a folder with files called like
        cifar10-wrn-40-2.pt; networks without a file are pretrained. For the study, the classifier that all start
        from, or the folder, which may have its second network's, too.
    cells
        For the study, the folder of its cells, which the package does not contain [default: study in a clone of the
        repository]. Everything else here works without a clone.
    epochs
        Epochs of fine-tuning [default: the scale's].
    epoch_size
        ID images per epoch of fine-tuning [default: the scale's].
    lr
        Learning rate of fine-tuning [default: the scale's].
    dropout
        Dropout in fine-tuning [default: the scale's].
    precision
        Arithmetic of all trainings [default: the scale's].
    normalisation
        Mean and std that the checkpoint's network expects: oe (also energy_ood and margin_ood), none (the authors'
        networks for SVHN), and others, as in `macs evaluate` [default: that of the file].
    dry_run
        List the trainings and estimate their time; train nothing.
    """
    from importlib.util import find_spec

    from macs.research.paper_grid import IDS, NETS, SCALES, Only, chosen_parts
    from macs.research.paper_runs import Setup

    hardware.use()
    if checkpoint is not None and kind_of(checkpoint := user_path(checkpoint)) not in ("a file", "a folder"):
        raise MacsError(f"There is no checkpoint at {checkpoint}; check the path.")
    parts = [] if "study" in targets else chosen_parts(targets)
    drawn = "study" in targets or (any(part.startswith("figure") for part in parts) and not dry_run)
    if drawn and find_spec("matplotlib") is None:
        raise MacsError("Figures need matplotlib: pip install 'macs-ood[report]'.")
    if "study" in targets:
        return _study(targets, out, cells, data, checkpoint, json)
    options: dict[str, Any] = {
        "epochs": epochs,
        "epoch_size": epoch_size,
        "lr": lr,
        "dropout": dropout,
        "precision": precision,
    }
    base = SCALES[scale]
    finetuning = replace(base.finetuning, **{key: value for key, value in options.items() if value is not None})
    pretraining = base.pretraining if precision is None else replace(base.pretraining, precision=precision)
    only = Only(tuple(ids or IDS), tuple(nets or NETS), tuple(rows or ()))
    seeds = seeds or [0]
    for seed in seeds:  # the recipe refuses a wrong seed now, and not after hours
        replace(finetuning, seed=seed)

    from rich.console import Group

    from macs.experiments.cells import SerialEngine

    with engine.results(Path("runs/reproduce") / scale if out is None else out) as results:
        own = "" if finetuning == base.finetuning else f"The scale {scale}, with other settings of fine-tuning."
        changed = replace(base, about=own or base.about, pretraining=pretraining, finetuning=finetuning)
        changed = replace(changed, released=as_released)
        setup = Setup(changed, results.folder, data, outliers, val_outliers, checkpoint, normalisation)
        if dry_run:
            from macs.research.paper_estimate import plan

            estimate = plan(setup, parts, only, seeds)
            return show(estimate, estimate.as_dict(), json)

        from macs.research.paper_experiments import keep_trainings
        from macs.research.paper_publication import publish_parts
        from macs.research.paper_runs import reproduce as run

        runner = engine.make(data, SerialEngine(data, sys.stderr.isatty()), results)
        outcome = run(setup, parts, only, seeds, fpr_rule, engine=runner)
        written = publish_parts(parts, outcome)
        keep_trainings(outcome)
    publications = [replace(each, named=results.named) for each in written]
    failures = {training.name: reason for training, reason in outcome.failures.items()}
    value = {"parts": [publication.as_dict() for publication in publications], "failures": failures}
    show(Group(*publications), value, json)
    if failures:
        raise SystemExit(1)
    return None


def _study(
    targets: tuple[str, ...],
    out: str | None,
    cells: Path | None,
    data: Path | None,
    checkpoint: Path | None,
    json: bool,
) -> None:
    """The study from its cells; with a checkpoint, missing cells are computed first."""
    from macs.research.study_tables import publish_study

    if len(targets) > 1:
        raise MacsError("The study is reproduced alone; name the paper's tables and figures in another command.")
    if data is not None and checkpoint is None:
        raise MacsError("To compute missing cells, give the classifier that all trainings start from as --checkpoint.")
    if out is not None and is_url(out):
        raise MacsError(f"The study is written to a folder, not to a URL such as {out}; name a folder.")
    cells = None if cells is None else input_folder(cells)
    folder = output_folder(Path("runs/reproduce/study") if out is None else out)
    publication = publish_study(folder, cells, data, checkpoint)
    show(publication, publication.as_dict(), json)
