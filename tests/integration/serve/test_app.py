"""The routes of a running service: verdicts equal those of `macs predict`, and every bad request gets one sentence."""

import base64
import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from command import run
from macs.core import __version__
from macs.data import ImageSet
from macs.detector import Detector, Runtime
from running import Running, form, png, verdicts
from tiny import noise, stripes


def predicted(
    capsys: pytest.CaptureFixture[str], folder: Path, detector: Path, *options: object
) -> list[dict[str, Any]]:
    """What `macs predict` prints of the pictures, by name."""
    capsys.readouterr()
    run("predict", folder, "--detector", detector, "--json", *options)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return sorted(rows, key=lambda row: row["path"])


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Equal verdicts, with numbers equal to rounding: a network rounds by the size of its batch."""
    assert [(row["class"], row["index"], row["is_ood"]) for row in found] == [
        (row["class"], row["index"], row["is_ood"]) for row in expected
    ]
    for key in ("confidence", "p_value"):
        np.testing.assert_allclose([row[key] for row in found], [row[key] for row in expected], rtol=1e-5)


def test_verdicts_in_every_form_are_those_of_macs_predict(
    client: httpx.Client,
    pictures: dict[str, bytes],
    folder: Path,
    exported: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = predicted(capsys, folder, exported)
    assert len({row["is_ood"] for row in expected}) == 2
    entries = [{"name": name, "base64": base64.b64encode(each).decode()} for name, each in pictures.items()]
    as_form, as_json = (
        client.post("/v1/predict", files=form(pictures)),
        client.post("/v1/predict", json={"images": entries}),
    )
    for answer in (as_form, as_json):
        found = verdicts(answer)
        assert [row["name"] for row in found] == list(pictures)
        same(found, expected)
    raw = [
        verdicts(client.post("/v1/predict", content=content, headers={"content-type": "image/png"}))[0]
        for content in pictures.values()
    ]
    assert {row["name"] for row in raw} == {None}
    same(raw, expected)


def test_a_threshold_may_be_given_with_a_request(
    client: httpx.Client, pictures: dict[str, bytes], folder: Path, exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = verdicts(client.post("/v1/predict", params={"threshold": 0.36}, files=form(pictures)))
    same(found, predicted(capsys, folder, exported, "--threshold", 0.36))
    assert {row["threshold"] for row in found} == {0.36}


def test_so_may_a_share_to_keep_which_gives_the_threshold_of_such_a_calibration(
    client: httpx.Client, pictures: dict[str, bytes], detector: Detector
) -> None:
    for keep in (0.5, 0.75, 0.9):
        expected = Detector(detector.net, "msp").calibrate(stripes(100, seed=5), keep=keep).calibrated.values
        found = verdicts(client.post("/v1/predict", params={"keep": keep}, files=form(pictures)))
        assert [row["threshold"] for row in found] == pytest.approx([float(expected)] * len(found), rel=1e-5)
        assert [row["is_ood"] for row in found] == [row["confidence"] < row["threshold"] for row in found]


def test_an_image_that_cannot_be_read_gets_a_reason_beside_the_others(
    client: httpx.Client, pictures: dict[str, bytes]
) -> None:
    sent = {"good.png": pictures["00.png"], "cut.png": pictures["01.png"][:60], "text.png": b"hello", "none.png": b""}
    good, *broken = verdicts(client.post("/v1/predict", files=form(sent)))
    assert good["class"] and [row["name"] for row in broken] == ["cut.png", "text.png", "none.png"]
    assert all(row["error"].startswith("Cannot read the image: ") and row["error"].endswith(".") for row in broken)
    assert "BytesIO" not in str(broken)
    not_base64 = {"images": [{"base64": "?"}, {"base64": base64.b64encode(pictures["00.png"]).decode()}]}
    first, second = verdicts(client.post("/v1/predict", json=not_base64))
    assert "not base64" in first["error"] and second["index"] == good["index"]


def bomb(width: int, height: int) -> bytes:
    """A PNG of many pixels in few bytes, all of them there."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((width // 8 + 1) * height), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_a_decompression_bomb_is_refused_by_its_header(client: httpx.Client) -> None:
    bombs = {f"{edge}.png": bomb(edge, edge) for edge in (8_000, 20_000)}
    assert sum(map(len, bombs.values())) < 100_000
    large, huge = verdicts(client.post("/v1/predict", files=form(bombs)))
    assert "8000 x 8000 pixels exceed the limit of 40,000,000" in large["error"]
    assert "its pixels exceed the limit of 40,000,000" in huge["error"]


def test_the_type_of_an_image_is_told_by_its_bytes(client: httpx.Client, pictures: dict[str, bytes]) -> None:
    file = io.BytesIO()
    Image.open(io.BytesIO(pictures["00.png"])).save(file, "BMP")
    (row,) = verdicts(client.post("/v1/predict", files=form({"a.jpg": file.getvalue()})))
    (other,) = verdicts(client.post("/v1/predict", files=form({"00.png": pictures["00.png"]})))
    assert row["confidence"] == other["confidence"]


PNG = png(noise(1, seed=1).pixels[:][0])
JSON = {"content-type": "application/json"}
IMAGE = {"content-type": "image/png"}
MULTIPART = {"content-type": "multipart/form-data; boundary=x"}
PART = b'--x\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\nabc\r\n--x--\r\n'
BAD: list[tuple[dict[str, Any], int, str]] = [
    ({"files": {"file": ("a.png", PNG)}}, 422, "There is no field 'file'; send files in the field 'images'"),
    ({"files": form({f"{i}.png": PNG for i in range(1000)})}, 413, "may hold 64 images"),
    ({"json": {"images": [{"base64": ""}] * 1000}}, 413, "may hold 64 images"),
    ({"json": {"images": []}}, 422, "holds no image"),
    ({"json": {"image": [{"base64": ""}]}}, 422, "A JSON body must be"),
    ({"json": {"images": [{"base64": ""}], "more": 1}}, 422, "A JSON body must be"),
    ({"json": {"images": [{"data": ""}]}}, 422, "images[0] must be"),
    ({"json": {"images": [{"base64": 1}]}}, 422, "images[0] must be"),
    ({"json": {"images": [{"base64": "", "name": 1}]}}, 422, "images[0].name must be a text"),
    ({"json": {"images": {"base64": ""}}}, 422, "A JSON body must be"),
    ({"json": [1]}, 422, "A JSON body must be"),
    ({"content": b"{", "headers": JSON}, 400, "not JSON"),
    ({"content": b"[" * 100_000, "headers": JSON}, 400, "not JSON"),
    ({"content": b"[" + b"[]," * 100_000 + b"[]]", "headers": JSON}, 413, "may hold 100,000 values"),
    ({"content": b"\xff\xfe{}", "headers": JSON}, 400, "not JSON"),
    ({"content": b'{"images": ' + b"9" * 5000 + b"}", "headers": JSON}, 400, "not JSON"),
    ({"content": b"", "headers": IMAGE}, 422, "holds no image"),
    ({"content": PNG, "headers": {"content-type": "text/plain"}}, 415, "type 'text/plain' cannot be read"),
    ({"content": PNG}, 415, "cannot be read"),
    ({"content": PART[:-10], "headers": MULTIPART}, 400, "malformed"),
    ({"content": b"", "headers": MULTIPART}, 400, "malformed"),
    ({"content": PART, "headers": {"content-type": "multipart/form-data"}}, 400, "malformed"),
    ({"content": PART, "headers": {"content-type": "multipart/form-data; boundary=other"}}, 400, "malformed"),
    ({"content": PART.replace(b"abc", b"x\r\n--x\r\n"), "headers": MULTIPART}, 400, "malformed"),
    ({"content": PART.replace(b"filename", b"f" * 9000), "headers": MULTIPART}, 400, "malformed"),
    ({"content": PART.replace(b'name="images"; ', b""), "headers": MULTIPART}, 422, "There is no field"),
    ({"content": b"--x--\r\n", "headers": MULTIPART}, 422, "holds no image"),
    ({"content": PNG, "headers": {**IMAGE, "content-encoding": "gzip"}}, 415, "Compressed bodies"),
    ({"content": PNG, "headers": IMAGE, "params": {"threshold": "high"}}, 422, "The parameter threshold"),
    ({"content": PNG, "headers": IMAGE, "params": {"threshold": "nan"}}, 422, "must be a number"),
    ({"content": PNG, "headers": IMAGE, "params": {"threshold": "1e39"}}, 422, "must be a number"),
    ({"content": PNG, "headers": IMAGE, "params": {"keep": 1}}, 422, "below 1"),
    ({"content": PNG, "headers": IMAGE, "params": {"keep": "inf"}}, 422, "below 1"),
    ({"content": PNG, "headers": IMAGE, "params": {"keep": 0.999}}, 422, "at least 999 calibration images"),
    ({"content": PNG, "headers": IMAGE, "params": {"keep": 0.5, "threshold": 0.5}}, 422, "give one of them"),
    ({"content": PNG, "headers": IMAGE, "params": {"treshold": 0.5}}, 422, "no parameter 'treshold'"),
    ({"content": bytes(33 * 2**20), "headers": IMAGE}, 413, "33,554,432 bytes"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_a_bad_request_gets_a_status_and_one_sentence(client: httpx.Client, number: int) -> None:
    request, status, words = BAD[number]
    answer = client.post("/v1/predict", **request)
    assert answer.status_code == status and words in answer.json()["error"], answer.text
    assert answer.json()["error"].endswith(".") and answer.json()["request_id"] == answer.headers["x-request-id"]
    assert "Traceback" not in answer.text


def test_a_body_without_a_length_is_measured_as_it_arrives(client: httpx.Client) -> None:
    def endless() -> Any:
        for _ in range(40):
            yield bytes(2**20)

    answer = client.post("/v1/predict", content=endless(), headers=IMAGE)
    assert answer.status_code == 413


def test_names_come_back_printable(client: httpx.Client) -> None:
    names = ["ü.png", "a\nb", "\ud800", "x" * 1000]
    entries = [{"name": name, "base64": base64.b64encode(PNG).decode()} for name in names]
    content = json.dumps({"images": entries}).encode()
    rows = verdicts(client.post("/v1/predict", content=content, headers=JSON))
    assert [row["name"] for row in rows] == ["ü.png", "a\\x0ab", "\\ud800", "x" * 255]
    (row,) = verdicts(client.post("/v1/predict", files=form({"../../ö.png": PNG})))
    assert row["name"] == "../../ö.png"


def test_the_detector_describes_itself_as_macs_inspect_does(
    client: httpx.Client, exported: Path, detector: Detector, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    run("inspect", exported, "--json")
    facts = json.loads(capsys.readouterr().out)
    found = client.get("/v1/detector").json()
    assert found["checksum"] == facts["sha256"] and found["classes"] == facts["classes"]
    assert (found["network"], found["score"], found["keep"]) == (facts["net"], facts["score"], 0.9)
    assert found["thresholds"] == [each["value"] for each in facts["calibration"]["thresholds"]]
    assert found["preparation"].items() >= facts["preparation"].items()
    assert found["limits"] == {"images": 64, "bytes": 32 * 2**20, "pixels": 40_000_000}
    assert found["version"] == __version__ and found["calibration"]["images"] == 100
    confidences = np.sort(detector.predict(stripes(100, seed=5)).confidence)
    quantiles = found["calibration"]["confidences"]
    assert len(quantiles) == 51 and quantiles == sorted(quantiles)
    np.testing.assert_allclose(quantiles[::50], confidences[[0, -1]], rtol=1e-5)


def test_health_documents_and_the_page(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"alive": True} and client.get("/readyz").json() == {"ready": True}
    document = client.get("/openapi.json").json()
    assert {"/v1/predict", "/v1/detector", "/v1/drift", "/v2/models/{name}/infer", "/metrics"} <= document[
        "paths"
    ].keys()
    docs, page = client.get("/docs"), client.get("/")
    for each in (docs, page):
        assert each.headers["content-type"].startswith("text/html")
        assert "http://" not in each.text and "https://" not in each.text  # nothing is loaded from elsewhere
    assert all(path in docs.text for path in document["paths"])
    assert client.get("/page/docs.css").headers["content-type"].startswith("text/css")
    assert client.get("/page/app.js").headers["content-type"].startswith("text/javascript")
    for path in ("/nothing", "/page/secret", "/page/..%2fapp.py", "/v1/predict/"):
        answer = client.get(path)
        assert answer.status_code == 404 and "/docs lists" in answer.json()["error"]
    assert client.get("/v1/predict").status_code == 405 and client.delete("/").status_code == 405


def test_the_answers_fit_the_document(client: httpx.Client, pictures: dict[str, bytes]) -> None:
    from macs.serve.openapi import DetectorAnswer, DriftAnswer, Failure, PredictAnswer

    sent = {"a.png": pictures["00.png"], "b.png": b""}
    PredictAnswer.model_validate_json(client.post("/v1/predict", files=form(sent)).content, strict=True)
    DetectorAnswer.model_validate_json(client.get("/v1/detector").content, strict=True)
    DriftAnswer.model_validate_json(client.get("/v1/drift").content, strict=True)
    Failure.model_validate_json(client.get("/nothing").content, strict=True)


def test_the_service_stays_up(client: httpx.Client, running: Running, exported: Path, folder: Path) -> None:
    """After all that was sent above: it still answers, has logged no failure, and holds no body."""
    assert client.get("/readyz").status_code == 200
    assert not [line for line in running.lines if '"level": "error"' in line or "Traceback" in line]
    numbers = client.get("/metrics").text
    assert "\nmacs_buffered_bytes 0.0\n" in numbers and "\nmacs_queue_images 0.0\n" in numbers
    assert Runtime(exported).predict(ImageSet.from_array(noise(1, seed=1).pixels[:])).index.shape == (1,)
