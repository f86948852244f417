"""`macs inspect`."""

from pathlib import Path

from macs.cli._app import Json, show


def inspect(file: Path, /, *, json: Json = False) -> None:
    """Show the content of a detector file, without torch and without running code from it.

    It shows the network, the classes, the preparation of images, the score, the thresholds and their calibration, the
    record of the training, size and checksum and, for an ONNX file, inputs and outputs.

        macs inspect detector.safetensors
        macs inspect detector.onnx --json

    Parameters
    ----------
    file
        File from `macs calibrate` (.safetensors) or `macs export` (.onnx), or hf://org/name.
    """
    from macs.detector import inspection

    content = inspection.inspect(file)
    show(str(content), content.as_dict(), json)
