"""5,000 malformed requests to one running service: mutated images, forms, JSON and tensors, and whatever schemathesis
makes of the OpenAPI document. None is answered 500, and the service stays up.

Takes minutes: `pytest -m fuzz` runs it; $MACS_FUZZ is the number of requests.
"""

import base64
import io
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import numpy as np
import pytest
from PIL import Image

from running import Running, serving
from tiny import noise

pytestmark = pytest.mark.fuzz
REQUESTS = int(os.environ.get("MACS_FUZZ", "5000"))
BOUNDARY = b"----boundary"
STATUSES = {200, 400, 401, 404, 405, 408, 413, 415, 422, 429}


@pytest.fixture(scope="module")
def target(exported: Path) -> Iterator[Running]:
    with serving(exported, "--threads", 1, "--timeout", 10) as service:
        yield service
        assert service.process.poll() is None
        told = httpx.get(f"{service.url}/metrics", timeout=60).text
        assert "\nmacs_buffered_bytes 0.0\n" in told and "\nmacs_queue_images 0.0\n" in told
        assert service.stop() == 0
        assert not [line for line in service.lines if '"level": "error"' in line or '"status": 5' in line]


def seeds() -> list[bytes]:
    """One picture in every format that is read, of several modes."""
    pixels = noise(1, seed=1, size=24).pixels[:][0]
    found = []
    for kind in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM"):
        for mode in ("RGB", "L", "P"):
            if not (mode == "P" and kind in ("JPEG", "WEBP", "PPM")):
                file = io.BytesIO()
                Image.fromarray(pixels).convert(mode).save(file, kind)
                found.append(file.getvalue())
    return found


def mutated(content: bytes, random: np.random.Generator) -> bytes:
    """With some bytes changed, taken away, doubled or put in."""
    data = bytearray(content)
    for _ in range(random.integers(1, 6)):
        start = int(random.integers(0, len(data) + 1))
        length = int(random.integers(1, 40))
        match random.integers(0, 5):
            case 0:
                data[start : start + length] = random.bytes(len(data[start : start + length]))
            case 1:
                del data[start : start + length]
            case 2:
                data[start:start] = random.bytes(length)
            case 3:
                data[start:start] = data[start : start + length]
            case _:
                data[start : start + 4] = b"\xff\xff\xff\xff"
    return bytes(data)


def form_of(contents: list[bytes]) -> bytes:
    head = b'\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
    return b"".join(b"--" + BOUNDARY + head + each + b"\r\n" for each in contents) + b"--" + BOUNDARY + b"--\r\n"


def tensor_of(pixels: Any, random: np.random.Generator) -> bytes:
    shape = (
        [int(random.integers(-1, 40)) for _ in range(random.integers(1, 6))] if random.random() < 0.5 else [1, 8, 8, 3]
    )
    kinds: list[Any] = ["UINT8", "BYTES", "FP32", None, 7]
    names: list[Any] = ["images", "files", "x", None]
    image = {
        "name": names[random.integers(0, 4)],
        "datatype": kinds[random.integers(0, 5)],
        "shape": shape,
        "data": pixels,
    }
    return json.dumps({"inputs": [image] * int(random.integers(1, 3))}).encode()


def request_of(pictures: list[bytes], random: np.random.Generator) -> dict[str, Any]:
    """A request of one of five kinds, malformed in its image or around it."""
    picture = pictures[random.integers(0, len(pictures))]
    kind = random.integers(0, 5)
    if kind == 0:
        content, header = mutated(picture, random), "image/png"
    elif kind == 1:
        content, header = form_of([mutated(picture, random)] * int(random.integers(1, 4))), "multipart/form-data"
    elif kind == 2:
        content, header = mutated(form_of([picture]), random), "multipart/form-data"
    elif kind == 3:
        told = json.dumps({"images": [{"name": "a", "base64": base64.b64encode(picture).decode()}]}).encode()
        content, header = mutated(told, random), "application/json"
    else:
        content, header = tensor_of(random.integers(-1, 300, 192).tolist(), random), "application/json"
        content = content if random.random() < 0.7 else mutated(content, random)
    headers = {"content-type": header if header[0] != "m" else f"{header}; boundary={BOUNDARY.decode()}"}
    if random.random() < 0.1:
        headers["inference-header-content-length"] = str(random.integers(-5, 500))
    path = "/v2/models/d/infer" if kind == 4 else "/v1/predict"
    return {"url": path, "content": content, "headers": headers}


def test_mutated_requests(target: Running) -> None:
    random, pictures, count = np.random.default_rng(0), seeds(), Counter[int]()
    with httpx.Client(base_url=target.url, timeout=60) as client:
        for _ in range(REQUESTS * 85 // 100):
            request = request_of(pictures, random)
            answer = client.post(**request)
            count[answer.status_code] += 1
            assert answer.status_code in STATUSES, (request, answer.text)
            assert "Traceback" not in answer.text
    print(count)
    assert count[200] and count[400] and count[422]


def send(operation: Any, mode: Any, examples: int, count: Counter[int]) -> None:
    """Requests to one route, which fit the document or do not."""

    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        if operation.method.upper() == "POST" and case.path_parameters:
            case.path_parameters["name"] = "d"  # or nothing but 404 would come back
        answer = case.call(timeout=60)
        count[answer.status_code] += 1
        assert answer.status_code in STATUSES, answer.text

    with suppress(hypothesis.errors.Unsatisfiable):  # a route without parameters cannot be asked wrongly
        ask()


def test_what_schemathesis_makes_of_the_document(target: Running) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    schema = schemathesis.openapi.from_url(f"{target.url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    posts = [operation for operation in operations if operation.method.upper() == "POST"]
    each = max(1, REQUESTS * 3 // 10 // (len(posts) * 8 + len(operations)))
    count: Counter[int] = Counter()
    for operation in operations:
        examples = each * (8 if operation in posts else 1) // 2 + 1
        for mode in schemathesis.GenerationMode:
            send(operation, mode, examples, count)
    print(count)
    assert count.total() > REQUESTS // 10 and count[422] + count[400] > 0
