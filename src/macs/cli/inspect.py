"""`macs inspect`."""

from pathlib import Path

from macs.cli._app import Json, app, show


@app.command
def inspect(file: Path, /, *, json: Json = False) -> None:
    """Say what is in a detector file, without torch and without running anything from it.

    Network, classes, preparation of the images, score, thresholds and how they were calibrated, the record of the
    training, size and checksum; of an ONNX file also its inputs and outputs.

        macs inspect detector.safetensors
        macs inspect detector.onnx --json

    Parameters
    ----------
    file
        File from `macs calibrate` (.safetensors) or `macs export` (.onnx).
    """
    from macs.detector import inspection

    found = inspection.inspect(file)
    show(str(found), found.as_dict(), json)
