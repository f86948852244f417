"""From findings to the page: one HTML file with its style, script, numbers and pictures inside.

Names of classes, sets and files come from the user's disk and are never trusted: the template escapes everything, and
the page's security policy lets the browser run only our script and load nothing.
"""

import base64
import hashlib
import json
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from macs.core import __version__
from macs.evaluation.results import COVERAGES
from macs.evaluation.tables import threshold, with_error
from macs.metrics import shown
from macs.report import charts, thresholds, thumbnails
from macs.report.findings import Findings

FOLDER = Path(__file__).parent
KEEP = 95  # percent of the known images that the page's first threshold keeps
COLOURS = 7  # colours of the style sheet for unknown sets; the eighth set looks like the first
PICTURES = 8  # pictures per set; fewer if there are many sets
ALL_PICTURES = 96


def render(findings: Findings) -> str:
    """Return the whole page."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": percent,
        "short": short,
        "with_error": with_error,
        "columns": columns,
        "written": thresholds.written,
    }
    style, script = ((FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    page = environment.get_template("page.html").render(
        style=Markup(style),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=__version__,
        **content(findings),
    )
    # A file name that is not valid UTF-8 contains surrogates, which cannot be written.
    return page.encode("utf-8", "replace").decode("utf-8")


def content(findings: Findings) -> dict[str, Any]:
    """Return everything that the template shows."""
    known, unknown, evaluation = findings.known, findings.unknown, findings.evaluation
    titles = [judged.title for judged in unknown]
    styles = [f"s{index % COLOURS}" for index in range(len(unknown))]
    axis = charts.confidence_axis(known, unknown)
    calibration = None if findings.detector is None else findings.detector.calibration
    own = None if calibration is None or calibration.per_class else calibration.thresholds[0].value
    choice = thresholds.choose([judged.confidence for judged in (known, *unknown)], own)
    start = choice.keeping(KEEP) if choice.own is None else choice.own
    count = max(4, min(PICTURES, ALL_PICTURES // (1 + len(unknown))))
    classes = known.images.classes
    return {
        "known": known,
        "classes": classes,
        "sets": [
            {
                "title": judged.title,
                "style": style,
                "result": result,
                "caught": 1 - share,
                "density": charts.density(axis, known, judged, style),
                "pictures": thumbnails.most_confident(judged, classes, count),
            }
            for judged, style, result, share in zip(
                unknown, styles, evaluation.sets, choice.shares[1:, start], strict=True
            )
        ],
        "pictures": thumbnails.least_confident(known, classes, count),
        "compared": [
            (judged, style, [(thumbnails.thumbnail(judged, classes, one.position), one.nearest) for one in compared])
            for judged, style, compared in zip(findings.sets, ("known", *styles), findings.compared, strict=False)
        ],
        "evaluation": evaluation,
        "metrics": shown(),
        "fpr_threshold": threshold(evaluation),
        "drawn": evaluation.drawn,
        "by_auroc": sorted(evaluation.sets, key=lambda result: result.full.auroc),
        "training": findings.training,
        "detector": findings.detector,
        "calibration": calibration,
        "history": charts.training_curves(findings.training) if findings.training else [],
        "survival": charts.survival(choice, [known.title, *titles], ["known", *styles]),
        "roc": charts.roc(choice, styles, evaluation),
        "selective": charts.selective(evaluation, evaluation.selective) if evaluation.selective else None,
        "coverages": COVERAGES,
        "axis": axis,
        "boxes": [
            charts.box(axis, judged.title, style, judged.confidence)
            for judged, style in zip((known, *unknown), ("known", *styles), strict=True)
        ],
        "start": start,
        "threshold": choice.values[start],
        "kept": choice.shares[0, start],
        "steps": {"values": choice.values, "kept": choice.kept, "images": choice.images, "axis": [axis.low, axis.high]},
        "presets": [
            *([("calibrated", "threshold of the detector", start)] if own is not None else []),
            *((f"keep {keep}%", "of the known images", choice.keeping(keep)) for keep in (99, 95, 90)),
            ("catch 95%", "of the unknown images", choice.catching(95)),
        ],
        "download": base64.b64encode(json.dumps(evaluation.as_dict(), indent=2).encode()).decode(),
    }


def percent(share: float, digits: int = 1) -> str:
    """Return a share in percent; only exactly 0 and 1 read as 0% and 100%."""
    if share in (0, 1):
        return f"{100 * share:.0f}%"
    least = 0.5 * 10.0 ** -(digits + 2)
    if 0 < share < least:
        return f"<{10.0**-digits:.{digits}f}%"
    if 1 - least < share < 1:
        return f">{100 - 10.0**-digits:.{digits}f}%"
    rounded = Decimal(100 * share).quantize(Decimal(10) ** -digits, ROUND_HALF_UP)  # as toFixed of page.js rounds
    return f"{rounded}%"


def short(value: float) -> str:
    """Return a confidence in four digits, or in more if it would read as 1 without being 1."""
    texts = (f"{value:.{digits}g}" for digits in range(4, 18))
    return next(text for text in texts if text != "1" or value == 1)


def columns(count: int) -> int:
    """Return how many of `count` plots stand side by side: three or four, whichever leaves fewer gaps."""
    return count if count < 3 else min((3, 4), key=lambda wide: -count % wide)
