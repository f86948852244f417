"""`macs demo`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from macs.cli._app import ANY_HARDWARE, HardwareOptions, Json, Whole, app, show
from macs.core.files import output_folder

Seeds = Annotated[list[Whole] | None, Parameter(name=["--seeds", "--seed"], consume_multiple=True, negative="")]


@app.command
def demo(
    *,
    out: Path = Path("runs/demo"),
    seeds: Seeds = None,
    hardware: HardwareOptions = ANY_HARDWARE,
    json: Json = False,
) -> None:
    """Show the paper's idea on embedded images: no download, a few minutes on two cores.

    Parameters
    ----------
    out
        Folder for the runs; trainings that are already there are not done again.
    seeds
        Training seeds; the table shows their mean and spread [default: 0 1 2].
    """
    hardware.use()
    output_folder(out)

    from macs.demo import SEEDS
    from macs.demo import demo as run_demo

    result = run_demo(out, seeds=seeds or SEEDS)
    show(result, result.as_dict(), json)
    if not json:
        print(f"The runs are in {result.folder}, each with recipe.toml, metrics.jsonl and net.safetensors.")
        print(f"The report on MaCS is {result.report}; open it in a browser.")
