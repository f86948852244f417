"""The service under Ray Serve: replicas of the same application, whose number follows the load.

    from ray import serve
    from macs.serve.on_ray import deployment

    serve.run(deployment("detector.onnx", max_replicas=8))

Every replica loads the file by itself, so its path must lead to it on every machine of the cluster. The metrics and the
drift test of a replica are about the images that it has judged.
"""

from functools import partial
from pathlib import Path
from typing import Any

from macs.core.errors import MacsError
from macs.serve.settings import DEFAULT, ServeSettings


def deployment(
    path: str | Path,
    *,
    min_replicas: int = 1,
    max_replicas: int = 4,
    cores: float = 1,
    settings: ServeSettings = DEFAULT,
    **options: Any,
) -> Any:
    """An application for `serve.run`; `options` are those of `create_app`, `cores` those of one replica."""
    try:
        from ray import serve
    except ImportError:
        raise MacsError("Ray Serve is not installed; pip install 'macs-ood[ray-serve]'.") from None
    if not 1 <= min_replicas <= max_replicas:
        raise MacsError(
            f"There must be at least one replica, and min_replicas ({min_replicas}) must not exceed "
            f"max_replicas ({max_replicas})."
        )
    build = partial(application, str(Path(path).absolute()), settings, {"threads": max(1, int(cores)), **options})

    class Macs:
        pass

    # A replica has work for two passes of its network before Ray starts another one.
    scaling = {
        "min_replicas": min_replicas,
        "max_replicas": max_replicas,
        "target_ongoing_requests": 2 * settings.batch,
    }
    return serve.deployment(
        name="macs",
        autoscaling_config=scaling,
        max_ongoing_requests=4 * settings.queue,  # our own queue answers 429, which Ray would let wait
        ray_actor_options={"num_cpus": cores},
    )(serve.ingress(build)(Macs)).bind()


def application(path: str, settings: ServeSettings, options: dict[str, Any]) -> Any:
    """Built in the replica: sessions and threads cannot travel."""
    from macs.serve.app import create_app

    return create_app(path, settings=settings, **options)
