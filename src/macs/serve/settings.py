"""The service's limits and its batching; every field is an option of `macs serve`."""

from dataclasses import dataclass
from typing import Annotated

from macs.core import settings
from macs.core.errors import MacsError
from macs.core.settings import Span


@dataclass(frozen=True)
class ServeSettings:
    """What a service allows, and how long it waits."""

    batch: Annotated[int, Span(1, 4096)] = 32
    """Most images that share one pass of the network; fewer where images are large."""

    delay: Annotated[float, Span(0, 1000)] = 0.0
    """Milliseconds that an image may wait for others while the network has nothing to do."""

    queue: Annotated[int, Span(1, 1_000_000)] = 128
    """Images that may be in the service at once; a request beyond that is answered 429."""

    max_images: Annotated[int, Span(1, 100_000)] = 64
    """Images in one request."""

    max_bytes: Annotated[int, Span(1, 2**32)] = 32 * 2**20
    """Bytes of a request's body; the bodies of all requests together may hold eight times as many."""

    max_pixels: Annotated[int, Span(1, 2**31)] = 40_000_000
    """Pixels of one image; half as many for WebP and TIFF and two thirds for progressive JPEG, which take more."""

    max_connections: Annotated[int, Span(1, 100_000)] = 1000
    """Connections that may be open at once."""

    timeout: Annotated[float, Span(0, 3600, open="least")] = 30.0
    """Seconds in which a request must have arrived, and again in which it must be answered."""

    watch: Annotated[float, Span(0, 3600)] = 1.0
    """Seconds between two looks at the detector's file, which is loaded again when it changes; 0: never."""

    drain: Annotated[float, Span(0, 3600)] = 0.5
    """Seconds after SIGTERM in which requests are still accepted, while /readyz says no."""

    drift_rate: Annotated[float, Span(0, 1, open="both")] = 1e-8
    """False alarms per image that the drift test may raise."""

    def __post_init__(self) -> None:
        settings.check(self)
        if self.max_images > self.queue:
            raise MacsError(
                f"A request of {self.max_images} images can never enter a queue of {self.queue}; "
                "allow fewer images in a request (max_images), or more in the queue."
            )

    @property
    def most_buffered(self) -> int:
        """Bytes of bodies that are held at once, over all requests."""
        return 8 * self.max_bytes


DEFAULT = ServeSettings()
