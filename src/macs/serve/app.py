"""The service as an ASGI application: `create_app(path)` for any server; `macs serve` runs it with uvicorn."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BeforeValidator
from starlette.exceptions import HTTPException

from macs.core.version import __version__
from macs.serve import inference
from macs.serve.documents import BODY, DOCS_STYLE, FAILURES, INFERENCE, docs_page
from macs.serve.gate import Gate
from macs.serve.schema import DetectorAnswer, DriftAnswer, PredictAnswer
from macs.serve.served import Source, quiet_pillow
from macs.serve.service import Service
from macs.serve.settings import DEFAULT, ServeSettings
from macs.serve.uploads import Refused


def plain(value: object) -> object:
    """Refuse what only Python takes for a number, such as 1_0."""
    if isinstance(value, str) and ("_" in value or not value.isascii()):
        raise ValueError("it is not a number")
    return value


Threshold = Annotated[float | None, BeforeValidator(plain), Query(description="replaces the calibrated thresholds")]
Keep = Annotated[
    float | None, BeforeValidator(plain), Query(description="share of ID images to keep, above 0 and below 1")
]


def create_app(
    path: str | Path,
    *,
    settings: ServeSettings = DEFAULT,
    api_key: str | None = None,
    host_names: Sequence[str] = (),
    providers: tuple[str, ...] = (),
    threads: int = 0,
    net: str | None = None,
    score: str | None = None,
) -> FastAPI:
    """The service of a detector file, .onnx or .safetensors; the file is loaded now, so that mistakes show at once.

    Without an API key it answers as localhost, as an address in digits, and as `host_names`, of which "*" is any.
    """
    quiet_pillow()
    service = Service(Source(Path(path), providers, threads, net, score), settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="macs",
        version=__version__,
        summary="Class, confidence and an in- or out-of-distribution verdict for every image.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    add_routes(app, service)
    add_inference_routes(app, service)
    add_pages(app)
    app.add_exception_handler(RequestValidationError, misfit)
    app.add_exception_handler(HTTPException, unrouted)
    app.add_exception_handler(Refused, raised)

    def gate(inner: Any) -> Gate:
        service.gate = Gate(
            inner,
            settings=settings,
            pipeline=service.pipeline,
            metrics=service.metrics,
            key=api_key,
            host_names=host_names,
        )
        return service.gate

    app.add_middleware(gate)
    app.middleware_stack = app.build_middleware_stack()
    return app


def add_routes(app: FastAPI, service: Service) -> None:
    @app.post("/v1/predict", response_model=PredictAnswer, responses=FAILURES, openapi_extra=BODY, tags=["verdicts"])
    async def predict(request: Request, threshold: Threshold = None, keep: Keep = None) -> Response:
        """Judge images: those of one request share its threshold. An unreadable image gets a reason instead."""
        return answered(await service.predict(request, threshold, keep))

    @app.get("/v1/detector", response_model=DetectorAnswer, tags=["verdicts"])
    async def detector() -> Response:
        """What is served: network, classes, thresholds, calibration, limits."""
        return answered(service.watch.served.describe(service.settings))

    @app.get("/v1/drift", response_model=DriftAnswer, tags=["operation"])
    async def drift() -> Response:
        """Whether recent images are still like those that the detector was calibrated on."""
        test = service.metrics.drift
        return answered(dict.fromkeys(("alarm", "evidence", "images")) if test is None else test.state())

    @app.get("/healthz", tags=["operation"])
    async def healthz() -> Response:
        """200 while the process lives."""
        return answered({"alive": True})

    @app.get("/readyz", tags=["operation"], responses={503: {"description": "starting or stopping"}})
    async def readyz() -> Response:
        """200 while requests are welcome; 503 before and after."""
        ready = service.ready and not service.gate.draining
        return answered({"ready": ready}, 200 if ready else 503)

    @app.get("/metrics", tags=["operation"], response_class=Response)
    async def metrics() -> Response:
        """For Prometheus."""
        service.metrics.buffered.set(service.gate.buffered)
        content = service.metrics.exposition()
        return Response(content, headers={"content-type": "text/plain; version=1.0.0; charset=utf-8"})


def add_inference_routes(app: FastAPI, service: Service) -> None:
    model = "/v2/models/{name}"

    @app.get("/v2", tags=["Open Inference Protocol v2"])
    async def server() -> Response:
        """The server's name and what it can do beyond the protocol."""
        return answered({"name": "macs", "version": __version__, "extensions": ["binary_tensor_data"]})

    @app.get("/v2/health/live", tags=["Open Inference Protocol v2"])
    async def live() -> Response:
        """200 while the process lives."""
        return answered({"live": True})

    @app.get("/v2/health/ready", tags=["Open Inference Protocol v2"], responses={503: {"description": "not ready"}})
    async def ready() -> Response:
        """200 while requests are welcome."""
        state = service.ready and not service.gate.draining
        return answered({"ready": state}, 200 if state else 503)

    for path in (model, f"{model}/versions/{inference.VERSION}"):
        options: dict[str, Any] = {
            "tags": ["Open Inference Protocol v2"],
            "responses": FAILURES,
            "include_in_schema": path == model,
        }

        @app.get(path, **options)
        async def metadata(name: str) -> Response:
            """The model's inputs and outputs."""
            return answered(inference.metadata(service.model(name)))

        @app.get(f"{path}/ready", **options)
        async def model_ready(name: str) -> Response:
            """200 while the model answers."""
            service.model(name)
            return answered({"name": name, "ready": service.ready}, 200 if service.ready else 503)

        @app.post(f"{path}/infer", openapi_extra=INFERENCE, **options)
        async def infer(name: str, request: Request, threshold: Threshold = None, keep: Keep = None) -> Response:
            """Judge a tensor of pixels (images) or of image files (files); tensors may be binary."""
            return await service.infer(request, name, threshold, keep)


def add_pages(app: FastAPI) -> None:
    """The page, and the documentation of the routes; neither loads anything from elsewhere."""
    folder = files("macs.serve") / "page"
    kinds = {"index.html": "text/html", "app.js": "text/javascript", "style.css": "text/css", "docs.css": "text/css"}
    contents = {"docs.css": DOCS_STYLE.encode()}
    for name in kinds:
        with suppress(FileNotFoundError):
            contents[name] = (folder / name).read_bytes()

    def page(name: str) -> Response:
        if name not in contents:
            raise Refused(404, "There is nothing here; /docs lists what there is.")
        return Response(contents[name], media_type=kinds[name], headers={"cache-control": "no-cache"})

    @app.get("/", include_in_schema=False)
    async def index() -> Response:
        return page("index.html")

    @app.get("/page/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        return page(name)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(docs_page(app.openapi()), media_type="text/html")


def answered(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value, allow_nan=False), status, media_type="application/json")


async def misfit(request: Request, error: Exception) -> Response:
    """A parameter of the wrong type."""
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {"loc": ["?"], "msg": "is wrong"}
    sentence = (
        f"The parameter {first['loc'][-1]} does not fit: {str(first['msg']).removeprefix('Value error, ')[:200]}."
    )
    return await raised(request, Refused(422, sentence))


async def unrouted(request: Request, error: Exception) -> Response:
    """No such path, or not with this method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    sentence = {404: "There is nothing here; /docs lists what there is.", 405: "This path takes another method."}
    headers = dict(getattr(error, "headers", None) or {})
    return await raised(request, Refused(status, sentence.get(status, "The request cannot be served."), headers))


async def raised(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    content = {"error": error.sentence, "request_id": request.scope["macs.visit"].request_id}
    return Response(json.dumps(content), error.status, headers=error.headers, media_type="application/json")
