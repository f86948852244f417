"""`macs push`."""

from pathlib import Path
from typing import Annotated

from macs.cli._app import Flag, Json, show


def push(
    detector: Path,
    repository: str,
    /,
    *,
    onnx: Annotated[bool, Flag] = False,
    evaluation: Path | None = None,
    license: str | None = None,
    private: Annotated[bool, Flag] = False,
    revision: str | None = None,
    net: str | None = None,
    score: str | None = None,
    json: Json = False,
) -> None:
    """Publish a detector on the Hugging Face hub, with a model card; others then use it as hf://org/name.

    The card is made from the calibration record and the evaluation, and says what you still have to write. A README.md
    that the repository has already is never overwritten. Log in first, with `hf auth login` or $HF_TOKEN.

        macs evaluate --detector detector.safetensors --id photos/test --ood unknown/ --json > evaluation.json
        macs push detector.safetensors org/name --onnx --evaluation evaluation.json
        macs predict photos/ --detector hf://org/name

    Parameters
    ----------
    detector
        File from `macs calibrate` or `macs export`.
    repository
        Repository of the hub, org/name; it is created if it does not exist.
    onnx
        Push the ONNX file too, for use without torch.
    evaluation
        What `macs evaluate --detector ... --json` printed, for the card.
    license
        Licence of the weights, for example apache-2.0 [default: that of the published weights they started from].
    private
        Create a repository that only its owners see.
    revision
        Branch to push to [default: the main one].
    net
        For --onnx: a network of your own, as module:Class.
    score
        A score of your own, likewise.
    """
    import tempfile

    from macs.detector import publishing
    from macs.detector.saving import onnx_path, read

    publishing.check_repository(repository)
    measured = None if evaluation is None else publishing.read_evaluation(evaluation)
    files = [detector]
    with tempfile.TemporaryDirectory() as folder:
        if onnx and detector.suffix != ".onnx":
            files.append(onnx_path(Path(folder) / "detector.onnx"))
            read(detector).load(net, score).export(files[1])
        pushed = publishing.push(files, repository, measured, license, private, revision)
    show(str(pushed), pushed.as_dict(), json)
