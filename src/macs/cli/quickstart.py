"""`macs quickstart`."""

import contextlib
import io
import json as json_module
from pathlib import Path
from typing import Annotated, Any

from macs.cli._app import Flag, Json, Several
from macs.core.console import tell
from macs.core.errors import MacsError
from macs.core.files import output_folder
from macs.core.text import printable


def quickstart(
    folder: Path,
    /,
    *,
    outliers: Path | None = None,
    unknown: Annotated[list[str] | None, Several] = None,
    net: str = "timm/tf_efficientnet_lite0",
    checkpoint: str = "pretrained",
    keep: float = 0.95,
    out: Path = Path("runs/quickstart"),
    dry_run: Annotated[bool, Flag] = False,
    json: Json = False,
) -> None:
    """Make a detector from a folder of photographs, with one folder per class: train, calibrate, check, and report.

    It prints and runs three commands: `macs finetune` trains the last layer of a pretrained network, `macs calibrate`
    chooses a score and a threshold and checks the threshold on photographs held back, and `macs report` measures the
    detector. To change a step, change its command.

        macs quickstart photos/known
        macs quickstart photos/known --outliers photos/other --unknown photos/unknown

    Parameters
    ----------
    folder
        Folder of photographs with one folder per class, or with train, val and test folders that have these.
    outliers
        Photographs that show none of the classes, to train with, by `--method auto`.
    unknown
        Other such photographs, to measure with [default: pictures that come with scikit-image, if it is installed].
    net
        Network to start from.
    checkpoint
        Its weights: a file, or pretrained, which downloads the published ones.
    keep
        Share of new photographs of the known classes that the detector should keep.
    out
        Folder for the run, the detector and the report.
    dry_run
        Print the commands without running them.
    """
    from macs.cli import run
    from macs.quickstart import plan

    steps = plan(
        folder,
        outliers=None if outliers is None else str(outliers),
        unknown=unknown or (),
        net=net,
        checkpoint=checkpoint,
        keep=keep,
        out=out,
    )
    output_folder(out)
    for remark in steps.remarks:
        tell(printable(remark))
    results: dict[str, Any] = {"commands": [str(command) for command in steps.commands]}
    for number, command in enumerate(steps.commands, start=1):
        if not json:
            print(f"\n{number} of {len(steps.commands)}: {command.purpose}\n$ {printable(str(command))}", flush=True)
        if dry_run:
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed) if json else contextlib.nullcontext():
            code = run([*command.words, *(["--json"] if json else [])])
        if code:
            raise MacsError(f"The quickstart ends here: `{command}` failed with exit code {code}.")
        if json:
            results[command.words[0]] = json_module.loads(printed.getvalue())
    if json:
        print(json_module.dumps(results, indent=2), flush=True)
        return
    width = max(len(str(command)) for command in steps.next)
    print("\nGo on with:", *(f"  {command!s:<{width}}  # {command.purpose}" for command in steps.next), sep="\n")
