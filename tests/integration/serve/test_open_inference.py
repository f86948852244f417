"""Open Inference Protocol v2 over a running service, with requests as its clients write them."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from macs.data import ImageSet
from macs.detector import Runtime
from tiny import noise, stripes

INFER = "/v2/models/d/infer"
OUTPUTS = ["index", "confidence", "p_value", "is_ood", "threshold", "class"]


@pytest.fixture(scope="module")
def pixels() -> NDArray[np.uint8]:
    return np.concatenate([stripes(4, seed=3).pixels[:], noise(3, seed=4).pixels[:]])


def tensor(pixels: NDArray[np.uint8], **changes: Any) -> dict[str, Any]:
    return {
        "name": "images",
        "datatype": "UINT8",
        "shape": list(pixels.shape),
        "data": pixels.ravel().tolist(),
    } | changes


def binary(told: dict[str, Any], tail: bytes) -> dict[str, Any]:
    """A request with tensors behind its JSON."""
    head = json.dumps(told).encode()
    return {"content": head + tail, "headers": {"Inference-Header-Content-Length": str(len(head))}}


def test_a_server_and_its_model_describe_themselves(client: httpx.Client) -> None:
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/d/ready", "/v2/models/d/versions/1/ready"):
        assert client.get(path).status_code == 200
    model = client.get("/v2/models/d").json()
    assert model == client.get("/v2/models/d/versions/1").json()
    assert model["name"] == "d" and [each["name"] for each in model["outputs"]] == OUTPUTS
    for path in ("/v2/models/e", "/v2/models/e/ready", "/v2/models/d/versions/2"):
        assert client.get(path).status_code == 404
    answer = client.post("/v2/models/e/infer", json={})
    assert answer.status_code == 404 and "the one served is 'd'" in answer.json()["error"]


def test_tensors_in_json(client: httpx.Client, pixels: NDArray[np.uint8], exported: Path) -> None:
    expected = Runtime(exported).predict(pixels)
    for data in (pixels.ravel().tolist(), pixels.tolist()):  # flat or nested
        told = client.post(INFER, json={"id": "7", "inputs": [tensor(pixels, data=data)]}).json()
        assert (told["model_name"], told["model_version"], told["id"]) == ("d", "1", "7")
        found = {output["name"]: output["data"] for output in told["outputs"]}
        assert list(found) == OUTPUTS and found["index"] == expected.index.tolist()
        assert found["is_ood"] == expected.is_ood.tolist() and found["class"] == expected.class_
        np.testing.assert_allclose(found["confidence"], expected.confidence, rtol=1e-5)
        np.testing.assert_allclose(found["p_value"], expected.p_value, rtol=1e-5)


def test_tensors_in_bytes(client: httpx.Client, pixels: NDArray[np.uint8], exported: Path) -> None:
    expected = Runtime(exported).predict(pixels)
    image = tensor(pixels, parameters={"binary_data_size": pixels.size})
    del image["data"]
    wanted = [
        {"name": "class", "parameters": {"binary_data": True}},
        {"name": "index", "parameters": {"binary_data": True}},
        {"name": "is_ood"},
    ]
    answer = client.post(INFER, **binary({"inputs": [image], "outputs": wanted}, pixels.tobytes()))
    length = int(answer.headers["inference-header-content-length"])
    told, tail = json.loads(answer.content[:length]), answer.content[length:]
    names, labels, is_ood = told["outputs"]
    assert is_ood["data"] == expected.is_ood.tolist() and "data" not in names
    split = names["parameters"]["binary_data_size"]
    assert tail[:split] == b"".join(struct.pack("<I", len(name)) + name.encode() for name in expected.class_)
    assert labels["parameters"]["binary_data_size"] == len(tail) - split
    np.testing.assert_array_equal(np.frombuffer(tail[split:], "<i8"), expected.index)
    everything = {"inputs": [image], "parameters": {"binary_data_output": True}}
    answer = client.post(INFER, **binary(everything, pixels.tobytes()))
    head = json.loads(answer.content[: int(answer.headers["inference-header-content-length"])])
    assert all("binary_data_size" in output["parameters"] for output in head["outputs"])


def test_image_files_and_pixels_of_another_size(
    client: httpx.Client, pictures: dict[str, bytes], folder: Path, exported: Path
) -> None:
    rows = sorted(Runtime(exported).predict_files(folder), key=lambda row: row.path)
    encoded = [base64.b64encode(content).decode() for content in pictures.values()]
    files: dict[str, Any] = {"name": "files", "datatype": "BYTES", "shape": [len(encoded)], "data": encoded}
    wanted = {"outputs": [{"name": "label"}, {"name": "is_ood"}]}  # label is the former name of index
    label, is_ood = client.post(INFER, json={"inputs": [files], **wanted}).json()["outputs"]
    assert label["data"] == [row.index for row in rows] and is_ood["data"] == [row.is_ood for row in rows]
    content = b"".join(struct.pack("<I", len(each)) + each for each in pictures.values())
    files = {key: files[key] for key in ("name", "datatype", "shape")} | {
        "parameters": {"binary_data_size": len(content)}
    }
    again = client.post(INFER, **binary({"inputs": [files], **wanted}, content)).json()["outputs"]
    assert again == [label, is_ood]
    wide = noise(2, seed=5, size=40).pixels[:]
    expected = Runtime(exported).predict(ImageSet.from_array(wide).resized(Runtime(exported).preparation))
    found = client.post(INFER, json={"inputs": [tensor(wide)], "outputs": [{"name": "confidence"}]}).json()
    np.testing.assert_allclose(found["outputs"][0]["data"], expected.confidence, rtol=1e-5)


def test_a_threshold_may_be_a_parameter(client: httpx.Client, pixels: NDArray[np.uint8]) -> None:
    asked = {"inputs": [tensor(pixels)], "outputs": [{"name": "is_ood"}, {"name": "threshold"}]}
    for value, is_ood in ((2.0, True), (-1, False)):
        for request in (
            {"json": asked | {"parameters": {"threshold": value}}},
            {"json": asked, "params": {"threshold": value}},
        ):
            found = client.post(INFER, **request).json()["outputs"]
            assert found[0]["data"] == [is_ood] * len(pixels) and found[1]["data"] == [value] * len(pixels)


ONE = noise(1, seed=1).pixels[:]
FILES = {"name": "files", "datatype": "BYTES", "shape": [1], "data": ["aGVsbG8="]}
BAD: list[tuple[Any, int, str]] = [
    ([], 422, "one input"),
    ({}, 422, "one input"),
    ({"inputs": []}, 422, "one input"),
    ({"inputs": [tensor(ONE), tensor(ONE)]}, 422, "one input"),
    ({"inputs": [1]}, 422, "must be called images"),
    ({"inputs": [tensor(ONE, name="pixels")]}, 422, "must be called images"),
    ({"inputs": [tensor(ONE, name=["images"])]}, 422, "must be called images"),
    ({"inputs": [tensor(ONE, datatype="FP32")]}, 422, "datatype of images must be UINT8"),
    ({"inputs": [tensor(ONE, datatype="BYTES")]}, 422, "datatype of images must be UINT8"),
    ({"inputs": [tensor(ONE, shape=[16, 16, 3])]}, 422, "shape of images must be [N, H, W, 3]"),
    ({"inputs": [tensor(ONE, shape=[1, 3, 16, 16])]}, 422, "ends in 16"),
    ({"inputs": [tensor(ONE, shape=[1, 16, 16, 3.0])]}, 422, "whole numbers"),
    ({"inputs": [tensor(ONE, shape=[0, 16, 16, 3])]}, 422, "above 0"),
    ({"inputs": [tensor(ONE, shape="large")]}, 422, "shape of images"),
    ({"inputs": [tensor(ONE, shape=[65, 16, 16, 3])]}, 413, "may hold 64 images"),
    ({"inputs": [tensor(ONE, shape=[1, 10**5, 10**5, 3])]}, 413, "40,000,000 pixels"),
    ({"inputs": [tensor(ONE, shape=[2, 16, 16, 3])]}, 422, "1536 whole numbers"),
    ({"inputs": [tensor(ONE, data=[256] * 768)]}, 422, "from 0 to 255"),
    ({"inputs": [tensor(ONE, data=[-1] * 768)]}, 422, "from 0 to 255"),
    ({"inputs": [tensor(ONE, data=[0.5] * 768)]}, 422, "from 0 to 255"),
    ({"inputs": [tensor(ONE, data=["1"] * 768)]}, 422, "from 0 to 255"),
    ({"inputs": [tensor(ONE, data=[[1], [1, 2]])]}, 422, "from 0 to 255"),
    ({"inputs": [tensor(ONE, data=None)]}, 422, "from 0 to 255"),
    ({"inputs": [tensor(ONE, data=[10**30] * 768)]}, 422, "from 0 to 255"),
    ({"inputs": [tensor(ONE, data=[0] * 2_000_000)]}, 413, "may hold 2,000,000 values"),
    ({"inputs": [FILES | {"data": ["?"]}]}, 422, "base64"),
    ({"inputs": [FILES | {"data": [1]}]}, 422, "base64"),
    ({"inputs": [FILES | {"data": None}]}, 422, "base64"),
    ({"inputs": [FILES | {"shape": [2]}]}, 422, "there are 1"),
    ({"inputs": [FILES]}, 422, "Image 0 of 1: Cannot read the image"),
    ({"inputs": [tensor(ONE)], "outputs": [{"name": "logits"}]}, 422, "An output must be one of index"),
    ({"inputs": [tensor(ONE)], "outputs": "index"}, 422, "An output must be one of"),
    ({"inputs": [tensor(ONE)], "parameters": {"threshold": "high"}}, 422, "parameters.threshold must be a number"),
    ({"inputs": [tensor(ONE)], "parameters": {"keep": 2}}, 422, "below 1"),
    ({"inputs": [tensor(ONE)], "parameters": []}, 422, "parameters must be an object"),
    ({"inputs": [tensor(ONE)], "id": 7}, 422, "id must be a text"),
    ({"inputs": [tensor(ONE, parameters={"binary_data_size": 768})]}, 422, "both data and binary_data_size"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_a_wrong_request_gets_a_status_and_one_sentence(client: httpx.Client, number: int) -> None:
    told, status, words = BAD[number]
    answer = client.post(INFER, json=told)
    assert answer.status_code == status and words in answer.json()["error"], answer.text


def test_wrong_binary_parts(client: httpx.Client) -> None:
    image = {key: tensor(ONE)[key] for key in ("name", "datatype", "shape")}
    files = {"name": "files", "datatype": "BYTES", "shape": [1]}
    length = {"Inference-Header-Content-Length": "x"}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"content": b"{}", "headers": length}, "must be a whole number"),
        ({"content": b"{}", "headers": {**length, "Inference-Header-Content-Length": "99"}}, "the body has 2 bytes"),
        ({"content": b"{}", "headers": {**length, "Inference-Header-Content-Length": "-1"}}, "must be a whole number"),
        (binary({"inputs": [image | {"parameters": {"binary_data_size": 700}}]}, bytes(768)), "there are 768 bytes"),
        (binary({"inputs": [image | {"parameters": {"binary_data_size": 700}}]}, bytes(700)), "take 768 bytes"),
        ({"json": {"inputs": [image | {"parameters": {"binary_data_size": 768}}]}}, "there is nothing"),
        (binary({"inputs": [files | {"parameters": {"binary_data_size": 3}}]}, b"abc"), "end before"),
        (binary({"inputs": [files | {"parameters": {"binary_data_size": 8}}]}, b"\xff" * 8), "end before"),
    ]
    for request, words in cases:
        answer = client.post(INFER, **request)
        assert answer.status_code in (400, 422) and words in answer.json()["error"], answer.text
