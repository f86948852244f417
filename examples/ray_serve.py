"""The service under Ray Serve: replicas whose number follows the load, each with an application of its own.

    serve.run(application("/models/detector.onnx", max_replicas=8))                                  # in Python
    serve run --app-dir examples ray_serve:build path=/models/detector.onnx max_replicas=8           # in a shell

The application is built inside each replica, because its ONNX Runtime session cannot be sent there. Replicas need macs,
but not this file.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from macs.core.errors import MacsError
from macs.core.files import is_url
from macs.data.stores import content_of
from macs.serve.app import create_app
from macs.serve.metrics import write_log
from macs.serve.middleware import key_of_clients
from macs.serve.settings import DEFAULT, ServeSettings

NAME = "macs"  # of the deployment
REPLICAS = 4  # at most, by default


def application(
    path: str | Path,
    *,
    threads: int = 1,
    settings: ServeSettings = DEFAULT,
    api_key: str | None = None,
    host_names: Sequence[str] = (),
    **autoscaling: Any,
) -> Any:
    """An application for `serve.run`, of a detector file at a path that every node can read, or at a URL.

    Without an API key it answers as `host_names`, as localhost and as an address in digits; "*" is any name.
    A replica takes `threads` CPUs of the cluster. `autoscaling` are fields of Ray's AutoscalingConfig, such as
    `min_replicas`, `max_replicas` and `target_ongoing_requests`, which is half a batch by default.
    """
    try:
        from ray import cloudpickle, serve
        from ray.serve.config import AutoscalingConfig
    except ImportError:
        raise MacsError("Serving on Ray needs Ray Serve: pip install 'macs-ood[ray-serve]'.") from None

    unknown = autoscaling.keys() - AutoscalingConfig.model_fields.keys()
    if unknown:
        raise MacsError(f"Ray's AutoscalingConfig has no field {min(unknown)!r}; see its documentation.")
    scaling = {"max_replicas": REPLICAS, "target_ongoing_requests": max(1, settings.batch // 2)} | autoscaling
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    where = str(path) if is_url(str(path)) else str(Path(path).absolute())

    def build_in_replica() -> Any:
        return replica_app(where, threads, settings, api_key, tuple(host_names))

    deployed: Any = serve.deployment(
        name=NAME,
        autoscaling_config=AutoscalingConfig(**scaling),
        # A replica with a full queue answers 429 by itself, as it does without Ray; beyond that, Ray answers 503.
        max_ongoing_requests=2 * settings.queue,
        max_queued_requests=settings.queue,
        graceful_shutdown_timeout_s=2 * settings.timeout + 1,
        ray_actor_options={"num_cpus": threads},
    )(serve.ingress(build_in_replica)())
    return deployed.bind()


def replica_app(
    where: str, threads: int, settings: ServeSettings, api_key: str | None, host_names: Sequence[str] = ()
) -> Any:
    """The application of one replica, from a file, or from a URL by way of a file that is read once."""
    write_log()
    if not is_url(where):
        return create_app(where, settings=settings, threads=threads, api_key=api_key, host_names=host_names)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / where.rpartition("/")[2]
        file.write_bytes(content_of(where))
        return create_app(file, settings=settings, threads=threads, api_key=api_key, host_names=host_names)


class Wanted(BaseModel, extra="forbid"):
    """The arguments of `serve run` and of Ray's configuration files."""

    path: str
    threads: int = 1
    min_replicas: int = 1
    max_replicas: int = REPLICAS
    host_names: str = ""  # separated by commas


def build(wanted: Wanted) -> Any:
    """An application for `serve run` and `serve deploy`; the API key comes from $MACS_API_KEY."""
    host_names = [name.strip() for name in wanted.host_names.split(",") if name.strip()]
    return application(**(wanted.model_dump() | {"host_names": host_names}), api_key=key_of_clients())
