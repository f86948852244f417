"""`macs serve`."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from macs.cli._app import Provider, Whole
from macs.core.console import tell
from macs.core.errors import MacsError
from macs.core.settings import Span
from macs.serve.settings import DEFAULT, ServeSettings

PACKAGES = ("fastapi", "uvicorn", "httptools", "python_multipart", "prometheus_client", "onnxruntime")


def serve(
    detector: Path,
    /,
    *,
    host: str = "127.0.0.1",
    port: Whole = 8000,
    host_name: Annotated[list[str] | None, Parameter(negative="")] = None,
    settings: Annotated[ServeSettings, Parameter(name="*")] = DEFAULT,
    api_key_file: Path | None = None,
    provider: Provider = None,
    threads: Whole | None = None,
    workers: Whole | None = None,
    net: str | None = None,
    score: str | None = None,
) -> None:
    """Serve a detector over HTTP, without torch: verdicts, metrics, and a web page to try it.

    POST /v1/predict takes images as files of a form, as JSON with base64, or as the body itself, and rows of features
    or logits as JSON; /v2 follows the Open Inference Protocol, and /docs lists all routes. Only this machine can reach
    the service unless --host says otherwise; docs/deploy.md explains how to run it for others.

        macs serve detector.onnx
        curl --data-binary @cat.png -H 'Content-Type: image/png' http://127.0.0.1:8000/v1/predict

    Parameters
    ----------
    detector
        File from `macs export`; one from `macs calibrate`, which is exported first; or hf://org/name. When it changes,
        or on SIGHUP, it is loaded again while requests go on; a damaged file is reported and not loaded.
    host
        Address to listen on; 0.0.0.0 means every address of this machine.
    port
        Port to listen on; 0 means any free one.
    host_name
        Name by which clients may reach a service without a key, besides localhost and addresses in digits; '*' for any
        name, which also lets a web page that somebody visits ask the service.
    api_key_file
        File with the key that clients must send [default: $MACS_API_KEY, if it is set].
    threads
        Threads of the network [default: one per core].
    workers
        Threads that decode images [default: one per core, at most 8].
    net
        A network of your own in a .safetensors file, as module:Class; nothing else that the file names is imported.
    score
        A score of your own, likewise.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise MacsError(f"Serving needs {' and '.join(missing)}; pip install 'macs-ood[serve]'.")
    from macs.data.batches import set_workers
    from macs.detector.hub import ONNX, PYTORCH, local_file
    from macs.serve.app import create_app
    from macs.serve.metrics import write_log
    from macs.serve.middleware import key_of_clients
    from macs.serve.server import bind
    from macs.serve.server import serve as run

    Span(0, 65535).hold("--port", port)
    if threads is not None:
        Span(1, 1024).hold("--threads", threads)
    set_workers(workers)
    key = key_of_clients(api_key_file)
    bound = bind(host, port)
    write_log()
    application = create_app(
        local_file(detector, [ONNX, PYTORCH]),
        settings=settings,
        api_key=key,
        host_names=host_name or (),
        providers=tuple(provider or ()),
        threads=threads or 0,
        net=net,
        score=score,
    )
    run(application, bound, settings, lambda address: tell(f"{detector} answers at {address}; Ctrl-C stops it."))
