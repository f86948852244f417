"""The limits of a service are held to what makes sense."""

import pytest

from macs.core.errors import MacsError
from macs.serve.settings import ServeSettings


def test_limits_outside_their_bounds_are_refused() -> None:
    for wrong in ({"batch": 0}, {"delay": -1}, {"queue": 0}, {"timeout": 0}, {"max_bytes": 0}, {"drift_rate": 1}):
        with pytest.raises(MacsError, match=next(iter(wrong))):
            ServeSettings(**wrong)


def test_a_request_must_fit_into_the_queue() -> None:
    with pytest.raises(MacsError, match="A request of 64 images can never enter a queue of 10"):
        ServeSettings(queue=10)
    assert ServeSettings(queue=10, max_images=10).most_buffered == 8 * 32 * 2**20
