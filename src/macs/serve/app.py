"""The service as an ASGI application: `create_app(path)` for any server; `macs serve` runs it with uvicorn."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from macs.core import __version__
from macs.serve import open_inference
from macs.serve.loaded_detector import DetectorFile, quiet_pillow
from macs.serve.middleware import Middleware
from macs.serve.openapi import (
    BODY,
    DOCS_STYLE,
    FAILURES,
    INFERENCE,
    DetectorAnswer,
    DriftAnswer,
    PredictAnswer,
    RowsAnswer,
    docs_page,
)
from macs.serve.service import Service, as_json
from macs.serve.settings import DEFAULT, ServeSettings
from macs.serve.uploads import Refused

NOTHING = "There is nothing here; /docs lists what there is."


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
    service = Service(DetectorFile(Path(path), providers, threads, net, score), settings)

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
    app.add_middleware(Middleware, service=service, key=api_key, host_names=host_names)
    return app


def add_routes(app: FastAPI, service: Service) -> None:
    app.post(
        "/v1/predict",
        response_model=PredictAnswer | RowsAnswer,
        responses=FAILURES,
        openapi_extra=BODY,
        tags=["verdicts"],
    )(service.predict)

    @app.get("/v1/detector", response_model=DetectorAnswer, tags=["verdicts"])
    async def detector() -> Response:
        """What is served: network, classes, thresholds, calibration, limits."""
        return as_json(service.watch.detector.describe(service.settings))

    @app.get("/v1/drift", response_model=DriftAnswer, tags=["operation"])
    async def drift() -> Response:
        """Whether recent images are still like those that the detector was calibrated on."""
        test = service.metrics.drift
        return as_json(dict.fromkeys(("alarm", "evidence", "images")) if test is None else test.state())

    @app.get("/healthz", tags=["operation"])
    async def healthz() -> Response:
        """200 while the process lives."""
        return as_json({"alive": True})

    @app.get("/readyz", tags=["operation"], responses={503: {"description": "starting or stopping"}})
    async def readyz() -> Response:
        """200 while requests are welcome; 503 before and after."""
        return as_json({"ready": service.ready}, 200 if service.ready else 503)

    @app.get("/metrics", tags=["operation"], response_class=Response)
    async def metrics() -> Response:
        """For Prometheus."""
        content = service.metrics.exposition()
        return Response(content, headers={"content-type": "text/plain; version=1.0.0; charset=utf-8"})


def add_inference_routes(app: FastAPI, service: Service) -> None:
    model = "/v2/models/{name}"

    @app.get("/v2", tags=["Open Inference Protocol v2"])
    async def server() -> Response:
        """The server's name and what it can do beyond the protocol."""
        return as_json({"name": "macs", "version": __version__, "extensions": ["binary_tensor_data"]})

    @app.get("/v2/health/live", tags=["Open Inference Protocol v2"])
    async def live() -> Response:
        """200 while the process lives."""
        return as_json({"live": True})

    @app.get("/v2/health/ready", tags=["Open Inference Protocol v2"], responses={503: {"description": "not ready"}})
    async def ready() -> Response:
        """200 while requests are welcome."""
        return as_json({"ready": service.ready}, 200 if service.ready else 503)

    for path in (model, f"{model}/versions/{open_inference.VERSION}"):
        options: dict[str, Any] = {
            "tags": ["Open Inference Protocol v2"],
            "responses": FAILURES,
            "include_in_schema": path == model,
        }

        @app.get(path, **options)
        async def metadata(name: str) -> Response:
            """The model's inputs and outputs."""
            return as_json(open_inference.metadata(service.model(name)))

        @app.get(f"{path}/ready", **options)
        async def model_ready(name: str) -> Response:
            """200 while the model answers."""
            service.model(name)
            return as_json({"name": name, "ready": service.started}, 200 if service.started else 503)

        app.post(f"{path}/infer", openapi_extra=INFERENCE, **options)(service.infer)


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
            raise Refused(404, NOTHING)
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


async def misfit(request: Request, error: Exception) -> NoReturn:
    """Refuse a parameter of the wrong type."""
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {"loc": ["?"], "msg": "is wrong"}
    why = str(first["msg"]).removeprefix("Value error, ")[:200]
    raise Refused(422, f"The parameter {first['loc'][-1]} does not fit: {why}.")


async def unrouted(request: Request, error: Exception) -> NoReturn:
    """Refuse a path that does not exist, or not with this method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    sentence = {404: NOTHING, 405: "This path takes another method."}.get(status, "The request cannot be served.")
    raise Refused(status, sentence, dict(getattr(error, "headers", None) or {}))
