"""Numbers that a user gives, held to their bounds. A number that is none (NaN) is within no bounds."""

from macs.core.errors import MacsError

LARGEST_IMAGE = 1024  # pixels an edge; more is a slip of the hand or an attack


def within(name: str, value: float, low: float, high: float, ends: str = "[]") -> float:
    """The value, if it lies between the bounds; `ends` are brackets as in mathematics, where ( excludes its bound."""
    above = value > low if ends[0] == "(" else value >= low
    below = value < high if ends[1] == ")" else value <= high
    if above and below:
        return value
    least = f"{'above' if ends[0] == '(' else 'at least'} {low:g}"
    most = f"{'below' if ends[1] == ')' else 'at most'} {high:g}"
    raise MacsError(f"{name} must be {least} and {most}, not {value}.")


def image_size(value: int) -> int:
    """The edge of square images, in pixels."""
    return int(within("The edge of the images, in pixels,", value, 1, LARGEST_IMAGE))
