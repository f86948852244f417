"""Settings: dataclasses whose annotations say which values each field may have.

    lr: Annotated[float, Span(0, 1000, usual=0.5)] = 0.001

`check` validates an instance against its annotations; recipes and methods call it when they are created.
"""

import math
from dataclasses import MISSING, dataclass, fields, is_dataclass
from numbers import Real
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from macs.core.errors import MacsError
from macs.core.registry import unknown

N = TypeVar("N", int, float)
S = TypeVar("S")
WORDS = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
MISFIT = object()
LONGEST = 80  # characters of a wrong value that are shown


@dataclass(frozen=True)
class Span:
    """Numbers from `least` to `most`; an `open` end is excluded."""

    least: float
    most: float
    open: Literal["neither", "least", "most", "both"] = "neither"
    usual: float = math.inf  # values above it are allowed, but named when a training diverges

    def __contains__(self, value: float) -> bool:
        above = self.least < value if self.open in ("least", "both") else self.least <= value
        return above and (value < self.most if self.open in ("most", "both") else value <= self.most)

    def __str__(self) -> str:
        least = "above" if self.open in ("least", "both") else "at least"
        most = "below" if self.open in ("most", "both") else "at most"
        return f"{least} {self.least:,} and {most} {self.most:,}"

    def hold(self, name: str, value: N) -> N:
        """Return the value; raise if it does not lie in the span, as NaN never does."""
        if not isinstance(value, Real) or value not in self:
            raise MacsError(f"{name} must be {self}, not {shown(value)}.")
        return value


class NotBlank:
    """Strings with at least one visible character."""

    def __contains__(self, value: str) -> bool:
        return bool(value.strip())

    def __str__(self) -> str:
        return "a name or a path"


Weight = Annotated[float, Span(0, 1_000_000, usual=100)]  # of a term in a loss
Name = Annotated[str, NotBlank()]


def check(settings: Any) -> None:
    """Convert every field of a dataclass, in place, to its declared type; a MacsError names one that does not fit."""
    for name, kind in _kinds(settings).items():
        object.__setattr__(settings, name, typed(name, getattr(settings, name), kind))


def from_dict(kind: type[S], values: Any, within: str = "") -> S:
    """Return a dataclass from its `asdict`, perhaps by way of JSON; an unknown or a missing key is an error.

    Every value is converted to the declared type of its field, also in nested dataclasses; `within` is the prefix of
    the names in messages, such as "calibration.".
    """
    what, declared = kind.__name__, fields(cast("Any", kind))
    if not isinstance(values, dict):
        raise MacsError(f"A {what} must be a table of settings, not {shown(values)}.")
    names = [field.name for field in declared]
    for key in values:
        if key not in names:
            raise unknown(f"setting of {what}", str(key), names)
    for field in declared:
        if field.name not in values and field.default is field.default_factory is MISSING:
            raise MacsError(f"A {what} needs the setting {field.name}.")
    kinds = get_type_hints(kind, include_extras=True)
    return kind(**{key: typed(within + key, value, kinds[key]) for key, value in values.items()})


def unusual(settings: Any) -> list[str]:
    """Return the fields whose values are unusually large, with their values."""
    large = []
    for name, kind in _kinds(settings).items():
        value, limit = getattr(settings, name), get_args(kind)[-1] if get_origin(kind) is Annotated else None
        if isinstance(limit, Span) and value is not None and value > limit.usual:
            large.append(f"{name} = {value:g}")
    return large


def typed(name: str, value: Any, kind: Any) -> Any:
    """Return the value as its declared type; raise if it has another type or lies out of bounds."""
    if get_origin(kind) is Annotated:
        base, limit = get_args(kind)
        value = typed(name, value, base)
        if value is not None and value not in limit:
            raise MacsError(f"{name} must be {limit}, not {shown(value)}.")
        return value
    options = get_args(kind) if get_origin(kind) in (UnionType, Union) else (kind,)
    for option in options:
        converted = _converted(option, name, value)
        if converted is not MISFIT:
            return converted
    if isinstance(value, float) and float in options:
        raise MacsError(f"{name} must be a number, not {shown(value)}.")
    wanted = " or ".join(_in_words(option) for option in options if option is not type(None))
    raise MacsError(f"{name} must be {wanted}, not {shown(value)}.")


def _converted(kind: Any, name: str, value: Any) -> Any:
    """Return the value as one type, or MISFIT. An int may be given as 3.0, and numpy's numbers count as numbers."""
    converted: Any = MISFIT
    number = isinstance(value, Real) and not isinstance(value, bool)
    if kind is Any:
        converted = value
    elif get_origin(kind) is Literal:
        converted = value if value in get_args(kind) else MISFIT
    elif get_origin(kind) is dict:
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            converted = {key: typed(f"{name}.{key}", item, get_args(kind)[1]) for key, item in value.items()}
    elif get_origin(kind) is tuple:
        converted = _tuple(get_args(kind), name, value)
    elif isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        converted = from_dict(kind, value, f"{name}.")
    elif kind is float:
        converted = float(value) if number and _finite(value) else MISFIT
    elif kind is int:
        whole = number and (isinstance(value, int) or (_finite(value) and value == int(value)))
        converted = int(value) if whole else MISFIT
    elif kind is bool and value in ("true", "false"):
        converted = value == "true"
    elif kind is str:
        converted = _encodable(name, str(value)) if isinstance(value, str) else MISFIT
    elif type(value) is kind:
        converted = value
    return converted


def _tuple(kinds: tuple[Any, ...], name: str, value: Any) -> Any:
    """Return a tuple of the given types, of any length if `...` follows the only one; a list counts as a tuple."""
    if not isinstance(value, list | tuple):
        return MISFIT
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(value) != len(kinds):
        return MISFIT
    return tuple(typed(f"{name}[{i}]", item, kind) for i, (item, kind) in enumerate(zip(value, kinds, strict=True)))


def _in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) is tuple:
        return "a list" if get_args(kind)[-1] is Ellipsis else f"a list of {len(get_args(kind))}"
    return "a table of settings" if get_origin(kind) is dict or is_dataclass(kind) else WORDS.get(kind, str(kind))


def _finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that is larger than any float
        return False


def shown(value: Any) -> str:
    """Return a wrong value as a message shows it, shortened if it is long."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of about {round(value.bit_length() * math.log10(2))} digits"
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number in it is too long for Python to print
        return f"a {type(value).__name__}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _encodable(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MacsError(f"{name} is {shown(text)}, which UTF-8 cannot encode; rename the file or folder.") from None
    return text


def _kinds(settings: Any) -> dict[str, Any]:
    hints = get_type_hints(type(settings), include_extras=True)
    return {field.name: hints[field.name] for field in fields(settings) if field.init}
