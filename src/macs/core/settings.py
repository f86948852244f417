"""Settings: dataclasses whose fields say, each in its own annotation, which values they may have.

    lr: Annotated[float, Span(0, 1000, usual=0.5)] = 0.001

`check` holds an instance to its annotations; a recipe and every method are checked by it when they are made.
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
WORDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
MISFIT = object()
LONGEST = 80  # characters of a wrong value that are shown


@dataclass(frozen=True)
class Span:
    """Numbers from `least` to `most`; an end that is `open` does not belong to it."""

    least: float
    most: float
    open: Literal["neither", "least", "most", "both"] = "neither"
    usual: float = math.inf  # values above it are allowed, but worth a word when a training goes wrong

    def __contains__(self, value: float) -> bool:
        above = self.least < value if self.open in ("least", "both") else self.least <= value
        return above and (value < self.most if self.open in ("most", "both") else value <= self.most)

    def __str__(self) -> str:
        least = "above" if self.open in ("least", "both") else "at least"
        most = "below" if self.open in ("most", "both") else "at most"
        return f"{least} {self.least:,} and {most} {self.most:,}"

    def hold(self, name: str, value: N) -> N:
        """The value if it lies within, or an error; NaN lies within nothing."""
        if not isinstance(value, Real) or value not in self:
            raise MacsError(f"{name} must be {self}, not {shown(value)}.")
        return value


class NotBlank:
    """Text with at least one visible character."""

    def __contains__(self, value: str) -> bool:
        return bool(value.strip())

    def __str__(self) -> str:
        return "a name or a path"


SIZE = 32  # edge of images, where nobody says otherwise
Edge = Annotated[int, Span(1, 1024)]  # of square images, in pixels; more is a slip of the hand or an attack
Weight = Annotated[float, Span(0, 1_000_000, usual=100)]  # of a term in a loss
Name = Annotated[str, NotBlank()]


def check(settings: Any) -> None:
    """Turn every field of a dataclass, in place, into a value of its declared type, or say which cannot be."""
    for name, kind in _kinds(settings).items():
        object.__setattr__(settings, name, typed(name, getattr(settings, name), kind))


def from_dict(kind: type[S], told: Any) -> S:
    """A dataclass from what `asdict` made of it, perhaps by way of JSON; a key too many or too few is an error."""
    what, made = kind.__name__, cast("Any", kind)
    if not isinstance(told, dict):
        raise MacsError(f"A {what} is made from a table of settings, not {shown(told)}.")
    names = [field.name for field in fields(made)]
    for key in told:
        if key not in names:
            raise unknown(f"setting of {what}", str(key), names)
    for field in fields(made):
        if field.name not in told and field.default is field.default_factory is MISSING:
            raise MacsError(f"A {what} needs the setting {field.name}.")
    return kind(**told)


def unusual(settings: Any) -> list[str]:
    """The fields whose values are larger than is usual, with these values."""
    found = []
    for name, kind in _kinds(settings).items():
        value, limit = getattr(settings, name), get_args(kind)[-1] if get_origin(kind) is Annotated else None
        if isinstance(limit, Span) and value is not None and value > limit.usual:
            found.append(f"{name} = {value:g}")
    return found


def typed(name: str, value: Any, kind: Any) -> Any:
    """The value as its declared type, or an error."""
    if get_origin(kind) is Annotated:
        base, limit = get_args(kind)
        value = typed(name, value, base)
        if value is not None and value not in limit:
            raise MacsError(f"{name} must be {limit}, not {shown(value)}.")
        return value
    options = get_args(kind) if get_origin(kind) in (UnionType, Union) else (kind,)
    for option in options:
        found = _as(option, name, value)
        if found is not MISFIT:
            return found
    wanted = " or ".join(_words(option) for option in options if option is not type(None))
    raise MacsError(f"{name} must be {wanted}, not {shown(value)}.")


def _as(kind: Any, name: str, value: Any) -> Any:
    """The value as one type, or MISFIT. Whole numbers may be written either way, and numpy's numbers will do."""
    found: Any = MISFIT
    number = isinstance(value, Real) and not isinstance(value, bool)
    if get_origin(kind) is Literal:
        found = value if value in get_args(kind) else MISFIT
    elif get_origin(kind) is dict:
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            found = {key: typed(f"{name}.{key}", each, get_args(kind)[1]) for key, each in value.items()}
    elif get_origin(kind) is tuple:
        found = _tuple(get_args(kind), name, value)
    elif isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        found = from_dict(kind, value)
    elif kind is float:
        found = float(value) if number and _finite(value) else MISFIT
    elif kind is int:
        whole = number and (isinstance(value, int) or (_finite(value) and value == int(value)))
        found = int(value) if whole else MISFIT
    elif kind is bool and value in ("true", "false"):
        found = value == "true"
    elif kind is str:
        found = _storable(name, str(value)) if isinstance(value, str) else MISFIT
    elif type(value) is kind:
        found = value
    return found


def _tuple(kinds: tuple[Any, ...], name: str, value: Any) -> Any:
    """A tuple of the given types, or of any length where `...` follows the only one; JSON has it as a list."""
    if not isinstance(value, list | tuple):
        return MISFIT
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(value) != len(kinds):
        return MISFIT
    return tuple(typed(f"{name}[{i}]", each, kind) for i, (each, kind) in enumerate(zip(value, kinds, strict=True)))


def _words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) is tuple:
        return "a list" if get_args(kind)[-1] is Ellipsis else f"a list of {len(get_args(kind))}"
    return "a table of settings" if get_origin(kind) is dict or is_dataclass(kind) else WORDS.get(kind, str(kind))


def _finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond all floats
        return False


def shown(value: Any) -> str:
    """A wrong value as it can stand in a sentence, however long it is."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of about {round(value.bit_length() * math.log10(2))} digits"
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number in it is too long for Python to print
        return f"a {type(value).__name__}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _storable(name: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MacsError(f"{name} is {shown(text)}, which UTF-8 cannot hold; rename the file or folder.") from None
    return text


def _kinds(settings: Any) -> dict[str, Any]:
    hints = get_type_hints(type(settings), include_extras=True)
    return {field.name: hints[field.name] for field in fields(settings) if field.init}
