"""The service as an ASGI application: `create_app(path)` for any server; `macs serve` runs it with uvicorn."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from macs.core.errors import MacsError
from macs.core.version import __version__
from macs.detector.verdicts import RankedAnswers, Verdicts, shortest
from macs.serve import inference, uploads
from macs.serve.documents import BODY, DOCS_STYLE, FAILURES, INFERENCE, docs_page
from macs.serve.gate import ClientGone, Gate, Visit, busy
from macs.serve.metrics import Metrics
from macs.serve.pipeline import Broken, Outcome, Overloaded, Pipeline
from macs.serve.schema import DetectorAnswer, DriftAnswer, PredictAnswer
from macs.serve.served import Served, Source, quiet_pillow
from macs.serve.settings import DEFAULT, ServeSettings
from macs.serve.uploads import Refused
from macs.serve.watch import Watch

IN_LOOP = 2**16  # bytes of a body that are parsed at once; larger ones are parsed in a thread
Threshold = Annotated[float | None, Query(description="stands in for the calibrated thresholds")]
Keep = Annotated[float | None, Query(description="share of ID images to keep, above 0 and below 1")]


class Service:
    """The parts of one service, and what its routes do with them."""

    def __init__(self, source: Source, settings: ServeSettings) -> None:
        self.settings = settings
        self.watch = Watch(source, self._reloaded)
        self.metrics = Metrics(self.watch.served, settings.drift_rate)
        self.pipeline = Pipeline(settings.batch, settings.delay / 1000, settings.queue, self.metrics)
        self.metrics.limit.set(settings.queue)
        self.metrics.queue.set_function(lambda: self.pipeline.inside)
        self.ready = False
        self.gate: Gate

    def _reloaded(self, succeeded: bool) -> None:
        self.metrics.reloads.labels("loaded" if succeeded else "refused").inc()
        if succeeded:
            self.metrics.on_detector(self.watch.served)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """From the first request to the last."""
        self.pipeline.start()
        interval = self.settings.watch
        looking = asyncio.create_task(self.watch.run(interval)) if interval else None
        self.ready = True
        try:
            yield
        finally:
            self.ready = False
            if looking is not None:
                looking.cancel()
            await self.pipeline.close()

    async def predict(self, request: Request, threshold: float | None, keep: float | None) -> dict[str, Any]:
        """The answer of /v1/predict."""
        served = self.watch.served
        refuse_unknown(request, "threshold", "keep")
        tau = thresholds(served, threshold, keep)
        body = await self.gate.body(request.receive)
        try:
            content_type = request.headers.get("content-type", "")
            sent = await beside(len(body), lambda: uploads.parse(content_type, body, self.settings.max_images))
            outcomes = await self.judge(request, served, uploads.reads(sent, self.settings.max_pixels))
        finally:
            self.gate.release(len(body))
        rows = verdict_rows(served, outcomes, tau)
        images = [{"name": upload.name, **row} for upload, row in zip(sent, rows, strict=True)]
        return {"images": images, "request_id": self.record(request, rows)}

    async def infer(self, request: Request, name: str, threshold: float | None, keep: float | None) -> Response:
        """The answer of /v2/models/NAME/infer."""
        served = self.model(name)
        refuse_unknown(request, "threshold", "keep")
        body = await self.gate.body(request.receive)
        try:
            length, limits = request.headers.get(inference.HEADER), self.settings
            asked = await beside(len(body), lambda: inference.parse(body, length, limits.max_images, limits.max_pixels))
            given = {"threshold": threshold, "keep": keep} | asked.settings
            tau = thresholds(served, **given)
            reads = [partial_read(image, self.settings.max_pixels) for image in asked.images]
            outcomes = await self.judge(request, served, reads)
        finally:
            self.gate.release(len(body))
        rows = verdict_rows(served, outcomes, tau)
        self.record(request, rows)
        for place, row in enumerate(rows):
            if "error" in row:
                raise Refused(422, f"Image {place} of {len(rows)}: {row['error']}")
        keys = {"label": "index", "class": "class"}
        columns = {column: [row[keys.get(column, column)] for row in rows] for column in inference.OUTPUTS}
        content, json_length = inference.answer(asked, served, columns)
        if json_length is None:
            return Response(content, media_type="application/json")
        return Response(content, headers={inference.HEADER: str(json_length)}, media_type="application/octet-stream")

    async def judge(self, request: Request, served: Served, reads: "list[Callable[[Served], Any]]") -> list[Outcome]:
        """The outcomes of a request's images, unless its client hangs up or the time is over."""
        work = asyncio.current_task()
        gone = False

        async def watch_client() -> None:
            nonlocal gone
            while (await request.receive())["type"] != "http.disconnect":
                pass
            gone = True
            if work is not None:
                work.cancel()

        watching = asyncio.create_task(watch_client())
        try:
            async with asyncio.timeout(self.settings.timeout):
                return await self.pipeline.judge(served, reads)
        except asyncio.CancelledError:
            if gone and work is not None:
                work.uncancel()
                raise ClientGone from None
            raise
        except TimeoutError:
            raise Refused(503, f"The images were not judged within {self.settings.timeout:g} seconds.") from None
        except Overloaded as overload:
            raise busy(overload) from None
        except Broken:
            raise Refused(500, "The network failed on these images; the service's log says why.") from None
        finally:
            watching.cancel()

    def record(self, request: Request, rows: list[dict[str, Any]]) -> str:
        """Count the verdicts; returns the request's id."""
        visit: Visit = request.scope["macs.visit"]
        judged = [row for row in rows if "error" not in row]
        is_ood = [row["is_ood"] for row in judged]
        visit.images, visit.ood = len(rows), sum(is_ood)
        self.metrics.on_verdicts(is_ood, len(rows) - len(judged))
        return visit.request_id

    def model(self, name: str) -> Served:
        if name != self.watch.served.name:
            raise Refused(404, f"There is no model of this name; the one served is {self.watch.served.name!r}.")
        return self.watch.served


def thresholds(served: Served, threshold: float | None, keep: float | None) -> "np.typing.NDArray[np.float32]":
    try:
        return served.thresholds(threshold, keep)
    except MacsError as error:
        raise Refused(422, error.sentence) from None


def partial_read(image: inference.Pixels | uploads.Upload, most_pixels: int) -> Callable[[Served], Any]:
    return lambda served: image.read(served, most_pixels)


async def beside(size: int, work: Callable[[], Any]) -> Any:
    """The result of work on so many bytes; in a thread if it would keep other requests waiting."""
    return work() if size <= IN_LOOP else await asyncio.to_thread(work)


def refuse_unknown(request: Request, *known: str) -> None:
    """Refuse parameters that do not exist: a mistyped threshold would silently be the calibrated one."""
    for name in request.query_params:
        if name not in known:
            raise Refused(422, f"There is no parameter {name[:80]!r}; there are {' and '.join(known)}.")


def verdict_rows(served: Served, outcomes: list[Outcome], tau: "np.typing.NDArray[np.float32]") -> list[dict[str, Any]]:
    """One row per image, by the rule of `macs predict`, or the reason why there is none."""
    judged = [outcome for outcome in outcomes if outcome.answers is not None]
    rows = iter(judged_rows(served, judged, tau) if judged else ())
    return [
        {"error": f"Cannot read the image: {outcome.reason}."} if outcome.answers is None else next(rows)
        for outcome in outcomes
    ]


def judged_rows(served: Served, outcomes: list[Outcome], tau: "np.typing.NDArray[np.float32]") -> list[dict[str, Any]]:
    columns = [
        np.array([getattr(outcome.answers, name)[outcome.row] for outcome in outcomes])
        for name in ("predictions", "confidences", "p_values")
    ]
    verdicts: Verdicts = served.runtime.judge(RankedAnswers(*columns), tau)
    bounds = tau[verdicts.predictions] if tau.ndim else np.broadcast_to(tau, len(outcomes))
    return [
        {
            "class": name,
            "index": int(label),
            "confidence": number(confidence),
            "p_value": number(p_value),
            "threshold": shortest(bound),
            "is_ood": bool(is_ood),
        }
        for name, label, confidence, p_value, bound, is_ood in zip(
            verdicts.names,
            verdicts.predictions,
            verdicts.confidences,
            verdicts.p_values,
            bounds,
            verdicts.is_ood,
            strict=True,
        )
    ]


def number(value: np.float32) -> float | None:
    """JSON has no NaN and no infinity."""
    return shortest(value) if math.isfinite(value) else None


def create_app(
    path: str | Path,
    *,
    settings: ServeSettings = DEFAULT,
    api_key: str | None = None,
    providers: tuple[str, ...] = (),
    threads: int = 0,
    net: str | None = None,
    score: str | None = None,
) -> FastAPI:
    """The service of a detector file, .onnx or .safetensors; the file is loaded now, so that mistakes show at once."""
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
    options = {"settings": settings, "pipeline": service.pipeline, "metrics": service.metrics, "key": api_key}

    def gate(inner: Any) -> Gate:
        service.gate = Gate(inner, **options)  # type: ignore[arg-type]
        return service.gate

    app.add_middleware(gate)  # type: ignore[arg-type]
    app.middleware_stack = app.build_middleware_stack()
    return app


def add_routes(app: FastAPI, service: Service) -> None:
    @app.post("/v1/predict", response_model=PredictAnswer, responses=FAILURES, openapi_extra=BODY, tags=["verdicts"])
    async def predict(request: Request, threshold: Threshold = None, keep: Keep = None) -> Response:
        """Judge images: those of one request share its threshold. An image that cannot be read gets a reason."""
        return answered(await service.predict(request, threshold, keep))

    @app.get("/v1/detector", response_model=DetectorAnswer, tags=["verdicts"])
    async def detector() -> Response:
        """What is served: network, classes, thresholds, calibration, limits."""
        return answered(service.watch.served.describe(service.settings))

    @app.get("/v1/drift", response_model=DriftAnswer, tags=["operation"])
    async def drift() -> Response:
        """Whether the images of late are still such as the detector was calibrated on."""
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
    found = {"docs.css": DOCS_STYLE.encode()}
    for name in kinds:
        with suppress(FileNotFoundError):
            found[name] = (folder / name).read_bytes()

    def page(name: str) -> Response:
        if name not in found:
            raise Refused(404, "There is nothing here; /docs lists what there is.")
        return Response(found[name], media_type=kinds[name], headers={"cache-control": "no-cache"})

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
    sentence = f"The parameter {first['loc'][-1]} does not fit: {first['msg'][:200]}."
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
