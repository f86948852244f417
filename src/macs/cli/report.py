"""`macs report`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from macs.cli._app import (
    ANY_HARDWARE,
    Data,
    Hardware,
    HardwareOptions,
    Json,
    NoCache,
    Provider,
    Settings,
    Several,
    detector_sets,
    image_detector_file,
    refuse_beside_detector,
    refuse_without_detector,
    show,
    training_images,
)
from macs.core.cache import keeping
from macs.core.console import tell
from macs.core.errors import MacsError
from macs.core.files import output_file
from macs.detector.hub import is_address

SUFFIXES = (".safetensors", ".onnx")  # of detector files

if TYPE_CHECKING:
    from macs.data import ImageSet
    from macs.training.runs import TrainedNetwork


def report(
    *runs: Path,
    detector: Path | None = None,
    ood: Annotated[list[str] | None, Several] = None,
    id: str | None = None,
    score: str | None = None,
    settings: Settings = None,
    net: str | None = None,
    provider: Provider = None,
    out: Path | None = None,
    card: Path | None = None,
    no_cache: NoCache = False,
    hardware: HardwareOptions = ANY_HARDWARE,
    data: Data = None,
    json: Json = False,
) -> None:
    """Write a report on what a network knows and does not know: one HTML page that opens in any browser.

    Give a run folder, or --detector and --id; for an exported detector, torch is not needed. The page holds a summary
    in words, a threshold to move, the tables of `macs evaluate`, plots, the training curves of a run, the images that
    go wrong first, and, if the score compares features, the training images that they are nearest to. It needs no
    server and loads nothing from elsewhere, so you can send it or print it.

        macs report runs/mine --ood svhn textures places365
        macs report runs/mine --ood unknown/ --card model-card.md
        macs report --detector detector.onnx --id photos/test --ood unknown/ --out report.html
        macs report old.safetensors new.safetensors --id photos/test --ood unknown/

    Parameters
    ----------
    runs
        Folder of a finished run. With several, or with detector files, the page compares them on the same images: their
        numbers and curves side by side, and the images that they judge differently.
    detector
        File from `macs calibrate` or `macs export`, or hf://org/name, instead of a run; the page shows its own
        threshold.
    ood
        OOD test sets: names from `macs data list`, folders of images, or .npy files
        [default: the catalogue's OOD sets that are on disk; for digits, those that come with it].
    id
        ID test images [default: the test split of the set that the run was trained on].
    score
        Confidence: msp, energy, knn, ... (docs/scores.md) [default: the score of the run's method]; settings are given
        as --score.k 10.
    net
        A network of your own, as module:Class; with --detector, a score of your own is named by --score likewise.
    out
        File to write [default: report.html in the run folder, or beside the detector; comparison.html in the working
        folder].
    card
        Also write a model card here (.md), from what the run recorded and what was measured, with a card for each set
        of images; it leaves blank what only you can know.
    """
    sets_read = [name for name in (id, *(ood or ())) if name]
    if len(runs) > 1:
        refuse_beside_several(detector=detector, score=score, settings=settings, net=net, card=card)
        with keeping(not no_cache):
            _compare(runs, id, ood, out, provider, hardware, data, json)
        return
    run = runs[0] if runs else None
    if run is not None and detector is None and is_detector(run):
        run, detector = None, run
    if detector is not None:
        refuse_beside_detector(run=run, score=bool(settings))
        if card is not None:
            raise MacsError(
                "A model card is written from the record of a run; name the run folder, or leave --card out."
            )
        metadata, open_detector = image_detector_file(detector, net, score, provider, hardware)
        target = output_file(
            out or ("report.html" if is_address(detector) else detector.with_name("report.html")),
            inputs=[detector, *sets_read],
        )
        names = ood if ood is not None else _default_ood_sets(id or "", data)
        test, sets = detector_sets(metadata, id, names, data)

        from macs.report import write_detector

        with keeping(not no_cache):
            measured = write_detector(
                target, open_detector(), test, sets, train=lambda: training_images(metadata, detector, data)
            )
        _show(target, measured.as_dict(), json)
        return
    refuse_without_detector(provider)
    if run is None:
        raise MacsError("Name a run folder, or give --detector and --id.")
    hardware.use()

    from macs.training.runs import load_run

    target = output_file(out or run / "report.html", inputs=sets_read)
    card_file = None if card is None else output_file(card, inputs=[target, *sets_read])
    trained = load_run(run, net=net, id=id)
    known = trained.trained_on or trained.id
    own = replace(trained, id=known)
    names = ood if ood is not None else _default_ood_sets(known, data)
    test, sets = run_sets(trained, names, data)

    from macs import scores
    from macs.report import write

    name = trained.score if score is None else score
    with keeping(not no_cache):
        evaluation = write(
            target,
            trained.network_for(test),
            test,
            sets,
            run=run,
            score=scores.get(name, **settings) if settings else name,
            train=lambda: own.images("train", data),
            held_out=lambda: own.held_out_images(data),
        )
    if card_file is not None:
        from macs.report.card import write_card
        from macs.training.runs import RunFolder

        write_card(card_file, RunFolder(run).spec, evaluation)
        tell(f"The model card is in {card_file}; complete the entries marked *to be written*.")
    _show(target, evaluation.as_dict(), json)


def is_detector(path: Path) -> bool:
    """Whether a path is that of a detector file, and not of a run folder."""
    return is_address(path) or path.suffix in SUFFIXES


def refuse_beside_several(**options: object) -> None:
    """Refuse options that are about one network; the error names the first one given."""
    for name, value in options.items():
        if value:
            raise MacsError(f"A comparison takes each detector or run as it is; leave --{name} out.")


def _compare(
    paths: tuple[Path, ...],
    id: str | None,
    ood: list[str] | None,
    out: Path | None,
    provider: list[str] | None,
    hardware: Hardware,
    data: Path | None,
    json: bool,
) -> None:
    """Write the page that compares detectors and runs."""
    from macs.evaluation.tables import short_names
    from macs.report.comparison import Subject, as_dict, subject_of_detector, subject_of_run, write_comparison

    target = output_file(out or Path("comparison.html"), inputs=[*paths, *([id] if id else []), *(ood or ())])
    if len(set(paths)) < len(paths):
        raise MacsError("The same detector or run is named twice; name two that differ.")
    without_suffix = [str(path.with_suffix("") if path.suffix in SUFFIXES else path) for path in paths]
    distinct = len(set(without_suffix)) == len(paths)
    titles = short_names(without_suffix if distinct else [str(path) for path in paths], 40)
    subjects: list[Subject] = []
    for path, title in zip(paths, titles, strict=True):
        if is_detector(path):
            metadata, open_detector = image_detector_file(
                path, None, None, None if path.suffix != ".onnx" else provider, hardware
            )
            names = ood if ood is not None else _default_ood_sets(id or "", data)
            test, sets = detector_sets(metadata, id, names, data)
            subjects.append(subject_of_detector(title, metadata.net, open_detector(), test, sets))
        else:
            hardware.use()
            from macs.report.findings import find_in_network
            from macs.training.runs import load_run

            trained = load_run(path, id=id)
            own = replace(trained, id=trained.trained_on or trained.id)
            names = ood if ood is not None else _default_ood_sets(own.id, data)
            test, sets = run_sets(trained, names, data)
            findings = find_in_network(
                trained.network_for(test),
                test,
                sets,
                path,
                trained.score,
                lambda own=own: own.images("train", data),  # type: ignore[misc]  # mypy cannot infer own=own
                lambda own=own: own.held_out_images(data),  # type: ignore[misc]
                "auto",
                True,
            )
            subjects.append(subject_of_run(title, trained.net, findings))
    write_comparison(target, subjects)
    _show(target, as_dict(subjects), json, "comparison")


def run_sets(trained: "TrainedNetwork", names: list[str], data: Path | None) -> "tuple[ImageSet, dict[str, ImageSet]]":
    """ID and OOD test images, prepared as the network of a run expects them."""
    from macs.data import load

    sets = {name: load(name, "test", root=data, preparation=trained.preparation, labelled=False) for name in names}
    return trained.images("test", data), sets


def _show(target: Path, numbers: dict[str, Any], json: bool, what: str = "report") -> None:
    shown = target.relative_to(Path.cwd()) if target.is_relative_to(Path.cwd()) else target
    show(f"The {what} is in {shown}; open it in a browser.", {"report": str(target), **numbers}, json)


def _default_ood_sets(id: str, data: Path | None) -> list[str]:
    from macs.data.loading import ood_sets_for

    names = ood_sets_for(id, data)
    if not names:
        raise MacsError(
            "No OOD set of the catalogue is on disk; name at least one with --ood, or see `macs data list`."
        )
    return names
