"""The bounds of what an evaluation can be asked for, known without torch and so before anything slow."""

from macs.core.errors import MacsError
from macs.metrics import check_draws


def check_protocol(trials: int, share: float, seed: int, fit_images: int) -> None:
    """Refuse a protocol that cannot be carried out; a standard error needs at least two draws."""
    check_draws(share, trials, seed, fewest=2)
    if fit_images < 0:
        raise MacsError(f"The number of training images to fit to must be 0, for all, or more, not {fit_images}.")
