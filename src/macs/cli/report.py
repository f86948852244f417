"""`macs report`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from macs.cli._app import ANY_HARDWARE, Data, HardwareOptions, Json, NoCache, Settings, Several, app, ood_sets_for, show
from macs.cli._detectors import Provider, detector_file, detector_sets, refuse_beside_detector, refuse_without_detector
from macs.core.cache import keeping
from macs.core.console import tell
from macs.core.errors import MacsError
from macs.core.files import output_file
from macs.detector.hub import is_address

if TYPE_CHECKING:
    from macs.evaluation import Evaluation


@app.command
def report(
    run: Path | None = None,
    /,
    *,
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
    in words, a threshold to move, the tables of `macs evaluate`, plots, the training curves of a run, and the images
    that go wrong first. It needs no server and loads nothing: send it, print it, keep it.

        macs report runs/mine --ood svhn textures places365
        macs report runs/mine --ood unknown/ --card model-card.md
        macs report --detector detector.onnx --id photos/test --ood unknown/ --out report.html

    Parameters
    ----------
    run
        Folder of a finished run.
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
        File to write [default: report.html in the run folder, or beside the detector].
    card
        Also write a model card here (.md), from what the run recorded and what was measured, with a card for each set
        of images; what only you can know is left to be written.
    """
    sets_read = [name for name in (id, *(ood or ())) if name]
    if detector is not None:
        refuse_beside_detector(run=run, score=bool(settings))
        if card is not None:
            raise MacsError(
                "A model card is written from the record of a run; name the run folder, or leave --card out."
            )
        metadata, open_detector = detector_file(detector, net, score, provider, hardware)
        target = output_file(
            out or ("report.html" if is_address(detector) else detector.with_name("report.html")),
            inputs=[detector, *sets_read],
        )
        names = ood if ood is not None else _default_ood_sets(id or "", data)
        test, sets = detector_sets(metadata, id, names, data)

        from macs.report import write_detector

        with keeping(not no_cache):
            measured = write_detector(target, open_detector(), test, sets)
        _show(target, measured, json)
        return
    refuse_without_detector(provider)
    if run is None:
        raise MacsError("Name a run folder, or give --detector and --id.")
    hardware.use()

    from macs.data import load
    from macs.training.runs import load_run

    target = output_file(out or run / "report.html", inputs=sets_read)
    card_file = None if card is None else output_file(card, inputs=[target, *sets_read])
    trained = load_run(run, net=net, id=id)
    known = trained.trained_on or trained.id
    own = replace(trained, id=known)
    names = ood if ood is not None else _default_ood_sets(known, data)
    test = trained.images("test", data)
    sets = {name: load(name, "test", root=data, preparation=trained.preparation, labelled=False) for name in names}

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
    _show(target, evaluation, json)


def _show(target: Path, evaluation: "Evaluation", json: bool) -> None:
    show(f"The report is in {target}; open it in a browser.", {"report": str(target), **evaluation.as_dict()}, json)


def _default_ood_sets(id: str, data: Path | None) -> list[str]:
    names = ood_sets_for(id, data)
    if not names:
        raise MacsError(
            "No OOD set of the catalogue is on disk; name at least one with --ood, or see `macs data list`."
        )
    return names
