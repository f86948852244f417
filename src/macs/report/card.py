"""A model card with a card for each set of images, in Markdown, from what a run recorded and an evaluation measured.

What no record holds, such as the purpose or the consent of those shown, is left as *to be written*.
"""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from macs import metrics
from macs.core import __version__
from macs.core.files import output_file, write_text
from macs.core.text import in_a_cell
from macs.data.catalog import Dataset, catalog
from macs.data.spec import DataSpec
from macs.evaluation.results import Evaluation
from macs.evaluation.tables import percent
from macs.training.spec import TrainingSpec


def write_card(path: str | Path, spec: TrainingSpec, evaluation: Evaluation) -> None:
    """Write the card of a training and of its measurement."""
    write_text(output_file(path), model_card(spec, evaluation))


def model_card(spec: TrainingSpec, evaluation: Evaluation) -> str:
    sets = {"Training images": spec.train, "Outliers": spec.outliers, "Validation images": spec.validation}
    used = {role: images for role, images in sets.items() if images is not None}
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=False,  # it is Markdown; names from outside are made safe below
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=in_a_cell,
    )
    return environment.get_template("card.md").render(
        spec=spec,
        evaluation=evaluation,
        sets=used,
        catalogue={role: in_catalogue(images) for role, images in used.items()},
        shown=metrics.shown(),
        percent=percent,
        version=__version__,
    )


def in_catalogue(images: DataSpec) -> Dataset | None:
    return catalog[images.source] if images.source in catalog.available() else None
