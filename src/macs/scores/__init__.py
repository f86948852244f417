"""Scores: from a network's outputs for an image to one confidence; one file per score.

Convention: a confidence is higher for ID, and `confidence >= tau` is ID (MaCS paper, Eq. 2).

    macs.scores.get("energy")(net(x))
    knn = macs.scores.KNN(k=10).fit(loader, net)  # or get("knn", k=10), by its name
    macs.scores.ask(net, images, knn).confidence
    macs.scores.get("msp+vim").fit(train, net, held_out)

A new score is one new file here whose class is registered with `@score("name")`. Its fields are its settings; its
docstring says where their defaults come from.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from macs.core.console import tell
from macs.core.errors import MacsError
from macs.core.registry import quoted, unknown
from macs.predictions import Predictions, joined
from macs.scores._passes import LIMIT, Train, answer, ask, ask_all, fit_all, know, last_layer, ready
from macs.scores._score import NETWORK, Known, NotFitted, Score, blamed, registered_name, score
from macs.scores.combined import FEWEST, MOST, PLUS, Combined, enough_held_out, held_out_of

ALL = "all"


def available(zero_shot: bool = False) -> list[str]:
    """Return the names of all single scores for trained classifiers, or of those for zero-shot classifiers alone."""
    return [name for name in score.available() if score[name].zero_shot == zero_shot]


def get(name: str | Score | type[Score], **settings: Any) -> Score:
    """Return a new score by its name, with settings; a `Score` is returned as it is.

    "module:Class" is a score of your own. "msp+vim" is a sum: a setting goes to all parts that have it, or to a single
    part, as in `get("ash+scale", ash={"percentile": 95})`.
    """
    if isinstance(name, str) and PLUS in name:
        name = _sum_called(name)
    if isinstance(name, Score) and not settings:
        return name
    if isinstance(name, Combined):
        return _with_settings(name, settings)
    chosen = type(name) if isinstance(name, Score) else score[name] if isinstance(name, str) else name
    if not (isinstance(chosen, type) and issubclass(chosen, Score)):
        raise MacsError(f"{name} is not a score: it must be a subclass of macs.scores.Score.")
    called, own = (name_of(name), name.settings) if isinstance(name, Score) else (name, {})
    for key in settings:
        if key not in chosen.setting_names():
            raise unknown(f"setting of {called}", key, chosen.setting_names() or ["none"])
    try:
        with blamed(chosen):
            return chosen(**own | settings)
    except MacsError as error:
        raise MacsError(f"Among the settings of {called}, {error}" if settings else str(error)) from None


def get_all(names: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Score]:
    """Several scores by their names. A setting goes to all scores that have it; a setting that none has is an error.

    "all" stands for every score that needs no gradient per image and is not for multi-label networks alone; the others
    are left out, unless they are named too.
    """
    slow = [name for name in available() if score[name].reads == "pixels" and name not in names]
    if ALL in names and slow:
        tell(f"all leaves out {', '.join(slow)}, since a gradient per image takes long; name what you want beside all.")
    quick = [name for name in available() if name not in slow and not score[name].multilabel]
    by_name = {name: get(name) for entry in names for name in (quick if entry == ALL else [entry])}
    accepted = sorted({setting for score in by_name.values() for setting in score.accepts})
    for key in settings:
        if key not in accepted:
            raise unknown(f"setting of {', '.join(by_name)}", key, accepted or ["none"])
    return {
        name: get(score, **{key: value for key, value in settings.items() if key in score.accepts})
        for name, score in by_name.items()
    }


def name_of(given: Score) -> str:
    """Return the name by which `get` makes such a score: "knn", "msp+vim", or "module:Class" for a user's own."""
    return given.name if isinstance(given, Combined) else registered_name(given)


def _sum_called(name: str) -> Combined:
    parts = [part.strip() for part in name.split(PLUS)]
    if not all(parts):
        raise MacsError(f"{quoted(name)} names a sum with an empty part; write it like msp+vim.")
    return Combined([get(part) for part in parts])


def _with_settings(total: Combined, settings: Mapping[str, Any]) -> Combined:
    for key, value in settings.items():
        if key not in total.accepts:
            raise unknown(f"setting of {total.name}", key, total.accepts or ["none"])
        if key in total.settings and not isinstance(value, Mapping):
            raise MacsError(f"The settings of {key} in {total.name} must be a table, not {value!r:.80}.")
    parts = []
    for part in total.parts:
        shared = {key: value for key, value in settings.items() if key in part.accepts}
        parts.append(get(part, **shared | dict(settings.get(registered_name(part), {}))))
    return Combined(parts)


__all__ = [
    "FEWEST",
    "LIMIT",
    "MOST",
    "NETWORK",
    "Combined",
    "Known",
    "NotFitted",
    "Predictions",
    "Score",
    "Train",
    "answer",
    "ask",
    "ask_all",
    "available",
    "enough_held_out",
    "fit_all",
    "get",
    "get_all",
    "held_out_of",
    "joined",
    "know",
    "last_layer",
    "name_of",
    "ready",
    "score",
]


def __getattr__(name: str) -> Any:
    if name == "Answers":
        warnings.warn("macs.scores.Answers is now called Predictions.", DeprecationWarning, stacklevel=2)
        return Predictions
    if name[:1].isupper():  # a class, whose file is imported on first use
        for entry in score.entries().values():
            if entry.__name__ == name:
                return entry
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
