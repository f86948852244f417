"""`macs demo`."""

from pathlib import Path

from macs.cli._app import ANY_HARDWARE, HardwareOptions, Json, Whole, show
from macs.core.files import output_folder


def demo(
    *,
    out: Path = Path("runs/demo"),
    seeds: Whole = 1,
    hardware: HardwareOptions = ANY_HARDWARE,
    json: Json = False,
) -> None:
    """Show the paper's idea on embedded images: no download, a minute on two cores.

    Parameters
    ----------
    out
        Folder for the runs; trainings that are already there are not done again.
    seeds
        Number of training seeds; with several, the table shows their mean and spread.
    """
    hardware.use()
    output_folder(out)

    from macs.demo import demo as run_demo

    result = run_demo(out, seeds=seeds)
    show(result, result.as_dict(), json)
    if not json:
        print(f"The runs are in {result.folder}, each with recipe.toml, metrics.jsonl and net.safetensors.")
        print(f"The report on MaCS is {result.report}; open it in a browser.")
        if seeds == 1:
            print("`macs demo --seeds 3` trains two more seeds and shows the spread.")
