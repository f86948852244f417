"""`macs demo`."""

from pathlib import Path

from macs.cli._app import Json, Whole, app, show
from macs.core.files import output_folder


@app.command
def demo(*, out: Path = Path("runs/demo"), seed: Whole = 0, json: Json = False) -> None:
    """See the paper's idea work on embedded images: no download, a few minutes on two cores.

    Parameters
    ----------
    out
        Folder for the runs; what is already there is not computed again.
    seed
        Decides every random number.
    """
    output_folder(out)

    from macs.demo import demo as run_demo

    result = run_demo(out, seed=seed)
    show(result, {name: each.as_dict() for name, each in result.evaluations.items()}, json)
    if not json:
        print(f"The runs are in {result.folder}: recipe.toml, metrics.jsonl and net.safetensors each.")
        print(f"The report on MaCS is {result.report}; open it in a browser.")
