"""The method that `--method auto` stands for, as the study recommends it: docs/study.md says what it rests on.

A run folder records the method and the settings themselves, never the word auto.
"""

from collections.abc import Mapping
from typing import Any

AUTO = "auto"
METHOD = "macs"
SETTINGS: dict[str, float | str | bool] = {
    **{"on": "energy", "variant": "hinge", "margin": 10.0, "margin_weight": 2.0},
    "focus": 0.5,
}


def resolved(method: str, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The method and settings that a name stands for; settings that are given override those of auto."""
    return (METHOD, {**SETTINGS, **settings}) if method == AUTO else (method, dict(settings))
