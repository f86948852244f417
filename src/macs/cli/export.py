"""`macs export`."""

from pathlib import Path
from typing import Annotated, Literal

from macs.cli._app import Data, Flag, Json, Several, show, spec_in
from macs.core.errors import MacsError


def export(
    detector: Path,
    out: Path,
    /,
    *,
    int8: Annotated[bool, Flag] = False,
    images: str | None = None,
    split: Literal["val", "test"] | None = None,
    ood: Annotated[list[str] | None, Several] = None,
    max_drop: float = 0.5,
    net: str | None = None,
    score: str | None = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Write a detector as one ONNX file that needs neither macs nor torch.

    Its input is `images`, raw uint8 pixels N x H x W x 3, or, for a detector of rows, `features` or `logits` in
    float32. Its outputs are index, confidence, p_value and is_ood. The file contains normalisation, score and
    threshold; the optional input `threshold` overrides the calibrated one. `macs predict --detector detector.onnx` runs
    it without torch.

        macs export detector.safetensors detector.onnx
        macs export detector.safetensors small.onnx --int8 --images photos/val --ood unknown/

    Parameters
    ----------
    detector
        File from `macs calibrate`, or hf://org/name.
    out
        File to write, ending in .onnx.
    int8
        Compute in 8-bit integers: a quarter of the size. Needs --images.
    images
        Labelled ID images that the network was not trained on; they give the ranges of the integers, measure what 8
        bits cost, and calibrate the threshold again.
    split
        Split of these images, if they have splits [default: val, else test].
    ood
        OOD sets to measure AUROC on.
    max_drop
        Points of accuracy or AUROC that 8 bits may cost; if they cost more, nothing is written.
    net
        A network of your own, as module:Class; no other module that the file names is imported.
    score
        A score of your own, likewise.
    """
    from macs.data import load
    from macs.data.loading import load_unseen
    from macs.data.preparation import DEFAULT
    from macs.detector.saving import allowed_drop, onnx_path, read
    from macs.training.runs import load_apart, trained_on_undivided

    onnx_path(out, inputs=[detector])
    allowed_drop(max_drop)
    if int8 != (images is not None) or (ood and not int8):
        raise MacsError("--int8 needs --images to find its ranges; without it, leave --images and --ood out.")
    file = read(detector)
    preparation = file.metadata.for_images(detector) if int8 else DEFAULT
    spec = spec_in(file.metadata)
    known = None
    if images is not None and spec is not None and trained_on_undivided(spec, images):
        known = load_apart(spec, images, split or "val", data, preparation)
    elif images is not None:
        known = load_unseen(images, split, data, preparation=preparation)
    unknown = {name: load(name, "test", root=data, preparation=preparation, labelled=False) for name in ood or ()}

    from macs.detector.export import INPUT

    if known is None:
        opened = file.open(net, score)
        opened.export(out)
        record, result, text = opened.calibrated, {}, f"The threshold in it: {opened.calibrated}"
    else:
        loaded = file.load(net, score)
        quantised = loaded.export_int8(out, known, unknown, max_drop, progress=True)
        record, result, text = loaded.calibrated, quantised.as_dict(), str(quantised)
    takes = INPUT if file.metadata.columns is None else f"float32 {file.metadata.columns}"
    size_mb = out.stat().st_size / 1e6
    value = {"onnx": str(out), "bytes": out.stat().st_size, "calibration": record.as_dict(), **result}
    show(f"{text}\n{out} ({size_mb:.2f} MB) takes {takes}.", value, json)
