"""The OpenAPI document: answers, failures, bodies; and /docs, a page made of it.

The fields of answers are the contract with the page and other clients: new ones may be added, but none is renamed or
removed. FastAPI's own page loads its scripts from a CDN and has an inline script; ours has no scripts, so that it works
without the internet and under the service's content security policy.
"""

from typing import Any

from jinja2 import Environment
from pydantic import BaseModel, ConfigDict, Field


class ImageVerdict(BaseModel):
    """The detector's verdict on one image."""

    model_config = ConfigDict(populate_by_name=True)

    name: str | None = Field(description="as it was sent; null where none was")
    class_name: str = Field(alias="class", description="the class that the image looks like, OOD or not")
    index: int = Field(description="the number of that class")
    confidence: float | None = Field(description="higher means ID; null where the network gave no finite number")
    p_value: float | None = Field(description="rank among the calibration images; null where the detector kept none")
    threshold: float = Field(description="the image is ID if its confidence reaches this")
    is_ood: bool


class ImageFailure(BaseModel):
    """An image that has no verdict, and why."""

    name: str | None
    reason: str = Field(description="one sentence")
    error: str = Field(description="the same, under its former name", deprecated=True)


class PredictAnswer(BaseModel):
    """One entry per image, in the order in which they were sent."""

    images: list[ImageVerdict | ImageFailure]
    request_id: str


class RowVerdict(BaseModel):
    """The detector's verdict on one row; `class` and `index` are null where no class is predicted."""

    model_config = ConfigDict(populate_by_name=True)

    class_name: str | None = Field(alias="class")
    index: int | None
    confidence: float | None
    p_value: float | None
    threshold: float
    is_ood: bool


class RowFailure(BaseModel):
    """A row that has no verdict, and why."""

    reason: str = Field(description="one sentence")
    error: str = Field(description="the same, under its former name", deprecated=True)


class RowsAnswer(BaseModel):
    """One entry per row, in the order in which they were sent, by a detector of features or logits."""

    rows: list[RowVerdict | RowFailure]
    request_id: str


class Failure(BaseModel):
    """Every answer that is not a success."""

    error: str = Field(description="one sentence: what was wrong and what to do")
    request_id: str


class CalibrationAnswer(BaseModel):
    images: int = Field(description="ID images that the thresholds were calibrated on")
    confidences: list[float] = Field(description="about 50 quantiles of their confidences, from 0 to 1; may be empty")


class LimitsAnswer(BaseModel):
    images: int = Field(description="in one request")
    bytes: int = Field(description="of a request's body")
    pixels: int = Field(description="of one image")


class DetectorAnswer(BaseModel):
    """The detector that answers, as `macs inspect` describes its file."""

    network: str
    score: str
    classes: list[str]
    thresholds: list[float] = Field(description="one, or one per class")
    keep: float = Field(description="share of new ID images that the thresholds keep")
    calibration: CalibrationAnswer
    preparation: dict[str, Any] | None = Field(description="of images; null if it judges rows")
    columns: dict[str, Any] | None = Field(None, description="the arrays of rows: the widths of features and logits")
    limits: LimitsAnswer
    version: str = Field(description="of macs, which serves it")
    checksum: str = Field(description="SHA-256 of the detector's file")


class DriftAnswer(BaseModel):
    """Whether recent p-values are still those of ID images; all fields are null if the detector has no p-values."""

    model_config = ConfigDict(extra="allow")

    alarm: bool | None
    evidence: float | None = Field(description="against it; at 1 the alarm is raised")
    images: int | None = Field(description="that the test has seen")


SENTENCES = {
    400: "the body is malformed",
    401: "the API key is missing or wrong",
    404: "there is no such model",
    408: "the body did not arrive in time",
    413: "too many bytes, images or pixels",
    415: "a body of another type",
    422: "a field or parameter that does not fit",
    429: "the queue is full; Retry-After says when to try again",
    503: "no answer in time",
}
FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": Failure, "description": sentence} for status, sentence in SENTENCES.items()
}
BINARY = {"type": "string", "format": "binary"}
RAW = ("image/png", "image/jpeg", "image/webp", "application/octet-stream")
IMAGE = {
    "type": "object",
    "required": ["base64"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": ["string", "null"]},
        "base64": {"type": "string", "format": "byte", "description": "an image file in base64"},
    },
}
NUMBERS = {"type": "array", "items": {"type": "array", "items": {"type": ["number", "null"]}}, "minItems": 1}
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["images"],
                    "additionalProperties": False,
                    "properties": {"images": {"type": "array", "items": BINARY, "minItems": 1}},
                }
            },
            "application/json": {
                "schema": {
                    "anyOf": [
                        {
                            "type": "object",
                            "required": ["images"],
                            "additionalProperties": False,
                            "properties": {"images": {"type": "array", "items": IMAGE, "minItems": 1}},
                        },
                        {
                            "type": "object",
                            "description": "of a detector of rows: the arrays that /v1/detector names",
                            "additionalProperties": False,
                            "properties": dict.fromkeys(("features", "logits", "probabilities"), NUMBERS),
                        },
                    ]
                }
            },
            **{kind: {"schema": BINARY} for kind in RAW},
        },
    }
}
TENSOR = {
    "type": "object",
    "required": ["name", "datatype", "shape"],
    "properties": {
        "name": {"enum": ["images", "files"]},
        "datatype": {"enum": ["UINT8", "BYTES"]},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "data": {"type": "array", "description": "numbers of images, or files in base64; absent if binary"},
        "parameters": {"type": "object", "properties": {"binary_data_size": {"type": "integer"}}},
    },
}
INFERENCE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["inputs"],
                    "properties": {
                        "id": {"type": "string"},
                        "inputs": {"type": "array", "items": TENSOR, "minItems": 1, "maxItems": 1},
                        "outputs": {"type": "array", "items": {"type": "object"}},
                        "parameters": {"type": "object"},
                    },
                }
            },
            "application/octet-stream": {"schema": BINARY},
        },
    }
}

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ info.title }} {{ info.version }}: interface</title>
<link rel="stylesheet" href="page/docs.css">
</head>
<body>
<main>
<h1>{{ info.title }} {{ info.version }}</h1>
<p>{{ info.summary }} The same as a document for programs: <a href="openapi.json">openapi.json</a>.</p>
{% for path, methods in paths.items() %}{% for method, route in methods.items() %}
<section>
<h2><code>{{ method | upper }} {{ path }}</code></h2>
<p>{{ route.description }}</p>
{% if route.parameters %}
<table>
<caption>Parameters</caption>
{% for each in route.parameters %}
<tr><th scope="row"><code>{{ each.name }}</code></th><td>{{ each.in }}</td><td>{{ each.description }}</td></tr>
{% endfor %}
</table>
{% endif %}
{% if route.requestBody %}
<p>Body: {% for kind in route.requestBody.content %}<code>{{ kind }}</code>{{ ", " if not loop.last }}{% endfor %}</p>
{% endif %}
<table>
<caption>Answers</caption>
{% for status, each in route.responses.items() %}
<tr><th scope="row">{{ status }}</th><td>{{ each.description }}</td></tr>
{% endfor %}
</table>
</section>
{% endfor %}{% endfor %}
<h2>Objects</h2>
{% for name, schema in components.schemas.items() %}
<section>
<h3>{{ name }}</h3>
<p>{{ schema.description }}</p>
<table>
<caption>Fields of {{ name }}</caption>
{% for field, each in schema.properties.items() %}
<tr><th scope="row"><code>{{ field }}</code></th><td>{{ each.description }}</td></tr>
{% endfor %}
</table>
</section>
{% endfor %}
</main>
</body>
</html>
"""


DOCS_STYLE = """:root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif; }
main { max-width: 50rem; margin: 0 auto; padding: 1rem; }
h2 { margin-top: 2.5rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; margin: 0.5rem 0; }
caption { text-align: left; font-weight: 600; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 1rem 0.25rem 0; border-top: 1px solid #8888; }
"""


def docs_page(document: dict[str, Any]) -> str:
    """The OpenAPI document as a page for people."""
    return Environment(autoescape=True, trim_blocks=True).from_string(PAGE).render(document)
